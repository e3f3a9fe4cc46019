/* Holds a dataflow graph: nodes with ops, attributes and inputs [WP 2]. A session's graph grows,
 * passes change copies of it, workers make plans of the result.
 *
 * A graph owns all its memory in one arena; graph_fini also releases the tensors of attrs. Nodes
 * have stable addresses and ids 0, 1, … in the order in which they are added; removing a node marks
 * it and keeps its id. Data edges come first, in the order of the op's arguments, then control
 * edges in any order, each once. Every cycle must pass a NextIteration. Threads: one at a time
 * while the graph changes; any number of readers afterwards. */
#ifndef MILLRACE_COMMON_GRAPH_GRAPH_H
#define MILLRACE_COMMON_GRAPH_GRAPH_H

#include "common/base/arena.h"
#include "common/base/map.h"
#include "common/graph/attr.h"
#include "common/graph/device_name.h"
#include "common/signatures/op_signature.h"

enum { CONTROL_EDGE = -1 };
/* The most data inputs, and the most outputs, of a node. A client sets attrs that give their
 * number. */
enum { NODE_MAX_ARGS = 65536 };

/* An edge, as its consumer holds it. */
struct node_input {
    struct node *src;
    int index; /* the producer's output, or CONTROL_EDGE */
};

struct node {
    int id;
    const char *name;
    const char *op_name;
    /* never NULL: a graph with an unknown op is refused. The signature of a function call is made
     * from the library, in the arena of the graph. */
    const struct op_signature *op;
    /* sorted by name, defaults filled in; attrs whose names begin with "_" are not checked */
    struct attr *attrs;
    int n_attrs, attrs_capacity;
    const char *device; /* the device that the client asked for, "" for any */
    int placed;         /* index in the device table of the placer, -1 before placement */

    struct node_input *inputs; /* n_data data edges, then control edges */
    int n_data, n_inputs, inputs_capacity;
    /* enum dtype of each data input and output; ref types have +100 */
    uint8_t *in_types, *out_types;
    int n_outputs;
    bool is_removed;
    uint64_t user; /* for the pass that is running */
};

struct graph_function {
    const char *name;
    /* the serialized FunctionDef, which the inliner reads */
    struct span def;
    /* signature of a node that calls the function; NULL when the function has more arguments than a
     * node may have */
    const struct op_signature *signature;
};

/* The attrs of a new node of an op. */
struct graph_op;

struct graph {
    struct arena arena;
    struct node **nodes; /* by id; removed nodes stay, marked */
    int n_nodes, capacity, n_live;
    struct strmap by_name;      /* live nodes */
    struct strmap functions;    /* name → struct graph_function */
    struct span *gradient_defs; /* serialized GradientDefs of the library */
    int n_gradient_defs;
    int producer, min_consumer; /* versions */
    struct u64map ops;          /* address of a signature → struct graph_op, for the ops in use */
    /* Every tensor that attrs hold or held. graph_fini releases them, so that nodes can share attr
     * values. */
    struct tensor **tensors;
    int n_tensors, tensors_capacity;
    struct strmap name_counters; /* prefix → the next number that graph_unique_name tries */
};

void graph_init(struct graph *graph);
void graph_fini(struct graph *graph); /* accepts an initialised or all-zero graph */

/* The signature of an op of TensorFlow's, of our own (internal_ops.h), or of a function of the
 * library, in this order; NULL where there is none. All look-ups of op names end here. */
const struct op_signature *graph_op_lookup(struct graph *graph, const char *name);
const struct op_signature *graph_op_lookup_span(struct graph *graph, struct span name);

/* Adds a node without inputs. Name, op and device are copied; attrs start with the op's defaults.
 * Errors: INVALID_ARGUMENT for a bad or repeated name; NOT_FOUND "Op type not registered 'X' …".
 * The name may begin with '_': only graph_add_graphdef refuses such names, which are ours. */
struct status *graph_add_node(struct graph *graph, const char *name, const char *op,
                              const char *device, struct node **ret_node) MUST_USE;
/* A name that no live node has: `prefix`, or `prefix` with _1, _2, … It is in the arena of the
 * graph. */
const char *graph_unique_name(struct graph *graph, const char *prefix);
struct node *graph_find(const struct graph *graph, const char *name); /* NULL when there is none */
struct node *graph_find_span(const struct graph *graph, struct span name);
/* no node may use its outputs any more */
void graph_remove_node(struct graph *graph, struct node *node);

/* Set an attr, or replace its value. The value is copied into the arena of the graph; tensors are
 * shared. */
void node_set_attr(struct graph *graph, struct node *node, const char *name,
                   const struct attr_value *value);
void node_set_attr_i(struct graph *graph, struct node *node, const char *name, int64_t value);
void node_set_attr_s(struct graph *graph, struct node *node, const char *name, const char *value);
void node_set_attr_b(struct graph *graph, struct node *node, const char *name, bool value);
void node_set_attr_type(struct graph *graph, struct node *node, const char *name, enum dtype value);
/* shares */
void node_set_attr_tensor(struct graph *graph, struct node *node, const char *name,
                          const struct tensor *value);
void node_set_attr_shape(struct graph *graph, struct node *node, const char *name,
                         struct shape value);
/* NULL when there is none */
const struct attr_value *node_attr(const struct node *node, const char *name);
/* An attr of a node that the master made of a node of a function: the name of its state, which it
 * shares with the other copies. */
