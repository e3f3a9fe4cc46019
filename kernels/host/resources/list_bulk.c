/* Computes the ops that make lists of many elements: from a tensor's rows (FromTensor, Scatter,
 * Split), and from two lists.
 *
 * Nothing is copied: an element is a view of its rows. */
#include "kernels/host/resources/list_internal.h"
#include "kernels/support/dims.h"

#include <stdlib.h>

extern const struct kernel_list list_bulk_kernels;

static struct status *check_rows(const struct tensor *t) {
    if (t->rank >= 1)
        return NULL;
    return status_invalid("Tensor must be at least a vector, but saw shape: %s",
                          TENSOR_SHAPE_TEXT(t));
}

/* The requested element shape of a list of t's rows. */
static struct status *row_shape_asked(const struct kernel_ctx *ctx, int input,
                                      const struct tensor *t, struct list_shape *ret) {
    struct shape row = {t->rank - 1, tensor_dims(t) + 1};
    TRY(list_shape_read(kernel_input(ctx, input), ret));
    if (!shape_is_compatible(shape_of_list_shape(ret), row))
        return status_invalid("Specified a list with shape %s from a tensor with shape %s",
                              SHAPE_TEXT(shape_of_list_shape(ret)), SHAPE_TEXT(row));
    return NULL;
}

/* ---- TensorListFromTensor ---- */

static enum kernel_result list_from_tensor(struct kernel_ctx *ctx) {
    const struct tensor *rows = kernel_input(ctx, 0);
    struct list_shape shape;
    struct tensor_list *list = NULL;
    struct status *st = NULL;
    KERNEL_TRY(ctx, check_rows(rows));
    KERNEL_TRY(ctx, row_shape_asked(ctx, 1, rows, &shape));
    KERNEL_TRY(ctx, tensor_list_new((enum dtype)rows->dtype, shape_of_list_shape(&shape),
                                    tensor_dim(rows, 0), &list));
    for (int64_t i = 0; i < list->n; i++)
        TRY_OUT(list_set_row(list, i, rows, i));
    list_output(ctx, 0, list);
    return KERNEL_DONE;
out:
    tensor_list_unref(list);
    return kernel_fail(ctx, st);
}

/* ---- TensorListScatter, TensorListScatterV2, TensorListScatterIntoExistingList ---- */

/* Finds the highest index, or -1 when there are no indices. */
static struct status *scatter_highest(const struct tensor *indices, int64_t *ret) {
    *ret = -1;
    for (int64_t i = 0; i < indices->n_elements; i++) {
        int64_t index = tensor_index_at(indices, i);
        if (index < 0)
            return status_invalid("Indices in TensorListScatter must all be non-negative.");
        *ret = MAX(*ret, index);
    }
    return NULL;
}

static struct status *scatter_rows(struct tensor_list *list, const struct tensor *rows,
                                   const struct tensor *indices) {
    for (int64_t i = 0; i < indices->n_elements; i++)
        TRY(list_set_row(list, tensor_index_at(indices, i), rows, i));
    return NULL;
}

/* Computes how many elements the new list has. */
static struct status *scatter_size(const struct kernel_ctx *ctx, int64_t *ret) {
    const struct tensor *rows = kernel_input(ctx, 0), *indices = kernel_input(ctx, 1);
    int64_t n = -1, highest = -1;
    if (ctx->instance->n_inputs > 3) {
        TRY(list_scalar(kernel_input(ctx, 3), "num_elements must be a scalar, but has shape ", &n));
        if (n < -1)
            return status_invalid("TensorListScatter expects num_elements >= -1, found: %lld",
                                  (long long)n);
    }
    TRY(scatter_highest(indices, &highest));
    if (n >= 0 && highest >= n)
        return status_invalid(
            "TensorListScatter: Trying to scatter at index %lld in list with size %lld",
            (long long)highest, (long long)n);
    if (indices->n_elements != tensor_dim(rows, 0))
        return status_invalid("Invalid number of rows in input tensor. Expected: %lld Actual: %lld",
                              (long long)indices->n_elements, (long long)tensor_dim(rows, 0));
    *ret = n < 0 ? highest + 1 : n;
    return NULL;
}

static enum kernel_result list_scatter(struct kernel_ctx *ctx) {
    const struct tensor *rows = kernel_input(ctx, 0);
    struct list_shape shape;
    struct tensor_list *list = NULL;
    int64_t n = 0;
    KERNEL_TRY(ctx, check_rows(rows));
    KERNEL_TRY(ctx, row_shape_asked(ctx, 2, rows, &shape));
    KERNEL_TRY(ctx, scatter_size(ctx, &n));
    KERNEL_TRY(ctx,
               tensor_list_new((enum dtype)rows->dtype, shape_of_list_shape(&shape), n, &list));
    struct status *st = scatter_rows(list, rows, kernel_input(ctx, 1));
    if (st) {
        tensor_list_unref(list);
        return kernel_fail(ctx, st);
    }
    list_output(ctx, 0, list);
    return KERNEL_DONE;
}

