/* Runs MaxPool and AvgPool with their gradients, of images and volumes: turns attrs and shapes into
 * a geometry, which pooling_run.c computes.
 *
 *   input    T [batch, spatial, channels]
 *   output   T [batch, out spatial, channels]
 *   MaxPoolGrad      input, output, grad → the input's gradient: added at the first greatest tap,
 *                    in three dimensions at all taps that equal the greatest
 *   MaxPoolGradGrad  input, output, grad of the input's gradient → its value at the first greatest
 *                    tap
 *   AvgPoolGrad      the input's sizes, grad → the input's gradient
 *   MaxPoolWithArgmax also gives the position of the greatest tap, counted in elements of its
 *   image, or of the batch with include_batch_in_index
 *
 * MaxPool of images may pool groups of channels instead of pixels. The average is over the taps
 * inside of the input.
 * On a device (kernels/support/device_engine.h) channels may be first: [batch, channels, spatial].
 * There MaxPool of qint8 takes NCHW_VECT_C: [batch, channels / 4, height, width, 4].
 * Errors   INVALID_ARGUMENT   ranks and shapes that do not fit, channels first on a CPU
 *          UNIMPLEMENTED      windows over the batch or (except for MaxPool) the channels */
#include <stdlib.h>

#include "kernels/cpu/nn/pooling.h"
#include "kernels/cpu/nn/widen.h"
#include "kernels/support/device_engine.h"

struct pooling_state {
    struct pooling_op op;
    struct window_attrs attrs;
    enum dtype dtype;
    bool counts_batch;
};

static const char *const names_2d[] = {"MaxPoolingOp",
                                       "AvgPoolingOp",
                                       "MaxPoolingGradOp",
                                       "MaxPoolingGradGradOp",
                                       "AvgPoolingGradOp",
                                       "MaxPoolingWithArgmaxOp",
                                       "MaxPoolingGradWithArgmaxOp"};
static const char *const names_3d[] = {"Pooling3DOp", "Pooling3DOp", "MaxPooling3dGradOp",
                                       "MaxPooling3dGradGradOp", "AvgPooling3dGradOp"};

/* ---- attrs ---- */

static struct status *check_windows(const struct pooling_state *state) {
    const struct window_attrs *attrs = &state->attrs;
    if (attrs->size.batch != 1 || attrs->strides.batch != 1)
        return status_unimplemented("Pooling is not yet supported on the batch dimension.");
    if (state->op.n_spatial == 3 && (attrs->size.channel != 1 || attrs->strides.channel != 1)) {
        if (state->op.kind == POOLING_MAX_GRAD_GRAD)
            return status_unimplemented(
                "MaxPooling3dGradGrad is not yet supported on the depth dimension.");
        return status_unimplemented("Pooling is not yet supported on the depth dimension.");
    }
    bool is_gradient =
        state->op.kind == POOLING_MAX_GRAD || state->op.kind == POOLING_MAX_GRAD_GRAD;
    if (is_gradient && (attrs->size.channel != 1 || attrs->strides.channel != 1))
        return status_unimplemented("%s is not yet supported on the depth dimension.",
                                    state->op.kind == POOLING_MAX_GRAD ? "MaxPoolingGrad"
                                                                       : "MaxPoolingGradGrad");
    return NULL;
}

struct status *pooling_init(struct kernel_init *init) {
    struct pooling_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->op = *(const struct pooling_op *)init->arg;
    state->dtype = (enum dtype)init->node->out_types[0];
    TRY(window_attrs_read(init->node, state->op.n_spatial, &state->attrs));
    if (state->dtype == DT_QINT8 && !state->attrs.is_vect_c && init->allocator->device_memory)
        return status_invalid("%s of qint8 only supports the format NCHW_VECT_C",
                              init->node->op_name);
    if (state->attrs.is_channels_first &&
        (!init->allocator->device_memory || (state->attrs.is_vect_c && state->dtype != DT_QINT8)))
        return status_invalid("Default %s only supports %s on device type CPU",
                              (state->op.n_spatial == 3 ? names_3d : names_2d)[state->op.kind],
                              state->op.n_spatial == 3 ? "NDHWC" : "NHWC");
    if (node_attr(init->node, "include_batch_in_index"))
        TRY(node_get_b(init->node, "include_batch_in_index", &state->counts_batch));
    return state->op.size_input ? NULL : check_windows(state);
}

