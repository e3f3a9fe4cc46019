/* A function of the library, decoded: what the master's inlining makes nodes of, as often as the
 * function is called [CF 3].
 *
 *   FunctionDef ─ function_body_read, once a compile ─► struct function_body ─ function_node_new, for each call ─► nodes of a graph
 *
 * Everything but the map of names lies in the arena of the graph that the body was read for,
 * whose library and ops it names. Immutable once read.
 *
 * Inside a function an input is spelt "arg", "arg:1" (of an argument that stands for several
 * tensors), "node:output_arg:1" or "^node"; attrs may be placeholders ("$T") for attrs that each
 * call states. Both are kept as they are until the call is known. */
#ifndef MILLRACE_COMMON_GRAPH_FUNCTION_BODY_H
#define MILLRACE_COMMON_GRAPH_FUNCTION_BODY_H

#include "common/graph/graph.h"
#include "common/graph/graph_proto.h"

/* Where a value inside the body comes from. */
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
    bool is_needed; /* for an output or an effect */
};

struct function_body {
    const char *name;
    const struct op_arg_signature *args, *rets; /* the arguments of its signature */
    int n_args, n_rets;
    struct attr *defaults; /* of its attrs, sorted */
    int n_defaults;
    struct function_node *nodes;
    int n_nodes;
    struct function_input *ret_values; /* by ret: its first tensor */
    /* What is done besides handing out values: what the function's control_ret names, stateful
     * nodes that nothing else would run, and calls with state. A stateful node under a Switch or
     * Enter of the body's own is left out: that style of graph is pruned. */
    int *effects;
    int n_effects;
    /* the first of them: what is left where unused nodes are pruned; the others nothing but
     * being stateful keeps */
    int n_kept_effects;
    bool has_control_flow; /* holds Switch, Enter or their kin itself */
    struct strmap names;   /* function_body_find's */
};

/* Errors: INVALID_ARGUMENT (malformed, unknown input, doubled name), NOT_FOUND (op type), naming
 * function and node. */
struct status *function_body_read(struct graph *graph, const struct graph_function *function,
                                  const struct graph_limits *limits,
                                  struct function_body **ret) MUST_USE;
void function_body_fini(struct function_body *body); /* the map; accepts NULL */
/* The position of an arg or a node; false when there is neither. */
bool function_body_find(const struct function_body *body, struct span name, bool *ret_is_arg,
                        int *ret_position);

/* What one call states for the function's attrs; sorted by name. */
struct function_attrs {
    const struct attr *attrs;
    int n_attrs;
};

/* A node of the body as a node of `graph`, named `name`: placeholders replaced, defaults filled
 * in; no inputs yet, not finished. Errors: INVALID_ARGUMENT: a placeholder that the call does
 * not state. */
struct status *function_node_new(struct graph *graph, const struct function_body *body,
                                 const struct function_node *from,
                                 const struct function_attrs *attrs, const char *name,
                                 const char *device, struct node **ret) MUST_USE;
/* How many tensors an argument of the function's signature stands for in a call. Errors:
 * INVALID_ARGUMENT. */
struct status *function_arg_count(const struct function_body *body,
                                  const struct op_arg_signature *arg,
                                  const struct function_attrs *attrs, int *ret_n) MUST_USE;
/* The dtype of the i-th of them; i is within their number. Errors: INVALID_ARGUMENT. */
struct status *function_arg_type(const struct function_body *body,
                                 const struct op_arg_signature *arg,
                                 const struct function_attrs *attrs, int i,
                                 enum dtype *ret) MUST_USE;

#endif
