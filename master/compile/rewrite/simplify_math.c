/* What must hold so that arithmetic changes nothing, to the bit (simplify.h).
 *
 * Kernels count denormal operands as zero and make signalling NaNs quiet. So x * 1 is x only where
 * x is an integer, or the result of another operation that has rounded it. x + 0.0 is not x where x
 * is -0.0. An addition of floats is never left out, nor put in another order. */
#include <stdlib.h>

#include "kernels/kernel.h"
#include "master/compile/rewrite/simplify.h"

static const struct node_input none = {NULL, 0};

static bool same_edge(const struct node_input *a, const struct node_input *b) {
    return a->src == b->src && a->index == b->index;
}

/* ---- pairs ---- */

/* The producer of an input if it is of this op and what it takes is a plain value. */
static const struct node *producer(const struct simplifier *s, const struct node_input *in,
                                   const char *op) {
    const struct node *src = in->src;
    return in->index == 0 && node_is_op(src, op) && src->n_data > 0 &&
                   simplify_is_plain(s, &src->inputs[0])
               ? src
               : NULL;
}

bool simplify_cancels(struct simplifier *s, const struct simplify_rule *rule,
                      const struct node *node, struct simplify_found *ret) {
    const struct node *inner = producer(s, &node->inputs[0], rule->partner);
    if (!inner)
        return false;
    ret->bypassed = node->inputs[0].src;
    ret->value = inner->inputs[0];
    return true;
}

bool simplify_is_idempotent(struct simplifier *s, const struct simplify_rule *rule,
                            const struct node *node, struct simplify_found *ret) {
    ret->value = node->inputs[0];
    return producer(s, &node->inputs[0], rule->op) != NULL;
}

/* ---- Cast ---- */

static const struct {
    enum dtype type;
    int digits; /* binary digits that are exact */
    bool is_float, has_sign;
} number_types[] = {
    {DT_BOOL, 1, false, false},    {DT_INT8, 7, false, true},     {DT_UINT8, 8, false, false},
    {DT_INT16, 15, false, true},   {DT_UINT16, 16, false, false}, {DT_INT32, 31, false, true},
    {DT_UINT32, 32, false, false}, {DT_INT64, 63, false, true},   {DT_UINT64, 64, false, false},
    {DT_FLOAT, 24, true, true},    {DT_DOUBLE, 53, true, true},
};

static int number_type(enum dtype type) {
    for (size_t i = 0; i < ARRAY_LEN(number_types); i++)
        if (number_types[i].type == type)
            return (int)i;
    return -1;
}

/* Is every value of an integer type a value of the other type? No float is: a signalling NaN
 * becomes a quiet one. */
static bool embeds(int type, int in) {
    return type >= 0 && in >= 0 && !number_types[type].is_float &&
           number_types[type].digits <= number_types[in].digits &&
           (number_types[in].has_sign || !number_types[type].has_sign);
}

bool simplify_casts_nothing(struct simplifier *s, const struct simplify_rule *rule,
                            const struct node *node, struct simplify_found *ret) {
    (void)s;
    (void)rule;
    ret->value = node->inputs[0];
    return node->in_types[0] == node->out_types[0];
}

static bool finds_casts(struct simplifier *s, const struct node *node, struct simplify_found *ret,
                        int *ret_from, int *ret_by, int *ret_to) {
    const struct node *inner = producer(s, &node->inputs[0], "Cast");
    if (!inner)
        return false;
    *ret_from = number_type((enum dtype)inner->in_types[0]);
    *ret_by = number_type((enum dtype)inner->out_types[0]);
    *ret_to = number_type((enum dtype)node->out_types[0]);
    ret->bypassed = node->inputs[0].src;
    ret->value = inner->inputs[0];
    ret->type_attr = "SrcT";
    return embeds(*ret_from, *ret_by) && *ret_to >= 0;
}

bool simplify_casts_back(struct simplifier *s, const struct simplify_rule *rule,
                         const struct node *node, struct simplify_found *ret) {
    int from, by, to;
    (void)rule;
    return finds_casts(s, node, ret, &from, &by, &to) && from == to;
}

/* A conversion from one integer type to another keeps the low bits, so it depends on the value
 * alone. One from a float depends on more where the value does not fit. */
