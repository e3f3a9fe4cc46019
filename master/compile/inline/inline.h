/* What the files of the inliner share (pass_inline.c), for this room and its tests; and what a call
 * is, for the rooms behind it. Pool thread.
 *
 *   pass_inline.c      finds calls, keeps a stack of them, and replaces each
 *   inline_body.c      one copy of a function's body in the graph
 *   inline_choice.c    chooses among functions that compute the same
 *   inline_call.c      PartitionedCall, RemoteCall, calls by name   ┐
 *   inline_branch.c    If, Case: Switch and Merge                   │ each makes bodies and returns
 *   inline_loop.c      While, For: Enter … Exit                     │ what replaces the call
 *   inline_gradient.c  SymbolicGradient: a body and its derivative  ┘
 *   inline_state.c     which copies of a stateful node share their state
 *   inline_targets.c   which effects happen: they become targets
 *
 * Two rules keep the meaning of a body:
 *
 *   Entry. A body has an `entry`: a node that is dead if the body must not run, and that ends when
 *   the body may run. A node of the body gets a control edge from the entry if its inputs do not
 *   tell it this: it has no inputs, or only "loose" ones, which may be alive or early although the
 *   body must not run. Every other node depends on a node with such an edge.
 *
 *   Done. A control edge from a call becomes one from its `done` node, which waits for all outputs
 *   and effects of the call. An effect is what a call does in addition to computing its outputs
 *   (function_body.h). Effects happen even if no node depends on them: they become targets of the
 *   step.
 *
 * What TensorFlow lowers (enum inline_region) is no call in its executor: what nobody needs of an
 * If, a Case or a While is pruned, although the rest runs. So the stateful nodes of such a body are
 * effects only if the function's control_ret names them, and `done` of an If or a Case waits
 * for an output only if something else needs it. A call within such a body is one: its outputs wait
 * for its `done`, so its effects happen if one of them is needed. And a call needs all its inputs:
 * its outputs wait also for those that its body does not take. */
#ifndef MILLRACE_MASTER_COMPILE_INLINE_INLINE_H
#define MILLRACE_MASTER_COMPILE_INLINE_INLINE_H

#include "common/graph/function_body.h"
#include "master/compile/compile.h"

/* Does pass_inline replace it: a call by name, PartitionedCall, If, Case, While, For, RemoteCall to
 * a constant target, SymbolicGradient? */
bool node_is_call(const struct node *node);

struct inliner;

/* The functions that contain a call, innermost first. */
struct call_chain {
    const char *function;
    const struct call_chain *outer;
    int depth;
};

/* What TensorFlow does with the graph that contains a node. */
enum inline_region {
    /* the client's graph, the body of a PartitionedCall with results: pruned to what is asked for,
     * and lowered conditionals are pruned with it */
    REGION_PRUNED,
    /* the body of a PartitionedCall without results: every stateful node runs, also in the branches
     * of lowered conditionals */
    REGION_WHOLE,
    /* the body of a function called by its name or by another kernel: every stateful node runs, and
     * nothing is lowered */
    REGION_KERNEL,
};

/* A call to be replaced. */
struct inline_call {
    struct node *node;
    struct node *pivot; /* the entry of the body that contains it; NULL: it needs none */
    /* it depends on a Switch or Enter of the client's own: it is dead when any input is dead */
    bool inputs_decide;
    struct call_chain *chain; /* NULL: in the client's graph */
    /* what names the state of a stateful node in the call's place (inline_state.c); NULL: its own
     * name */
    const char *state;
    enum inline_region region; /* of the body that contains it */
    bool is_in_lowered;        /* that body is one that TensorFlow lowers and prunes */
    /* for a gradient: only its values are wanted, its effects have happened */
    bool is_recomputed;
};

/* What replaces a call. Its endpoints may belong to other calls, replaced before or after it. */
struct replacement {
    struct node_input *outputs; /* one per output of the call */
    struct node *done;
    bool waits_for_needed; /* `done` waits for outputs only if they are needed */
    struct node **effects;
    int n_effects;
    bool *is_reached; /* by output, then `done`; used by inline_targets.c */
};

struct inline_rule {
    const char *op;
    struct status *(*lower)(struct inliner *in, const struct inline_call *call,
                            struct replacement *ret);
    bool is_control_flow; /* a conditional or a loop */
};
const struct inline_rule *inline_rule_find(const char *op); /* NULL: the op is not inlined */
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
/* Makes the nodes that compute where the counter of a For ends, and that check its bounds, both
 * after `entry` (inline_for.c). */
struct status *inline_for_bounds(struct inliner *in, const struct inline_call *call,
                                 struct node *entry, struct node_input *ret_end,
                                 struct node **ret_checked) MUST_USE;
/* The function that a plain call calls: its attr f; if its op is a function's name, that function
 * with the node's attrs. */
struct status *inline_called_function(struct inliner *in, const struct inline_call *call,
                                      const struct attr_func **ret) MUST_USE;
/* Replaces the function by the one for CPUs that computes the same, if there is one
 * (inline_choice.c). */
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
    /* function → the name of its gradient function in the library; read at first use */
    struct strmap gradients;
    /* function → the name of the function that is called instead; mostly itself */
    struct strmap choices;
    bool gradients_are_read;
    struct inline_call *calls; /* a stack of the calls to replace */
    int n_calls, calls_capacity;
    struct replacement **replaced; /* by node id; NULL for nodes that stay */
    int n_replaced, replaced_capacity;
    int64_t n_edges; /* made so far */
};

