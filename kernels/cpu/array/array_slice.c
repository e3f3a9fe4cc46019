/* Takes parts of tensors: Slice, StridedSlice, and the gradient and assignments of StridedSlice. */
#include <pthread.h>
#include <stdlib.h>

#include "common/ops/strided_slice.h"
#include "common/tensor/element.h"
#include "kernels/cpu/array/array_internal.h"
#include "kernels/host.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/dims.h"
#include "kernels/support/variable_input.h"

/* A smaller part is copied even where it could be a view. The copy is as quick, and it does not
 * keep the whole alive. */
enum { VIEW_MIN_BYTES = 512 };

/* Makes output 0 from a box of input 0, with the output's shape `out`. */
static struct status *take_box(struct kernel_ctx *ctx, struct strided *s, int64_t start,
                               struct shape out) {
    const struct tensor *in = kernel_input(ctx, 0);
    enum dtype dtype = tensor_dtype(in);
    int64_t n;
    TRY(shape_n_elements(out, &n));
    bool is_run = s->n_loops == 0 || (s->n_loops == 1 && s->from[0] == 1 && s->to[0] == 1);
    if (is_run && n == in->n_elements && n > 0) {
        array_pass_as(ctx, 0, 0, out);
        return NULL;
    }
    int64_t size = (int64_t)dtype_size(dtype);
    if (is_run && in->storage == TENSOR_BUFFER && n * size >= VIEW_MIN_BYTES)
        return tensor_view(in->buffer, in->data + start * size, dtype, out, &ctx->outputs[0]);
    TRY(kernel_alloc(ctx, 0, dtype, out));
    return n > 0 ? move_run(ctx, s, dtype, tensor_data(&ctx->outputs[0]), tensor_cat(in, start))
                 : NULL;
}

/* ---- Slice ---- */

static enum kernel_result slice(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0), *begin = kernel_input(ctx, 1),
                        *size = kernel_input(ctx, 2);
    if (begin->rank != 1 || size->rank != 1 || begin->n_elements != in->rank ||
        size->n_elements != in->rank)
        return kernel_fail(
            ctx, status_invalid("Expected begin and size arguments to be 1-D tensors of size %d, "
                                "but got shapes %s and %s instead.",
                                in->rank, TENSOR_SHAPE_TEXT(begin), TENSOR_SHAPE_TEXT(size)));
    struct dims out;
    int64_t from[SHAPE_MAX_RANK], to[SHAPE_MAX_RANK], first[SHAPE_MAX_RANK], start = 0;
    out.rank = in->rank;
    for (int i = 0; i < in->rank; i++) {
        int64_t dim = tensor_dim(in, i), n = tensor_index_at(size, i);
        first[i] = tensor_index_at(begin, i);
        if (first[i] < 0 || first[i] > dim)
            return kernel_fail(ctx, status_invalid("Expected begin[%d] in [0, %lld], but got %lld",
                                                   i, (long long)dim, (long long)first[i]));
        if (n == -1)
            n = dim - first[i];
        if (n < 0 || n > dim - first[i])
            return kernel_fail(ctx, status_invalid("Expected size[%d] in [0, %lld], but got %lld",
                                                   i, (long long)(dim - first[i]), (long long)n));
        out.at[i] = n;
    }
    strides_of(tensor_dims(in), in->rank, from);
    strides_of(out.at, out.rank, to);
    struct strided s;
    strided_init(&s);
    for (int i = 0; i < in->rank; i++) {
        strided_add(&s, out.at[i], from[i], to[i]);
        start += first[i] * from[i];
    }
    KERNEL_TRY(ctx, take_box(ctx, &s, start, dims_shape(&out)));
    return KERNEL_DONE;
}

/* ---- StridedSlice: the state is the masks ---- */

static struct status *strided_slice_init(struct kernel_init *init) {
    struct strided_slice_masks masks;
    TRY(strided_slice_masks_read(init->node, &masks));
    init->state = xmalloc(sizeof(masks));
    *(struct strided_slice_masks *)init->state = masks;
    return NULL;
}

/* Prepares a copy between a part of the whole, which is row-major and has the shape `whole`, and a
 * dense value. Returns the index of the part's first element. */