bool simplify_casts_through(struct simplifier *s, const struct simplify_rule *rule,
                            const struct node *node, struct simplify_found *ret) {
    int from, by, to;
    (void)rule;
    return finds_casts(s, node, ret, &from, &by, &to) && from != to &&
           (!number_types[by].is_float || embeds(from, to));
}

/* ---- neutral values ---- */

/* Ops whose results are rounded floats: no denormal, no signalling NaN. */
static bool is_rounded(const struct node *node) {
    static const char *const ops[] = {"Add",     "AddV2",  "BiasAdd",           "Div", "Mul",
                                      "RealDiv", "Square", "SquaredDifference", "Sub"};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (node_is_op(node, ops[i]))
            return true;
    return false;
}

/* Has the result of broadcasting the constant and x the shape of x? */
static bool keeps_shape_of(struct simplifier *s, const struct tensor *t,
                           const struct node_input *x) {
    if (t->rank == 0)
        return true;
    struct shape shape = simplify_shape(s, x);
    if (shape.rank < t->rank)
        return false;
    for (int i = 1; i <= t->rank; i++) {
        int64_t size = tensor_dim(t, t->rank - i);
        if (size != 1 && size != shape.dims[shape.rank - i])
            return false;
    }
    return true;
}

static bool is_neutral(struct simplifier *s, const struct simplify_rule *rule,
                       const struct node *node, int at, struct simplify_found *ret) {
    const struct tensor *t = simplify_const(&node->inputs[at]);
    const struct node_input *x = &node->inputs[1 - at];
    ret->value = *x;
    return t && simplify_const_is(t, rule->neutral) &&
           (!dtype_in((enum dtype)t->dtype, DTYPES_REAL_FLOAT) || is_rounded(x->src)) &&
           keeps_shape_of(s, t, x);
}

bool simplify_is_neutral_right(struct simplifier *s, const struct simplify_rule *rule,
                               const struct node *node, struct simplify_found *ret) {
    return is_neutral(s, rule, node, 1, ret);
}

bool simplify_is_neutral(struct simplifier *s, const struct simplify_rule *rule,
                         const struct node *node, struct simplify_found *ret) {
    return is_neutral(s, rule, node, 1, ret) || is_neutral(s, rule, node, 0, ret);
}

/* ---- sums, choices ---- */

bool simplify_adds_one_input(struct simplifier *s, const struct simplify_rule *rule,
                             const struct node *node, struct simplify_found *ret) {
    (void)s;
    (void)rule;
    ret->value = node->inputs[0];
    return node->n_data == 1;
}

bool simplify_chooses_equal(struct simplifier *s, const struct simplify_rule *rule,
                            const struct node *node, struct simplify_found *ret) {
    (void)rule;
    ret->value = node->inputs[1];
    if (!same_edge(&node->inputs[1], &node->inputs[2]))
        return false;
    struct shape condition = simplify_shape(s, &node->inputs[0]);
    return condition.rank == 0 || (shape_is_full(condition) &&
                                   shape_equal(condition, simplify_shape(s, &node->inputs[1])));
}

bool simplify_reduces_nothing(struct simplifier *s, const struct simplify_rule *rule,
                              const struct node *node, struct simplify_found *ret) {
    const struct attr_value *keep_dims = node_attr(node, "keep_dims");
    int64_t *axes;
    int n = simplify_const_ints(s, &node->inputs[1], &axes);
    (void)rule;
    ret->value = node->inputs[0];
    if (n <= 0)
        return n == 0 && simplify_const(&node->inputs[1])->rank == 1;
    struct shape shape = simplify_shape(s, &node->inputs[0]);
    if (shape.rank < 1 || !keep_dims || !keep_dims->b || simplify_const(&node->inputs[1])->rank > 1)
        return false;
    bool is_reduced[SHAPE_MAX_RANK] = {false};
    for (int i = 0; i < n; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + shape.rank : axes[i];
        if (axis < 0 || axis >= shape.rank || is_reduced[axis] || shape.dims[axis] != 1)
            return false;
        is_reduced[axis] = true;
    }
    return true;
}

/* ---- constants that meet ---- */

static bool is_scalar_const(const struct node_input *in) {
    const struct tensor *t = node_is_op(in->src, "Const") ? simplify_const(in) : NULL;
    return t && t->rank == 0;
}

