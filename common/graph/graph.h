/* A dataflow graph: nodes with ops, attributes and inputs [WP 2]. What sessions hold, passes
 * change, workers make plans of.
 *
 * A graph owns all its memory in one arena (attr tensors are counted and let go by graph_fini).
 * Nodes have stable addresses and ids 0, 1, … in the order of adding; removing marks a node dead
 * and keeps its id. Inputs: data edges first, in the order of the op's arguments, then control
 * edges in any order, without doubles. A graph may hold cycles only through NextIteration.
 * Threads: one at a time while it changes; then any number of readers. */
#ifndef MILLRACE_COMMON_GRAPH_GRAPH_H
#define MILLRACE_COMMON_GRAPH_GRAPH_H

#include "common/base/arena.h"
#include "common/base/map.h"
#include "common/graph/attr.h"
#include "common/graph/device_name.h"
#include "common/signatures/op_signature.h"

enum { CONTROL_EDGE = -1 };
/* A node has at most so many inputs and so many outputs of data: attrs that strangers set say
 * how many. */
enum { NODE_MAX_ARGS = 65536 };

/* One edge as its consumer sees it. */
struct node_input {
    struct node *src;
    int index; /* the producer's output, or CONTROL_EDGE */
};

struct node {
    int id;
    const char *name;
    const char *op_name;
    /* never NULL: an unknown op is refused when the graph is read; function calls have a
     * signature made from the library, in the graph's arena */
    const struct op_signature *op;
    /* sorted by name; defaults filled in; "_x" attrs are the client's or ours, unchecked */
    struct attr *attrs;
    int n_attrs, attrs_capacity;
    const char *device; /* as the client asked, "" when free */
    int placed;         /* index in the device table of who places, -1 before placement */

    struct node_input *inputs; /* n_data data edges, then control edges */
    int n_data, n_inputs, inputs_capacity;
    /* enum dtype of each data input and output; ref types have +100 */
    uint8_t *in_types, *out_types;
    int n_outputs;
    bool is_removed;
    uint64_t user; /* scratch of the pass that runs */
};

struct graph_function {
    const char *name;
    /* the serialized FunctionDef: kept for the passes that inline */
    struct span def;
    /* of a node whose op is its name; NULL when it has more arguments than such a node may have */
    const struct op_signature *signature;
};

/* How the attrs of a new node of an op start. */
struct graph_op;

struct graph {
    struct arena arena;
    struct node **nodes; /* by id; removed ones stay, marked */
    int n_nodes, capacity, n_live;
    struct strmap by_name;      /* live nodes */
    struct strmap functions;    /* name → struct graph_function */
    struct span *gradient_defs; /* serialized GradientDefs of the library */
    int n_gradient_defs;
    int producer, min_consumer; /* versions */
    struct u64map ops;          /* address of a signature → struct graph_op, for the ops seen */
    /* every tensor that attrs hold or held, let go by graph_fini: so attr values may be shared
     * freely */
    struct tensor **tensors;
    int n_tensors, tensors_capacity;
    struct strmap name_counters; /* prefix → where graph_unique_name goes on */
};

void graph_init(struct graph *graph);
void graph_fini(struct graph *graph); /* accepts an initialised or all-zero graph */

/* The signature of an op: TensorFlow's and our own internal ones (internal_ops.h) first, then
 * the functions of the library. NULL when there is none. The one place where an op's name is
 * looked up. */
const struct op_signature *graph_op_lookup(struct graph *graph, const char *name);
const struct op_signature *graph_op_lookup_span(struct graph *graph, struct span name);

/* Adds a node without inputs. Name, op and device are copied; attrs start with the op's
 * defaults. Errors: INVALID_ARGUMENT bad name or doubled name; NOT_FOUND "Op type not registered
 * 'X' …". A name may begin with '_' here: such names are ours (a client's graph is refused by
 * graph_add_graphdef). */
struct status *graph_add_node(struct graph *graph, const char *name, const char *op,
                              const char *device, struct node **ret_node) MUST_USE;
/* A name that no live node has: `prefix`, or `prefix` with _1, _2, … In the graph's arena. */
const char *graph_unique_name(struct graph *graph, const char *prefix);
struct node *graph_find(const struct graph *graph, const char *name); /* NULL when there is none */
struct node *graph_find_span(const struct graph *graph, struct span name);
/* consumers must have been rewired */
void graph_remove_node(struct graph *graph, struct node *node);

/* Attr values are copied into the graph's arena (tensors shared). Replaces a value that is
 * there. */
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

/* Typed reads. Errors: INVALID_ARGUMENT that names the node, the attr and what was wanted.
 * Results borrow from the graph. */
struct status *node_get_i(const struct node *node, const char *name, int64_t *ret) MUST_USE;
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

/* Edges. Data edges must be added before control edges, in argument order. */
void node_add_input(struct graph *graph, struct node *node, struct node *src, int index);
void node_add_control(struct graph *graph, struct node *node, struct node *src); /* no double */
void node_set_input(struct node *node, int position, struct node *src, int index);
/* keeps the order; a data input is removed only by who fixes the op's N */
void node_remove_input(struct node *node, int position);
/* Works out in_types and out_types from the op's arguments and the attrs, and checks attrs
 * (present, of the right type, allowed value, minimum), the number of data inputs, and each
 * edge's type (a ref output feeds a value input; not the other way). Call once all data inputs
 * and attrs are there. Errors: INVALID_ARGUMENT with the node's name, TensorFlow's key words. */
struct status *node_finish(struct graph *graph, struct node *node) MUST_USE;

/* The run of outputs that one output argument of the op stands for. Types must be known. Errors:
 * INVALID_ARGUMENT: there is no such argument. */
struct status *node_find_output(const struct node *node, struct span arg, int *ret_first,
                                int *ret_n) MUST_USE;

/* Every edge seen from its producer, for passes: made on demand, valid until the graph changes. */
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

/* Live nodes so that producers come before consumers (NextIteration's edges into Merge do not
 * count): `ret_order` has n_live entries, malloc'd. Errors: INVALID_ARGUMENT naming a node on a
 * cycle that passes no NextIteration. */
struct status *graph_topological_order(const struct graph *graph,
                                       struct node ***ret_order) MUST_USE;
/* The same of the live nodes with ids from `first_id` on, earlier ones taken as done. ret_order
 * may be NULL: only the check. */
struct status *graph_order_from(const struct graph *graph, int first_id,
                                struct node ***ret_order) MUST_USE;

/* A copy of the live nodes (ids renumbered in order, placement kept; names, attr values and
 * functions shared by reference to the source's arena: the source must outlive the copy). `keep`
 * (by source id) limits the copy to some nodes, closed under inputs; NULL copies all. `ret_map`,
 * when not NULL, gets source id → copied node (malloc'd). */
void graph_copy(const struct graph *from, const bool *keep, struct graph *ret,
                struct node ***ret_map);

bool node_is_op(const struct node *node, const char *op_name);
bool node_is_stateful(const struct node *node);
/* "a:0" → node name and index; "a" → index 0; "^a" → CONTROL_EDGE; an index too large for an int
 * is INT_MAX. False when malformed. */
bool endpoint_parse(struct span text, struct span *ret_name, int *ret_index);

#endif