/* The V2 forms have ksize and strides as inputs. */
static struct status *read_windows(const struct pooling_state *state, const struct kernel_ctx *ctx,
                                   struct pooling_state *ret) {
    *ret = *state;
    if (!state->op.size_input)
        return NULL;
    for (int i = 0; i < 2; i++) {
        const struct tensor *t = kernel_input(ctx, state->op.size_input + i);
        int64_t values[WINDOW_MAX_RANK];
        int n = (int)MIN(t->n_elements, WINDOW_MAX_RANK);
        if (t->n_elements != 4)
            return status_invalid("Sliding window %s field must specify 4 dimensions",
                                  i == 0 ? "ksize" : "stride");
        for (int k = 0; k < n; k++)
            values[k] = tensor_index_at(t, k);
        TRY(window_list_set(&ret->attrs, i == 0 ? "ksize" : "strides", values, n,
                            i == 0 ? &ret->attrs.size : &ret->attrs.strides));
    }
    return check_windows(ret);
}

/* ---- shapes ---- */

static struct status *expect_shape(const struct tensor *t, const char *what,
                                   struct shape expected) {
    if (shape_equal(tensor_shape(t), expected))
        return NULL;
    return t->rank != expected.rank
               ? status_invalid("%s must be %d-dimensional", what, expected.rank)
               : status_invalid("Expected %s shape to be %s, but got %s", what,
                                SHAPE_TEXT(expected), SHAPE_TEXT(tensor_shape(t)));
}

static struct status *geometry_of(const struct window_attrs *attrs, struct shape in,
                                  struct conv_shape *s, int64_t *positions) {
    int n_spatial = attrs->n_spatial;
    *s = (struct conv_shape){.in = {1, 1, 1},
                             .out = {1, 1, 1},
                             .window = {1, 1, 1},
                             .stride = {1, 1, 1},
                             .rate = {1, 1, 1}};
    int channel = window_channel_dim(attrs);
    s->batch = positions[0] = in.dims[0];
    s->in_channels = s->out_channels = positions[channel] = in.dims[channel];
    s->groups = 1;
    for (int i = 0; i < n_spatial; i++) {
        struct window_fit fit;
        int at = 3 - n_spatial + i, dim = window_spatial_dim(attrs, i);
        int64_t size = attrs->size.spatial[i];
        static const char *const sides[2][2] = {{"Top", "Bottom"}, {"Left", "Right"}};
        for (int side = 0; side < 2; side++) {
            if (attrs->pads[i][side] >= size)
                return status_invalid(
                    "%s padding %lld needs to be smaller than the window size %lld",
                    sides[i & 1][side], (long long)attrs->pads[i][side], (long long)size);
        }
        TRY(window_fit(attrs, i, in.dims[dim], size, &fit));
        s->in[at] = in.dims[dim];
        s->window[at] = size;
        s->out[at] = positions[dim] = fit.out;
        s->stride[at] = attrs->strides.spatial[i];
        s->pad_before[at] = fit.pad_before;
    }
    return NULL;
}

/* NCHW_VECT_C is channels last, in images of 4 channels. */
static struct status *vect_geometry(const struct window_attrs *attrs, struct shape in,
                                    struct conv_shape *s, int64_t *positions) {
    struct window_attrs last = *attrs;
    int64_t image[4], out[WINDOW_MAX_RANK];
    if (in.dims[4] != 4)
        return status_invalid(
            "The last dimension of tensor_in must be 4 in the format NCHW_VECT_C, not %lld",
            (long long)in.dims[4]);
    if (mul_overflows_i64(in.dims[0], in.dims[1], &image[0]))
        return status_invalid("tensor_in has too many images: %s", SHAPE_TEXT(in));
    memcpy(image + 1, in.dims + 2, 3 * sizeof(*image));
    last.is_channels_first = false;
    TRY(geometry_of(&last, (struct shape){4, image}, s, out));
    memcpy(positions, in.dims, 2 * sizeof(*positions));
    memcpy(positions + 2, out + 1, 3 * sizeof(*positions));
    return NULL;
}

