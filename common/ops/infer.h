/* Infers the static shapes of a whole graph with the shape functions of the op rows.
 *
 *   nodes in topological order
 *     └─► shape function(shapes, handles, constant values of the inputs)
 *           ▲                          └─► struct inferred for each output
 *           └── values: Const, and small integers that `evaluate` computes
 *
 * A graph only grows: each call infers the nodes that were added since the last one. Loops are cut
 * at NextIteration: a Merge with such an input has outputs of unknown shape. So has an op without a
 * shape function, and a call of a function. The client's `_output_shapes` are not read.
 *
 * The result holds for a step that feeds placeholders only. A step may feed any endpoint with any
 * shape, so all users of the result (receive slots, cost models, messages) take it as a hint, never
 * as a bound on memory.
 *
 * Refusals. TensorFlow's servers accept graphs whose shapes do not fit: a step that needs such a
 * node fails with its kernel's message. Its client libraries refuse such nodes when a graph is
 * built. Both ways exist here. With `refuses` unset, a node whose shape function fails has unknown
 * outputs and is counted. With it set, the call fails as the client libraries would.
 *
 * Memory: everything is in the arena of the struct. The graph must outlive it, since Const values
 * are borrowed. Memory of a refused call is freed by graph_shapes_fini. Threads: one at a time
 * while it grows; any number of readers afterwards. Source: white paper 3.2.1 (the placement
 * simulation needs sizes); TensorFlow's ShapeRefiner for what is accepted. */
#ifndef MILLRACE_COMMON_OPS_INFER_H
#define MILLRACE_COMMON_OPS_INFER_H

#include "common/graph/graph.h"
#include "common/tensor/shape.h"

/* The value that a resource or variant output refers to. */
struct inferred_handle {
    enum dtype dtype;
    struct shape shape;
};

/* What is known about one output. */
struct inferred {
    struct shape shape;
    /* NULL where the value is not constant. A value of a Const may be large, others are small. */
    const struct tensor *value;
    /* an integer vector of which some elements are known, as a shape; NULL where all or none are */
    const struct shape *as_shape;
    const struct inferred_handle *handle; /* NULL: nothing is known */
};

struct graph_shapes {
    struct arena arena;
    struct inferred **nodes; /* by node id: n_outputs entries; NULL for a removed node */
    int n_nodes, capacity;   /* ids below n_nodes have been inferred */
    struct tensor **values;  /* results of `evaluate` */
    int n_values, values_capacity;
    /* For status pages and reports. */
    /* all outputs; those of known shape; those of known rank */
    int64_t n_outputs, n_full, n_ranked;
    int64_t n_evaluated, n_refused;
    struct status *first_refusal; /* when `refuses` is unset */
};

struct infer_options {
    /* Computes a stateless node from constant inputs (borrowed) into `outputs`, which hold nothing.
     * False when it cannot be computed here. NULL: only Const and shapes are constant. */
    bool (*evaluate)(void *arg, const struct node *node, const struct tensor *inputs,
                     struct tensor *outputs);
    void *arg;
    int64_t max_elements;    /* the most elements of an input or output of `evaluate` */
    int64_t max_evaluations; /* a call */
    /* time limit of one call of graph_infer_shapes; values that are not computed by then stay
     * unknown */
    int64_t evaluate_ns;
    size_t max_bytes; /* limit of the struct's arena; beyond it shapes stay unknown */
    /* Nodes about whose outputs nothing is said. With those left out whose values may have other
     * shapes than the graph says, what is known holds for every step. NULL: none. */
    bool (*is_unknown)(const struct node *node);
    /* Sees the shapes of a node's inputs and outputs after its shape function, also where it has
     * none, and may put others in place of those of outputs, in the arena. The nodes behind it see
     * those. NULL: none. */
    void (*refine)(void *refine_arg, const struct node *node, const struct shape *in,
                   struct shape *out, struct arena *arena);
    void *refine_arg;
    bool refuses;
};
void infer_options_default(struct infer_options *options); /* without evaluate */

void graph_shapes_init(struct graph_shapes *shapes);
void graph_shapes_fini(struct graph_shapes *shapes); /* accepts an all-zero one */

/* Infers the nodes that were added since the last call, in time linear in them and their edges.
 * Errors: INVALID_ARGUMENT of a shape function, only if options->refuses: its message, then `for
 * '{{node n}} = Op[attrs](inputs)' with input shapes: [2,3], [4].`, and `[[{{node n}}]]`; nothing
 * is known about the new nodes then. INVALID_ARGUMENT for a cycle without NextIteration. */
struct status *graph_infer_shapes(const struct graph *graph, struct graph_shapes *shapes,
                                  const struct infer_options *options) MUST_USE;

/* Merges a shape into that of an output of a node that has been inferred. Nodes that have been
 * inferred do not see it. Errors: INVALID_ARGUMENT where the two contradict each other. */
struct status *graph_shapes_merge(struct graph_shapes *shapes, const struct node *node, int output,
                                  struct shape shape) MUST_USE;

/* Look-ups for any node of the graph, whether inferred or not. */
struct shape graph_shapes_of(const struct graph_shapes *shapes, const struct node *node,
                             int output);
const struct tensor *graph_shapes_value(const struct graph_shapes *shapes, const struct node *node,
                                        int output);
const struct inferred_handle *graph_shapes_handle(const struct graph_shapes *shapes,
                                                  const struct node *node, int output);
/* The size of an output in bytes; -1 where the shape is not fully known, the size overflows, or the
 * elements have no fixed size. */
int64_t graph_shapes_bytes(const struct graph_shapes *shapes, const struct node *node, int output);

#endif
