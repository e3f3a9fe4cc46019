/* The table of derivatives: a row per supported op and family file (common/gradients/X_grad.c).
 * "None" is written, not implied.
 *
 * Clients differentiate by themselves; the master needs these rows to expand SymbolicGradient
 * (backprop.h). A gradient function adds the nodes that compute the input gradients from the
 * output gradients; build.h has the words it is written in. Threads: one at a time per graph. */
#ifndef MILLRACE_COMMON_GRADIENTS_GRADIENT_H
#define MILLRACE_COMMON_GRADIENTS_GRADIENT_H

#include "common/graph/graph.h"

struct gradient_ctx {
    struct graph *graph;     /* where nodes are added */
    const struct node *node; /* the op to differentiate */
    /* n_outputs: dL/d output; src NULL where no gradient flows */
    const struct node_input *grad_out;
    /* n_data, all src NULL at the start: dL/d input, left NULL where there is none */
    struct node_input *grad_in;
    const char *prefix; /* the new nodes' names begin so */
    struct node *entry; /* what a new node without inputs waits for; NULL: nothing */
    /* the first error: once it is there, the words of build.h do nothing */
    struct status *status;
    void *user; /* of who asked for the gradients */
};
/* Sets grad_in, or status. Wrong shapes are found when the step runs, by the ops that were
 * added. */
typedef void gradient_fn(struct gradient_ctx *ctx);

enum gradient_kind {
    GRADIENT_NONE, /* not differentiable, on purpose: integers, shapes, state */
    GRADIENT_FN,
    /* calls a function: who runs backprop_run differentiates that (struct backprop) */
    GRADIENT_CALL,
    GRADIENT_LATER, /* has a derivative whose row is still to be written; counted by a test */
};

struct gradient_row {
    const char *op;
    enum gradient_kind kind;
    gradient_fn *fn; /* GRADIENT_FN only */
};
#define NO_GRADIENT(op_name) \
    { (op_name), GRADIENT_NONE, NULL }
#define GRADIENT(op_name, function) \
    { (op_name), GRADIENT_FN, (function) }
#define CALL_GRADIENT(op_name) \
    { (op_name), GRADIENT_CALL, NULL }
#define LATER_GRADIENT(op_name) \
    { (op_name), GRADIENT_LATER, NULL }

struct gradient_list {
    const struct gradient_row *rows;
    size_t n_rows;
};
#define GRADIENTS(list) extern const struct gradient_list list;
#include "common/ops/families.inc"
extern const struct gradient_list no_gradients; /* the ops of families without derivatives */

extern const struct gradient_list *const gradient_lists[];
extern const size_t n_gradient_lists;

const struct gradient_row *gradient_find(const char *op); /* NULL: a row is missing */

#endif
