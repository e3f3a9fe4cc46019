/* Converts whole operands between half or bfloat16 and float; see widen.h. */
#include "kernels/cpu/nn/widen.h"

#include "kernels/support/half_blocks.h"
#include "kernels/support/scratch.h"

struct job {
    enum dtype dtype;
    const uint16_t *narrow_in;
    uint16_t *narrow_out;
    float *wide;
};

static void widen_range(void *arg, int64_t begin, int64_t end) {
    const struct job *job = arg;
    half_block_load(job->dtype, job->wide + begin, job->narrow_in + begin, end - begin);
}

static void narrow_range(void *arg, int64_t begin, int64_t end) {
    const struct job *job = arg;
    half_block_store(job->dtype, job->narrow_out + begin, job->wide + begin, end - begin);
}

struct status *widen_operand(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
                             const void **operand, struct tensor *scratch) {
    struct job job = {.dtype = dtype, .narrow_in = *operand};
    if (!job.narrow_in || !dtype_is_narrow_float(dtype))
        return NULL;
    TRY(scratch_new(ctx, DT_FLOAT, n, 1, scratch, &job.wide));
    pool_parallel_for(ctx->pool, n, 0.2, widen_range, &job);
    *operand = job.wide;
    return NULL;
}

struct status *widen_result(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, void *result,
                            void *ret_wide, struct tensor *scratch) {
    if (dtype_is_narrow_float(dtype))
        return scratch_new(ctx, DT_FLOAT, n, 1, scratch, ret_wide);
    memcpy(ret_wide, &result, sizeof(result));
    return NULL;
}

void narrow_result(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, void *result,
                   const void *wide) {
    struct job job = {.dtype = dtype, .narrow_out = result, .wide = (float *)(uintptr_t)wide};
    if (dtype_is_narrow_float(dtype))
        pool_parallel_for(ctx->pool, n, 0.2, narrow_range, &job);
}
