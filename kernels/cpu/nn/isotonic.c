/* Runs IsotonicRegression: finds the closest rows that never increase, by pooling adjacent
 * violators (Best and Chakravarti 1990; Blondel et al. 2020).
 *
 *   input      T [..., n]
 *   output     output_dtype [..., n]: for each run of equal values, the mean of the input there
 *   segments   int32 [..., n]: the number of the run within its row */
#include <stdlib.h>

#include "common/tensor/element.h"
#include "common/tensor/float16.h"
#include "kernels/support/dims.h"

extern const struct kernel_list isotonic_kernels;

struct pool_of_values {
    double sum;
    int64_t first, n;
};

static double mean(const struct pool_of_values *p) { return p->sum / (double)p->n; }

struct isotonic_job {
    const struct tensor *in;
    struct tensor *out, *segments;
    int64_t n;
};

static void put(struct tensor *out, int64_t i, double v) {
    void *at = tensor_at(out, i);
    switch (tensor_dtype(out)) {
    case DT_DOUBLE:
        *(double *)at = v;
        break;
    case DT_FLOAT:
        *(float *)at = (float)v;
        break;
    case DT_HALF:
        *(uint16_t *)at = half_from_float((float)v);
        break;
    default:
        *(uint16_t *)at = bfloat16_from_float((float)v);
    }
}

static void run_row(const struct isotonic_job *job, int64_t row, struct pool_of_values *pools) {
    int64_t n_pools = 0, base = row * job->n;
    for (int64_t i = 0; i < job->n; i++) {
        pools[n_pools++] = (struct pool_of_values){tensor_real_at(job->in, base + i), i, 1};
        for (; n_pools > 1 && mean(&pools[n_pools - 2]) < mean(&pools[n_pools - 1]); n_pools--) {
            pools[n_pools - 2].sum += pools[n_pools - 1].sum;
            pools[n_pools - 2].n += pools[n_pools - 1].n;
        }
    }
    for (int64_t p = 0; p < n_pools; p++)
        for (int64_t i = 0; i < pools[p].n; i++) {
            put(job->out, base + pools[p].first + i, mean(&pools[p]));
            ((int32_t *)tensor_data(job->segments))[base + pools[p].first + i] = (int32_t)p;
        }
}

static void run_rows(void *arg, int64_t begin, int64_t end) {
    const struct isotonic_job *job = arg;
    struct pool_of_values *pools = xcalloc((size_t)job->n, sizeof(*pools));
    for (int64_t row = begin; row < end; row++)
        run_row(job, row, pools);
    free(pools);
}

static enum kernel_result isotonic(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    int64_t n = in->rank > 0 ? tensor_dim(in, in->rank - 1) : 1;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, kernel_out_dtype(ctx, 0), tensor_shape(in)));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 1, DT_INT32, tensor_shape(in)));
    if (in->n_elements == 0)
        return KERNEL_DONE;
    struct isotonic_job job = {in, &ctx->outputs[0], &ctx->outputs[1], n};
    pool_parallel_for(ctx->pool, in->n_elements / n, 20.0 * (double)n, run_rows, &job);
    return KERNEL_DONE;
}

#define ROW(in, out) \
    { .op = "IsotonicRegression", {{"T", (in)}, {"output_dtype", (out)}}, .compute = isotonic }
#define SMALL_INTS (DTYPE_BIT(DT_INT8) | DTYPE_BIT(DT_INT16))
#define LARGE_INTS (DTYPE_BIT(DT_INT32) | DTYPE_BIT(DT_INT64))

// clang-format off
static const struct kernel_def rows[] = {
    ROW(DTYPE_BIT(DT_HALF), DTYPE_BIT(DT_HALF)),
    ROW(DTYPE_BIT(DT_BFLOAT16), DTYPE_BIT(DT_BFLOAT16)),
    ROW(DTYPE_BIT(DT_FLOAT) | SMALL_INTS, DTYPE_BIT(DT_FLOAT)),
    ROW(DTYPE_BIT(DT_DOUBLE) | LARGE_INTS, DTYPE_BIT(DT_DOUBLE)),
};
// clang-format on

const struct kernel_list isotonic_kernels = {rows, ARRAY_LEN(rows)};
