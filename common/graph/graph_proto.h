/* Reads and writes GraphDef. Any thread.
 *
 * The code decodes the message directly into the arena of the graph: protobuf-c's structs would
 * take seven times the size of the message and most of the time. A client writes these bytes, so
 * their depth and every count have limits. */
#ifndef MILLRACE_COMMON_GRAPH_GRAPH_PROTO_H
#define MILLRACE_COMMON_GRAPH_GRAPH_PROTO_H

#include "common/base/str.h"
#include "common/graph/graph.h"
#include "common/tensor/buffer.h"

enum { GRAPH_DEF_VERSION = 2474 }; /* the producer version of TensorFlow 2.21 */

struct graph_limits {
    int max_nodes;             /* live nodes in the whole graph, default 1,000,000 */
    int max_depth;             /* of message nesting, default 100 */
    int64_t max_list_elements; /* of all attr lists together, default 2^24 */
    /* bytes of all attr tensors above 16 bytes together once decoded, default 2 GiB, the limit of a
     * message: a tensor may claim any size in a few bytes */
    int64_t max_tensor_bytes;
    /* The message is from our master and may have internal ops and names that begin with '_'.
     * Default false. */
    bool is_internal;
};
void graph_limits_default(struct graph_limits *limits);
/* Adds the nodes and functions of a serialized GraphDef to `graph`; after an error `graph` is
 * unchanged. Inputs may name nodes that are in the graph already or that come later. Errors:
 * INVALID_ARGUMENT (malformed bytes, repeated node, unknown input, attr, type, cycle), NOT_FOUND
 * (op type), with the node's name and TensorFlow's key words; RESOURCE_EXHAUSTED beyond a limit. */
struct status *graph_add_graphdef(struct graph *graph, struct span graphdef,
                                  const struct graph_limits *limits) MUST_USE;
/* Adds a serialized FunctionDef to the library. A function of that name that is there already must
 * be equal. Errors: INVALID_ARGUMENT. */
struct status *graph_add_function(struct graph *graph, struct span functiondef,
                                  const struct graph_limits *limits) MUST_USE;
/* Serializes the live nodes. Where device_names is not NULL, device_names[placed] replaces the
 * device of a placed node. */
void graph_to_graphdef(const struct graph *graph, const char *const *device_names, struct str *out);
/* The same for the live nodes with ids from `first_id` on; `with_library` says whether the function
 * library is part of the message. */
void graph_to_graphdef_from(const struct graph *graph, int first_id, bool with_library,
                            struct str *out);
/* Appends the fields of a NodeDef. */
void node_to_nodedef(const struct node *node, struct str *out);
/* Appends the fields of the VersionDef. */
void graph_versions_to_proto(const struct graph *graph, struct str *out);
/* Appends the fields of an OpDef, without descriptions. */
void op_signature_to_proto(const struct op_signature *op, struct str *out);

/* Reads an AttrValue. Memory is from the arena of the graph, which owns the tensors, too. `wanted`
 * is the attr in the signature of the op, or NULL; an empty list has its type. *ret_is_set is false
 * for a value without content. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
struct status *attr_value_from_proto(struct graph *graph, struct span proto,
                                     const struct op_attr_signature *wanted,
                                     const struct graph_limits *limits, struct attr_value *ret,
                                     bool *ret_is_set) MUST_USE;
void attr_value_to_proto(const struct attr_value *value, struct str *out);

/* Is the message nested deeper than max_depth, or not a sequence of well-formed fields? Only
 * length-delimited fields that could be messages are checked. Linear time. */
bool proto_is_too_deep(struct span message, int max_depth);

#endif