/* MaxPool over groups of channels is pooling along the last dimension: [pixels, channels / size,
 * size]. */
static struct status *channel_geometry(const struct window_attrs *attrs, struct shape in,
                                       struct conv_shape *s, int64_t *positions) {
    int64_t size = attrs->size.channel, channels = in.dims[3];
    if (attrs->size.spatial[0] != 1 || attrs->size.spatial[1] != 1)
        return status_unimplemented("MaxPooling supports exactly one of pooling across depth or "
                                    "pooling across width/height.");
    if (channels % size != 0)
        return status_unimplemented(
            "Depthwise max pooling requires the depth window to evenly divide the input depth");
    if (size != attrs->strides.channel)
        return status_unimplemented(
            "Depthwise max pooling requires the depth window to equal the depth stride");
    for (int i = 0; i < 2; i++) {
        struct window_fit fit;
        TRY(window_fit(attrs, i, in.dims[1 + i], 1, &fit));
        positions[1 + i] = fit.out;
        if (fit.out != in.dims[1 + i])
            return status_unimplemented(
                "Depthwise max pooling requires strides of 1 across width and height");
    }
    positions[0] = in.dims[0];
    positions[3] = channels / size;
    /* One row of output pixels for each image row, so that work can be split. */
    *s = (struct conv_shape){.in_channels = 1, .out_channels = 1, .groups = 1, .rate = {1, 1, 1}};
    s->batch = in.dims[0];
    s->in[0] = s->out[0] = in.dims[1];
    s->in[1] = s->out[1] = in.dims[2];
    s->in[2] = channels;
    s->out[2] = channels / size;
    s->window[0] = s->window[1] = s->stride[0] = s->stride[1] = 1;
    s->window[2] = s->stride[2] = size;
    return NULL;
}

/* ---- running ---- */

/* A maximum starts at the least finite number of its own type, so minus infinity is never a
 * result. */
static void raise_to_least(enum dtype dtype, float *values, int64_t n) {
    float least = dtype == DT_HALF ? -65504.0f : -0x1.fep127f;
    for (int64_t i = 0; i < n; i++)
        values[i] = values[i] < least ? least : values[i];
}

/* Computes half and bfloat16 in float. `n_in` and `n_out` count the elements of the input and of
 * the output. */
static struct status *run_any(struct pooling_job *job, int64_t n_in, int64_t n_out) {
    struct tensor scratch[4] = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT, TENSOR_INIT};
    bool is_backward = job->kind == POOLING_MAX_GRAD || job->kind == POOLING_AVG_GRAD;
    int64_t n_result = is_backward ? n_in : n_out,
            n_gradient = job->kind == POOLING_MAX_GRAD_GRAD ? n_in : n_out;
    enum dtype dtype = job->dtype;
    void *result = job->result;
    struct status *st = NULL;
    TRY_OUT(widen_operand(job->ctx, dtype, n_in, &job->in, &scratch[0]));
    TRY_OUT(widen_operand(job->ctx, dtype, n_out, &job->out, &scratch[1]));
    TRY_OUT(widen_operand(job->ctx, dtype, n_gradient, &job->gradient, &scratch[2]));
    TRY_OUT(widen_result(job->ctx, dtype, n_result, result, &job->result, &scratch[3]));
    job->dtype = dtype_is_narrow_float(dtype) ? DT_FLOAT : dtype;
    TRY_OUT(pooling_run(job));
    if (job->kind == POOLING_MAX && dtype_is_narrow_float(dtype))
        raise_to_least(dtype, job->result, n_result);
    narrow_result(job->ctx, dtype, n_result, result, job->result);
out:
    for (size_t i = 0; i < ARRAY_LEN(scratch); i++)
        tensor_clear(&scratch[i]);
    return st;
}

