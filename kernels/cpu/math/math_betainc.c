/* Computes Betainc, the regularized incomplete beta function, element by element. */
#include "kernels/cpu/math/math_special.h"
#include "kernels/kernel.h"
#include "kernels/support/elementwise_checks.h"

extern const struct kernel_list math_betainc_kernels;

struct betainc_job {
    const void *in[3];
    int64_t step[3]; /* 0 where an input is one scalar for all elements */
    void *out;
};

#define BETAINC_RANGE(T)                                                                           \
    static void betainc_##T(void *arg, int64_t begin, int64_t end) {                               \
        const struct betainc_job *job = arg;                                                       \
        const T *a = job->in[0], *b = job->in[1], *x = job->in[2];                                 \
        for (int64_t i = begin; i < end; i++)                                                      \
            ((T *)job->out)[i] =                                                                   \
                (T)special_betainc(a[i * job->step[0]], b[i * job->step[1]], x[i * job->step[2]]); \
    }
BETAINC_RANGE(float)
BETAINC_RANGE(double)

/* Betainc: I_x(a, b).
 *   a, b, x   float, double of one shape; a scalar is combined with any shape
 * Errors   INVALID_ARGUMENT   two inputs that are no scalars have different shapes */
static enum kernel_result betainc_compute(struct kernel_ctx *ctx) {
    struct betainc_job job;
    struct shape shape;
    KERNEL_TRY(ctx, elementwise_check_betainc(ctx, &shape));
    for (int i = 0; i < 3; i++) {
        job.in[i] = tensor_cdata(kernel_input(ctx, i));
        job.step[i] = kernel_input(ctx, i)->rank > 0;
    }
    enum dtype dtype = (enum dtype)kernel_input(ctx, 0)->dtype;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, shape));
    job.out = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, ctx->outputs[0].n_elements, 300,
                      dtype == DT_FLOAT ? betainc_float : betainc_double, &job);
    return KERNEL_DONE;
}

static const struct kernel_def rows[] = {
    {"Betainc", {{"T", DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE)}}, betainc_compute},
};

const struct kernel_list math_betainc_kernels = {rows, ARRAY_LEN(rows)};
