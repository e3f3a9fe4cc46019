/* Declares what the files of inference share. */
#ifndef MILLRACE_COMMON_OPS_INFER_INTERNAL_H
#define MILLRACE_COMMON_OPS_INFER_INTERNAL_H

#include "common/ops/infer.h"
#include "common/ops/op_def.h"

/* One call of graph_infer_shapes. */
struct inferrer {
    const struct graph *graph;
    struct graph_shapes *shapes;
    const struct infer_options *options;
    struct arena scratch; /* memory for one node */
    int64_t n_evaluations, deadline_ns;
    int n_values_before;
    int64_t n_outputs, n_full, n_ranked, n_refused;
};

/* What is known about the inputs of a node: n_data entries each. */
struct infer_inputs {
    struct shape *shapes, *handle_shapes;
    enum dtype *handle_dtypes;
    const struct tensor **values;
    const struct shape **as_shapes;
};

/* Sets `value` or `as_shape` of the outputs of a node where they can be known. Their shapes have
 * been set. */
void infer_values(struct inferrer *inferrer, const struct node *node, const struct infer_inputs *in,
                  struct inferred *outputs);

/* Adds to a shape function's error what TensorFlow adds: the node and the shapes of its inputs. */
struct status *infer_refusal_take(struct status *st, const struct node *node,
                                  const struct infer_inputs *in) MUST_USE;

/* Adds n tensors, which `shapes` owns. */
struct tensor *graph_shapes_new_values(struct graph_shapes *shapes, int n);
/* Copies a shape to the arena of `shapes`, unless its sizes are those of one of the n_like shapes
 * in `like`: then they are shared. */
struct shape graph_shapes_keep(struct graph_shapes *shapes, struct shape shape,
                               const struct shape *like, int n_like);

#endif
