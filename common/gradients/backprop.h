/* Differentiates a part of a graph in reverse mode, with the rows of gradient.h. SymbolicGradient
 * is expanded so.
 *
 *   x ──► a ──► b ──► y         the forward nodes exist already
 *   dx ◄─ a' ◄─ b' ◄─ dy        added, from the last node to the first, by the row of each op;
 *                               several contributions to one value are added up
 *
 * Only nodes on a path from an x to a y are visited. Gradients flow through floating-point and
 * complex values, variants (lists of tensors), and handles of variables. */
#ifndef MILLRACE_COMMON_GRADIENTS_BACKPROP_H
#define MILLRACE_COMMON_GRADIENTS_BACKPROP_H

#include "common/gradients/gradient.h"

struct backprop {
    struct graph *graph;
    /* the part is the nodes with ids from here on; earlier nodes are constants */
    int first_id;
    const struct node_input *xs; /* outputs of nodes of the part, each one once */
    int n_xs;
    const struct node_input *ys;  /* outputs of nodes of the part, or of earlier ones */
    const struct node_input *dys; /* the gradient of each y; src NULL: none */
    int n_ys;
    int max_nodes; /* the graph may grow to about this many nodes */
    /* prefix of the names of the part: what is added for PREFIX/a is called PREFIX/gradient/a/… */
    const char *prefix;
    /* tells TensorArrays of these gradients from others of the same arrays; NULL: "gradients" */
    const char *array_source;
    struct node *entry; /* control input of new nodes without data inputs; may be NULL */
    /* differentiates nodes that call functions (GRADIENT_CALL, and functions as ops); may be
     * NULL */
    gradient_fn *function;
    void *user; /* passed on as gradient_ctx.user */
};

/* Sets ret_dxs, one for each x; src is NULL where no gradient reaches it. After an error nodes may
 * have been added. Loops and conditionals are differentiated [CF 5.1]; nodes that save values are
 * added to the forward loops. Errors: NOT_FOUND naming an op that has no derivative here, and why;
 * UNIMPLEMENTED naming an x or y within a loop, or a loop of an unusual form; RESOURCE_EXHAUSTED
 * beyond max_nodes; INVALID_ARGUMENT. */
struct status *backprop_run(const struct backprop *backprop, struct node_input *ret_dxs) MUST_USE;

#endif
