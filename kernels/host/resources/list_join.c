/* Computes the ops that make one tensor of many elements of a list: stack, gather, concat. Elements
 * that were never set count as zeros. */
#include "kernels/host/resources/list_internal.h"

#include <stdlib.h>

#include "kernels/host/resources/join_parts.h"
#include "kernels/support/device_engine.h"

extern const struct kernel_list list_join_kernels;

static const struct tensor *part_at(const struct tensor_list *list, const struct tensor *indices,
                                    int64_t i) {
    return &list->elements[indices ? tensor_index_at(indices, i) : i];
}

/* Makes an output of shape [n] + inner, where inner begins at dimension `from` of a shape. */
static struct status *alloc_joined(struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
                                   struct shape inner) {
    int64_t dims[SHAPE_MAX_RANK + 1];
    if (inner.rank + 1 > SHAPE_MAX_RANK)
        return status_invalid("A stack of elements of rank %d is beyond the limit of %d dimensions",
                              inner.rank, SHAPE_MAX_RANK);
    dims[0] = n;
    for (int i = 0; i < inner.rank; i++)
        dims[i + 1] = inner.dims[i];
    return kernel_alloc(ctx, 0, dtype, (struct shape){inner.rank + 1, dims});
}

/* ---- TensorListStack, TensorListGather ---- */

/* The texts by which an op reports a shape that stays unknown. */
struct stack_words {
    const char *nothing, *unset;
};
static const struct stack_words words_of_stack = {
    "Tried to stack elements of an empty list with non-fully-defined element_shape: ",
    "Tried to stack list which only contains uninitialized tensors and has a non-fully-defined "
    "element_shape: ",
};
static const struct stack_words words_of_gather = {
    "Tried to gather 0-elements from a list with non-fully-defined shape: ",
    "Tried to gather uninitialized tensors from a list with non-fully-defined element_shape: ",
};

static struct status *stack_parts(struct kernel_ctx *ctx, const struct tensor_list *list,
                                  const struct tensor *indices, int64_t n,
                                  struct list_shape *shape) {
    const struct stack_words *words = ctx->instance->def->arg;
    const struct tensor *last = NULL;
    for (int64_t i = 0; i < n; i++) {
        const struct tensor *part = part_at(list, indices, i);
        if (part->storage == TENSOR_NONE ||
            (last && shape_equal(tensor_shape(last), tensor_shape(part))))
            continue;
        TRY(list_shape_merge(shape, tensor_shape(part)));
        last = part;
    }
    if (!shape_is_full(shape_of_list_shape(shape)))
        return status_invalid("%s%s", n == 0 ? words->nothing : words->unset,
                              SHAPE_TEXT(shape_of_list_shape(shape)));
    TRY(alloc_joined(ctx, list->dtype, n, shape_of_list_shape(shape)));
    struct join_parts join = {.dtype = list->dtype, .parts = list->elements, .indices = indices};
    join.part_len = n > 0 ? ctx->outputs[0].n_elements / n : 0;
    return join_parts(ctx, &join, n);
}

static struct status *stack_init(struct kernel_init *init) {
    int64_t *n = xmalloc(sizeof(*n));
    init->state = n;
    return node_get_i(init->node, "num_elements", n);
}

