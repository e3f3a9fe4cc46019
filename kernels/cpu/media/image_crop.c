/* Runs CropAndResize, which cuts regions out of images, and its two gradients. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/media/image.h"

extern const struct kernel_list image_crop_kernels;

struct crop_state {
    bool is_nearest;
    float outside;
};

static struct status *crop_init(struct kernel_init *init) {
    struct crop_state *state = xcalloc(1, sizeof(*state));
    struct span method = {0};
    init->state = state;
    TRY(node_get_s(init->node, "method", &method));
    if (!span_is(method, "bilinear") && !span_is(method, "nearest"))
        return status_invalid("method must be 'bilinear' or 'nearest': %.*s",
                              (int)MIN(method.len, (size_t)256), method.data);
    state->is_nearest = span_is(method, "nearest");
    return node_attr(init->node, "extrapolation_value")
               ? node_get_f(init->node, "extrapolation_value", &state->outside)
               : NULL;
}

/* ---- checks ---- */

/* Checks boxes [n, 4], which must be finite, and box_index [n], whose elements must be in the
 * batch. */
static struct status *check_boxes(const struct tensor *boxes, const struct tensor *index,
                                  int64_t batch) {
    if (boxes->n_elements == 0 && index->n_elements == 0)
        return NULL; /* without boxes TensorFlow checks nothing more */
    if (boxes->rank != 2)
        return status_invalid("boxes must be 2-D%s", TENSOR_SHAPE_TEXT(boxes));
    if (tensor_dim(boxes, 1) != 4)
        return status_invalid("boxes must have 4 columns");
    const float *values = tensor_cdata(boxes);
    for (int64_t i = 0; i < boxes->n_elements; i++)
        if (!isfinite(values[i]))
            return status_invalid("boxes values must be finite, got: %g", (double)values[i]);
    if (index->rank != 1)
        return status_invalid("box_index must be 1-D%s", TENSOR_SHAPE_TEXT(index));
    if (index->n_elements != tensor_dim(boxes, 0))
        return status_invalid("box_index has incompatible shape");
    for (int64_t i = 0; i < index->n_elements; i++) {
        int64_t at = tensor_index_at(index, i);
        if (at < 0 || at >= batch)
            return status_out_of_range("box_index has values outside [0, batch_size)");
    }
    return NULL;
}

static int64_t count_boxes(const struct tensor *boxes, const struct tensor *index) {
    return boxes->n_elements == 0 && index->n_elements == 0 ? 0 : tensor_dim(boxes, 0);
}

static struct status *check_image(const struct tensor *image) {
    if (image->rank != 4)
        return status_invalid("input image must be 4-D%s", TENSOR_SHAPE_TEXT(image));
    if (tensor_dim(image, 1) <= 0 || tensor_dim(image, 2) <= 0)
        return status_invalid("image dimensions must be positive");
    return NULL;
}

/* ---- the positions of a box in the image ---- */

struct crop_axis {
    float base, step; /* position i is at base + i * step, a single position in the middle */
    int64_t n;        /* of the image */
    float low, high;  /* the box's ends */
    int64_t n_crop;
};

static struct crop_axis crop_axis(float low, float high, int64_t n, int64_t n_crop) {
    struct crop_axis axis = {.n = n, .low = low, .high = high, .n_crop = n_crop};
    float last = (float)(n - 1);
    axis.step = n_crop > 1 ? (high - low) * last / (float)(n_crop - 1) : 0;
    axis.base = n_crop > 1 ? low * last : 0.5f * (low + high) * last;
    return axis;
}

static float crop_at(const struct crop_axis *axis, int64_t i) {
    return axis->base + (float)i * axis->step;
}
static bool crop_is_inside(const struct crop_axis *axis, float at) {
    return at >= 0 && at <= (float)(axis->n - 1);
}

struct crop_job {
    const struct crop_state *state;
    const float *image; /* a copy when the dtype is not float */
    float *image_grad;
    const float *boxes, *grads;
    float *out; /* crops, or gradients of boxes */
    const struct tensor *index;
    struct image_size in;
    int64_t n_boxes, height, width; /* sizes of the crops */
};

/* The four neighbours of a position, and the weights of the lower and the right ones. */
struct corners {
    int64_t top, bottom, left, right; /* element offsets of pixels */
    float y, x;
};

