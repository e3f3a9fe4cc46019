/* Computes the ops of TensorLists that make a list, work on one element, or report size and shape.
 * Ops on many elements are in list_bulk.c and list_join.c.
 *
 * An op takes its input list. When nobody else holds the list, it is changed in place
 * (kernels/host/resources/tensor_list.h). */
#include "kernels/host/resources/list_internal.h"
#include "kernels/support/dims.h"
#include "kernels/support/swap_many.h"

#include <stdlib.h>

extern const struct kernel_list list_kernels;

/* ---- EmptyTensorList, TensorListReserve ---- */

static struct status *dtype_init(struct kernel_init *init) {
    return kernel_init_type_attr(init, "element_dtype");
}

static enum kernel_result list_empty(struct kernel_ctx *ctx) {
    const enum dtype *dtype = ctx->instance->state;
    struct list_shape shape;
    struct tensor_list *list = NULL;
    int64_t max_n = 0;
    KERNEL_TRY(ctx,
               list_scalar(kernel_input(ctx, 1),
                           "max_num_elements expected to be a scalar but got shape: ", &max_n));
    KERNEL_TRY(ctx, list_shape_read(kernel_input(ctx, 0), &shape));
    KERNEL_TRY(ctx, tensor_list_new(*dtype, shape_of_list_shape(&shape), 0, &list));
    list->max_n = max_n < 0 ? -1 : (int32_t)max_n;
    list_output(ctx, 0, list);
    return KERNEL_DONE;
}

static enum kernel_result list_reserve(struct kernel_ctx *ctx) {
    const enum dtype *dtype = ctx->instance->state;
    struct list_shape shape;
    struct tensor_list *list = NULL;
    int64_t n = 0;
    KERNEL_TRY(ctx,
               list_scalar(kernel_input(ctx, 1),
                           "The num_elements to reserve must be a tensor size 1, but got ", &n));
    if (n < 0)
        return kernel_fail(
            ctx, status_invalid(
                     "The num_elements to reserve must be a non negative number, but got %lld",
                     (long long)n));
    KERNEL_TRY(ctx, list_shape_read(kernel_input(ctx, 0), &shape));
    KERNEL_TRY(ctx, tensor_list_new(*dtype, shape_of_list_shape(&shape), n, &list));
    list_output(ctx, 0, list);
    return KERNEL_DONE;
}

/* ---- size and shape ---- */

static enum kernel_result list_length(struct kernel_ctx *ctx) {
    struct tensor_list *list = NULL;
    KERNEL_TRY(ctx, list_take(ctx, 0, &list));
    tensor_init_scalar_i32(&ctx->outputs[0], (int32_t)MIN(list->n, (int64_t)INT32_MAX));
    tensor_list_unref(list);
    return KERNEL_DONE;
}

static struct status *shape_output(struct kernel_ctx *ctx, struct shape shape) {
    enum dtype dtype = (enum dtype)ctx->instance->out_types[0];
    if (shape.rank < 0) {
        int32_t narrow = -1;
        int64_t wide = -1;
        tensor_init_scalar(&ctx->outputs[0], dtype,
                           dtype == DT_INT32 ? (const void *)&narrow : (const void *)&wide);
        return NULL;
    }
    int64_t rank = shape.rank;
    TRY(kernel_alloc(ctx, 0, dtype, (struct shape){1, &rank}));
    for (int i = 0; i < shape.rank; i++) {
        if (dtype == DT_INT64)
            ((int64_t *)tensor_data(&ctx->outputs[0]))[i] = shape.dims[i];
        else if (shape.dims[i] > INT32_MAX)
            return status_invalid("Shape %s does not fit into int32", SHAPE_TEXT(shape));
        else
            ((int32_t *)tensor_data(&ctx->outputs[0]))[i] = (int32_t)shape.dims[i];
    }
    return NULL;
}

