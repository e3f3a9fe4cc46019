/* Decodes a function of the library, so that the master's inliner can make nodes of its body for
 * each call [CF 3].
 *
 *   FunctionDef ─ function_body_read, once a compile ─► struct function_body
 *               ─ function_node_new, for each call ───► nodes of a graph
 *
 * The memory of a body, except the map of names, is in the arena of the graph that it was read for;
 * it refers to that graph's library and ops. Immutable once read.
 *
 * Inside a function an input is written "arg", "arg:1" (of an argument that stands for several
 * tensors), "node:output_arg:1" or "^node". Attrs may be placeholders ("$T") for attrs that each
 * call gives. Both are kept as they are until function_node_new. */
#ifndef MILLRACE_COMMON_GRAPH_FUNCTION_BODY_H
#define MILLRACE_COMMON_GRAPH_FUNCTION_BODY_H

#include "common/graph/graph.h"
#include "common/graph/graph_proto.h"

/* Where an input of a body node comes from. */
struct function_input {
    bool is_arg, is_control;
    int position; /* in the body's args or nodes */
    /* which output argument of a node, by name; empty: the first (of an arg: itself) */
    struct span output;
    int index; /* within that argument */
};

struct function_node {
    const char *name, *device;
    const struct op_signature *op;
    struct attr *attrs; /* sorted; without the op's defaults */
    int n_attrs;
    struct function_input *inputs; /* data first, then control */
    int n_inputs, n_data;
    bool is_needed; /* an output or an effect needs the node */
};

struct function_body {
    const char *name;
    const struct op_arg_signature *args, *rets; /* the arguments of its signature */
    int n_args, n_rets;
    struct attr *defaults; /* default values of the function's attrs, sorted by name */
    int n_defaults;
    struct function_node *nodes;
    int n_nodes;
    struct function_input *ret_values; /* for each ret: its first tensor */
    /* By argument: an output or an effect certainly needs it. What only a conditional or a loop
     * takes that is lowered may be pruned with that. */
    bool *arg_is_used;
    /* Positions of the nodes that a call must run for their effects: those that control_ret names,
     * stateful nodes that nothing else would run, and calls with state. A stateful node under a
     * Switch or Enter of the body itself is not listed: such bodies are pruned. */
    int *effects;
    int n_effects;
    /* The first n_named_effects of them are those that control_ret names. Up to n_kept_effects
     * follow the calls with state that these and the outputs need: they are kept even when unused
     * nodes are pruned. The others are effects only because they are stateful. */
    int n_named_effects, n_kept_effects;
    bool has_results;      /* outputs, or nodes that control_ret names: what a body is pruned to */
    bool has_control_flow; /* the body itself contains Switch, Enter or a similar op */
    struct strmap names;   /* used by function_body_find */
};

/* Decodes the function. Errors: INVALID_ARGUMENT (malformed, unknown input, repeated name),
 * NOT_FOUND (op type), with the names of function and node. */
struct status *function_body_read(struct graph *graph, const struct graph_function *function,
                                  const struct graph_limits *limits,
                                  struct function_body **ret) MUST_USE;
void function_body_fini(struct function_body *body); /* frees the map of names; accepts NULL */
/* Finds the arg or node of that name; false where there is none. */
bool function_body_find(const struct function_body *body, struct span name, bool *ret_is_arg,
                        int *ret_position);

/* The values that one call gives for the function's attrs; sorted by name. */
struct function_attrs {
    const struct attr *attrs;
    int n_attrs;
};

/* Makes a node of the body a node of `graph`, named `name`: placeholders are replaced and defaults
 * filled in. The node has no inputs yet, and node_finish is still to be called. Errors:
 * INVALID_ARGUMENT: the call does not give the value of a placeholder. */
struct status *function_node_new(struct graph *graph, const struct function_body *body,
                                 const struct function_node *from,
                                 const struct function_attrs *attrs, const char *name,
                                 const char *device, struct node **ret) MUST_USE;
/* How many tensors an argument of the function stands for in a call. Errors: INVALID_ARGUMENT. */
struct status *function_arg_count(const struct function_body *body,
                                  const struct op_arg_signature *arg,
                                  const struct function_attrs *attrs, int *ret_n) MUST_USE;
/* The dtype of the i-th of these tensors; i must be less than their number. Errors:
 * INVALID_ARGUMENT. */
struct status *function_arg_type(const struct function_body *body,
                                 const struct op_arg_signature *arg,
                                 const struct function_attrs *attrs, int i,
                                 enum dtype *ret) MUST_USE;

#endif