bool simplify_has_two_constants(struct simplifier *s, const struct simplify_rule *rule,
                                const struct node *node, struct simplify_found *ret) {
    for (int at = 0; at < 2; at++) {
        const struct node *inner = producer(s, &node->inputs[1 - at], rule->op);
        if (!inner || !is_scalar_const(&node->inputs[at]))
            continue;
        int inner_at = is_scalar_const(&inner->inputs[1]) ? 1 : 0;
        if (!is_scalar_const(&inner->inputs[inner_at]) ||
            is_scalar_const(&inner->inputs[1 - inner_at]) || inner->n_inputs > inner->n_data)
            continue;
        ret->input = 1 - at;
        ret->bypassed = node->inputs[1 - at].src;
        ret->value = inner->inputs[1 - inner_at];
        return simplify_is_plain(s, &ret->value);
    }
    return false;
}

/* ---- broadcasts ---- */

/* What a BroadcastTo or Fill of a known shape repeats, if it cannot fail. */
static struct node_input repeated(struct simplifier *s, const struct node_input *in,
                                  struct shape shape) {
    const struct node *src = in->src;
    if (in->index != 0 || src->n_data != 2)
        return none;
    if (node_is_op(src, "Fill"))
        return simplify_shape(s, &src->inputs[1]).rank == 0 ? src->inputs[1] : none;
    struct shape from = simplify_shape(s, &src->inputs[0]);
    if (!node_is_op(src, "BroadcastTo") || !shape_is_full(from) || from.rank > shape.rank)
        return none;
    for (int i = 1; i <= from.rank; i++)
        if (from.dims[from.rank - i] != 1 && from.dims[from.rank - i] != shape.dims[shape.rank - i])
            return none;
    return src->inputs[0];
}

/* Of two NaNs, a sum or a product of floats is the first. Kernels swap the operands where only the
 * second one repeats. */
static bool is_swapped(const struct node *node, int at) {
    return at == 1 && !dtype_in((enum dtype)node->in_types[0], DTYPES_INT) &&
           (node_is_either(node, "Add", "AddV2") || node_is_op(node, "Mul"));
}

bool simplify_is_broadcast_anyway(struct simplifier *s, const struct simplify_rule *rule,
                                  const struct node *node, struct simplify_found *ret) {
    (void)rule;
    for (int at = 0; at < 2; at++) {
        const struct node_input *in = &node->inputs[at];
        if (is_swapped(node, at) ||
            (!node_is_op(in->src, "Fill") && !node_is_op(in->src, "BroadcastTo")))
            continue;
        struct shape shape = simplify_shape(s, in);
        if (!shape_is_full(shape) ||
            !shape_equal(shape, simplify_shape(s, &node->inputs[1 - at])) ||
            in->src == node->inputs[1 - at].src)
            continue;
        ret->value = repeated(s, in, shape);
        ret->input = at;
        ret->bypassed = in->src;
        if (ret->value.src && simplify_is_plain(s, &ret->value))
            return true;
    }
    return false;
}

/* ---- results that are joined ---- */

static bool same_op(const struct node *a, const struct node *b) {
    if (a->op != b->op || a->n_attrs != b->n_attrs)
        return false;
    for (int i = 0; i < a->n_attrs; i++)
        if (strcmp(a->attrs[i].name, b->attrs[i].name) != 0 ||
            !attr_value_equal(&a->attrs[i].value, &b->attrs[i].value))
            return false;
    return true;
}

static bool has_one_use(const struct simplifier *s, const struct node *node,
                        const struct node *user) {
    return node->n_data == 1 && node->n_inputs == 1 && node->n_outputs == 1 &&
           s->n_consumers[node->id] == 1 && !s->is_kept[node->id] &&
           strcmp(node->device, user->device) == 0 && node->placed == user->placed &&
           simplify_is_plain(s, &node->inputs[0]);
}

bool simplify_joins_results(struct simplifier *s, const struct simplify_rule *rule,
                            const struct node *node, struct simplify_found *ret) {
    struct node *first = node->inputs[0].src;
    (void)rule;
    if (s->is_kept[node->id] || !simplify_has_kernel(first, KERNEL_ELEMENTWISE))
        return false;
    for (int i = 0; i < node->n_data - 1; i++) {
        const struct node *src = node->inputs[i].src;
        if (!has_one_use(s, src, node) || !same_op(src, first))
            return false;
    }
    ret->bypassed = first;
    ret->value = first->inputs[0];
    return node->n_data > 2;
}
