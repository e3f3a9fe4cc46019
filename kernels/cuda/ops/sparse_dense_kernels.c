/* The compute functions of sparse tensors with dense ones (sparse.h): SparseTensorDenseMatMul,
 * SparseToDense. */
#include "kernels/cuda/ops/sparse.h"

#include <stdlib.h>

#include "common/tensor/element.h"
#include "kernels/cpu/sparse/sparse_dense.h"
#include "kernels/cuda/ops/engine_internal.h"
#include "kernels/cuda/ops/order.h"
#include "kernels/cuda/ops/segments.h"
#include "kernels/cuda/ops/sized_job.h"
#include "kernels/cuda/ops/sparse_dense_args.h"
#include "kernels/support/moves.h"

static struct gpu_stem product_stem = {"sparse_product"};
static struct gpu_stem validate_stem = {"sparse_validate"};

/* ---- SparseTensorDenseMatMul ---- */

/* Sorts the entries by their rows of the product, and adds up each row's. */
static struct status *multiply(struct kernel_ctx *ctx, struct sparse_product_args *args,
                               enum dtype dtype) {
    struct order_sort sort = {.n = args->n_entries,
                              .key_bytes = args->m < UINT32_MAX ? 4 : 8,
                              .n_bits = order_n_bits((uint64_t)args->m)};
    struct buffer *firsts = NULL;
    struct status *st = gpu_scratch(ctx, (size_t)sort.n * sort.key_bytes, &sort.keys);
    if (st)
        return st;
    args->keys = sort.keys->data;
    args->key_bytes = (int64_t)sort.key_bytes;
    TRY_OUT(engine_launch_for(ctx, &product_stem, "keys", sort.n, args));
    TRY_OUT(order_sort_run(ctx, &sort));
    TRY_OUT(order_longs(ctx, args->m + 1, &firsts));
    TRY_OUT(order_bounds(ctx, sort.keys->data, sort.key_bytes == 4 ? BOUNDS_U32 : BOUNDS_U64,
                         sort.n, args->m, order_longs_of(firsts)));
    args->positions = order_positions_of(&sort);
    args->firsts = order_longs_of(firsts);
    struct gpu_grid grid =
        segments_grid(args->m, args->n, args->n_entries, &args->width, &args->n_lanes);
    TRY_OUT(engine_launch(ctx, &product_stem, gpu_dtype_suffix(dtype), grid, args));
out:
    buffer_unref(firsts);
    order_sort_fini(&sort);
    return st;
}

enum kernel_result sparse_product_on_gpu(struct kernel_ctx *ctx) {
    const struct sparse_product_state *state = ctx->instance->state;
    const struct tensor *indices = &ctx->inputs[0], *values = &ctx->inputs[1], *b = &ctx->inputs[3];
    struct tensor *out = &ctx->outputs[0];
    enum dtype dtype = tensor_dtype(b);
    struct sparse_product product;
    KERNEL_TRY(ctx, sparse_product_check(ctx, &product));
    KERNEL_TRY(ctx,
               kernel_alloc(ctx, 0, dtype, (struct shape){2, (int64_t[]){product.m, product.n}}));
    if (out->n_elements == 0)
        return KERNEL_DONE;
    struct sparse_product_args args = {.indices = tensor_cdata(indices),
                                       .values = tensor_cdata(values),
                                       .b = tensor_cdata(b),
                                       .out = tensor_data(out),
                                       .index = engine_index(tensor_dtype(indices)),
                                       .row_at = state->adjoint_a,
                                       .adjoint_a = state->adjoint_a,
                                       .adjoint_b = state->adjoint_b,
                                       .n_entries = values->n_elements,
                                       .m = product.m,
                                       .n = product.n,
                                       .inner = product.inner,
                                       .b_row = product.b_row,
                                       .b_column = product.b_column};
    KERNEL_TRY(ctx, args.n_entries > 0
                        ? multiply(ctx, &args, dtype)
                        : gpu_zero(ctx, args.out, (size_t)out->n_elements * dtype_size(dtype)));
    return KERNEL_DONE;
}

