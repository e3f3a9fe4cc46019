/* What must hold so that an op that moves elements, or asks for a shape, does nothing (simplify.h).
 *
 * An op that could fail is left out only if the shapes prove that it does not: Transpose(x, [0, 1])
 * fails where x has another rank. */
#include "kernels/kernel.h"
#include "master/compile/rewrite/simplify.h"

/* TensorFlow's kernels that move elements refuse higher ranks, each its own. */
enum { SAFE_RANK = 5 };

static bool same_edge(const struct node_input *a, const struct node_input *b) {
    return a->src == b->src && a->index == b->index;
}

static int rank_of(struct simplifier *s, const struct node_input *in) {
    return simplify_shape(s, in).rank;
}

/* The producer of input 0 if it is of this op and takes a plain value. */
static const struct node *inner_of(const struct simplifier *s, const struct node *node,
                                   const char *op) {
    const struct node_input *in = &node->inputs[0];
    return in->index == 0 && node_is_op(in->src, op) && in->src->n_data > 0 &&
                   simplify_is_plain(s, &in->src->inputs[0])
               ? in->src
               : NULL;
}

static bool takes_from_inner(const struct node *node, struct simplify_found *ret) {
    ret->bypassed = node->inputs[0].src;
    ret->value = ret->bypassed->inputs[0];
    return true;
}

static bool all_are(const int64_t *values, int n, int64_t value) {
    for (int i = 0; i < n; i++)
        if (values[i] != value)
            return false;
    return true;
}

/* ---- Transpose, ReverseV2 ---- */

bool simplify_transposes_nothing(struct simplifier *s, const struct simplify_rule *rule,
                                 const struct node *node, struct simplify_found *ret) {
    int64_t *perm;
    int n = simplify_const_ints(s, &node->inputs[1], &perm);
    (void)rule;
    for (int i = 0; i < n; i++)
        if (perm[i] != i)
            return false;
    ret->value = node->inputs[0];
    return n >= 1 && n <= SAFE_RANK && rank_of(s, &node->inputs[0]) == n;
}

bool simplify_transposes_back(struct simplifier *s, const struct simplify_rule *rule,
                              const struct node *node, struct simplify_found *ret) {
    const struct node *inner = inner_of(s, node, "Transpose");
    int64_t *first, *then;
    (void)rule;
    if (!inner)
        return false;
    int n = simplify_const_ints(s, &inner->inputs[1], &first);
    if (n < 1 || n > SAFE_RANK || simplify_const_ints(s, &node->inputs[1], &then) != n)
        return false;
    for (int i = 0; i < n; i++)
        if (then[i] < 0 || then[i] >= n || first[then[i]] != i)
            return false;
    return rank_of(s, &inner->inputs[0]) == n && takes_from_inner(node, ret);
}

bool simplify_reverses_nothing(struct simplifier *s, const struct simplify_rule *rule,
                               const struct node *node, struct simplify_found *ret) {
    int64_t *axes;
    (void)rule;
    ret->value = node->inputs[0];
    if (simplify_const_ints(s, &node->inputs[1], &axes) != 0 ||
        simplify_const(&node->inputs[1])->rank != 1)
        return false;
    int rank = rank_of(s, &node->inputs[0]);
    return rank >= 0 && rank <= SAFE_RANK;
}

bool simplify_reverses_back(struct simplifier *s, const struct simplify_rule *rule,
                            const struct node *node, struct simplify_found *ret) {
    const struct node *inner = inner_of(s, node, "ReverseV2");
    int64_t *first, *then;
    bool is_reversed[SAFE_RANK] = {false};
    (void)rule;
    if (!inner)
        return false;
    int n = simplify_const_ints(s, &inner->inputs[1], &first);
    if (n < 1 || simplify_const_ints(s, &node->inputs[1], &then) != n)
        return false;
    int rank = rank_of(s, &inner->inputs[0]);
    for (int i = 0; i < n; i++) {
        int64_t axis = first[i] < 0 ? first[i] + rank : first[i];
        if (first[i] != then[i] || axis < 0 || axis >= MIN(rank, SAFE_RANK) || is_reversed[axis])
            return false;
        is_reversed[axis] = true;
    }
    return rank <= SAFE_RANK && takes_from_inner(node, ret);
}

