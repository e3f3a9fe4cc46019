/* Lists the derivative of each supported op: a row in common/gradients/FAMILY_grad.c, or in
 * no_gradient.c for a family without derivatives. An op without a derivative has a row that says
 * so.
 *
 * Clients differentiate by themselves; the master needs these rows to expand SymbolicGradient
 * (backprop.h). A gradient function adds the nodes that compute the gradients of the inputs from
 * those of the outputs, with the functions of build.h. Threads: one at a time per graph. */
#ifndef MILLRACE_COMMON_GRADIENTS_GRADIENT_H
#define MILLRACE_COMMON_GRADIENTS_GRADIENT_H

#include "common/graph/graph.h"

struct gradient_ctx {
    struct graph *graph;     /* where nodes are added */
    const struct node *node; /* the op to differentiate */
    /* n_outputs entries: dL/d output; src is NULL where no gradient flows */
    const struct node_input *grad_out;
    /* n_data entries: dL/d input. src is NULL before the call and stays NULL where there is no
     * gradient */
    struct node_input *grad_in;
    const char *prefix; /* the names of new nodes begin with it */
    struct node *entry; /* control input of new nodes without data inputs; NULL: none */
    /* the first error, after which the functions of build.h do nothing */
    struct status *status;
    const char *array_source; /* the attr `source` of TensorArrays of gradients */
    struct walk *walk;        /* for control_flow_grad.c */
    void *user;               /* for the caller of backprop_run */
};
/* Sets grad_in, or status. It does not check shapes: the added ops do when the step runs. */
typedef void gradient_fn(struct gradient_ctx *ctx);

enum gradient_kind {
    GRADIENT_NONE, /* not differentiable, on purpose: integers, shapes, state */
    GRADIENT_FN,
    /* calls a function, whose gradient the caller of backprop_run provides (struct backprop) */
    GRADIENT_CALL,
    GRADIENT_REFUSED, /* asking for the derivative is an error that says why; a test counts these */
};

struct gradient_row {
    const char *op;
    enum gradient_kind kind;
    gradient_fn *fn; /* GRADIENT_FN only */
    const char *why; /* GRADIENT_REFUSED only */
};
#define NO_GRADIENT(op_name) \
    { (op_name), GRADIENT_NONE, NULL, NULL }
#define GRADIENT(op_name, function) \
    { (op_name), GRADIENT_FN, (function), NULL }
#define CALL_GRADIENT(op_name) \
    { (op_name), GRADIENT_CALL, NULL, NULL }
#define REFUSED_GRADIENT(op_name, reason) \
    { (op_name), GRADIENT_REFUSED, NULL, (reason) }
/* A derivative exists, but TensorFlow's client refuses to take it. */
#define UNDEFINED_GRADIENT(op_name) REFUSED_GRADIENT(op_name, "TensorFlow defines none")

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