void inliner_push(struct inliner *in, struct inline_call call);
/* Replaces conditionals and loops among the calls that were pushed after the first `n_calls`, and
 * those within them, and gives the nodes from `first_id` on their replacements as inputs. Other
 * calls stay. *ret_any: were there any? */
struct status *inliner_lower_control_flow(struct inliner *in, int n_calls, int first_id,
                                          bool *ret_any) MUST_USE;
/* What replaces the node; NULL: it stays. */
struct replacement *inliner_replacement(const struct inliner *in, const struct node *node);
/* The node that an edge from the call begins at instead; it may be a call, too. */
struct node_input replacement_follow(const struct replacement *replacement, int index);
/* Makes targets of the effects of the calls that a fetch or a target needs, and lets targets that
 * are calls name what replaces them. The first `n_top_nodes` nodes are those of the client's graph.
 * Edges still begin at the calls (inline_targets.c). */
struct status *inliner_settle_targets(struct inliner *in, int n_top_nodes) MUST_USE;
/* Follows replacements to an output that stays. */
struct status *inliner_resolve(struct inliner *in, struct node_input *input) MUST_USE;

/* An attr of a call that was made for a function which a kernel calls: every stateful node of its
 * body runs, also one that no output needs. */
#define CALLED_BY_KERNEL_ATTR "_called_by_kernel"

/* ---- whose state a stateful node of a body has (inline_state.c) ---- */

/* Is the call one that TensorFlow replaces by nodes of the graph around: an If, Case or While with
 * the attr _lower_using_switch_merge, outside of bodies in which nothing is lowered? */
bool inline_is_lowered(const struct inline_call *call);
/* What the states of the nodes of a body are named after; `prefix` begins with the call's name.
 * NULL: after the nodes. */
const char *inline_states(struct inliner *in, const struct inline_call *call,
                          const struct attr_func *function, const char *prefix);
/* The name of the state of a node of such a body; NULL where `states` is. */
const char *inline_state_name(struct inliner *in, const char *states, const char *node);
/* Writes the name into the attr NODE_STATE_ATTR of the finished `node`, if it has a state. */
void inline_name_state(struct inliner *in, const char *states, const char *name_in_body,
                       struct node *node);

/* ---- bodies (inline_body.c) ---- */

struct body_arg {
    struct node_input value;
    bool is_loose;
    /* made when a node is needed: for a control edge from the argument, or colocation with it */
    struct node *identity;
    bool is_unused; /* nothing in the body needs it for certain; filled in by body_make */
};

/* One copy of a body. */
struct body {
    const char *prefix;    /* its nodes are named prefix/name */
    struct node *entry;    /* NULL: the body always runs */
    struct body_arg *args; /* by tensor */
    int n_args;
    /* filled in by body_make: */
    const struct function_body *function;
    enum inline_region region;
    const char *states; /* what the states of its nodes are named after; NULL: after the nodes */
    struct node_input *outputs; /* by tensor */
    int n_outputs;
    struct node **effects;
    int n_effects;
    struct call_chain *chain; /* for the calls within the body */
    bool has_control_flow;    /* it has Switch, Merge … of its own (function_body.h) */
};

/* The body of a function, decoded once. Errors: NOT_FOUND with the function and the node. */
struct status *inline_function(struct inliner *in, const struct inline_call *call, const char *name,
                               const struct function_body **ret) MUST_USE;
/* Takes the body's arguments from the call's inputs, beginning with input `first`. */
void body_take_args(struct inliner *in, const struct inline_call *call, int first, bool are_loose,
                    struct body *body);
/* Copies the nodes of the function's body into the graph, and pushes the calls among them. Errors:
 * INVALID_ARGUMENT (the number or types of arguments, recursion), NOT_FOUND, RESOURCE_EXHAUSTED
 * beyond max_inlined_nodes. */
struct status *body_make(struct inliner *in, const struct inline_call *call,
                         const struct attr_func *function, struct body *body) MUST_USE;
/* Checks that the body's outputs have the number and types of the call's. */
struct status *body_check_outputs(const struct inline_call *call, const struct body *body) MUST_USE;

/* ---- small nodes, on the call's device (inline_body.c) ---- */

/* Makes a node named after the call. The caller adds inputs and finishes it. Its attr T is `type`
 * (DT_INVALID: it has no attr T). */
struct status *inline_node(struct inliner *in, const struct inline_call *call, const char *what,
                           const char *op, enum dtype type, struct node **ret) MUST_USE;
/* Makes an Identity of `value`, after `control` (may be NULL). */
struct status *inline_identity(struct inliner *in, const struct inline_call *call, const char *what,
                               struct node_input value, struct node *control,
                               struct node **ret) MUST_USE;
/* Makes a NoOp after `nodes`. */
struct status *inline_join(struct inliner *in, const struct inline_call *call, const char *what,
                           struct node *const *nodes, int n_nodes, struct node **ret) MUST_USE;
/* Makes a node that ends when the call may begin, and that is dead if the call is dead. *ret is
 * NULL if there is nothing to wait for. */
struct status *inline_entry(struct inliner *in, const struct inline_call *call,
                            struct node **ret) MUST_USE;
/* Makes a bool of `value`, which may have any type: a number is true if it is not 0, a string if it
 * is not empty, another tensor if it has elements. */
struct status *inline_predicate(struct inliner *in, const struct inline_call *call,
                                struct node_input value, struct node_input *ret) MUST_USE;
enum dtype endpoint_type(struct node_input value); /* base type */

#endif
