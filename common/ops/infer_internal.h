/* What the files of inference share. */
#ifndef MILLRACE_COMMON_OPS_INFER_INTERNAL_H
#define MILLRACE_COMMON_OPS_INFER_INTERNAL_H

#include "common/ops/infer.h"
#include "common/ops/op_def.h"

/* One call of graph_infer_shapes. */
struct inferrer {
    const struct graph *graph;
    struct graph_shapes *shapes;
    const struct infer_options *options;
    struct arena scratch; /* one node's */
    int64_t n_evaluations, deadline_ns;
    int n_values_before;
    int64_t n_outputs, n_full, n_ranked, n_refused;
};

/* What the inputs of a node are known to be: n_data entries each. */
struct infer_inputs {
    struct shape *shapes, *handle_shapes;
    enum dtype *handle_dtypes;
    const struct tensor **values;
    const struct shape **as_shapes;
};

/* Sets `value` or `as_shape` of the node's outputs, whose shapes stand, where they can be known. */
void infer_values(struct inferrer *inferrer, const struct node *node, const struct infer_inputs *in,
                  struct inferred *outputs);

/* Adds to a shape function's words what TensorFlow adds: the node and what its inputs were. */
struct status *infer_refusal_take(struct status *st, const struct node *node,
                                  const struct infer_inputs *in) MUST_USE;

/* A tensor that the shapes own. */
struct tensor *graph_shapes_new_values(struct graph_shapes *shapes, int n);
/* A copy in the shapes' arena; sizes that lie in `like` are shared. */
struct shape graph_shapes_keep(struct graph_shapes *shapes, struct shape shape,
                               const struct shape *like, int n_like);

#endif
