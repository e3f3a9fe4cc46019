/* Lets products read transposed operands in place [WP 5.1].
 *
 *   t = Transpose(x, [0, 2, 1])   r = BatchMatMulV2(t, y)
 *      =>  r = BatchMatMulV2(x, y) {adj_x=true}
 *
 * A matrix is transposed by MatMul, and transposed and conjugated by the batch products. So of
 * complex numbers MatMul takes in a Transpose, and a batch product a ConjugateTranspose. The rows
 * work in the sweep of `simplify` (simplify.h).
 *
 * The pass is off by default, because products of transposed operands may sum in another order.
 * Also, a Transpose that would fail (an operand of another rank) fails no longer, or as a
 * product. */
#include "master/compile/rewrite/simplify.h"

static const char *flip_attr(const struct node *product, int input) {
    static const char *const plain[] = {"transpose_a", "transpose_b"}, *const batch[] = {"adj_x",
                                                                                         "adj_y"};
    return (node_is_op(product, "MatMul") ? plain : batch)[input];
}

static bool is_right_op(const struct node *product, const struct node *src) {
    bool is_conjugate = node_is_op(src, "ConjugateTranspose");
    if (!is_conjugate && !node_is_op(src, "Transpose"))
        return false;
    return !dtype_in((enum dtype)product->in_types[0], DTYPES_COMPLEX) ||
           is_conjugate == !node_is_op(product, "MatMul");
}

static bool swaps_last(const int64_t *order, int n) {
    for (int i = 0; i < n - 2; i++)
        if (order[i] != i)
            return false;
    return n >= 2 && order[n - 2] == n - 1 && order[n - 1] == n - 2;
}

static bool takes_transposed(struct simplifier *s, const struct simplify_rule *rule,
                             const struct node *node, struct simplify_found *ret) {
    (void)rule;
    for (int i = 0; i < 2; i++) {
        struct node *src = node->inputs[i].src;
        int64_t *order;
        if (!is_right_op(node, src) || strcmp(src->device, node->device) != 0 ||
            !simplify_is_plain(s, &src->inputs[0]) || !node_attr(node, flip_attr(node, i)))
            continue;
        int n = simplify_const_ints(s, &src->inputs[1], &order);
        if (!swaps_last(order, n) || (node_is_op(node, "MatMul") && n != 2))
            continue;
        ret->input = i;
        ret->bypassed = src;
        ret->value = src->inputs[0];
        return true;
    }
    return false;
}

static struct status *flip(struct simplifier *s, struct node *node,
                           const struct simplify_found *found) {
    const char *attr = flip_attr(node, found->input);
    bool is_flipped;
    TRY(node_get_b(node, attr, &is_flipped));
    TRY(simplify_take_input(s, node, found));
    if (s->changed)
        node_set_attr_b(&s->c->graph, node, attr, !is_flipped);
    return NULL;
}

#define FLIPS(op) \
    { op, takes_transposed, flip }
static const struct simplify_rule rules[] = {
    FLIPS("BatchMatMul"),
    FLIPS("BatchMatMulV2"),
    FLIPS("MatMul"),
};

struct status *pass_transposes(struct compilation *c, bool *ret_changed) {
    return simplify_sweep(c, &(struct simplify_table){.rules = rules, .n_rules = ARRAY_LEN(rules)},
                          ret_changed);
}
