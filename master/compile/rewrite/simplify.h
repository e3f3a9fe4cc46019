/* What the files of the pass `simplify` share: its rows, and what they may ask [WP 5.1].
 *
 *   pass_simplify.c    the sweep, and how a node is rewritten
 *   simplify_rules.c   the table: op, types, what must hold, what is made of the node
 *   simplify_math.c    what must hold for arithmetic
 *   simplify_shape.c   what must hold for ops that move elements or ask for shapes
 *   simplify_facts.c   constants, and shapes that no step can contradict
 *
 * A row looks at a node and at the nodes that it takes values from. A rewritten node keeps its
 * name, its device and its control inputs. It waits for all that it waited for: a data input that
 * it no longer takes becomes a control input. So it is dead, and fails, as it was before. For this
 * room. Pool thread. */
#ifndef MILLRACE_MASTER_COMPILE_REWRITE_SIMPLIFY_H
#define MILLRACE_MASTER_COMPILE_REWRITE_SIMPLIFY_H

#include "master/compile/compilation.h"

enum {
    /* a node that has more control inputs is not removed, so that moving them costs little */
    SIMPLIFY_MAX_CONTROLS = 16,
    SIMPLIFY_MAX_ELEMENTS = 4096, /* of a constant that a row looks at */
};

struct simplify_rule;
/* What a sweep does. */
struct simplify_table {
    const struct simplify_rule *rules; /* sorted by op */
    size_t n_rules;
    bool removes_identities;
};

struct simplifier {
    struct compilation *c;
    const struct simplify_table *table;
    int n_ids;           /* of the nodes that the sweep began with */
    struct node **value; /* by node id: whose output 0 replaces the node's; NULL: none */
    int *value_index;    /* by node id: it is that output, not 0 */
    bool *is_removed;    /* by node id: no edge leaves it any more */
    bool *is_kept;       /* by node id: a target, or one that others are colocated with */
    bool *feeds_control; /* by node id: a control edge leaves it */
    bool *feeds_frame;   /* by node id: an edge to an op of frames or one of ours leaves it */
    int *n_consumers;    /* by node id */
    bool *is_reference;  /* by node id (common/graph/references.h) */
    struct graph_shapes
        shapes; /* those that hold for every step; all-zero before the first question */
    bool changed;
};

/* What a row's condition found. */
struct simplify_found {
    struct node_input value; /* what the node hands on, or takes in place of an input */
    int input;               /* which input */
    struct node *bypassed;   /* a producer that the node no longer takes; NULL: none */
    const char *type_attr;   /* the attr that says the type of that input, if it changes */
    struct tensor constant;  /* what the node always computes */
};

/* A condition says whether the row holds; a rewrite changes the node. */
typedef bool simplify_condition(struct simplifier *s, const struct simplify_rule *rule,
                                const struct node *node, struct simplify_found *ret);
typedef struct status *simplify_rewrite(struct simplifier *s, struct node *node,
                                        const struct simplify_found *found);

struct simplify_rule {
    const char *op;
    simplify_condition *condition;
    simplify_rewrite *rewrite;
    dtype_set types;     /* of input 0; 0: all but references, resources and variants */
    const char *partner; /* the op of the producer that it cancels */
    double neutral;      /* the value of the other input that changes nothing */
};
extern const struct simplify_rule simplify_rules[]; /* sorted by op */
extern const size_t n_simplify_rules;

/* Applies the rows to all nodes, in topological order. */
struct status *simplify_sweep(struct compilation *c, const struct simplify_table *table,
                              bool *ret_changed) MUST_USE;

// clang-format off
/* ---- conditions (simplify_math.c) ---- */
simplify_condition simplify_cancels;             /* op(partner(x)) is x */
simplify_condition simplify_is_idempotent;       /* op(op(x)) is op(x) */
simplify_condition simplify_is_neutral_right;    /* op(x, neutral) is x */
simplify_condition simplify_is_neutral;          /* op(x, neutral) and op(neutral, x) are x */
simplify_condition simplify_casts_nothing;       /* Cast to the same type */
simplify_condition simplify_casts_back;          /* Cast(Cast(x)) to the type of x */
simplify_condition simplify_casts_through;       /* Cast(Cast(x)): x can be cast directly */
simplify_condition simplify_adds_one_input;      /* AddN of one input */
simplify_condition simplify_chooses_equal;       /* Select of two equal branches */
simplify_condition simplify_reduces_nothing;     /* Sum over no axes, or kept ones of size 1 */
simplify_condition simplify_has_two_constants;   /* op(c, op(d, x)) */
simplify_condition simplify_is_broadcast_anyway; /* op(BroadcastTo(x), y) where y is as large */
simplify_condition simplify_joins_results;       /* ConcatV2 of op(x), op(y), … */

/* ---- conditions (simplify_shape.c) ---- */
simplify_condition simplify_transposes_nothing;
simplify_condition simplify_transposes_back;
simplify_condition simplify_reverses_nothing;
simplify_condition simplify_reverses_back;
simplify_condition simplify_keeps_shape;          /* the output has the shape of input 0 */
simplify_condition simplify_reshapes_to_own;      /* Reshape(x, Shape(x)) and similar */
simplify_condition simplify_reshapes_again;       /* Reshape(Reshape(x)) */
simplify_condition simplify_squeezes_expanded;    /* Squeeze(ExpandDims(x)) */
simplify_condition simplify_tiles_once;
simplify_condition simplify_pads_nothing;
simplify_condition simplify_slices_all;
simplify_condition simplify_strides_over_all;
simplify_condition simplify_splits_in_one;
simplify_condition simplify_knows_shape;          /* Shape, Size, Rank of a known shape */
simplify_condition simplify_asks_shape_of_result; /* Shape(op(x)) is Shape(x) */

/* ---- rewrites (pass_simplify.c) ---- */
simplify_rewrite simplify_hand_on;       /* an Identity of found->value */
simplify_rewrite simplify_take_input;    /* input found->input is found->value */
simplify_rewrite simplify_be_constant;   /* a Const of found->constant */
simplify_rewrite simplify_push_constant; /* op(op(c, d), x) */
simplify_rewrite simplify_join_first;    /* op(ConcatV2(x, y, …)) */
// clang-format on

/* ---- facts (simplify_facts.c) ---- */
/* The constant value of an edge; NULL: it has none, or one of another type than it says. */
const struct tensor *simplify_const(const struct node_input *in);
/* An integer constant of at most SIMPLIFY_MAX_ELEMENTS elements as int64 in the compilation's
 * arena; -1: there is none. Returns the number of elements. */
int simplify_const_ints(struct simplifier *s, const struct node_input *in, int64_t **ret);
/* Are all elements of the constant this value? */
bool simplify_const_is(const struct tensor *t, double value);
/* What is known about the shape of an edge's value, whatever a step feeds and variables hold:
 * SHAPE_UNKNOWN where a source of the value can have another shape than the graph says. */
struct shape simplify_shape(struct simplifier *s, const struct node_input *in);
/* Is the value computed by a kernel that the CPU has, of a row with this flag? */
bool simplify_has_kernel(const struct node *node, int flag);
/* Does an edge carry a plain value, which has no place that an update could change? */
bool simplify_is_plain(const struct simplifier *s, const struct node_input *in);

#endif