static int64_t box_of_slice(const struct strided_slice *slice, struct shape whole,
                            bool whole_is_source, struct strided *s) {
    int64_t strides[SHAPE_MAX_RANK], dense[SHAPE_MAX_RANK], start = 0;
    strides_of(whole.dims, whole.rank, strides);
    strides_of(slice->size, slice->rank, dense);
    strided_init(s);
    for (int i = 0; i < slice->rank; i++) {
        /* A dimension of size 1 takes no step. Its stride may be larger than any tensor, so it is
         * not multiplied. */
        int64_t step = slice->size[i] > 1 ? slice->stride[i] * strides[i] : 0;
        strided_add(s, slice->size[i], whole_is_source ? step : dense[i],
                    whole_is_source ? dense[i] : step);
        start += slice->size[i] > 0 ? slice->begin[i] * strides[i] : 0;
    }
    return start;
}

/* Prepares a copy of a broadcast value to the slice of a whole. Shrunk dimensions are walked once.
 * New dimensions do not exist in the whole. */
static struct status *box_of_broadcast(const struct strided_slice *slice, struct shape whole,
                                       struct shape value, struct strided *s, int64_t *ret_start) {
    int64_t strides[SHAPE_MAX_RANK], from[SHAPE_MAX_RANK];
    struct shape out = {slice->out_rank, slice->out};
    strides_of(whole.dims, whole.rank, strides);
    strides_of(value.dims, value.rank, from);
    strided_init(s);
    for (int i = 0; i < out.rank; i++) {
        int at = i - (out.rank - value.rank), source = slice->source[i];
        int64_t size = at < 0 ? 1 : value.dims[at];
        if (value.rank > out.rank || (size != 1 && size != out.dims[i]))
            return status_invalid("Cannot broadcast input shape %s into final shape %s",
                                  SHAPE_TEXT(value), SHAPE_TEXT(out));
        strided_add(s, out.dims[i], size == 1 ? 0 : from[at],
                    source == SLICE_NEW_AXIS || out.dims[i] == 1
                        ? 0
                        : slice->stride[source] * strides[source]);
    }
    if (value.rank > out.rank)
        return status_invalid("Cannot broadcast input shape %s into final shape %s",
                              SHAPE_TEXT(value), SHAPE_TEXT(out));
    *ret_start = 0;
    for (int i = 0; i < slice->rank; i++)
        *ret_start += slice->begin[i] * strides[i];
    return NULL;
}

static bool slice_is_empty(const struct strided_slice *slice) {
    for (int i = 0; i < slice->rank; i++) {
        if (slice->size[i] == 0)
            return true;
    }
    return false;
}

static enum kernel_result strided_slice(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    struct strided_slice slice;
    KERNEL_TRY(ctx,
               strided_slice_resolve(ctx->instance->state, tensor_shape(in), kernel_input(ctx, 1),
                                     kernel_input(ctx, 2), kernel_input(ctx, 3), &slice));
    struct shape out = {slice.out_rank, slice.out};
    if (slice_is_empty(&slice)) {
        KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), out));
        return KERNEL_DONE;
    }
    struct strided s;
    int64_t start = box_of_slice(&slice, tensor_shape(in), true, &s);
    KERNEL_TRY(ctx, take_box(ctx, &s, start, out));
    return KERNEL_DONE;
}

static enum kernel_result strided_slice_grad(struct kernel_ctx *ctx) {
    const struct tensor *sizes = kernel_input(ctx, 0), *dy = kernel_input(ctx, 4);
    if (sizes->rank != 1 || sizes->n_elements > SHAPE_MAX_RANK)
        return kernel_fail(ctx, status_invalid("shape must be 1-D, got shape.shape = %s",
                                               TENSOR_SHAPE_TEXT(sizes)));
    struct dims whole;
    whole.rank = (int)sizes->n_elements;
    for (int i = 0; i < whole.rank; i++) {
        whole.at[i] = tensor_index_at(sizes, i);
        if (whole.at[i] < 0)
            return kernel_fail(
                ctx, status_invalid("Dimension %lld must be >= 0", (long long)whole.at[i]));
    }
    int64_t n;
    KERNEL_TRY(ctx, shape_n_elements(dims_shape(&whole), &n));
    struct strided_slice slice;
    KERNEL_TRY(ctx,
               strided_slice_resolve(ctx->instance->state, dims_shape(&whole), kernel_input(ctx, 1),
                                     kernel_input(ctx, 2), kernel_input(ctx, 3), &slice));
    struct shape out = {slice.out_rank, slice.out};
    if (!shape_equal(out, tensor_shape(dy)))
        return kernel_fail(ctx, status_invalid("shape of dy was %s instead of %s",
                                               TENSOR_SHAPE_TEXT(dy), SHAPE_TEXT(out)));
    KERNEL_TRY(ctx, kernel_alloc_zeroed(ctx, 0, tensor_dtype(dy), dims_shape(&whole)));
    if (dy->n_elements == 0)
        return KERNEL_DONE;
    struct strided s;
    int64_t start = box_of_slice(&slice, dims_shape(&whole), false, &s);
    KERNEL_TRY(ctx, move_run(ctx, &s, tensor_dtype(dy), tensor_at(&ctx->outputs[0], start),
                             tensor_cdata(dy)));
    return KERNEL_DONE;
}