static enum kernel_result list_stack(struct kernel_ctx *ctx) {
    const int64_t *n_wanted = ctx->instance->state;
    struct tensor_list *list = NULL;
    struct list_shape shape;
    struct status *st = NULL;
    KERNEL_TRY(ctx, list_take(ctx, 0, &list));
    TRY_OUT(list_check_dtype(list, (enum dtype)ctx->instance->out_types[0]));
    TRY_OUT(list_shape_of_input(ctx, 1, list, &shape));
    TRY_OUT(list_bring_back(ctx, &list));
    if (*n_wanted >= 0 && *n_wanted != list->n)
        st = status_invalid(
            "Operation expected a list with %lld elements but got a list with %lld elements.",
            (long long)*n_wanted, (long long)list->n);
    else
        st = stack_parts(ctx, list, NULL, list->n, &shape);
out:
    tensor_list_unref(list);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static enum kernel_result list_gather(struct kernel_ctx *ctx) {
    const struct tensor *indices = kernel_input(ctx, 1);
    struct tensor_list *list = NULL;
    struct list_shape shape;
    struct status *st = NULL;
    KERNEL_TRY(ctx, list_take(ctx, 0, &list));
    TRY_OUT(list_check_dtype(list, (enum dtype)ctx->instance->out_types[0]));
    TRY_OUT(list_shape_of_input(ctx, 2, list, &shape));
    TRY_OUT(list_bring_back(ctx, &list));
    for (int64_t i = 0; i < indices->n_elements; i++) {
        int64_t index = tensor_index_at(indices, i);
        if (unlikely(index < 0 || index >= list->n)) {
            st = status_invalid("Trying to gather element %lld in a list with %lld elements.",
                                (long long)index, (long long)list->n);
            goto out;
        }
    }
    st = stack_parts(ctx, list, indices, indices->n_elements, &shape);
out:
    tensor_list_unref(list);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- TensorListConcat, TensorListConcatV2 ---- */

/* What is known of the parts: their first size (-1 when the sizes differ or are unknown), and the
 * other sizes. */
struct concat_shape {
    int64_t n_rows;
    bool is_fixed; /* the op requests n_rows, so every part must have this many */
    struct list_shape rest;
};

static struct status *concat_v1_init(struct kernel_init *init) {
    struct shape *shape = xmalloc(sizeof(*shape)); /* the sizes are borrowed from the node */
    init->state = shape;
    return node_get_shape(init->node, "element_shape", shape);
}

static void concat_shape_of(struct shape element, struct concat_shape *ret) {
    ret->n_rows = element.rank > 0 ? element.dims[0] : -1;
    ret->is_fixed = ret->n_rows >= 0;
    ret->rest.rank = element.rank < 0 ? SHAPE_UNKNOWN_RANK : element.rank - 1;
    for (int i = 0; i < ret->rest.rank; i++)
        ret->rest.dims[i] = element.dims[i + 1];
}

/* Reads the requested shape. The first version uses its attr for the first size, and the list only
 * for the others. The second version uses its input and the list. */
static struct status *concat_asked(struct kernel_ctx *ctx, const struct tensor_list *list,
                                   struct concat_shape *ret) {
    const struct shape *attr = ctx->instance->state;
    struct list_shape element;
    if (attr) {
        if (attr->rank == 0)
            return status_invalid("element_shape must not be empty");
        concat_shape_of(*attr, ret);
        ret->n_rows = -1;
        ret->is_fixed = false;
        return NULL;
    }
    TRY(list_shape_of_input(ctx, 1, list, &element));
    if (element.rank == 0)
        return status_invalid(
            "Concat requires elements to be at least vectors, found scalars instead.");
    concat_shape_of(shape_of_list_shape(&element), ret);
    return NULL;
}

/* Adds what the elements that are set tell. */
static struct status *concat_learn(const struct tensor_list *list, struct concat_shape *shape) {
    bool is_first = true;
    for (int64_t i = 0; i < list->n; i++) {
        const struct tensor *part = &list->elements[i];
        if (part->storage == TENSOR_NONE)
            continue;
        if (part->rank == 0)
            return status_invalid(
                "Concat saw a scalar shape at index %lld but requires at least vectors.",
                (long long)i);
        TRY(list_shape_merge(&shape->rest, (struct shape){part->rank - 1, tensor_dims(part) + 1}));
        int64_t n_rows = tensor_dim(part, 0);
        if (shape->is_fixed && n_rows != shape->n_rows)
            return status_invalid("First entry of element_shape input does not match the first dim "
                                  "of list element at index: %lld "
                                  "Expected: %lld Actual: %lld",
                                  (long long)i, (long long)shape->n_rows, (long long)n_rows);
        if (!shape->is_fixed && !shape_is_full(list->element_shape))
            shape->n_rows = is_first || shape->n_rows == n_rows ? n_rows : -1;
        is_first = false;
    }
    return NULL;
}

/* How many rows element i has when it was never set. */
static struct status *unset_rows(struct kernel_ctx *ctx, const struct concat_shape *shape,
                                 int64_t i, int64_t *ret) {
    const struct tensor *leading = ctx->instance->n_inputs > 2 ? kernel_input(ctx, 2) : NULL;
    if ((!leading || leading->n_elements == 0) && shape->n_rows >= 0) {
        *ret = shape->n_rows;
        return NULL;
    }
    if (!leading)
        return status_invalid("Concating lists with uninitialized tensors is not supported in this "
                              "version of TensorListConcat. Consider "
                              "updating your GraphDef to run the newer version.");
    if (leading->rank != 1)
        return status_invalid("leading_dims must be a vector, but has shape %s",
                              TENSOR_SHAPE_TEXT(leading));
    if (i >= leading->n_elements)
        return status_invalid("List contains uninitialized tensor at index %lld but leading_dims "
                              "has only %lld elements.",
                              (long long)i, (long long)leading->n_elements);
    *ret = tensor_index_at(leading, i);
    if (*ret < 0)
        return status_invalid("leading_dims must not be negative, but is %lld at index %lld",
                              (long long)*ret, (long long)i);
    return NULL;
}

/* Makes the lengths (output 1), and the offsets of n + 1 parts of `row_len` elements in a row. */
static struct status *concat_measure(struct kernel_ctx *ctx, const struct tensor_list *list,
                                     const struct concat_shape *shape, int64_t row_len,
                                     int64_t *offsets, int64_t *ret_n_rows) {
    int64_t *lengths = tensor_data(&ctx->outputs[1]), total = 0;
    offsets[0] = 0;
    for (int64_t i = 0; i < list->n; i++) {
        if (tensor_list_has(list, i))
            lengths[i] = tensor_dim(&list->elements[i], 0);
        else
            TRY(unset_rows(ctx, shape, i, &lengths[i]));
        if (add_overflows_i64(total, lengths[i], &total) ||
            mul_overflows_i64(total, row_len, &offsets[i + 1]))
            return status_invalid(
                "The elements of the list have more rows together than fit into one tensor");
    }
    *ret_n_rows = total;
    return NULL;
}

static struct status *concat_parts(struct kernel_ctx *ctx, const struct tensor_list *list,
                                   const struct concat_shape *shape) {
    struct shape rest = shape_of_list_shape(&shape->rest);
    int64_t n = list->n, n_rows = 0, row_len = 0;
    TRY(shape_n_elements(rest, &row_len));
    /* The lengths are in host memory also where the elements are on a device. */
    TRY(tensor_new(kernel_is_for_device(ctx) ? allocator_host() : ctx->instance->allocator,
                   DT_INT64, (struct shape){1, &n}, &ctx->outputs[1]));
    int64_t *offsets = n < INT64_MAX / 16 ? malloc((size_t)(n + 1) * sizeof(*offsets)) : NULL;
    if (!offsets)
        return status_exhausted("Out of memory for the %lld elements of a list", (long long)n);
    struct status *st = concat_measure(ctx, list, shape, row_len, offsets, &n_rows);
    if (!st)
        st = alloc_joined(ctx, list->dtype, n_rows, rest);
    if (!st) {
        struct join_parts join = {
            .dtype = list->dtype, .parts = list->elements, .offsets = offsets};
        st = join_parts(ctx, &join, n);
    }
    free(offsets);
    return st;
}

static struct status *concat_all(struct kernel_ctx *ctx, const struct tensor_list *list) {
    struct concat_shape shape;
    TRY(concat_asked(ctx, list, &shape));
    struct shape rest = shape_of_list_shape(&shape.rest);
    if (list->n == 0 && !shape_is_full(rest))
        return status_invalid("All except the first dimension must be fully defined when concating "
                              "an empty tensor list. element_shape: %s",
                              SHAPE_TEXT(rest));
    bool is_learning = ctx->instance->state == NULL || !shape_is_full(list->element_shape);
    if (is_learning)
        TRY(concat_learn(list, &shape));
    rest = shape_of_list_shape(&shape.rest);
    if (!shape_is_full(rest))
        return status_invalid("Trying to concat list with only uninitialized tensors but "
                              "element_shape_except_first_dim is not fully defined: %s",
                              SHAPE_TEXT(rest));
    if (!is_learning) /* elements that are set must still fit */
        TRY(concat_learn(list, &shape));
    return concat_parts(ctx, list, &shape);
}

static enum kernel_result list_concat(struct kernel_ctx *ctx) {
    struct tensor_list *list = NULL;
    struct status *st = NULL;
    KERNEL_TRY(ctx, list_take(ctx, 0, &list));
    TRY_OUT(list_check_dtype(list, (enum dtype)ctx->instance->out_types[0]));
    TRY_OUT(list_bring_back(ctx, &list));
    st = concat_all(ctx, list);
out:
    tensor_list_unref(list);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "TensorListStack", {{"element_dtype", TYPES_LIST}}, .compute = list_stack,
     .init = stack_init, .arg = &words_of_stack},
    {.op = "TensorListGather", {{"element_dtype", TYPES_LIST}}, .compute = list_gather,
     .arg = &words_of_gather},
    {.op = "TensorListConcat", {{"element_dtype", TYPES_LIST}}, .compute = list_concat,
     .init = concat_v1_init},
    {.op = "TensorListConcatV2", {{"element_dtype", TYPES_LIST}}, .compute = list_concat},
};
// clang-format on

const struct kernel_list list_join_kernels = {rows, ARRAY_LEN(rows)};
