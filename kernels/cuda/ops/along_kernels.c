/* The init and compute functions of what works along one dimension: ArgMax, ArgMin, Cumsum,
 * Cumprod, CumulativeLogsumexp. */
#include <stdio.h>

#include "kernels/cuda/gpu_kernel.h"
#include "kernels/cuda/ops/reductions.h"
#include "kernels/cuda/ops/reductions_args.h"
#include "kernels/support/dims.h"
#include "kernels/support/reduction_checks.h"

enum {
    NAME_BYTES = 64, /* of a kernel */
    LONG_LINE = 1024,
    WARP = 32,
    /* From this many lines on, each line has a thread of its own, and below it a block. */
    MANY_LINES = 8192,
    SHORT_LINE = 16, /* a line of at most this length has no block of its own */
};

static void set_along(struct along_args *args, struct shape shape, int axis) {
    struct along along = along_axis(shape, axis);
    args->n_outer = along.outer;
    args->n = along.n;
    args->n_inner = along.inner;
}

/* A grid with `per_line` threads for each line, in blocks whose barriers count on all threads. */
static struct gpu_grid grid_of(const struct kernel_ctx *ctx, const struct along_args *args,
                               int per_line) {
    struct gpu_grid grid = gpu_grid_for(ctx, args->n_outer * args->n_inner * per_line);
    grid.n_threads = REDUCTION_THREADS;
    return grid;
}

enum kernel_result along_arg(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    struct shape shape = tensor_shape(in);
    int axis;
    KERNEL_TRY(ctx, arg_read_axis(ctx, &axis));
    int64_t dims[SHAPE_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < shape.rank; i++)
        if (i != axis)
            dims[rank++] = shape.dims[i];
    enum dtype out_dtype = kernel_out_dtype(ctx, 0);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, out_dtype, (struct shape){rank, dims}));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    struct along_args args = {
        .in = in->data, .out = ctx->outputs[0].data, .out_bytes = (int32_t)dtype_size(out_dtype)};
    set_along(&args, shape, axis);
    args.n_lanes = args.n > LONG_LINE ? REDUCTION_THREADS : WARP;
    if (args.n_inner > 1) /* a warp reads neighbouring lines */
        args.n_lanes = MIN(args.n_lanes, REDUCTION_THREADS / WARP);
    return gpu_run(ctx, ctx->instance->state, grid_of(ctx, &args, args.n_lanes), &args);
}

struct scan_state {
    const struct gpu_function *lines, *tiles;
    bool is_exclusive, is_reverse;
};

struct status *along_init_scan(struct kernel_init *init) {
    struct scan_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_b(init->node, "exclusive", &state->is_exclusive));
    TRY(node_get_b(init->node, "reverse", &state->is_reverse));
    const char *suffix = gpu_dtype_suffix((enum dtype)init->node->in_types[0]);
    char name[NAME_BYTES];
    snprintf(name, sizeof(name), "%s_lines_%s", (const char *)init->arg, suffix ? suffix : "?");
    TRY(gpu_function_find(gpu_of_init(init), name, &state->lines));
    snprintf(name, sizeof(name), "%s_tiles_%s", (const char *)init->arg, suffix ? suffix : "?");
    return gpu_function_find(gpu_of_init(init), name, &state->tiles);
}

enum kernel_result along_scan(struct kernel_ctx *ctx) {
    const struct scan_state *state = ctx->instance->state;
    const struct tensor *in = kernel_input(ctx, 0);
    struct shape shape = tensor_shape(in);
    int axis;
    KERNEL_TRY(ctx, scan_read_axis(ctx, &axis));
    bool is_empty = in->n_elements == 0;
    struct along_args args = {.is_exclusive = state->is_exclusive, .is_reverse = state->is_reverse};
    if (!is_empty) {
        args.in = in->data;
        set_along(&args, shape, axis);
    }
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, (enum dtype)in->dtype, shape));
    if (is_empty)
        return KERNEL_DONE;
    args.out = ctx->outputs[0].data;
    bool by_line =
        args.n <= SHORT_LINE || (args.n_outer * args.n_inner >= MANY_LINES && args.n_inner >= WARP);
    return gpu_run(ctx, by_line ? state->lines : state->tiles,
                   grid_of(ctx, &args, by_line ? 1 : REDUCTION_THREADS), &args);
}
