/* The init and compute functions of reductions: Sum, Prod, Mean, Max, Min, All, Any,
 * EuclideanNorm, BiasAddGrad, L2Loss.
 *
 * Dimensions of size 1 are dropped, and neighbours of one kind (reduced or kept) are merged. Which
 * threads share an output, and whether its elements are split into chunks, follows from the merged
 * shape alone (reductions_args.h). */
#include "kernels/cuda/ops/reductions.h"

#include <stdio.h>

#include "kernels/cuda/gpu_kernel.h"
#include "kernels/cuda/ops/reductions_args.h"
#include "kernels/support/elementwise_checks.h"
#include "kernels/support/reduction_checks.h"

enum {
    NAME_BYTES = 64,      /* of a kernel */
    WARP = 32,            /* threads that read together */
    LONG_ROW = 1024,      /* elements for which a whole block reads a row */
    ENOUGH_BLOCKS = 1024, /* that keep a device busy */
    LEAST_PER_LANE = 16,  /* elements of a chunk */
    MOST_CHUNKS = 1024,
};

struct reduction_state {
    const struct gpu_function *function;
    bool keep_dims, is_nchw;
};

struct status *reduction_init(struct kernel_init *init) {
    struct reduction_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    if (node_attr(init->node, "keep_dims"))
        TRY(node_get_b(init->node, "keep_dims", &state->keep_dims));
    TRY(bias_read_format(init->node, &state->is_nchw));
    const char *suffix = gpu_dtype_suffix((enum dtype)init->node->in_types[0]);
    char name[NAME_BYTES];
    snprintf(name, sizeof(name), "%s_%s", (const char *)init->arg, suffix ? suffix : "?");
    return gpu_function_find(gpu_of_init(init), name, &state->function);
}

/* ---- the merged shape ---- */

/* Adds a dimension inside the existing ones. False: there are too many. */
static bool axes_add(struct reduction_axes *axes, int64_t size, int64_t stride, int64_t n) {
    if (axes->rank == REDUCTION_MAX_RANK)
        return false;
    axes->strides[axes->rank] = stride;
    axes->dims[axes->rank++] = gpu_divisor_of(MAX(size, 1), n);
    return true;
}

/* Fills what follows from the shape. *ret_reduces: is there more than one element to an output, or
 * none? */
static struct status *set_axes(struct reduction_args *args, struct shape shape,
                               const bool *is_reduced, bool *ret_reduces) {
    int64_t dims[SHAPE_MAX_RANK], strides[SHAPE_MAX_RANK], stride = 1;
    bool kinds[SHAPE_MAX_RANK];
    int rank = 0;
    *ret_reduces = false;
    args->n_outputs = args->n_reduced = 1;
    for (int i = 0; i < shape.rank; i++) {
        int64_t *n = is_reduced[i] ? &args->n_reduced : &args->n_outputs;
        /* wraps only when another size is 0, and then nobody reads it */
        *n = (int64_t)((uint64_t)*n * (uint64_t)shape.dims[i]);
        if (shape.dims[i] == 1)
            continue;
        *ret_reduces |= is_reduced[i];
        if (rank > 0 && kinds[rank - 1] == is_reduced[i]) {
            dims[rank - 1] = (int64_t)((uint64_t)dims[rank - 1] * (uint64_t)shape.dims[i]);
            continue;
        }
        kinds[rank] = is_reduced[i];
        dims[rank++] = shape.dims[i];
    }
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride = (int64_t)((uint64_t)stride * (uint64_t)dims[i]);
    }
    args->kept.rank = args->reduced.rank = 0;
    args->kept.strides[0] = args->reduced.strides[0] = 0;
    for (int i = 0; i < rank; i++)
        if (!axes_add(kinds[i] ? &args->reduced : &args->kept, dims[i], strides[i],
                      kinds[i] ? args->n_reduced : args->n_outputs))
            return status_unimplemented("A GPU reduces at most %d separate dimensions of shape %s",
                                        REDUCTION_MAX_RANK, SHAPE_TEXT(shape));
    args->is_column = rank > 0 && !kinds[rank - 1];
    args->count = args->n_reduced;
    return NULL;
}

/* ---- who reduces what ---- */

/* The least power of two that is at least n, and at most REDUCTION_THREADS. */
static int power_of_two(int64_t n) {
    int power = 1;
    while (power < n && power < REDUCTION_THREADS)
        power *= 2;
    return power;
}

static void set_lanes(struct reduction_args *args) {
    if (args->is_column) {
        int64_t n_columns = args->kept.dims[args->kept.rank - 1].value;
        int most = REDUCTION_THREADS / MIN(power_of_two(n_columns), WARP);
        args->n_lanes = MIN(power_of_two(args->n_reduced), most);
    } else {
        args->n_lanes = args->n_reduced > LONG_ROW ? REDUCTION_THREADS
                                                   : MIN(power_of_two(args->n_reduced), WARP);
    }
}

static int64_t n_groups(const struct reduction_args *args) {
    int64_t width = REDUCTION_THREADS / args->n_lanes;
    return (args->n_outputs + width - 1) / width;
}

static void set_chunks(struct reduction_args *args) {
    args->n_chunks = 1;
    args->chunk = MAX(args->n_reduced, 1);
    int64_t groups = n_groups(args), by_work = args->n_reduced / (args->n_lanes * LEAST_PER_LANE);
    if (groups >= ENOUGH_BLOCKS || by_work < 2)
        return;
    int64_t wanted = MIN(MIN(by_work, ENOUGH_BLOCKS / groups), MOST_CHUNKS);
    args->chunk = (args->n_reduced + wanted - 1) / MAX(wanted, 1);
    args->n_chunks = (args->n_reduced + args->chunk - 1) / args->chunk;
}