static enum kernel_result list_element_shape(struct kernel_ctx *ctx) {
    struct tensor_list *list = NULL;
    KERNEL_TRY(ctx, list_take(ctx, 0, &list));
    struct status *st = shape_output(ctx, list->element_shape);
    tensor_list_unref(list);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- elements that move to the host's memory ---- */

/* Element i of a list that only the kernel holds is on its way to the host's memory. */
struct list_swap {
    struct swap swap;
    struct tensor_list *list;
    int64_t i;
};

static struct status *list_swapped(struct swap *swap, struct status *st_take) {
    struct list_swap *job = CONTAINER_OF(swap, struct list_swap, swap);
    if (st_take) {
        tensor_list_unref(job->list);
    } else {
        tensor_clear(&job->list->elements[job->i]);
        tensor_move(&job->list->elements[job->i], &swap->value);
        list_output(swap->ctx, 0, job->list);
    }
    free(job);
    return st_take;
}

/* The same for an element that is a variant: a copy whose tensors are on their way. */
struct variant_swap {
    struct swap_many many;
    struct tensor_list *list;
    int64_t i;
    struct tensor value;
};

static struct status *variant_swapped(struct swap_many *many, struct status *st_take) {
    struct variant_swap *job = CONTAINER_OF(many, struct variant_swap, many);
    if (st_take) {
        tensor_list_unref(job->list);
    } else {
        tensor_clear(&job->list->elements[job->i]);
        tensor_move(&job->list->elements[job->i], &job->value);
        list_output(many->ctx, 0, job->list);
    }
    tensor_clear(&job->value);
    free(job);
    return st_take;
}

static enum kernel_result output_with_variant_take(struct kernel_ctx *ctx, struct tensor_list *list,
                                                   int64_t i) {
    struct tensor value = TENSOR_INIT;
    struct variant_places places;
    struct status *st = swap_variant_begin(ctx, &list->elements[i], &value, &places);
    if (st || places.n == 0) {
        if (st)
            tensor_list_unref(list);
        else
            list_output(ctx, 0, list);
        KERNEL_TRY(ctx, st);
        return KERNEL_DONE;
    }
    struct variant_swap *job = aligned_alloc(_Alignof(struct variant_swap), sizeof *job);
    CHECK(job);
    *job = (struct variant_swap){
        .many = {.finish = variant_swapped, .places = places, .to_host = true},
        .list = list,
        .i = i,
        .value = TENSOR_INIT};
    tensor_move(&job->value, &value);
    return swap_many_start(ctx, &job->many);
}

/* Output 0 is the list, whose element i is new. Where memory is short the element moves first. */
static enum kernel_result output_with_new_take(struct kernel_ctx *ctx, struct tensor_list *list,
                                               int64_t i) {
    if (unlikely(list->dtype == DT_VARIANT))
        return output_with_variant_take(ctx, list, i);
    if (likely(!swap_is_wanted(ctx, &list->elements[i]))) {
        list_output(ctx, 0, list);
        return KERNEL_DONE;
    }
    struct list_swap *job = aligned_alloc(_Alignof(struct list_swap), sizeof *job);
    CHECK(job);
    *job = (struct list_swap){.swap.finish = list_swapped, .list = list, .i = i};
    return swap_out_start(ctx, &job->swap, &list->elements[i]);
}

/* An output is an element. It comes back if it was moved. */
static enum kernel_result output_element_take(struct kernel_ctx *ctx, int output,
                                              struct tensor *value) {
    if (unlikely(swap_is_out(ctx, value)))
        return swap_in_take(ctx, output, value);
    tensor_move(&ctx->outputs[output], value);
    return KERNEL_DONE;
}

/* ---- TensorListPushBack, TensorListPushBackBatch ---- */

static enum kernel_result list_push(struct kernel_ctx *ctx) {
    struct tensor *value = &ctx->inputs[1];
    struct tensor_list *list = NULL;
    struct status *st = NULL;
    KERNEL_TRY(ctx, list_take(ctx, 0, &list));
    TRY_OUT(list_check_dtype(list, (enum dtype)value->dtype));
    if (unlikely(!shape_is_compatible(list->element_shape, tensor_shape(value)))) {
        st = status_invalid("Tried to append a tensor with incompatible shape to a list. Op "
                            "element shape: %s list shape: %s",
                            TENSOR_SHAPE_TEXT(value), SHAPE_TEXT(list->element_shape));
        goto out;
    }
    if (unlikely(list->max_n >= 0 && list->n >= list->max_n)) {
        st = status_invalid(
            "Tried to push item into a full list list size: %lld max_num_elements: %d",
            (long long)list->n, list->max_n);
        goto out;
    }
    TRY_OUT(tensor_list_own(&list, list->n + 1));
    TRY_OUT(tensor_list_set(list, list->n, value));
    list->n++;
    return output_with_new_take(ctx, list, list->n - 1);
out:
    tensor_list_unref(list);
    return kernel_fail(ctx, st);
}

static struct status *push_row(struct kernel_ctx *ctx, int64_t i) {
    const struct tensor *handles = kernel_input(ctx, 0), *rows = kernel_input(ctx, 1);
    struct shape row_shape = {rows->rank - 1, tensor_dims(rows) + 1};
    struct tensor_list *list = NULL;
    struct status *st = NULL;
    TRY(list_at(handles, i, ctx->instance->allocator, &list));
    if (!list)
        return status_invalid("Input handle at index %lld is not a list. Saw: '%s'", (long long)i,
                              variant_text(((struct object *const *)tensor_cdata(handles))[i]));
    if (list->dtype != (enum dtype)rows->dtype) {
        st = status_invalid("Invalid data type at index %lld; op elements %s but list elements %s",
                            (long long)i, dtype_name((enum dtype)rows->dtype),
                            dtype_name(list->dtype));
        goto out;
    }
    if (!shape_is_compatible(list->element_shape, row_shape)) {
        st = status_invalid("Tried to append a tensor with incompatible shape to a list at index "
                            "%lld. Op element shape: %s list shape: %s",
                            (long long)i, SHAPE_TEXT(row_shape), SHAPE_TEXT(list->element_shape));
        goto out;
    }
    TRY_OUT(tensor_list_own(&list, list->n + 1));
    TRY_OUT(list_set_row(list, list->n, rows, i));
    list->n++;
    tensor_set_object(&ctx->outputs[0], i, &list->object);
    return NULL;
out:
    tensor_list_unref(list);
    return st;
}

static enum kernel_result list_push_batch(struct kernel_ctx *ctx) {
    const struct tensor *handles = kernel_input(ctx, 0), *rows = kernel_input(ctx, 1);
    if (rows->rank < 1)
        return kernel_fail(
            ctx, status_invalid("Expected tensor to be at least a vector, but saw shape: %s",
                                TENSOR_SHAPE_TEXT(rows)));
    if (tensor_dim(rows, 0) != handles->n_elements)
        return kernel_fail(
            ctx,
            status_invalid("Expected tensor.shape[0] == input_handles.size, but saw %lld vs. %lld",
                           (long long)tensor_dim(rows, 0), (long long)handles->n_elements));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_VARIANT, tensor_shape(handles)));
    for (int64_t i = 0; i < handles->n_elements; i++)
        KERNEL_TRY(ctx, push_row(ctx, i));
    return KERNEL_DONE;
}