/* ---- shapes that stay ---- */

bool simplify_keeps_shape(struct simplifier *s, const struct simplify_rule *rule,
                          const struct node *node, struct simplify_found *ret) {
    struct shape in = simplify_shape(s, &node->inputs[0]);
    (void)rule;
    ret->value = node->inputs[0];
    return shape_is_full(in) && in.rank <= SAFE_RANK &&
           shape_equal(in, simplify_shape(s, &(struct node_input){(struct node *)node, 0}));
}

/* Reshape(x, Shape(x)), and Reshape(x, dims) where the dims that are not -1 are those of x. */
bool simplify_reshapes_to_own(struct simplifier *s, const struct simplify_rule *rule,
                              const struct node *node, struct simplify_found *ret) {
    const struct node_input *x = &node->inputs[0], *to = &node->inputs[1];
    int64_t *dims;
    int n_unknown = 0;
    (void)rule;
    ret->value = *x;
    if (to->index == 0 && node_is_op(to->src, "Shape") && same_edge(&to->src->inputs[0], x))
        return true;
    int n = simplify_const_ints(s, to, &dims);
    if (!node_is_op(node, "Reshape") || n < 1 || simplify_const(to)->rank != 1)
        return false;
    struct shape shape = simplify_shape(s, x);
    if (shape.rank != n)
        return false;
    for (int i = 0; i < n; i++) {
        n_unknown += dims[i] == -1;
        if (dims[i] != -1 && (dims[i] == 0 || dims[i] != shape.dims[i]))
            return false;
    }
    return n_unknown <= 1;
}

/* Can the Reshape not fail? */
static bool reshapes_surely(struct simplifier *s, const struct node *reshape) {
    int64_t *dims;
    if (simplify_const_ints(s, &reshape->inputs[1], &dims) == 1 && dims[0] == -1 &&
        simplify_const(&reshape->inputs[1])->rank == 1)
        return true;
    return shape_is_full(simplify_shape(s, &reshape->inputs[0])) &&
           shape_is_full(simplify_shape(s, &(struct node_input){(struct node *)reshape, 0}));
}

static bool has_elements(struct shape shape) {
    for (int i = 0; i < shape.rank; i++)
        if (shape.dims[i] <= 0)
            return false;
    return shape_is_full(shape);
}

/* Does the result depend on the number of elements alone? Where a tensor is empty, [-1, 0] depends
 * on its sizes: of [0, 3] it makes [3, 0], and of [0] it makes [1, 0]. */
static bool asks_for_number(struct simplifier *s, const struct node *reshape) {
    const struct node_input *to = &reshape->inputs[1];
    int64_t *dims;
    bool is_inferred = false, is_empty = false;
    int n = simplify_const_ints(s, to, &dims);
    for (int i = 0; i < n; i++) {
        is_inferred = is_inferred || dims[i] == -1;
        is_empty = is_empty || dims[i] == 0;
    }
    if (n >= 0 ? !(is_inferred && is_empty) : to->index == 0 && node_is_op(to->src, "Shape"))
        return true;
    return has_elements(simplify_shape(s, &reshape->inputs[0]));
}

bool simplify_reshapes_again(struct simplifier *s, const struct simplify_rule *rule,
                             const struct node *node, struct simplify_found *ret) {
    const struct node *inner = inner_of(s, node, "Reshape");
    (void)rule;
    ret->input = 0;
    return inner && reshapes_surely(s, inner) && asks_for_number(s, node) &&
           takes_from_inner(node, ret);
}

