/* Converts codes whose ranges differ by channel: RequantizationRangePerChannel,
 * RequantizePerChannel. Code 0 stands for the real 0 here, and the greatest code stands for the
 * magnitude of that end of the range which is further from 0. */
#include <stdlib.h>

#include "kernels/cpu/quant/quant_internal.h"
#include "common/base/pool_cancel.h"
#include "kernels/kernel.h"

static struct status *check_channels(const struct kernel_ctx *ctx, int64_t *ret_depth) {
    const struct tensor *x = kernel_input(ctx, 0), *min = kernel_input(ctx, 1),
                        *max = kernel_input(ctx, 2);
    if (x->rank != 4)
        return status_invalid(
            "input must be in NHWC format, of rank 4 (supports 4D tensors only), but has rank %d",
            x->rank);
    if (min->n_elements != max->n_elements || min->n_elements < 1)
        return status_invalid("input_max has incorrect size, expected %lld was %lld",
                              (long long)min->n_elements, (long long)max->n_elements);
    *ret_depth = min->n_elements;
    return NULL;
}

/* The magnitude of the end of channel c's range that is further from 0. */
static float reach_of(const struct kernel_ctx *ctx, int64_t c) {
    const float *min = tensor_cdata(kernel_input(ctx, 1)),
                *max = tensor_cdata(kernel_input(ctx, 2));
    return fmaxf(fabsf(min[c]), fabsf(max[c]));
}

struct status *quant_channels_init(struct kernel_init *init) {
    float *clip = xcalloc(1, sizeof(*clip));
    init->state = clip;
    return node_get_f(init->node, "clip_value_max", clip);
}

/* RequantizationRangePerChannel.
 *   input                   qint32 [n, h, w, d]
 *   input_min, input_max    float [d]
 *   output_min, output_max  scalars: a range around 0 that holds every channel's reals, up to
 *                           clip_value_max; it starts at 0 when no code is negative
 * Errors   INVALID_ARGUMENT   the rank, sizes that differ, an empty input */
enum kernel_result quant_used_range_channels(struct kernel_ctx *ctx) {
    const struct tensor *x = kernel_input(ctx, 0);
    const int32_t *codes = tensor_cdata(x);
    const float *clip = ctx->instance->state;
    int64_t depth;
    KERNEL_TRY(ctx, check_channels(ctx, &depth));
    if (depth != tensor_dim(x, 3))
        return kernel_fail(
            ctx, status_invalid(
                     "input must have same number of channels as length of input_min: %lld vs %lld",
                     (long long)tensor_dim(x, 3), (long long)depth));
    if (x->n_elements == 0)
        return kernel_fail(ctx, status_invalid("input must not be empty"));
    float most = -INFINITY;
    int32_t least_code = INT32_MAX;
    for (int64_t c = 0; c < depth; c++) {
        int64_t furthest = 0;
        for (int64_t i = c, n = 1; i < x->n_elements && pool_goes_on(n); i += depth, n++) {
            furthest = MAX(furthest, llabs((long long)codes[i]));
            least_code = MIN(least_code, codes[i]);
        }
        most = fmaxf(most, reach_of(ctx, c) * (float)furthest / 2147483648.0f);
    }
    most = most > *clip ? *clip : most;
    quant_set_range(ctx, 0, least_code >= 0 ? 0 : -most, most);
    return KERNEL_DONE;
}

struct channels_job {
    const struct kernel_ctx *ctx;
    enum dtype dtype;
    int64_t depth;
    float wanted, most;
    void *y;
};

static void requantize_range(void *arg, int64_t begin, int64_t end) {
    const struct channels_job *job = arg;
    const int32_t *x = tensor_cdata(kernel_input(job->ctx, 0));
    float lowest = (float)quant_type_of(job->dtype).lowest,
          highest = (float)quant_type_of(job->dtype).highest;
    int32_t codes[QUANT_BLOCK];
    for (int64_t i = begin; i < end; i += QUANT_BLOCK) {
        int64_t n = MIN(end - i, (int64_t)QUANT_BLOCK);
        for (int64_t j = 0; j < n; j++) {
            float scale = job->most *
                          (reach_of(job->ctx, (i + j) % job->depth) / job->wanted / 2147483648.0f);
            codes[j] =
                quant_code_of_float(rintf(quant_clamp((float)x[i + j] * scale, lowest, highest)));
        }
        quant_codes_store(job->dtype, job->y, i, codes, n);
    }
}

/* RequantizePerChannel.
 *   input                   qint32 [n, h, w, d]
 *   input_min, input_max    float [d], or one element for all channels
 *   requested_output_min, requested_output_max  float scalars
 *   output                  out_type
 *   output_min, output_max  the requested range
 * Errors   INVALID_ARGUMENT   the rank, sizes that differ, a range of qint8 without negative
 *                             numbers */
enum kernel_result quant_requantize_channels(struct kernel_ctx *ctx) {
    const struct tensor *x = kernel_input(ctx, 0);
    struct channels_job job = {.ctx = ctx, .dtype = (enum dtype)ctx->instance->out_types[0]};
    float wanted[2];
    KERNEL_TRY(ctx, check_channels(ctx, &job.depth));
    if (job.depth != 1 && job.depth != tensor_dim(x, 3))
        return kernel_fail(ctx,
                           status_invalid("input_min has incorrect size, expected %lld was %lld",
                                          (long long)tensor_dim(x, 3), (long long)job.depth));
    for (int i = 0; i < 2; i++) {
        const struct tensor *t = kernel_input(ctx, 3 + i);
        if (t->n_elements != 1)
            return kernel_fail(ctx, status_invalid("requested_output_%s must be a scalar, not %s",
                                                   i ? "max" : "min", TENSOR_SHAPE_TEXT(t)));
        wanted[i] = *(const float *)tensor_cdata(t);
    }
    if (job.dtype == DT_QINT8 && !(wanted[0] < 0))
        return kernel_fail(
            ctx, status_invalid(
                     "If out_type is QINT8, requested_output_max must be non negative, got %g",
                     (double)wanted[0]));
    job.wanted = fmaxf(fabsf(wanted[0]), fabsf(wanted[1]));
    job.most = (float)quant_type_of(job.dtype).highest;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, job.dtype, tensor_shape(x)));
    job.y = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, x->n_elements, 3.0, requantize_range, &job);
    quant_set_range(ctx, 1, wanted[0], wanted[1]);
    return KERNEL_DONE;
}