/* ---- TensorListGetItem, TensorListPopBack ---- */

/* Makes zeros for an element that was never set. Their shape is the requested one, combined with
 * that of the list and of the other elements. */
static struct status *read_unset(struct kernel_ctx *ctx, const struct tensor_list *list) {
    struct list_shape shape;
    TRY(list_shape_of_input(ctx, 2, list, &shape));
    bool is_full = shape_is_full(shape_of_list_shape(&shape));
    for (int64_t k = 0; k < list->n && !is_full; k++)
        if (tensor_list_has(list, k))
            TRY(list_shape_merge(&shape, tensor_shape(&list->elements[k])));
    if (!shape_is_full(shape_of_list_shape(&shape)))
        return status_invalid("Trying to read an uninitialized tensor but element_shape is not "
                              "fully defined: %s and no list element is set.",
                              SHAPE_TEXT(shape_of_list_shape(&shape)));
    return kernel_alloc_zeroed(ctx, 0, list->dtype, shape_of_list_shape(&shape));
}

static enum kernel_result list_get(struct kernel_ctx *ctx) {
    const struct tensor *index = kernel_input(ctx, 1);
    struct tensor_list *list = NULL;
    struct tensor value = TENSOR_INIT;
    struct status *st = NULL;
    if (index->n_elements != 1)
        return kernel_fail(ctx,
                           status_invalid("Expected argument 1 to be a scalar. Received shape %s",
                                          TENSOR_SHAPE_TEXT(index)));
    int64_t i = tensor_index_at(index, 0);
    KERNEL_TRY(ctx, list_take(ctx, 0, &list));
    TRY_OUT(list_check_dtype(list, (enum dtype)ctx->instance->out_types[0]));
    if (unlikely(i < 0 || i >= list->n))
        st = status_invalid("Trying to access element %lld in a list with %lld elements.",
                            (long long)i, (long long)list->n);
    else if (unlikely(!tensor_list_has(list, i)))
        st = read_unset(ctx, list);
    else if (tensor_list_is_sole(list)) /* no other holder reads the element again */
        tensor_move(&value, &list->elements[i]);
    else
        tensor_copy(&value, &list->elements[i]);
out:
    tensor_list_unref(list);
    KERNEL_TRY(ctx, st);
    return tensor_has_value(&value) ? output_element_take(ctx, 0, &value) : KERNEL_DONE;
}

static struct status *pop_unset(struct kernel_ctx *ctx, const struct tensor_list *list) {
    struct list_shape shape;
    TRY(list_shape_of_input(ctx, 1, list, &shape));
    if (!shape_is_full(shape_of_list_shape(&shape)))
        return status_invalid(
            "Trying to read an uninitialized tensor but element_shape is not fully defined.%s",
            SHAPE_TEXT(shape_of_list_shape(&shape)));
    return kernel_alloc_zeroed(ctx, 1, list->dtype, shape_of_list_shape(&shape));
}

