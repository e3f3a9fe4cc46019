/* GraphDef in and out: the only place where graphs and protobuf meet. Any thread.
 *
 * Read and written by hand, straight between the message and the graph's arena: protobuf-c's
 * structs would cost seven times the message's size and most of the time. Bytes from strangers:
 * depth and every count are bounded. */
#ifndef MILLRACE_COMMON_GRAPH_GRAPH_PROTO_H
#define MILLRACE_COMMON_GRAPH_GRAPH_PROTO_H

#include "common/base/str.h"
#include "common/graph/graph.h"
#include "common/tensor/buffer.h"

/* Adds a serialized GraphDef's nodes and functions to `graph`: either all or nothing. Inputs may
 * name nodes that are there already or that come later. Errors: INVALID_ARGUMENT (malformed
 * bytes, doubled node, unknown input, attr, type, cycle), NOT_FOUND (op type), with the node's
 * name and TensorFlow's key words; RESOURCE_EXHAUSTED beyond max_nodes. */
struct graph_limits {
    int max_nodes;             /* live nodes in the whole graph, default 1,000,000 */
    int max_depth;             /* of message nesting, default 100 */
    int64_t max_list_elements; /* of all attr lists together, default 2^24 */
    /* of all attr tensors above 16 bytes together once decoded, default 2 GiB (as much as a
     * message): a splat may claim any size */
    int64_t max_tensor_bytes;
    /* from our own master: our internal ops and names that begin with '_' are welcome. Default
     * false */
    bool is_internal;
};
void graph_limits_default(struct graph_limits *limits);
struct status *graph_add_graphdef(struct graph *graph, struct span graphdef,
                                  const struct graph_limits *limits) MUST_USE;
/* Adds one serialized FunctionDef to the library. A function that is there already under that
 * name must be the same. Errors: INVALID_ARGUMENT. */
struct status *graph_add_function(struct graph *graph, struct span functiondef,
                                  const struct graph_limits *limits) MUST_USE;
/* Serializes the live nodes. `device_names[placed]` overrides a placed node's device when
 * device_names is not NULL. */
void graph_to_graphdef(const struct graph *graph, const char *const *device_names, struct str *out);

/* One AttrValue, for who reads the nodes of a FunctionDef. Memory comes from the graph's arena,
 * which owns the tensors too. `wanted` is the attr of the op's signature, or NULL; an empty list
 * takes its type. *ret_is_set is false for a value without content. Errors: INVALID_ARGUMENT,
 * RESOURCE_EXHAUSTED. */
struct status *attr_value_from_proto(struct graph *graph, struct span proto,
                                     const struct op_attr_signature *wanted,
                                     const struct graph_limits *limits, struct attr_value *ret,
                                     bool *ret_is_set) MUST_USE;
void attr_value_to_proto(const struct attr_value *value, struct str *out);

/* True when the message nests deeper than max_depth or is not a sequence of well-formed fields.
 * Looks only at length-delimited fields that could be messages. Linear time. */
bool proto_is_too_deep(struct span message, int max_depth);

#endif