static struct corners corners_of(const struct crop_job *job, int64_t image, float y, float x) {
    int64_t row = job->in.width * job->in.channels, first = image * job->in.height * row;
    float top = floorf(y), left = floorf(x);
    return (struct corners){first + (int64_t)top * row,
                            first + (int64_t)ceilf(y) * row,
                            (int64_t)left * job->in.channels,
                            (int64_t)ceilf(x) * job->in.channels,
                            y - top,
                            x - left};
}

static int64_t nearest_pixel(const struct crop_job *job, int64_t image, float y, float x) {
    return ((image * job->in.height + (int64_t)roundf(y)) * job->in.width + (int64_t)roundf(x)) *
           job->in.channels;
}

static void crop_pixel(const struct crop_job *job, int64_t image, float y, float x, float *out) {
    if (job->state->is_nearest) {
        memcpy(out, job->image + nearest_pixel(job, image, y, x),
               (size_t)job->in.channels * sizeof(*out));
        return;
    }
    struct corners at = corners_of(job, image, y, x);
    for (int64_t c = 0; c < job->in.channels; c++) {
        const float *v = job->image + c;
        float top = v[at.top + at.left] + (v[at.top + at.right] - v[at.top + at.left]) * at.x;
        float bottom =
            v[at.bottom + at.left] + (v[at.bottom + at.right] - v[at.bottom + at.left]) * at.x;
        out[c] = top + (bottom - top) * at.y;
    }
}

static void crop_range(void *arg, int64_t begin, int64_t end) {
    const struct crop_job *job = arg;
    int64_t channels = job->in.channels;
    for (int64_t i = begin; i < end; i++) {
        int64_t box = i / job->height, image = tensor_index_at(job->index, box);
        const float *b = job->boxes + 4 * box;
        struct crop_axis rows = crop_axis(b[0], b[2], job->in.height, job->height);
        struct crop_axis columns = crop_axis(b[1], b[3], job->in.width, job->width);
        float y = crop_at(&rows, i % job->height), *out = job->out + i * job->width * channels;
        for (int64_t j = 0; j < job->width; j++, out += channels) {
            float x = crop_at(&columns, j);
            if (crop_is_inside(&rows, y) && crop_is_inside(&columns, x)) {
                crop_pixel(job, image, y, x, out);
                continue;
            }
            for (int64_t c = 0; c < channels; c++)
                out[c] = job->state->outside;
        }
    }
}

/* CropAndResize.
 *   image      T [batch, height, width, channels]
 *   boxes      float [n, 4]: y1, x1, y2, x2 as parts of the image; may reach outside
 *   box_ind    int32 [n]: each box' image
 *   crop_size  int32 [2]
 *   crops      float [n, crop height, crop width, channels]
 * Errors  INVALID_ARGUMENT ranks, sizes; OUT_OF_RANGE a box_ind without image */
static enum kernel_result crop(struct kernel_ctx *ctx) {
    const struct tensor *image = kernel_input(ctx, 0), *boxes = kernel_input(ctx, 1),
                        *index = kernel_input(ctx, 2);
    const struct tensor *size = kernel_input(ctx, 3);
    KERNEL_TRY(ctx, check_image(image));
    if (size->rank != 1)
        return kernel_fail(ctx, status_invalid("crop_size must be 1-D%s", TENSOR_SHAPE_TEXT(size)));
    if (size->n_elements != 2)
        return kernel_fail(
            ctx, status_invalid("crop_size must have two elements%s", TENSOR_SHAPE_TEXT(size)));
    struct crop_job job = {.state = ctx->instance->state,
                           .in = image_size_of(image),
                           .index = index,
                           .boxes = tensor_cdata(boxes)};
    job.height = tensor_index_at(size, 0);
    job.width = tensor_index_at(size, 1);
    if (job.height <= 0 || job.width <= 0)
        return kernel_fail(ctx, status_invalid("crop dimensions must be positive"));
    KERNEL_TRY(ctx, check_boxes(boxes, index, job.in.batch));
    job.n_boxes = count_boxes(boxes, index);
    int64_t dims[4] = {job.n_boxes, job.height, job.width, job.in.channels};
    float *owned = NULL;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_FLOAT, (struct shape){4, dims}));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    job.image = image_floats(image, &owned);
    job.out = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, job.n_boxes * job.height,
                      3.0 * (double)(job.width * job.in.channels), crop_range, &job);
    free(owned);
    return KERNEL_DONE;
}

/* ---- gradients ---- */

