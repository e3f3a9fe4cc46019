/* Reads lists, shapes and rows from inputs (kernels/host/resources/list_internal.h). */
#include "kernels/host/resources/list_internal.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/swap.h"

/* ---- shapes ---- */

struct status *list_shape_read(const struct tensor *t, struct list_shape *ret) {
    if (t->rank == 0) {
        if (tensor_index_at(t, 0) != -1)
            return status_invalid("The only valid scalar shape tensor is the fully unknown shape "
                                  "specified as -1. It is %lld.",
                                  (long long)tensor_index_at(t, 0));
        ret->rank = SHAPE_UNKNOWN_RANK;
        return NULL;
    }
    if (t->rank > 1)
        return status_invalid("Shape must be at most rank 1 but is rank %d", t->rank);
    if (t->n_elements > SHAPE_MAX_RANK)
        return status_invalid("Shape has %lld dimensions, above the limit of %d",
                              (long long)t->n_elements, SHAPE_MAX_RANK);
    int64_t product = 1;
    ret->rank = (int)t->n_elements;
    for (int i = 0; i < ret->rank; i++) {
        int64_t size = ret->dims[i] = tensor_index_at(t, i);
        if (size < -1)
            return status_invalid("Dimension %lld must be >= -1", (long long)size);
        if (size > 0 && mul_overflows_i64(product, size, &product))
            return status_invalid("Shape %s would have more than 2**63 - 1 elements",
                                  SHAPE_TEXT((struct shape){i + 1, ret->dims}));
    }
    return NULL;
}

struct status *list_shape_merge(struct list_shape *shape, struct shape with) {
    if (with.rank < 0)
        return NULL;
    if (shape->rank < 0) {
        shape->rank = with.rank;
        for (int i = 0; i < with.rank; i++)
            shape->dims[i] = with.dims[i];
        return NULL;
    }
    if (shape->rank != with.rank)
        return status_invalid("PartialTensorShape: Incompatible ranks during merge: %d vs. %d",
                              shape->rank, with.rank);
    if (!shape_is_compatible(shape_of_list_shape(shape), with))
        return status_invalid("PartialTensorShape: Incompatible shapes during merge: %s vs. %s",
                              SHAPE_TEXT(shape_of_list_shape(shape)), SHAPE_TEXT(with));
    for (int i = 0; i < with.rank; i++)
        if (shape->dims[i] < 0)
            shape->dims[i] = with.dims[i];
    return NULL;
}

struct status *list_shape_of_input(const struct kernel_ctx *ctx, int input,
                                   const struct tensor_list *list, struct list_shape *ret) {
    TRY(list_shape_read(kernel_input(ctx, input), ret));
    return list_shape_merge(ret, list->element_shape);
}

/* ---- lists ---- */

struct status *list_at(const struct tensor *t, int64_t i, struct allocator *allocator,
                       struct tensor_list **ret) {
    struct object *object = object_ref(((struct object *const *)tensor_cdata(t))[i]);
    struct status *st = variant_resolve(&object, allocator);
    if (st || !object || object->type != &tensor_list_type) {
        object_unref(object);
        *ret = NULL;
        return st;
    }
    *ret = (struct tensor_list *)object;
    return NULL;
}

struct status *list_take(struct kernel_ctx *ctx, int input, struct tensor_list **ret) {
    struct tensor *in = &ctx->inputs[input];
    if (unlikely(in->rank != 0))
        return status_invalid("Input list must be a scalar saw: %s", TENSOR_SHAPE_TEXT(in));
    struct object *object = *(struct object *const *)tensor_cdata(in);
    if (likely(object && object->type == &tensor_list_type && in->storage == TENSOR_INLINE)) {
        in->storage = TENSOR_NONE; /* the input's reference is taken over */
        *ret = (struct tensor_list *)object;
        return NULL;
    }
    struct tensor_list *list = NULL;
    TRY(list_at(in, 0, ctx->instance->allocator, &list));
    if (!list)
        return status_invalid("Input handle is not a list. Saw: '%s'", variant_text(object));
    tensor_clear(in);
    *ret = list;
    return NULL;
}

struct status *list_scalar(const struct tensor *t, const char *what, int64_t *ret) {
    if (unlikely(t->rank != 0))
        return status_invalid("%s%s", what, TENSOR_SHAPE_TEXT(t));
    *ret = tensor_index_at(t, 0);
    return NULL;
}

/* ---- rows ---- */

static struct status *list_row(const struct tensor *t, int64_t i, struct tensor *ret) {
    struct tensor slice = TENSOR_INIT;
    TRY(tensor_slice_rows(t, i, i + 1, &slice));
    if (slice.rank > TENSOR_INLINE_RANK) {
        struct status *st =
            tensor_reshape(&slice, (struct shape){slice.rank - 1, tensor_dims(&slice) + 1}, ret);
        tensor_clear(&slice);
        return st;
    }
    slice.rank--;
    memmove(slice.dims, slice.dims + 1, (size_t)slice.rank * sizeof(slice.dims[0]));
    tensor_move(ret, &slice);
    return NULL;
}

struct status *list_set_row(struct tensor_list *list, int64_t to, const struct tensor *t,
                            int64_t i) {
    struct tensor row = TENSOR_INIT;
    TRY(list_row(t, i, &row));
    struct status *st = tensor_list_set(list, to, &row);
    tensor_clear(&row);
    return st;
}

/* ---- elements in the host's memory ---- */

struct status *list_bring_back(struct kernel_ctx *ctx, struct tensor_list **list) {
    int64_t n = (*list)->n, first = 0;
    if (likely(!kernel_is_for_device(ctx)))
        return NULL;
    while (first < n && !swap_is_out(ctx, &(*list)->elements[first]))
        first++;
    if (first == n)
        return NULL;
    TRY(tensor_list_own(list, n));
    for (int64_t i = first; i < n; i++)
        TRY(swap_in_now(ctx, &(*list)->elements[i]));
    return NULL;
}