bool simplify_squeezes_expanded(struct simplifier *s, const struct simplify_rule *rule,
                                const struct node *node, struct simplify_found *ret) {
    const struct node *inner = inner_of(s, node, "ExpandDims");
    const struct attr_value *dims = node_attr(node, "squeeze_dims");
    int64_t *axis;
    (void)rule;
    if (!inner || !dims || dims->type != ATTR_LIST_INT || dims->list.n_values != 1 ||
        simplify_const_ints(s, &inner->inputs[1], &axis) != 1)
        return false;
    int64_t squeezed = dims->list.values[0].i, expanded = axis[0];
    if (squeezed == expanded && (expanded == 0 || expanded == -1))
        return takes_from_inner(node, ret);
    int rank = rank_of(s, &inner->inputs[0]) + 1;
    squeezed += squeezed < 0 ? rank : 0;
    expanded += expanded < 0 ? rank : 0;
    return rank > 0 && squeezed == expanded && expanded >= 0 && expanded < rank &&
           takes_from_inner(node, ret);
}

/* ---- parts that are everything ---- */

bool simplify_tiles_once(struct simplifier *s, const struct simplify_rule *rule,
                         const struct node *node, struct simplify_found *ret) {
    int64_t *multiples;
    int n = simplify_const_ints(s, &node->inputs[1], &multiples);
    (void)rule;
    ret->value = node->inputs[0];
    return n >= 1 && n <= SAFE_RANK && all_are(multiples, n, 1) &&
           simplify_const(&node->inputs[1])->rank == 1 && rank_of(s, &node->inputs[0]) == n;
}

bool simplify_pads_nothing(struct simplifier *s, const struct simplify_rule *rule,
                           const struct node *node, struct simplify_found *ret) {
    int64_t *paddings;
    int n = simplify_const_ints(s, &node->inputs[1], &paddings);
    (void)rule;
    ret->value = node->inputs[0];
    if (n < 2 || n > 2 * SAFE_RANK || !all_are(paddings, n, 0))
        return false;
    const struct tensor *t = simplify_const(&node->inputs[1]);
    if (node->n_data == 3 && rank_of(s, &node->inputs[2]) != 0)
        return false; /* PadV2 refuses it */
    return t->rank == 2 && tensor_dim(t, 1) == 2 && 2 * rank_of(s, &node->inputs[0]) == n;
}

bool simplify_slices_all(struct simplifier *s, const struct simplify_rule *rule,
                         const struct node *node, struct simplify_found *ret) {
    int64_t *begin, *size;
    int n = simplify_const_ints(s, &node->inputs[1], &begin);
    (void)rule;
    ret->value = node->inputs[0];
    if (n < 1 || n > SAFE_RANK || !all_are(begin, n, 0) ||
        simplify_const_ints(s, &node->inputs[2], &size) != n ||
        simplify_const(&node->inputs[1])->rank != 1 || simplify_const(&node->inputs[2])->rank != 1)
        return false;
    struct shape shape = simplify_shape(s, &node->inputs[0]);
    if (shape.rank != n)
        return false;
    for (int i = 0; i < n; i++)
        if (size[i] != -1 && (size[i] != shape.dims[i] || size[i] < 0))
            return false;
    return true;
}

static int64_t int_attr(const struct node *node, const char *name) {
    const struct attr_value *value = node_attr(node, name);
    return value && value->type == ATTR_INT ? value->i : -1;
}

/* x[:, :]: each begin and end is masked or, for a begin, 0. */
bool simplify_strides_over_all(struct simplifier *s, const struct simplify_rule *rule,
                               const struct node *node, struct simplify_found *ret) {
    int64_t *begin, *end, *strides;
    (void)rule;
    ret->value = node->inputs[0];
    if (int_attr(node, "ellipsis_mask") != 0 || int_attr(node, "new_axis_mask") != 0 ||
        int_attr(node, "shrink_axis_mask") != 0)
        return false;
    int n = simplify_const_ints(s, &node->inputs[3], &strides);
    if (n < 1 || n > SAFE_RANK || !all_are(strides, n, 1) ||
        simplify_const_ints(s, &node->inputs[1], &begin) != n ||
        simplify_const_ints(s, &node->inputs[2], &end) != n)
        return false;
    for (int i = 0; i < 3; i++)
        if (simplify_const(&node->inputs[1 + i])->rank != 1)
            return false;
    for (int i = 0; i < n; i++)
        if (!(int_attr(node, "end_mask") >> i & 1) ||
            (!(int_attr(node, "begin_mask") >> i & 1) && begin[i] != 0))
            return false;
    int rank = rank_of(s, &node->inputs[0]);
    return rank >= n && rank <= SAFE_RANK;
}