static enum kernel_result list_scatter_into(struct kernel_ctx *ctx) {
    const struct tensor *rows = kernel_input(ctx, 1), *indices = kernel_input(ctx, 2);
    struct tensor_list *list = NULL;
    struct status *st = NULL;
    int64_t highest = -1;
    KERNEL_TRY(ctx, check_rows(rows));
    if (indices->rank != 1)
        return kernel_fail(ctx,
                           status_invalid("Expected indices to be a vector, but received shape: %s",
                                          TENSOR_SHAPE_TEXT(indices)));
    if (indices->n_elements != tensor_dim(rows, 0))
        return kernel_fail(
            ctx, status_invalid("Expected len(indices) == tensor.shape[0], but saw: %lld vs. %lld",
                                (long long)indices->n_elements, (long long)tensor_dim(rows, 0)));
    KERNEL_TRY(ctx, scatter_highest(indices, &highest));
    KERNEL_TRY(ctx, list_take(ctx, 0, &list));
    TRY_OUT(list_check_dtype(list, (enum dtype)rows->dtype));
    TRY_OUT(tensor_list_own(&list, MAX(list->n, highest + 1)));
    if (highest >= list->n)
        TRY_OUT(tensor_list_resize(list, highest + 1));
    TRY_OUT(scatter_rows(list, rows, indices));
    list_output(ctx, 0, list);
    return KERNEL_DONE;
out:
    tensor_list_unref(list);
    return kernel_fail(ctx, st);
}

/* ---- TensorListSplit ---- */

static struct status *split_check(const struct kernel_ctx *ctx, struct list_shape *shape) {
    const struct tensor *rows = kernel_input(ctx, 0), *lengths = kernel_input(ctx, 2);
    struct list_shape any_rows;
    TRY(check_rows(rows));
    TRY(list_shape_read(kernel_input(ctx, 1), shape));
    if (shape->rank == 0)
        return status_invalid(
            "TensorListSplit requires element_shape to be at least of rank 1, but saw: []");
    if (lengths->rank != 1)
        return status_invalid("Expected lengths to be a vector, received shape: %s",
                              TENSOR_SHAPE_TEXT(lengths));
    if (shape->rank < 0)
        return NULL;
    any_rows.rank = shape->rank;
    memcpy(any_rows.dims, shape->dims, (size_t)shape->rank * sizeof(shape->dims[0]));
    any_rows.dims[0] = -1;
    if (!shape_is_compatible(shape_of_list_shape(&any_rows), tensor_shape(rows)))
        return status_invalid("tensor shape %s is not compatible with element_shape %s",
                              TENSOR_SHAPE_TEXT(rows), SHAPE_TEXT(shape_of_list_shape(&any_rows)));
    return NULL;
}

static struct status *split_rows(struct tensor_list *list, const struct tensor *rows,
                                 const struct tensor *lengths) {
    int64_t row = 0, n_rows = tensor_dim(rows, 0);
    for (int64_t i = 0; i < list->n; i++) {
        int64_t length = tensor_index_at(lengths, i), end;
        if (length < 0)
            return status_invalid("Invalid value in lengths: %lld", (long long)length);
        if (add_overflows_i64(row, length, &end) || end > n_rows)
            return status_invalid("Attempting to slice [%lld, %lld] from tensor with length %lld",
                                  (long long)row,
                                  (long long)(length > INT64_MAX - row ? INT64_MAX : row + length),
                                  (long long)n_rows);
        struct tensor part = TENSOR_INIT;
        TRY(tensor_slice_rows(rows, row, end, &part));
        struct status *st = tensor_list_set(list, i, &part);
        tensor_clear(&part);
        TRY(st);
        row = end;
    }
    if (row != n_rows)
        return status_invalid("Unused values in tensor. Length of tensor: %lld Values used: %lld",
                              (long long)n_rows, (long long)row);
    return NULL;
}

static enum kernel_result list_split(struct kernel_ctx *ctx) {
    const struct tensor *rows = kernel_input(ctx, 0), *lengths = kernel_input(ctx, 2);
    struct list_shape shape;
    struct tensor_list *list = NULL;
    KERNEL_TRY(ctx, split_check(ctx, &shape));
    KERNEL_TRY(ctx, tensor_list_new((enum dtype)rows->dtype, shape_of_list_shape(&shape),
                                    lengths->n_elements, &list));
    struct status *st = split_rows(list, rows, lengths);
    if (st) {
        tensor_list_unref(list);
        return kernel_fail(ctx, st);
    }
    list_output(ctx, 0, list);
    return KERNEL_DONE;
}