static struct status *sizes_of(const struct tensor *t, int rank, int64_t *ret) {
    if (t->rank != 1 || t->n_elements != rank)
        return status_invalid("out_backprop must be 1-dimensional and %d elements", rank);
    for (int i = 0; i < rank; i++) {
        ret[i] = tensor_index_at(t, i);
        if (ret[i] < 0)
            return status_invalid("Dimension %lld of orig_input_shape must be >= 0",
                                  (long long)ret[i]);
    }
    return NULL;
}

/* Reads the input's shape, and checks the shapes of the op's other inputs. `result` is the shape to
 * allocate. */
static struct status *check_inputs(const struct pooling_state *state, const struct kernel_ctx *ctx,
                                   int64_t *sizes, struct conv_shape *s, int64_t *positions,
                                   struct shape *result) {
    int rank = state->op.n_spatial + 2 + state->attrs.is_vect_c;
    const struct tensor *t = ctx->inputs;
    struct shape in = tensor_shape(&t[0]), out = {rank, positions};
    if (state->op.kind == POOLING_AVG_GRAD) {
        TRY(sizes_of(&t[0], rank, sizes));
        in = (struct shape){rank, sizes};
    }
    if (in.rank != rank)
        return status_invalid("tensor_in must be %d-dimensional", rank);
    *result = out;
    if (state->op.kind == POOLING_ARGMAX && t[0].n_elements == 0)
        return status_invalid("tensor_in must not be empty (2)");
    if (state->attrs.size.channel != 1) {
        if (state->op.kind == POOLING_MAX && !state->attrs.is_channels_first)
            return channel_geometry(&state->attrs, in, s, positions);
        return status_unimplemented("Non-spatial pooling is not yet supported. Volunteers? :)");
    }
    if (state->attrs.is_vect_c)
        return vect_geometry(&state->attrs, in, s, positions);
    TRY(geometry_of(&state->attrs, in, s, positions));
    switch (state->op.kind) {
    case POOLING_AVG_GRAD:
        *result = in;
        return expect_shape(&t[1], "grad", out);
    case POOLING_MAX_GRAD:
        *result = in;
        TRY(expect_shape(&t[1], "orig_output", out));
        return expect_shape(&t[2], "grad", out);
    case POOLING_MAX_GRAD_GRAD:
        TRY(expect_shape(&t[1], "orig_output", out));
        return expect_shape(&t[2], "grad", in);
    default:
        return NULL;
    }
}

enum kernel_result pooling_compute(struct kernel_ctx *ctx) {
    struct pooling_state state;
    struct conv_shape s;
    int64_t sizes[WINDOW_MAX_RANK], positions[WINDOW_MAX_RANK];
    struct shape result;
    const struct tensor *t = ctx->inputs;
    KERNEL_TRY(ctx, read_windows(ctx->instance->state, ctx, &state));
    KERNEL_TRY(ctx, check_inputs(&state, ctx, sizes, &s, positions, &result));
    enum pooling_kind kind = state.op.kind;
    struct pooling_job job = {.ctx = ctx,
                              .shape = &s,
                              .kind = kind,
                              .n_spatial = state.op.n_spatial,
                              .is_channels_first =
                                  state.attrs.is_channels_first && !state.attrs.is_vect_c,
                              .dtype = state.dtype};
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state.dtype, result));
    if (kind == POOLING_ARGMAX) {
        enum dtype index = (enum dtype)ctx->instance->out_types[1];
        KERNEL_TRY(ctx, kernel_alloc(ctx, 1, index, result));
        job.argmax = tensor_data(&ctx->outputs[1]);
        job.is_argmax_wide = index == DT_INT64;
        job.counts_batch = state.counts_batch;
    }
    job.result = tensor_data(&ctx->outputs[0]);
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    if (kind == POOLING_AVG_GRAD) {
        job.gradient = tensor_cdata(&t[1]);
    } else {
        job.in = tensor_cdata(&t[0]);
        job.out =
            kind == POOLING_MAX_GRAD || kind == POOLING_MAX_GRAD_GRAD ? tensor_cdata(&t[1]) : NULL;
        job.gradient = job.out ? tensor_cdata(&t[2]) : NULL;
    }
    int64_t n_in = s.batch * conv_n_positions(s.in) * s.in_channels,
            n_out = s.batch * conv_n_positions(s.out) * s.in_channels;
    if (kernel_is_for_device(ctx))
        KERNEL_TRY(ctx, ctx->instance->engine->pool(ctx, &job));
    else
        KERNEL_TRY(ctx, run_any(&job, n_in, n_out));
    return KERNEL_DONE;
}