/* ---- assignment ---- */

/* Writes `value` into the slice of `whole`, whose elements may be written. `value` may be broadcast
 * to the slice's shape. */
static struct status *assign_slice(struct kernel_ctx *ctx, struct tensor *whole,
                                   const struct tensor *value) {
    struct strided_slice slice;
    TRY(strided_slice_resolve(ctx->instance->state, tensor_shape(whole), kernel_input(ctx, 1),
                              kernel_input(ctx, 2), kernel_input(ctx, 3), &slice));
    if (slice_is_empty(&slice))
        return NULL;
    if (value->dtype != whole->dtype)
        return status_invalid("Cannot assign a value of type %s to a slice of type %s",
                              dtype_name(tensor_dtype(value)), dtype_name(tensor_dtype(whole)));
    struct strided s;
    int64_t start;
    TRY(box_of_broadcast(&slice, tensor_shape(whole), tensor_shape(value), &s, &start));
    return move_run(ctx, &s, tensor_dtype(value), tensor_at(whole, start), tensor_cdata(value));
}

static struct status *assign_to_variable(struct kernel_ctx *ctx, struct variable *variable) {
    pthread_mutex_lock(&variable->lock);
    struct status *st = variable_make_writable(ctx, variable);
    if (!st)
        st = assign_slice(ctx, &variable->value, kernel_input(ctx, 4));
    pthread_mutex_unlock(&variable->lock);
    return st;
}

static enum kernel_result strided_slice_assign(struct kernel_ctx *ctx) {
    const struct tensor *ref = kernel_input(ctx, 0);
    if (ref->storage != TENSOR_REF)
        return kernel_fail(ctx,
                           status_invalid("StridedSliceAssign needs a reference to a variable"));
    KERNEL_TRY(ctx, assign_to_variable(ctx, variable_of(ref->ref)));
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

static enum kernel_result resource_strided_slice_assign(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    if (in->n_elements != 1)
        return kernel_fail(ctx, status_invalid("The resource handle must be a scalar, got shape %s",
                                               TENSOR_SHAPE_TEXT(in)));
    const struct resource_handle *handle = *(struct resource_handle *const *)tensor_cdata(in);
    struct object *object = NULL;
    KERNEL_TRY(ctx, ctx->host->handle_lookup(ctx, handle, &variable_type, &object));
    struct status *st = assign_to_variable(ctx, variable_of(object));
    object_unref(object);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* Replaces a slice of the input, in place when nobody else holds the input. */
static enum kernel_result tensor_strided_slice_update(struct kernel_ctx *ctx) {
    struct tensor *out = &ctx->outputs[0];
    if (tensor_is_sole(kernel_input(ctx, 0)))
        kernel_pass(ctx, 0, 0);
    else
        KERNEL_TRY(ctx, kernel_clone(ctx, kernel_input(ctx, 0), out));
    KERNEL_TRY(ctx, assign_slice(ctx, out, kernel_input(ctx, 4)));
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "Slice", .compute = slice},
    {.op = "StridedSlice", .compute = strided_slice, .init = strided_slice_init},
    {.op = "StridedSliceGrad", .compute = strided_slice_grad, .init = strided_slice_init},
    {.op = "StridedSliceAssign", .compute = strided_slice_assign, .init = strided_slice_init,
        .flags = KERNEL_STATEFUL},
    {.op = "ResourceStridedSliceAssign", .compute = resource_strided_slice_assign,
        .init = strided_slice_init, .flags = KERNEL_STATEFUL},
    {.op = "TensorStridedSliceUpdate", .compute = tensor_strided_slice_update,
        .init = strided_slice_init},
};
// clang-format on

const struct kernel_list array_slice_kernels = {rows, ARRAY_LEN(rows)};
