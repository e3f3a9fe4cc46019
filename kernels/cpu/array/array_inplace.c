/* Sets rows of x, adds to them or subtracts from them: InplaceUpdate, InplaceAdd, InplaceSub. Works
 * in x's own memory when nobody else holds it, else in a copy. TensorFlow writes into shared memory
 * too, so there another reader may see its value change. */
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "common/tensor/element.h"
#include "kernels/kernel.h"
#include "kernels/support/cancel.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/update.h"

extern const struct kernel_list array_inplace_kernels;

static struct status *check(const struct tensor *x, const struct tensor *i,
                            const struct tensor *v) {
    if (i->rank != 1)
        return status_invalid("i must be a vector. %s", TENSOR_SHAPE_TEXT(i));
    if (x->rank != v->rank)
        return status_invalid("x and v shape doesn't match (ranks differ): %s vs. %s",
                              TENSOR_SHAPE_TEXT(x), TENSOR_SHAPE_TEXT(v));
    for (int d = 1; d < x->rank; d++) {
        if (tensor_dim(x, d) != tensor_dim(v, d))
            return status_invalid("x and v shape doesn't match at index %d : %s vs. %s", d,
                                  TENSOR_SHAPE_TEXT(x), TENSOR_SHAPE_TEXT(v));
    }
    if (v->rank == 0 || tensor_dim(i, 0) != tensor_dim(v, 0))
        return status_invalid("i and x shape doesn't match at index 0: %s vs. %s",
                              TENSOR_SHAPE_TEXT(i), TENSOR_SHAPE_TEXT(v));
    return NULL;
}

/* Makes output 0 from x, in memory that may be written. */
static struct status *take_x(struct kernel_ctx *ctx) {
    struct tensor shared = TENSOR_INIT;
    kernel_pass(ctx, 0, 0);
    if (tensor_is_sole(&ctx->outputs[0]))
        return NULL;
    tensor_move(&shared, &ctx->outputs[0]);
    struct status *st = kernel_clone(ctx, &shared, &ctx->outputs[0]);
    tensor_clear(&shared);
    return st;
}

/* A device takes the indices modulo n itself, because the host cannot read them. */
static struct status *update_on_device(struct kernel_ctx *ctx, enum update_op op) {
    const struct tensor *i = kernel_input(ctx, 1), *y = &ctx->outputs[0];
    struct device_scatter scatter = {.op = op,
                                     .dtype = tensor_dtype(y),
                                     .params = tensor_data(&ctx->outputs[0]),
                                     .updates = tensor_cdata(kernel_input(ctx, 2))};
    TRY(device_slices_init(&scatter.slices, i, 1, tensor_shape(y), i->n_elements));
    scatter.slices.wraps = true;
    return ctx->instance->engine->scatter(ctx, &scatter);
}

/* InplaceX: y = x; y[i, :] op= v.
 *   x  T [n, …]     i  int32 [m], taken modulo n     v  T [m, …]     y  like x
 * Errors   INVALID_ARGUMENT   shapes */
static enum kernel_result inplace_compute(struct kernel_ctx *ctx) {
    const struct tensor *i = kernel_input(ctx, 1), *v = kernel_input(ctx, 2);
    enum update_op op = (enum update_op)(intptr_t)ctx->instance->def->arg;
    KERNEL_TRY(ctx, check(kernel_input(ctx, 0), i, v));
    KERNEL_TRY(ctx, take_x(ctx));
    struct tensor *y = &ctx->outputs[0];
    if (y->n_elements == 0 || i->n_elements == 0)
        return KERNEL_DONE;
    if (kernel_is_for_device(ctx)) {
        KERNEL_TRY(ctx, update_on_device(ctx, op));
        return KERNEL_DONE;
    }
    int64_t n_rows = tensor_dim(y, 0), row_len = y->n_elements / n_rows;
    int64_t *offsets = malloc((size_t)i->n_elements * sizeof(*offsets));
    if (!offsets)
        return kernel_fail(ctx, status_exhausted("OOM for %lld rows", (long long)i->n_elements));
    for (int64_t k = 0; k < i->n_elements && pool_goes_on(k + 1); k++)
        offsets[k] = (tensor_index_at(i, k) % n_rows + n_rows) % n_rows * row_len;
    struct scatter_job job = {
        .fn = update_find(op, (enum dtype)y->dtype),
        .dtype = (enum dtype)y->dtype,
        .params = tensor_data(y),
        .updates = tensor_cdata(v),
        .update_step = 1,
        .offsets = offsets,
        .n_slices = i->n_elements,
        .slice_len = row_len,
    };
    struct status *st = kernel_loop_check(0); /* else all offsets are set */
    if (!st)
        st = job.fn ? scatter_run(ctx->pool, &job)
                    : status_invalid("Unsupported data type: %s", dtype_name(job.dtype));
    free(offsets);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

// clang-format off
#define INPLACE(name, types, op) {name, {{"T", types}}, inplace_compute, \
    .arg = (const void *)(intptr_t)(op)}
static const struct kernel_def rows[] = {
    INPLACE("InplaceUpdate", DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING),
        UPDATE_ASSIGN),
    INPLACE("InplaceAdd", DTYPES_NUMBER, UPDATE_ADD),
    INPLACE("InplaceSub", DTYPES_NUMBER, UPDATE_SUB),
};
// clang-format on

const struct kernel_list array_inplace_kernels = {rows, ARRAY_LEN(rows)};