/* ---- TensorListConcatLists ---- */

static struct status *concat_lists_init(struct kernel_init *init) {
    return kernel_init_type_attr(init, "element_dtype");
}

static struct status *pair_check(struct kernel_ctx *ctx, int64_t i,
                                 const struct tensor_list *const *pair) {
    const enum dtype *dtype = ctx->instance->state;
    for (int k = 0; k < 2; k++) {
        if (!pair[k])
            return status_invalid(
                "input_%c is not a TensorList at index %lld.  Saw: '%s'", 'a' + k, (long long)i,
                variant_text(((struct object *const *)tensor_cdata(kernel_input(ctx, k)))[i]));
        if (pair[k]->dtype != *dtype)
            return status_invalid("input_%c[%lld].dtype != element_dtype.  Saw: %s vs. %s", 'a' + k,
                                  (long long)i, dtype_name(pair[k]->dtype), dtype_name(*dtype));
    }
    if (!shape_equal(pair[0]->element_shape, pair[1]->element_shape))
        return status_invalid("input_a and input_b TensorList element shapes are not identical at "
                              "index %lld.  Saw %s vs. %s",
                              (long long)i, SHAPE_TEXT(pair[0]->element_shape),
                              SHAPE_TEXT(pair[1]->element_shape));
    return NULL;
}

/* Changes pair[0] to a list of the elements of both. */
static struct status *pair_join(struct tensor_list **pair) {
    int64_t n = pair[0]->n, n_added = pair[1]->n;
    TRY(tensor_list_own(&pair[0], n + n_added));
    TRY(tensor_list_resize(pair[0], n + n_added));
    for (int64_t i = 0; i < n_added; i++)
        tensor_copy(&pair[0]->elements[n + i], &pair[1]->elements[i]);
    pair[0]->depth = MAX(pair[0]->depth, pair[1]->depth);
    return NULL;
}

/* The lists in a vector have the vector as another holder, so they are copied. Lists that are
 * scalars are taken over. */
static struct status *join_at(struct kernel_ctx *ctx, int64_t i, struct object **ret) {
    struct tensor_list *pair[2] = {NULL, NULL};
    struct status *st = NULL;
    for (int k = 0; k < 2; k++)
        TRY_OUT(list_at(kernel_input(ctx, k), i, ctx->instance->allocator, &pair[k]));
    TRY_OUT(pair_check(ctx, i, (const struct tensor_list *const *)pair));
    if (ctx->inputs[0].rank == 0)
        tensor_clear(&ctx->inputs[0]);
    TRY_OUT(pair_join(pair));
    *ret = &pair[0]->object;
    pair[0] = NULL;
out:
    tensor_list_unref(pair[0]);
    tensor_list_unref(pair[1]);
    return st;
}

static enum kernel_result list_concat_lists(struct kernel_ctx *ctx) {
    const struct tensor *a = kernel_input(ctx, 0), *b = kernel_input(ctx, 1);
    if (!shape_equal(tensor_shape(a), tensor_shape(b)))
        return kernel_fail(
            ctx, status_invalid("input_a and input_b must have the same shape, but have %s and %s",
                                TENSOR_SHAPE_TEXT(a), TENSOR_SHAPE_TEXT(b)));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_VARIANT, tensor_shape(a)));
    for (int64_t i = 0; i < ctx->outputs[0].n_elements; i++) {
        struct object *joined = NULL;
        KERNEL_TRY(ctx, join_at(ctx, i, &joined));
        tensor_set_object(&ctx->outputs[0], i, joined);
    }
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "TensorListFromTensor", {{"element_dtype", TYPES_LIST}}, .compute = list_from_tensor},
    {.op = "TensorListScatter", {{"element_dtype", TYPES_LIST}}, .compute = list_scatter},
    {.op = "TensorListScatterV2", {{"element_dtype", TYPES_LIST}}, .compute = list_scatter},
    {.op = "TensorListScatterIntoExistingList", {{"element_dtype", TYPES_LIST}},
     .compute = list_scatter_into},
    {.op = "TensorListSplit", {{"element_dtype", TYPES_LIST}}, .compute = list_split},
    {.op = "TensorListConcatLists", .compute = list_concat_lists, .init = concat_lists_init},
};
// clang-format on

const struct kernel_list list_bulk_kernels = {rows, ARRAY_LEN(rows)};
