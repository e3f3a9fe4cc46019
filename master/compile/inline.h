/* What the files that inline functions share (pass_inline.c). For this folder and its tests.
 *
 *   pass_inline.c      finds calls, keeps the list of those to do, puts the results in their place
 *   inline_body.c      one copy of a function's body in the graph
 *   inline_call.c      PartitionedCall, RemoteCall, calls by name   ┐
 *   inline_choice.c    which of several functions that do the same
 *   inline_branch.c    If, Case: Switch and Merge                   │ each makes bodies, and says
 *   inline_loop.c      While, For: Enter … Exit                     │ what stands for the call
 *   inline_gradient.c  SymbolicGradient: a body and its derivative  ┘
 *
 * Two rules keep a body's meaning:
 *
 *   Entry. A body has an `entry`: a node that is dead where the body must not run, and done when
 *   it may. A node of the body that would not learn this from its inputs (it has none, or only
 *   such as may be alive or early all the same: "loose" ones) gets a control edge from the
 *   entry. Every other node hangs below one that has it.
 *
 *   Done. A control edge from a call becomes one from its `done` node, which waits for all
 *   outputs and effects of the call. What a call does besides handing out values
 *   (function_body.h, "effects") happens even where nobody waits for it: those nodes become
 *   targets of the step. */
#ifndef MILLRACE_MASTER_COMPILE_INLINE_H
#define MILLRACE_MASTER_COMPILE_INLINE_H

#include "common/graph/function_body.h"
#include "master/compile/compile.h"

struct inliner;

/* The functions that a call lies within, innermost first. */
struct call_chain {
    const char *function;
    const struct call_chain *outer;
    int depth;
};

/* A node that is to be replaced. */
struct inline_call {
    struct node *node;
    struct node *pivot; /* the entry of the body it lies in; NULL: none is needed there */
    /* it lies below Switch or Enter that somebody built by hand: it is dead when any input is */
    bool inputs_decide;
    struct call_chain *chain; /* NULL: in the client's graph */
};

/* What stands for it. Endpoints may be calls themselves, replaced before or after. */
struct replacement {
    struct node_input *outputs; /* as many as the call has */
    struct node *done;
    struct node **effects;
    int n_effects;
};

struct inline_rule {
    const char *op;
    struct status *(*lower)(struct inliner *in, const struct inline_call *call,
                            struct replacement *ret);
};
const struct inline_rule *inline_rule_find(const char *op); /* NULL: not an op that is inlined */
struct status *lower_call(struct inliner *in, const struct inline_call *call,
                          struct replacement *ret) MUST_USE;
struct status *lower_if(struct inliner *in, const struct inline_call *call,
                        struct replacement *ret) MUST_USE;
struct status *lower_case(struct inliner *in, const struct inline_call *call,
                          struct replacement *ret) MUST_USE;
struct status *lower_while(struct inliner *in, const struct inline_call *call,
                           struct replacement *ret) MUST_USE;
struct status *lower_for(struct inliner *in, const struct inline_call *call,
                         struct replacement *ret) MUST_USE;
struct status *lower_remote_call(struct inliner *in, const struct inline_call *call,
                                 struct replacement *ret) MUST_USE;
struct status *lower_symbolic_gradient(struct inliner *in, const struct inline_call *call,
                                       struct replacement *ret) MUST_USE;
/* Of a For: where its counter ends, and a node that is done when the bounds are valid; both
 * after `entry` (inline_for.c). */
struct status *inline_for_bounds(struct inliner *in, const struct inline_call *call,
                                 struct node *entry, struct node_input *ret_end,
                                 struct node **ret_checked) MUST_USE;
/* The function that a plain call calls: its attr f, or, where its op is a function's name, that
 * with the node's attrs. */
struct status *inline_called_function(struct inliner *in, const struct inline_call *call,
                                      const struct attr_func **ret) MUST_USE;