static struct status *check_grads(const struct tensor *grads, const struct tensor *boxes,
                                  const struct tensor *index) {
    if (grads->rank != 4)
        return status_invalid("grads image must be 4-D%s", TENSOR_SHAPE_TEXT(grads));
    if (tensor_dim(grads, 1) <= 0 || tensor_dim(grads, 2) <= 0)
        return status_invalid("grads dimensions must be positive");
    if (tensor_dim(grads, 0) != count_boxes(boxes, index))
        return status_invalid("boxes and grads have incompatible shape");
    return NULL;
}

static void grad_image_pixel(const struct crop_job *job, int64_t image, float y, float x,
                             const float *grad) {
    if (job->state->is_nearest) {
        int64_t at = nearest_pixel(job, image, y, x);
        for (int64_t c = 0; c < job->in.channels; c++)
            job->image_grad[at + c] += grad[c];
        return;
    }
    struct corners at = corners_of(job, image, y, x);
    for (int64_t c = 0; c < job->in.channels; c++) {
        float top = (1 - at.y) * grad[c], bottom = at.y * grad[c], *to = job->image_grad + c;
        to[at.top + at.left] += (1 - at.x) * top;
        to[at.top + at.right] += at.x * top;
        to[at.bottom + at.left] += (1 - at.x) * bottom;
        to[at.bottom + at.right] += at.x * bottom;
    }
}

static void each_box(const struct crop_job *job, int64_t box,
                     void (*fn)(const struct crop_job *job, int64_t box, int64_t image, int64_t i,
                                int64_t j, const struct crop_axis axes[2], const float *grad)) {
    const float *b = job->boxes + 4 * box;
    struct crop_axis axes[2] = {crop_axis(b[0], b[2], job->in.height, job->height),
                                crop_axis(b[1], b[3], job->in.width, job->width)};
    const float *grad = job->grads + box * job->height * job->width * job->in.channels;
    for (int64_t i = 0; i < job->height; i++)
        for (int64_t j = 0; j < job->width; j++, grad += job->in.channels)
            if (crop_is_inside(&axes[0], crop_at(&axes[0], i)) &&
                crop_is_inside(&axes[1], crop_at(&axes[1], j)))
                fn(job, box, tensor_index_at(job->index, box), i, j, axes, grad);
}

static void grad_image_at(const struct crop_job *job, int64_t box, int64_t image, int64_t i,
                          int64_t j, const struct crop_axis axes[2], const float *grad) {
    (void)box;
    grad_image_pixel(job, image, crop_at(&axes[0], i), crop_at(&axes[1], j), grad);
}

/* CropAndResizeGradImage: grads float [n, h, w, c], boxes, box_ind, image_size int32 [4]; output
 * T image_size. */