static enum kernel_result list_pop(struct kernel_ctx *ctx) {
    struct tensor_list *list = NULL;
    struct tensor value = TENSOR_INIT;
    struct status *st = NULL;
    KERNEL_TRY(ctx, list_take(ctx, 0, &list));
    TRY_OUT(list_check_dtype(list, (enum dtype)ctx->instance->out_types[1]));
    if (unlikely(list->n == 0)) {
        st = status_invalid("Trying to pop from an empty list.");
        goto out;
    }
    TRY_OUT(tensor_list_own(&list, list->n));
    if (likely(tensor_list_has(list, list->n - 1)))
        tensor_move(&value, &list->elements[list->n - 1]);
    else
        TRY_OUT(pop_unset(ctx, list));
    list->n--;
    list_output(ctx, 0, list);
    return tensor_has_value(&value) ? output_element_take(ctx, 1, &value) : KERNEL_DONE;
out:
    tensor_list_unref(list);
    return kernel_fail(ctx, st);
}

/* ---- TensorListSetItem ---- */

static struct status *set_init(struct kernel_init *init) {
    bool *is_growing = xmalloc(sizeof(*is_growing));
    init->state = is_growing;
    return node_get_b(init->node, "resize_if_index_out_of_bounds", is_growing);
}

static struct status *set_check(const struct kernel_ctx *ctx, const struct tensor_list *list,
                                int64_t i) {
    const bool *is_growing = ctx->instance->state;
    const struct tensor *value = kernel_input(ctx, 2);
    TRY(list_check_dtype(list, (enum dtype)value->dtype));
    if (unlikely(i < 0 || (i >= list->n && !*is_growing)))
        return status_invalid("Trying to modify element %lld in a list with %lld elements.",
                              (long long)i, (long long)list->n);
    if (unlikely(!shape_is_compatible(list->element_shape, tensor_shape(value))))
        return status_invalid("Tried to set a tensor with incompatible shape at a list index. Item "
                              "element shape: %s list shape: %s",
                              TENSOR_SHAPE_TEXT(value), SHAPE_TEXT(list->element_shape));
    return NULL;
}

static enum kernel_result list_set(struct kernel_ctx *ctx) {
    struct tensor_list *list = NULL;
    struct status *st = NULL;
    int64_t i = 0;
    KERNEL_TRY(ctx, list_scalar(kernel_input(ctx, 1),
                                "Expected argument 1 to be a scalar. Received shape ", &i));
    KERNEL_TRY(ctx, list_take(ctx, 0, &list));
    TRY_OUT(set_check(ctx, list, i));
    TRY_OUT(tensor_list_own(&list, MAX(list->n, i + 1)));
    if (i >= list->n)
        TRY_OUT(tensor_list_resize(list, i + 1));
    TRY_OUT(tensor_list_set(list, i, &ctx->inputs[2]));
    return output_with_new_take(ctx, list, i);
out:
    tensor_list_unref(list);
    return kernel_fail(ctx, st);
}

/* ---- TensorListResize ---- */

static enum kernel_result list_resize(struct kernel_ctx *ctx) {
    struct tensor_list *list = NULL;
    struct status *st = NULL;
    int64_t n = 0;
    KERNEL_TRY(ctx, list_scalar(kernel_input(ctx, 1), "size must be a scalar, but has shape ", &n));
    if (n < 0)
        return kernel_fail(
            ctx, status_invalid("TensorListSlice expects size to be non-negative. Got: %lld",
                                (long long)n));
    KERNEL_TRY(ctx, list_take(ctx, 0, &list));
    TRY_OUT(tensor_list_own(&list, n));
    TRY_OUT(tensor_list_resize(list, n));
    list_output(ctx, 0, list);
    return KERNEL_DONE;
out:
    tensor_list_unref(list);
    return kernel_fail(ctx, st);
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "EmptyTensorList", .compute = list_empty, .init = dtype_init},
    {.op = "TensorListReserve", .compute = list_reserve, .init = dtype_init},
    {.op = "TensorListLength", .compute = list_length},
    {.op = "TensorListElementShape", .compute = list_element_shape},
    {.op = "TensorListPushBack", .compute = list_push},
    {.op = "TensorListPushBackBatch", {{"element_dtype", TYPES_LIST}}, .compute = list_push_batch},
    {.op = "TensorListGetItem", {{"element_dtype", TYPES_LIST}}, .compute = list_get},
    {.op = "TensorListPopBack", {{"element_dtype", TYPES_LIST}}, .compute = list_pop},
    {.op = "TensorListSetItem", .compute = list_set, .init = set_init},
    {.op = "TensorListResize", .compute = list_resize},
};
// clang-format on

const struct kernel_list list_kernels = {rows, ARRAY_LEN(rows)};
