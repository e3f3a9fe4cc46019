/* The compute functions of Softmax, LogSoftmax and the two cross entropies. */
#include "kernels/cuda/gpu_kernel.h"
#include "kernels/cuda/ops/reductions.h"
#include "kernels/cuda/ops/reductions_args.h"
#include "kernels/support/reduction_checks.h"

enum { LONG_ROW = 1024, WARP = 32 };

static struct status *run(struct kernel_ctx *ctx, struct softmax_args *args) {
    if (args->n_rows == 0)
        return NULL;
    args->n_lanes = args->n_columns > LONG_ROW ? REDUCTION_THREADS : WARP;
    /* the barriers of the kernel count on all threads of a block */
    struct gpu_grid grid = gpu_grid_for(ctx, args->n_rows * args->n_lanes);
    grid.n_threads = REDUCTION_THREADS;
    return gpu_launch(ctx, ctx->instance->state, grid, args);
}

enum kernel_result softmax_of_rows(struct kernel_ctx *ctx) {
    const struct tensor *logits = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, softmax_check(ctx));
    int64_t columns = tensor_dim(logits, logits->rank - 1);
    struct softmax_args args = {.in = logits->data,
                                .n_rows = columns ? logits->n_elements / columns : 0,
                                .n_columns = columns,
                                .in_row_step = columns,
                                .in_step = 1};
    KERNEL_TRY(ctx,
               kernel_forward_or_alloc(ctx, 0, 0, (enum dtype)logits->dtype, tensor_shape(logits)));
    args.out = ctx->outputs[0].data;
    KERNEL_TRY(ctx, run(ctx, &args));
    return KERNEL_DONE;
}

/* Makes the loss and the gradient, which takes the features' memory if it may. */
static struct status *make_outputs(struct kernel_ctx *ctx, struct softmax_args *args,
                                   bool takes_features) {
    enum dtype dtype = (enum dtype)ctx->inputs[0].dtype;
    int64_t dims[2] = {args->n_rows, args->n_columns};
    struct shape matrix = {2, dims};
    TRY(kernel_alloc(ctx, 0, dtype, (struct shape){1, dims}));
    if (takes_features)
        TRY(kernel_forward_or_alloc(ctx, 0, 1, dtype, matrix));
    else
        TRY(kernel_alloc(ctx, 1, dtype, matrix));
    args->loss = ctx->outputs[0].data;
    args->out = ctx->outputs[1].data;
    return NULL;
}

enum kernel_result softmax_cross_entropy(struct kernel_ctx *ctx) {
    const struct tensor *features = kernel_input(ctx, 0), *labels = kernel_input(ctx, 1);
    struct cross_entropy_plan plan;
    KERNEL_TRY(ctx, cross_entropy_plan(ctx, &plan));
    struct softmax_args args = {.in = features->data,
                                .labels = labels->data,
                                .n_rows = plan.dims[0],
                                .n_columns = plan.dims[1],
                                .in_row_step = plan.features.row_step,
                                .in_step = !plan.features.is_one,
                                .label_row_step = plan.labels.row_step,
                                .label_step = !plan.labels.is_one};
    KERNEL_TRY(ctx, make_outputs(ctx, &args, plan.has_all_features));
    if (args.n_rows > 0 && args.n_columns == 0)
        KERNEL_TRY(ctx, gpu_zero(ctx, args.loss, tensor_size_bytes(&ctx->outputs[0])));
    else
        KERNEL_TRY(ctx, run(ctx, &args));
    return KERNEL_DONE;
}

enum kernel_result softmax_sparse_cross_entropy(struct kernel_ctx *ctx) {
    const struct tensor *features = kernel_input(ctx, 0), *labels = kernel_input(ctx, 1);
    KERNEL_TRY(ctx, sparse_cross_entropy_check(ctx));
    int64_t columns = tensor_dim(features, 1);
    struct softmax_args args = {.in = features->data,
                                .labels = labels->data,
                                .n_rows = tensor_dim(features, 0),
                                .n_columns = columns,
                                .in_row_step = columns,
                                .in_step = 1,
                                .class_bytes = (int32_t)dtype_size((enum dtype)labels->dtype)};
    KERNEL_TRY(ctx, make_outputs(ctx, &args, true));
    KERNEL_TRY(ctx, run(ctx, &args));
    return KERNEL_DONE;
}