/* Puts the function for CPUs in the place of one that does the same (inline_choice.c). */
void inline_choose(struct inliner *in, const struct attr_func **function);
/* A plain call of `function` with the call's inputs from `first_input` on. */
struct status *lower_call_of(struct inliner *in, const struct inline_call *call,
                             const struct attr_func *function, int first_input,
                             struct replacement *ret) MUST_USE;

struct inliner {
    struct compilation *c;
    struct graph *graph; /* &c->graph */
    struct graph_limits limits;
    struct strmap bodies; /* name → struct function_body */
    /* function → the name of the function that the library says is its gradient; filled when
     * asked for */
    struct strmap gradients;
    /* function → the name of the one that is called instead of it, itself as a rule */
    struct strmap choices;
    bool gradients_are_read;
    struct inline_call *calls; /* to do: a stack */
    int n_calls, calls_capacity;
    struct replacement **replaced; /* by node id, NULL for what stays */
    int n_replaced, replaced_capacity;
    int64_t n_edges; /* made so far */
};

void inliner_push(struct inliner *in, struct inline_call call);

/* On the call that stands for a function which a kernel runs: all that is stateful in its body
 * runs, used or not. */
#define CALLED_BY_KERNEL_ATTR "_called_by_kernel"

/* ---- bodies (inline_body.c) ---- */

struct body_arg {
    struct node_input value;
    bool is_loose;
    /* made where a node is needed: a control edge from the argument, colocation with it */
    struct node *identity;
};

/* One copy of a body. */
struct body {
    const char *prefix;    /* its nodes are called prefix/name */
    struct node *entry;    /* NULL: it always runs */
    struct body_arg *args; /* by tensor */
    int n_args;
    /* filled in by body_make: */
    const struct function_body *function;
    struct node_input *outputs; /* by tensor */
    int n_outputs;
    struct node **effects;
    int n_effects;
    struct call_chain *chain; /* of the calls within */
    bool has_control_flow;    /* of its own (function_body.h) */
};

/* The function's body, decoded once. Errors: NOT_FOUND naming the function and the node. */
struct status *inline_function(struct inliner *in, const struct inline_call *call, const char *name,
                               const struct function_body **ret) MUST_USE;
/* Args of a body from the call's inputs from `first` on. */
void body_take_args(struct inliner *in, const struct inline_call *call, int first, bool are_loose,
                    struct body *body);
/* Makes the nodes, and notes the calls among them. Errors: INVALID_ARGUMENT (numbers or types of
 * arguments, recursion), NOT_FOUND, RESOURCE_EXHAUSTED beyond max_inlined_nodes. */
struct status *body_make(struct inliner *in, const struct inline_call *call,
                         const struct attr_func *function, struct body *body) MUST_USE;
/* Does the body hand out what the call promises? */
struct status *body_check_outputs(const struct inline_call *call, const struct body *body) MUST_USE;

/* ---- small nodes, on the call's device (inline_body.c) ---- */

/* A node named after the call, not finished; its attr T, where it has one, is `type`
 * (DT_INVALID: none). */
struct status *inline_node(struct inliner *in, const struct inline_call *call, const char *what,
                           const char *op, enum dtype type, struct node **ret) MUST_USE;
/* The identity of `value`, after `control` (may be NULL). */
struct status *inline_identity(struct inliner *in, const struct inline_call *call, const char *what,
                               struct node_input value, struct node *control,
                               struct node **ret) MUST_USE;
/* A NoOp after `nodes`. */
struct status *inline_join(struct inliner *in, const struct inline_call *call, const char *what,
                           struct node *const *nodes, int n_nodes, struct node **ret) MUST_USE;
/* A node that is done when the call may begin and dead where it is; NULL: nothing to wait for. */
struct status *inline_entry(struct inliner *in, const struct inline_call *call,
                            struct node **ret) MUST_USE;
/* A bool of `value`, which may be of any type: numbers that are not 0 and strings that are not
 * empty are true, so are other tensors with elements. */
struct status *inline_predicate(struct inliner *in, const struct inline_call *call,
                                struct node_input value, struct node_input *ret) MUST_USE;
enum dtype endpoint_type(struct node_input value); /* base type */

#endif