/* ---- SparseToDense ---- */

struct validate_job {
    struct sized_job job;
    struct sparse_to_dense checked;
    struct buffer *found;
};

static void validate_fini(struct sized_job *base) {
    buffer_unref(CONTAINER_OF(base, struct validate_job, job)->found);
}

static struct status *validate_finish(struct sized_job *base, const void *sizes) {
    const struct sparse_to_dense *checked = &CONTAINER_OF(base, struct validate_job, job)->checked;
    uint64_t found[2];
    memcpy(found, sizes, sizeof(found));
    if (found[0] == SPARSE_NONE)
        return NULL;
    int64_t i = (int64_t)(found[0] / SPARSE_WHAT);
    int what = (int)(found[0] % SPARSE_WHAT);
    return what < SPARSE_DENSE_RANK
               ? sparse_to_dense_bounds_error(checked, i, what, (int64_t)found[1])
               : sparse_to_dense_order_error(i, what == SPARSE_REPEATED);
}

static struct status *validate_start(struct kernel_ctx *ctx, struct validate_job *job) {
    static const uint64_t none[2] = {SPARSE_NONE, 0};
    const struct sparse_to_dense *checked = &job->checked;
    TRY(ctx->instance->engine->stage(ctx, none, sizeof(none), &job->found));
    struct sparse_validate_args args = {.indices = tensor_cdata(checked->indices),
                                        .found = (uint64_t *)(void *)job->found->data,
                                        .index = engine_index(tensor_dtype(checked->indices)),
                                        .n = checked->n,
                                        .rank = checked->n_dims};
    memcpy(args.dims, checked->dims, (size_t)args.rank * sizeof(int64_t));
    TRY(engine_launch_for(ctx, &validate_stem, "entries", args.n, &args));
    return engine_launch_for(ctx, &validate_stem, "value", 1, &args);
}

/* Entries out of range are left out. Of equal ones the last wins. */
static struct status *fill_and_scatter(struct kernel_ctx *ctx, const struct sparse_to_dense *job) {
    struct tensor *out = &ctx->outputs[0];
    struct device_scatter scatter = {
        .op = UPDATE_ASSIGN, .dtype = tensor_dtype(out), .params = tensor_data(out)};
    if (out->n_elements == 0)
        return NULL;
    TRY(move_fill(ctx, scatter.dtype, scatter.params, tensor_cdata(job->filler), out->n_elements));
    if (job->n == 0)
        return NULL;
    if (job->values->rank > 0)
        scatter.updates = tensor_cdata(job->values);
    else
        scatter.scalar = device_scalar_of(job->values);
    TRY(device_slices_init(&scatter.slices, job->indices, (int)job->n_dims, tensor_shape(out),
                           job->n));
    return engine_scatter(ctx, &scatter);
}

enum kernel_result sparse_to_dense_on_gpu(struct kernel_ctx *ctx) {
    const bool *validates = ctx->instance->state;
    struct sparse_to_dense checked;
    KERNEL_TRY(ctx, sparse_to_dense_check(ctx, &checked));
    if (checked.n_dims > SPARSE_DENSE_RANK)
        return kernel_fail(ctx, status_unimplemented("A GPU makes tensors of at most %d dimensions "
                                                     "of sparse ones, not %lld",
                                                     SPARSE_DENSE_RANK, (long long)checked.n_dims));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(checked.values),
                                 (struct shape){(int)checked.n_dims, checked.dims}));
    KERNEL_TRY(ctx, fill_and_scatter(ctx, &checked));
    if (!*validates || checked.n == 0)
        return KERNEL_DONE;
    struct validate_job *job = xcalloc(1, sizeof *job);
    job->job = (struct sized_job){.ctx = ctx, .finish = validate_finish, .fini = validate_fini};
    job->checked = checked;
    struct status *st = validate_start(ctx, job);
    return sized_job_end_take(&job->job, st, job->found, 2 * sizeof(uint64_t));
}