/* Adds gradients at places of each of n_images parts of the result. On a device an index outside of
 * the input is left out. */
static struct status *scatter_on_device(struct kernel_ctx *ctx, int64_t n_images) {
    const struct tensor *t = ctx->inputs;
    struct device_segments job = {.op = UPDATE_ADD,
                                  .dtype = (enum dtype)t[1].dtype,
                                  .out = tensor_data(&ctx->outputs[0]),
                                  .data = tensor_cdata(&t[1]),
                                  .n_out = t[0].n_elements,
                                  .slices = {.indices = tensor_cdata(&t[2]),
                                             .index_dtype = (enum dtype)t[2].dtype,
                                             .depth = 1,
                                             .dims = {t[0].n_elements / n_images},
                                             .n_rows = t[1].n_elements,
                                             .len = 1},
                                  .n_parts = n_images};
    return ctx->instance->engine->segments(ctx, &job);
}

/* MaxPoolGradWithArgmax: adds grad[i] at argmax[i], which counts in the image of i or in the batch.
 * Errors   INVALID_ARGUMENT   shapes that differ, an index outside of the input */
enum kernel_result pooling_argmax_grad(struct kernel_ctx *ctx) {
    const struct pooling_state *state = ctx->instance->state;
    const struct tensor *t = ctx->inputs;
    struct conv_shape s;
    int64_t positions[WINDOW_MAX_RANK];
    if (t[0].rank != 4)
        return kernel_fail(ctx, status_invalid("tensor_in must be 4-dimensional"));
    if (state->attrs.size.channel != 1)
        return kernel_fail(
            ctx, status_unimplemented("Non-spatial pooling is not yet supported. Volunteers? :)"));
    KERNEL_TRY(ctx, geometry_of(&state->attrs, tensor_shape(&t[0]), &s, positions));
    KERNEL_TRY(ctx, expect_shape(&t[1], "grad", (struct shape){4, positions}));
    KERNEL_TRY(ctx, expect_shape(&t[2], "argmax", (struct shape){4, positions}));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, tensor_shape(&t[0])));
    int64_t n_in = t[0].n_elements, n_out = t[1].n_elements,
            n_images = state->counts_batch ? 1 : s.batch;
    if (n_in == 0)
        return KERNEL_DONE;
    if (kernel_is_for_device(ctx)) {
        KERNEL_TRY(ctx, scatter_on_device(ctx, n_images));
        return KERNEL_DONE;
    }
    enum dtype plain = dtype_is_narrow_float(state->dtype) ? DT_FLOAT : state->dtype;
    const void *gradient = tensor_cdata(&t[1]);
    struct tensor scratch[2] = {TENSOR_INIT, TENSOR_INIT};
    void *result = tensor_data(&ctx->outputs[0]);
    char *wide;
    bool is_wide = t[2].dtype == DT_INT64, is_inside = true;
    struct status *st = NULL;
    TRY_OUT(widen_operand(ctx, state->dtype, n_out, &gradient, &scratch[0]));
    TRY_OUT(widen_result(ctx, state->dtype, n_in, result, &wide, &scratch[1]));
    int64_t size = (int64_t)dtype_size(plain);
    pool_clear(wide, (size_t)(n_in * size));
    for (int64_t i = 0; i < n_images && is_inside; i++) {
        int64_t first = i * (n_out / n_images);
        is_inside = pooling_loops_of[plain]->scatter_at(
            wide + i * (n_in / n_images) * size, n_in / n_images,
            (const char *)tensor_cdata(&t[2]) + first * (is_wide ? 8 : 4), is_wide,
            n_out / n_images, (const char *)gradient + first * size);
    }
    if (!is_inside)
        st = status_invalid("argmax holds an index outside of the input");
    else
        narrow_result(ctx, state->dtype, n_in, result, wide);
out:
    tensor_clear(&scratch[0]);
    tensor_clear(&scratch[1]);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}
