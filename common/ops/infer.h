/* Static shapes of a whole graph: what the op rows' shape functions know when each hears what
 * the one before it knew.
 *
 *   graph ─► nodes in topological order ─► shape function(shapes, handles, constant values of the inputs) ─► struct inferred per output
 *                                              ▲                                                                │
 *                                              └── values: Const, and small integers that `evaluate` computes ◄─┘
 *
 * A graph only grows: each call infers the nodes that are new since the last one. Loops are cut
 * at NextIteration: a Merge hears nothing of the way back, so that it says nothing. An op
 * without a shape function, and a call of a function, has outputs of unknown shape. The client's
 * `_output_shapes` are not read.
 *
 * What is known here holds for a step that feeds nothing but placeholders. A step may feed any
 * endpoint with any shape, so everybody who uses it (receive slots, cost models, messages) takes
 * it as a hint, never as a bound on memory.
 *
 * Refusals. TensorFlow's servers take graphs whose shapes cannot fit: a step that needs such a
 * node fails there, by its kernel's words; its client libraries refuse them while a graph is
 * built. So there are two ways: with `refuses` unset a node whose shape function complains has
 * unknown outputs and is counted; with it set the call fails as the client libraries would.
 *
 * Memory: all in the arena of the struct, which the graph must outlive (Const values are
 * borrowed); what a refused call took stays until graph_shapes_fini, as in the graph itself.
 * Threads: one at a time while it grows; then any number of readers. Source: white paper 3.2.1
 * (the placement simulation wants sizes), TensorFlow's ShapeRefiner for what is accepted. */
#ifndef MILLRACE_COMMON_OPS_INFER_H
#define MILLRACE_COMMON_OPS_INFER_H

#include "common/graph/graph.h"
#include "common/tensor/shape.h"

/* What a resource or variant output refers to. */
struct inferred_handle {
    enum dtype dtype;
    struct shape shape;
};

/* What is known of one output. */
struct inferred {
    struct shape shape;
    /* NULL where no constant is known; a Const's may be large, others are small */
    const struct tensor *value;
    /* an integer vector some of whose elements are known, read as a shape; NULL where `value`
     * says it all */
    const struct shape *as_shape;
    const struct inferred_handle *handle; /* NULL when nothing is known */
};

struct graph_shapes {
    struct arena arena;
    struct inferred **nodes; /* by node id: n_outputs entries; NULL for a node that was removed */
    int n_nodes, capacity;   /* ids below n_nodes are done */
    struct tensor **values;  /* what evaluate made */
    int n_values, values_capacity;
    /* For status pages and reports. */
    int64_t n_outputs, n_full, n_ranked; /* outputs; of known shape; of known rank at least */
    int64_t n_evaluated, n_refused;
    struct status *first_refusal; /* when `refuses` is unset */
};

struct infer_options {
    /* Computes a stateless node from constant inputs (borrowed) into outputs, which hold
     * nothing. False when it cannot be done here. NULL: nothing but Const and shapes is
     * constant. */
    bool (*evaluate)(void *arg, const struct node *node, const struct tensor *inputs,
                     struct tensor *outputs);
    void *arg;
    int64_t max_elements;    /* of a value that is computed, or that one is computed from */
    int64_t max_evaluations; /* a call */
    int64_t evaluate_ns;     /* a call; values not known in time stay unknown */
    size_t max_bytes;        /* of the struct's arena; beyond it, shapes stay unknown */
    bool refuses;
};
void infer_options_default(struct infer_options *options); /* without evaluate */

void graph_shapes_init(struct graph_shapes *shapes);
void graph_shapes_fini(struct graph_shapes *shapes); /* accepts an all-zero one */

/* Infers the nodes that were added since the last call, in time linear in them and their edges.
 * Errors: INVALID_ARGUMENT by a shape function, only if options->refuses: its words, `for
 * '{{node n}} = Op[attrs](inputs)' with input shapes: [2,3], [4].`, and `[[{{node n}}]]`;
 * nothing is known of the new nodes then. INVALID_ARGUMENT for a cycle that passes no
 * NextIteration. */
struct status *graph_infer_shapes(const struct graph *graph, struct graph_shapes *shapes,
                                  const struct infer_options *options) MUST_USE;

/* Look-ups, for any node of the graph, inferred or not. */
struct shape graph_shapes_of(const struct graph_shapes *shapes, const struct node *node,
                             int output);
const struct tensor *graph_shapes_value(const struct graph_shapes *shapes, const struct node *node,
                                        int output);
const struct inferred_handle *graph_shapes_handle(const struct graph_shapes *shapes,
                                                  const struct node *node, int output);
/* Bytes of an output's elements; -1 where the shape is not fully known, overflows, or elements
 * have no fixed size. */
int64_t graph_shapes_bytes(const struct graph_shapes *shapes, const struct node *node, int output);

#endif
