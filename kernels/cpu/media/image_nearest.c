/* Runs ResizeNearestNeighbor and its gradient, which copy or add elements in their own dtype. */
#include <math.h>
#include <stdlib.h>

#include "kernels/support/half_blocks.h"
#include "kernels/cpu/media/image.h"

extern const struct kernel_list image_nearest_kernels;

/* Computes which input position each output position shows; malloc'd. */
static int64_t *nearest_positions(struct image_grid grid) {
    int64_t *at = xmalloc((size_t)(grid.n_out + 1) * sizeof(*at));
    float scale = image_grid_scale(grid);
    for (int64_t i = 0; i < grid.n_out; i++) {
        float f = grid.half_pixel_centers ? ((float)i + 0.5f) * scale : (float)i * scale;
        at[i] = MIN((int64_t)(grid.align_corners ? roundf(f) : floorf(f)), grid.n_in - 1);
    }
    return at;
}

struct nearest_job {
    const char *from;
    char *to;
    int64_t *rows, *columns; /* positions in the input */
    struct image_size in, out;
    enum dtype dtype;
    size_t pixel_bytes;
};

static void nearest_job_init(struct nearest_job *job, const struct kernel_ctx *ctx,
                             const struct tensor *in, const struct tensor *out) {
    const struct resize_state *state = ctx->instance->state;
    struct image_grid grid = state->grid;
    job->in = image_size_of(in);
    job->out = image_size_of(out);
    grid.n_in = job->in.height;
    grid.n_out = job->out.height;
    job->rows = nearest_positions(grid);
    grid.n_in = job->in.width;
    grid.n_out = job->out.width;
    job->columns = nearest_positions(grid);
    job->dtype = (enum dtype)in->dtype;
    job->pixel_bytes = (size_t)job->in.channels * dtype_size(job->dtype);
}

static void nearest_range(void *arg, int64_t begin, int64_t end) {
    const struct nearest_job *job = arg;
    size_t row_bytes = (size_t)job->in.width * job->pixel_bytes, n = job->pixel_bytes;
    for (int64_t i = begin; i < end; i++) {
        int64_t image = i / job->out.height, y = i % job->out.height;
        const char *row = job->from + (size_t)(image * job->in.height + job->rows[y]) * row_bytes;
        char *to = job->to + (size_t)(i * job->out.width) * n;
        for (int64_t x = 0; x < job->out.width; x++, to += n)
            memcpy(to, row + (size_t)job->columns[x] * n, n);
    }
}

/* ResizeNearestNeighbor: as ResizeBilinear, except that the output has the images' dtype. */
static enum kernel_result nearest(struct kernel_ctx *ctx) {
    const struct tensor *images = kernel_input(ctx, 0);
    struct nearest_job job = {0};
    KERNEL_TRY(ctx, resize_output(ctx, (enum dtype)images->dtype));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    nearest_job_init(&job, ctx, images, &ctx->outputs[0]);
    job.from = tensor_cdata(images);
    job.to = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, job.out.batch * job.out.height,
                      2.0 * (double)job.out.width + 0.1 * (double)job.pixel_bytes, nearest_range,
                      &job);
    free(job.rows);
    free(job.columns);
    return KERNEL_DONE;
}

/* ---- gradient ---- */

#define ADD(T)                      \
    for (int64_t i = 0; i < n; i++) \
    ((T *)to)[i] = (T)(((T *)to)[i] + ((const T *)from)[i])

/* Integers wrap around. */
static void add_pixel(enum dtype dtype, char *to, const char *from, int64_t n) {
    switch (dtype) {
    case DT_FLOAT:
        ADD(float);
        break;
    case DT_DOUBLE:
        ADD(double);
        break;
    case DT_HALF:
    case DT_BFLOAT16:
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)to)[i] =
                half_value_store(dtype, half_value_load(dtype, ((uint16_t *)to)[i]) +
                                            half_value_load(dtype, ((const uint16_t *)from)[i]));
        break;
    case DT_INT8:
    case DT_UINT8:
        ADD(uint8_t);
        break;
    case DT_INT16:
    case DT_UINT16:
        ADD(uint16_t);
        break;
    case DT_INT32:
    case DT_UINT32:
        ADD(uint32_t);
        break;
    default:
        ADD(uint64_t);
        break;
    }
}

static void nearest_grad_range(void *arg, int64_t begin, int64_t end) {
    const struct nearest_job *job = arg;
    size_t n = job->pixel_bytes, row_bytes = (size_t)job->in.width * n;
    for (int64_t i = begin * job->out.height; i < end * job->out.height; i++) {
        char *row = job->to + (size_t)(i / job->out.height * job->in.height +
                                       job->rows[i % job->out.height]) *
                                  row_bytes;
        const char *from = job->from + (size_t)(i * job->out.width) * n;
        for (int64_t x = 0; x < job->out.width; x++, from += n)
            add_pixel(job->dtype, row + (size_t)job->columns[x] * n, from, job->in.channels);
    }
}

/* ResizeNearestNeighborGrad.
 *   grads   T [batch, height, width, channels]
 *   size    int32 [2]: the original height and width
 *   output  T [batch, original height, original width, channels] */
static enum kernel_result nearest_grad(struct kernel_ctx *ctx) {
    const struct tensor *grads = kernel_input(ctx, 0), *size = kernel_input(ctx, 1);
    if (grads->rank != 4)
        return kernel_fail(
            ctx, status_invalid("input must be 4-dimensional%s", TENSOR_SHAPE_TEXT(grads)));
    if (size->rank != 1 || size->n_elements != 2)
        return kernel_fail(ctx, status_invalid("shape_t must be 1-dimensional with two elements%s",
                                               TENSOR_SHAPE_TEXT(size)));
    int64_t dims[4] = {tensor_dim(grads, 0), tensor_index_at(size, 0), tensor_index_at(size, 1),
                       tensor_dim(grads, 3)};
    if (dims[1] <= 0 || dims[2] <= 0)
        return kernel_fail(ctx, status_invalid("shape_t's elements must be positive"));
    KERNEL_TRY(ctx, tensor_new_zeroed(ctx->instance->allocator, (enum dtype)grads->dtype,
                                      (struct shape){4, dims}, &ctx->outputs[0]));
    if (ctx->outputs[0].n_elements == 0 || grads->n_elements == 0)
        return KERNEL_DONE;
    struct nearest_job job = {0};
    nearest_job_init(&job, ctx, &ctx->outputs[0], grads);
    job.from = tensor_cdata(grads);
    job.to = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, job.out.batch,
                      1.0 * (double)(job.out.height * job.out.width * job.out.channels),
                      nearest_grad_range, &job);
    free(job.rows);
    free(job.columns);
    return KERNEL_DONE;
}

#define RESIZED (DTYPES_REAL & ~(DTYPE_BIT(DT_UINT32) | DTYPE_BIT(DT_UINT64)))

#define RESIZED_GRAD \
    (DTYPES_REAL_FLOAT | DTYPE_BIT(DT_INT8) | DTYPE_BIT(DT_UINT8) | DTYPE_BIT(DT_INT32))

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "ResizeNearestNeighbor", {{"T", RESIZED}}, .compute = nearest, .init = resize_init},
    {.op = "ResizeNearestNeighborGrad", {{"T", RESIZED_GRAD}}, .compute = nearest_grad,
        .init = resize_init},
};
// clang-format on

const struct kernel_list image_nearest_kernels = {rows, ARRAY_LEN(rows)};
