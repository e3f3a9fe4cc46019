/* Reverse-mode differentiation of a part of a graph (gradient.h): what SymbolicGradient comes
 * to.
 *
 *   x ──► a ──► b ──► y         forward, there already
 *   dx ◄─ a' ◄─ b' ◄─ dy        added: from the last node to the first, each by its op's row; several contributions are added up
 *
 * Only nodes on a way from an x to a y are looked at. Gradients flow through floating-point and
 * complex values, variants (lists of tensors), and handles of variables. */
#ifndef MILLRACE_COMMON_GRADIENTS_BACKPROP_H
#define MILLRACE_COMMON_GRADIENTS_BACKPROP_H

#include "common/gradients/gradient.h"

struct backprop {
    struct graph *graph;
    /* the part: nodes with ids from here on; earlier ones are constants */
    int first_id;
    const struct node_input *xs; /* outputs of nodes of the part, each another one */
    int n_xs;
    const struct node_input *ys;  /* outputs of nodes of the part, or of earlier ones */
    const struct node_input *dys; /* the gradient of each; src NULL: none */
    int n_ys;
    int max_nodes; /* that the graph may grow to, about */
    /* of the names of the part: what is added for PREFIX/a is called PREFIX/gradient/a/… */
    const char *prefix;
    struct node *entry; /* what new nodes without inputs wait for; may be NULL */
    /* for nodes that call functions: GRADIENT_CALL, and functions as ops; may be NULL */
    gradient_fn *function;
    void *user; /* its ctx.user */
};

/* ret_dxs: by x; src NULL where no gradient reaches it. On an error nodes may have been added.
 * Errors: UNIMPLEMENTED naming the op: its derivative is not written, or it is control flow;
 * RESOURCE_EXHAUSTED beyond max_nodes; INVALID_ARGUMENT. */
struct status *backprop_run(const struct backprop *backprop, struct node_input *ret_dxs) MUST_USE;

#endif