static bool is_axis(struct simplifier *s, const struct node_input *axis_input, int rank) {
    int64_t *axis;
    return simplify_const_ints(s, axis_input, &axis) == 1 &&
           simplify_const(axis_input)->rank == 0 && axis[0] >= -rank && axis[0] < rank;
}

/* Split(axis, x) and SplitV(x, sizes, axis) with one output. */
bool simplify_splits_in_one(struct simplifier *s, const struct simplify_rule *rule,
                            const struct node *node, struct simplify_found *ret) {
    bool has_sizes = node_is_op(node, "SplitV");
    const struct node_input *x = &node->inputs[has_sizes ? 0 : 1];
    int64_t *sizes;
    (void)rule;
    ret->value = *x;
    if (node->n_outputs != 1)
        return false;
    if (has_sizes && (simplify_const_ints(s, &node->inputs[1], &sizes) != 1 || sizes[0] != -1 ||
                      simplify_const(&node->inputs[1])->rank != 1))
        return false;
    int rank = rank_of(s, x);
    return rank >= 1 && rank <= SAFE_RANK && is_axis(s, &node->inputs[has_sizes ? 2 : 0], rank);
}

/* ---- questions about shapes ---- */

/* Sets *ret to n integers, a scalar if is_scalar. False if one does not fit the type. */
static bool make_ints(enum dtype type, bool is_scalar, const int64_t *values, int64_t n,
                      struct tensor *ret) {
    struct shape shape = is_scalar ? SHAPE_SCALAR : (struct shape){1, &n};
    for (int64_t i = 0; i < n; i++)
        if (type == DT_INT32 && values[i] > INT32_MAX)
            return false;
    struct status *st = tensor_new(allocator_host(), type, shape, ret);
    if (st) {
        status_unref(st);
        return false;
    }
    for (int64_t i = 0; i < n; i++)
        tensor_set_index(ret, i, values[i]);
    return true;
}

bool simplify_knows_shape(struct simplifier *s, const struct simplify_rule *rule,
                          const struct node *node, struct simplify_found *ret) {
    enum dtype type = (enum dtype)node->out_types[0];
    struct shape shape = simplify_shape(s, &node->inputs[0]);
    int64_t n, rank = shape.rank;
    (void)rule;
    if (node_is_op(node, "Rank"))
        return rank >= 0 && make_ints(type, true, &rank, 1, &ret->constant);
    if (!shape_is_full(shape) || !dtype_in(type, DTYPES_INDEX))
        return false;
    if (node_is_op(node, "Shape"))
        return make_ints(type, false, shape.dims, rank, &ret->constant);
    struct status *st = shape_n_elements(shape, &n);
    bool is_known = !st;
    status_unref(st);
    return is_known && make_ints(type, true, &n, 1, &ret->constant);
}

bool simplify_asks_shape_of_result(struct simplifier *s, const struct simplify_rule *rule,
                                   const struct node *node, struct simplify_found *ret) {
    const struct node *src = node->inputs[0].src;
    (void)rule;
    if (src->n_data != 1 || src->n_outputs != 1 || !simplify_is_plain(s, &src->inputs[0]) ||
        !simplify_has_kernel(src, KERNEL_ELEMENTWISE))
        return false;
    ret->input = 0;
    ret->type_attr = "T";
    return takes_from_inner(node, ret);
}