#define NODE_STATE_ATTR "_state"
/* The name of a stateful node's state: that attr, or the node's own name. */
const char *node_state_name(const struct node *node);

/* Read an attr of a given type. Errors: INVALID_ARGUMENT that names the node, the attr and the
 * type. Results are borrowed from the graph. */
struct status *node_get_i(const struct node *node, const char *name, int64_t *ret) MUST_USE;
/* As node_get_i; a value that is no int32 is INVALID_ARGUMENT. */
struct status *node_get_i32(const struct node *node, const char *name, int64_t *ret) MUST_USE;
struct status *node_get_f(const struct node *node, const char *name, float *ret) MUST_USE;
struct status *node_get_b(const struct node *node, const char *name, bool *ret) MUST_USE;
struct status *node_get_s(const struct node *node, const char *name, struct span *ret) MUST_USE;
struct status *node_get_type(const struct node *node, const char *name, enum dtype *ret) MUST_USE;
struct status *node_get_shape(const struct node *node, const char *name,
                              struct shape *ret) MUST_USE;
struct status *node_get_tensor(const struct node *node, const char *name,
                               const struct tensor **ret) MUST_USE;
struct status *node_get_list(const struct node *node, const char *name,
                             const struct attr_value **ret_values, int *ret_n) MUST_USE;
/* As node_get_list; an attr that the op does not have is an empty list. */
struct status *node_get_list_if_any(const struct node *node, const char *name,
                                    const struct attr_value **ret_values, int *ret_n) MUST_USE;

/* Edges. Data edges must be added before control edges, in the order of the arguments. */
void node_add_input(struct graph *graph, struct node *node, struct node *src, int index);
/* an existing edge is not added again */
void node_add_control(struct graph *graph, struct node *node, struct node *src);
void node_set_input(struct node *node, int position, struct node *src, int index);
/* Keeps the order of the others. A caller that removes a data input must change the attr that
 * counts them. */
void node_remove_input(struct node *node, int position);
/* Sets in_types and out_types from the arguments of the op and the attrs. Checks the attrs
 * (present, of the right type, allowed value, minimum), the number of data inputs, and the type of
 * each edge (a reference may feed a value input, but not the other way). To be called once all data
 * inputs and attrs are set. Errors: INVALID_ARGUMENT with the node's name and TensorFlow's key
 * words. */
struct status *node_finish(struct graph *graph, struct node *node) MUST_USE;

/* Appends "Op<name=Identity; signature=input:T -> output:T; attr=T:type>". */
void op_signature_print(const struct op_signature *op, struct str *out);

/* The number of edges that one argument of the op stands for. The attrs must have been checked.
 * Errors: INVALID_ARGUMENT: a negative number. */
struct status *node_count_arg(const struct node *node, const struct op_arg_signature *arg,
                              int64_t *ret_n) MUST_USE;
/* The outputs that one output argument of the op stands for. Types must be set. Errors:
 * INVALID_ARGUMENT: no such argument. */
struct status *node_find_output(const struct node *node, struct span arg, int *ret_first,
                                int *ret_n) MUST_USE;

/* All edges, by producer, for passes. Made on demand; valid until the graph changes. */
struct node_output_edge {
    struct node *dst;
    int position; /* in dst->inputs */
    int index;    /* which output, CONTROL_EDGE for control */
};
struct graph_consumers {
    int *first; /* by node id: edges[first[id] … first[id + 1]) */
    struct node_output_edge *edges;
};
void graph_consumers_init(struct graph_consumers *consumers, const struct graph *graph);
void graph_consumers_fini(struct graph_consumers *consumers);
/* Sorts the edges of each node by output, control edges first; edges of one output keep their
 * order. Cost: O(nodes + outputs + edges). */
void graph_consumers_sort(struct graph_consumers *consumers, const struct graph *graph);

/* The live nodes in an order in which producers come before consumers; the edges from NextIteration
 * to Merge are ignored. *ret_order has n_live entries and is malloc'd. Errors: INVALID_ARGUMENT
 * with a node on a cycle without NextIteration. */
struct status *graph_topological_order(const struct graph *graph,
                                       struct node ***ret_order) MUST_USE;
/* The same for the live nodes with ids from `first_id` on; earlier nodes do not count as producers.
 * With ret_order NULL, only the check. */
struct status *graph_order_from(const struct graph *graph, int first_id,
                                struct node ***ret_order) MUST_USE;

/* Copies the live nodes. Ids are renumbered in order and placements kept. Names, attr values and
 * functions are shared, so `from` must outlive the copy. `keep`, by id, selects nodes with all
 * their producers; NULL copies all. *ret_map, unless ret_map is NULL, maps ids of `from` to the
 * copied nodes (malloc'd). */
void graph_copy(const struct graph *from, const bool *keep, struct graph *ret,
                struct node ***ret_map);

bool node_is_op(const struct node *node, const char *op_name);
/* Is the node of one of two ops, such as an op and its form for references? */
bool node_is_either(const struct node *node, const char *op_name, const char *other_name);
bool node_is_stateful(const struct node *node);
/* Splits "a:0" into name and index; "a" has index 0, "^a" has CONTROL_EDGE. An index too large for
 * an int is INT_MAX. False when malformed. */
bool endpoint_parse(struct span text, struct span *ret_name, int *ret_index);

#endif