static struct status *launch(struct kernel_ctx *ctx, const struct gpu_function *function,
                             const struct reduction_args *args) {
    /* the barriers of the kernel count on all threads of a block */
    struct gpu_grid grid = gpu_grid_for(ctx, n_groups(args) * args->n_chunks * REDUCTION_THREADS);
    grid.n_threads = REDUCTION_THREADS;
    grid.shared_bytes = 0;
    return gpu_launch(ctx, function, grid, args);
}

/* args->in, out and the axes are set. */
static struct status *run_with(struct kernel_ctx *ctx, const struct gpu_function *function,
                               struct reduction_args *args) {
    if (args->n_outputs == 0)
        return NULL;
    args->is_last_of_two = 0;
    set_lanes(args);
    set_chunks(args);
    if (args->n_chunks == 1)
        return launch(ctx, function, args);
    struct buffer *partial;
    void *out = args->out;
    TRY(gpu_scratch(ctx, (size_t)(args->n_outputs * args->n_chunks) * REDUCTION_MAX_ACCUMULATOR,
                    &partial));
    args->out = partial->data;
    struct status *st = launch(ctx, function, args);
    args->in = partial->data;
    args->out = out;
    args->is_last_of_two = 1;
    args->is_column = 0;
    args->n_reduced = args->n_chunks;
    args->n_lanes = power_of_two(args->n_chunks);
    args->n_chunks = 1;
    args->chunk = args->n_reduced;
    if (!st)
        st = launch(ctx, function, args);
    buffer_unref(partial);
    return st;
}

struct status *reduction_sum_rows(struct kernel_ctx *ctx, enum dtype dtype, const void *from,
                                  void *to, int64_t n_rows, int64_t n) {
    static struct gpu_stem reduce_sum_stem = {"reduce_sum"};
    const struct gpu_function *function;
    struct reduction_args args;
    bool reduces;
    TRY(gpu_stem_find(gpu_of(ctx), &reduce_sum_stem, gpu_dtype_suffix(dtype), &function));
    TRY(set_axes(&args, (struct shape){2, (int64_t[]){n_rows, n}}, (const bool[]){false, true},
                 &reduces));
    args.in = n > 0 ? from : NULL;
    args.out = to;
    return run_with(ctx, function, &args);
}

/* ---- ops ---- */

/* Reduces to output 0. */
static struct status *run(struct kernel_ctx *ctx, struct reduction_args *args) {
    const struct reduction_state *state = ctx->instance->state;
    return run_with(ctx, state->function, args);
}

static enum kernel_result reduce(struct kernel_ctx *ctx, bool is_identity_of_one) {
    const struct reduction_state *state = ctx->instance->state;
    const struct tensor *in = kernel_input(ctx, 0);
    struct shape shape = tensor_shape(in);
    bool is_reduced[SHAPE_MAX_RANK];
    memset(is_reduced, 0, (size_t)shape.rank);
    KERNEL_TRY(ctx, reduction_read_axes(kernel_input(ctx, 1), shape.rank, is_reduced));
    int64_t dims[SHAPE_MAX_RANK];
    struct shape out_shape = reduction_output_shape(shape, is_reduced, state->keep_dims, dims);
    struct reduction_args args;
    bool reduces;
    KERNEL_TRY(ctx, set_axes(&args, shape, is_reduced, &reduces));
    if (!reduces && is_identity_of_one) {
        KERNEL_TRY(ctx, tensor_reshape(in, out_shape, &ctx->outputs[0]));
        return KERNEL_DONE;
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)in->dtype, out_shape));
    args.in = in->n_elements > 0 ? in->data : NULL;
    args.out = ctx->outputs[0].data;
    KERNEL_TRY(ctx, run(ctx, &args));
    return KERNEL_DONE;
}

enum kernel_result reduction_over_axes(struct kernel_ctx *ctx) { return reduce(ctx, true); }
enum kernel_result reduction_norm(struct kernel_ctx *ctx) { return reduce(ctx, false); }

enum kernel_result reduction_bias_grad(struct kernel_ctx *ctx) {
    static const bool is_reduced[3] = {true, false, true};
    const struct reduction_state *state = ctx->instance->state;
    const struct tensor *in = kernel_input(ctx, 0);
    struct bias_extent extent;
    KERNEL_TRY(ctx, bias_extent_of(ctx, state->is_nchw, &extent));
    int64_t dims[3] = {extent.outer, extent.channels, extent.inner};
    struct reduction_args args;
    bool reduces;
    KERNEL_TRY(ctx, set_axes(&args, (struct shape){3, dims}, is_reduced, &reduces));
    KERNEL_TRY(ctx,
               kernel_alloc(ctx, 0, (enum dtype)in->dtype, (struct shape){1, &extent.channels}));
    args.in = in->n_elements > 0 ? in->data : NULL;
    args.out = ctx->outputs[0].data;
    KERNEL_TRY(ctx, run(ctx, &args));
    return KERNEL_DONE;
}

enum kernel_result reduction_to_scalar(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    bool is_reduced = true, reduces;
    int64_t n = in->n_elements;
    struct reduction_args args;
    KERNEL_TRY(ctx, set_axes(&args, (struct shape){1, &n}, &is_reduced, &reduces));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)in->dtype, SHAPE_SCALAR));
    args.in = n > 0 ? in->data : NULL;
    args.out = ctx->outputs[0].data;
    KERNEL_TRY(ctx, run(ctx, &args));
    return KERNEL_DONE;
}