static enum kernel_result crop_grad_image(struct kernel_ctx *ctx) {
    const struct tensor *grads = kernel_input(ctx, 0), *boxes = kernel_input(ctx, 1),
                        *index = kernel_input(ctx, 2);
    const struct tensor *size = kernel_input(ctx, 3);
    int64_t dims[4], n = 0;
    if (size->rank != 1 || size->n_elements != 4)
        return kernel_fail(ctx, status_invalid("image_size must be 1-D with 4 elements%s",
                                               TENSOR_SHAPE_TEXT(size)));
    for (int i = 0; i < 4; i++)
        dims[i] = tensor_index_at(size, i);
    KERNEL_TRY(ctx, check_grads(grads, boxes, index));
    if (dims[1] <= 0 || dims[2] <= 0)
        return kernel_fail(ctx, status_invalid("image dimensions must be positive"));
    if (dims[3] != tensor_dim(grads, 3))
        return kernel_fail(ctx, status_invalid("image_size and grads are incompatible"));
    KERNEL_TRY(ctx, check_boxes(boxes, index, dims[0]));
    KERNEL_TRY(ctx, shape_n_elements((struct shape){4, dims}, &n));
    struct tensor sum = TENSOR_INIT;
    KERNEL_TRY(
        ctx, tensor_new_zeroed(ctx->instance->allocator, DT_FLOAT, (struct shape){4, dims}, &sum));
    struct crop_job job = {.state = ctx->instance->state,
                           .index = index,
                           .boxes = tensor_cdata(boxes),
                           .grads = tensor_cdata(grads)};
    job.in = (struct image_size){dims[0], dims[1], dims[2], dims[3]};
    job.height = tensor_dim(grads, 1);
    job.width = tensor_dim(grads, 2);
    job.image_grad = tensor_data(&sum);
    /* one box after the other, because boxes overlap */
    for (int64_t box = 0; box < tensor_dim(grads, 0) && n > 0; box++)
        each_box(&job, box, grad_image_at);
    enum dtype dtype = (enum dtype)ctx->instance->out_types[0];
    if (dtype == DT_FLOAT) {
        tensor_move(&ctx->outputs[0], &sum);
        return KERNEL_DONE;
    }
    struct status *st = kernel_alloc(ctx, 0, dtype, (struct shape){4, dims});
    if (!st)
        image_store(&ctx->outputs[0], 0, n, tensor_cdata(&sum));
    tensor_clear(&sum);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static void grad_boxes_at(const struct crop_job *job, int64_t box, int64_t image, int64_t i,
                          int64_t j, const struct crop_axis axes[2], const float *grad) {
    struct corners at = corners_of(job, image, crop_at(&axes[0], i), crop_at(&axes[1], j));
    float *out = job->out + 4 * box, last_y = (float)(job->in.height - 1),
          last_x = (float)(job->in.width - 1);
    float part_y = job->height > 1 ? (float)i / (float)(job->height - 1) : 0.5f;
    float part_x = job->width > 1 ? (float)j / (float)(job->width - 1) : 0.5f;
    for (int64_t c = 0; c < job->in.channels; c++) {
        const float *v = job->image + c;
        float tl = v[at.top + at.left], tr = v[at.top + at.right], bl = v[at.bottom + at.left],
              br = v[at.bottom + at.right];
        float dy = ((1 - at.x) * (bl - tl) + at.x * (br - tr)) * grad[c] * last_y;
        float dx = ((1 - at.y) * (tr - tl) + at.y * (br - bl)) * grad[c] * last_x;
        out[0] += dy * (1 - part_y);
        out[2] += dy * part_y;
        out[1] += dx * (1 - part_x);
        out[3] += dx * part_x;
    }
}

static void grad_boxes_range(void *arg, int64_t begin, int64_t end) {
    for (int64_t box = begin; box < end; box++)
        each_box(arg, box, grad_boxes_at);
}

/* CropAndResizeGradBoxes: grads float [n, h, w, c], image T, boxes, box_ind; output float [n,
 * 4]. */
static enum kernel_result crop_grad_boxes(struct kernel_ctx *ctx) {
    const struct tensor *grads = kernel_input(ctx, 0), *image = kernel_input(ctx, 1),
                        *boxes = kernel_input(ctx, 2);
    const struct tensor *index = kernel_input(ctx, 3);
    KERNEL_TRY(ctx, check_grads(grads, boxes, index));
    KERNEL_TRY(ctx, check_image(image));
    if (tensor_dim(image, 3) != tensor_dim(grads, 3))
        return kernel_fail(ctx, status_invalid("image, grads depth differ"));
    KERNEL_TRY(ctx, check_boxes(boxes, index, tensor_dim(image, 0)));
    int64_t dims[2] = {count_boxes(boxes, index), 4};
    KERNEL_TRY(ctx, tensor_new_zeroed(ctx->instance->allocator, DT_FLOAT, (struct shape){2, dims},
                                      &ctx->outputs[0]));
    struct crop_job job = {.state = ctx->instance->state,
                           .index = index,
                           .boxes = tensor_cdata(boxes),
                           .grads = tensor_cdata(grads)};
    float *owned = NULL;
    if (dims[0] == 0)
        return KERNEL_DONE;
    job.in = image_size_of(image);
    job.height = tensor_dim(grads, 1);
    job.width = tensor_dim(grads, 2);
    job.image = image_floats(image, &owned);
    job.out = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, dims[0], 5.0 * (double)(job.height * job.width * job.in.channels),
                      grad_boxes_range, &job);
    free(owned);
    return KERNEL_DONE;
}

#define CROPPED \
    (DTYPES_REAL & ~(DTYPE_BIT(DT_UINT32) | DTYPE_BIT(DT_UINT64) | DTYPE_BIT(DT_BFLOAT16)))

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "CropAndResize", {{"T", CROPPED}}, .compute = crop, .init = crop_init},
    {.op = "CropAndResizeGradImage",
        {{"T", DTYPE_BIT(DT_HALF) | DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE)}},
     .compute = crop_grad_image, .init = crop_init},
    {.op = "CropAndResizeGradBoxes", {{"T", CROPPED}}, .compute = crop_grad_boxes,
        .init = crop_init},
};
// clang-format on

const struct kernel_list image_crop_kernels = {rows, ARRAY_LEN(rows)};
