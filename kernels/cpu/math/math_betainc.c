/* Computes Betainc, the regularized incomplete beta function, element by element. */
#include "kernels/cpu/math/math_special.h"
#include "kernels/kernel.h"

extern const struct kernel_list math_betainc_kernels;

struct betainc_job {
    const void *in[3];
    int64_t step[3]; /* 0: a scalar for all */
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
 *   a, b, x   float, double of one shape; scalars go with any
 * Errors   INVALID_ARGUMENT   two that are no scalars have other shapes */
static enum kernel_result betainc_compute(struct kernel_ctx *ctx) {
    static const char *const pairs[3][2] = {{"a", "b"}, {"a", "x"}, {"b", "x"}};
    struct betainc_job job;
    struct shape shape = SHAPE_SCALAR;
    for (int i = 0, p = 0; i < 3; i++) {
        for (int j = i + 1; j < 3; j++, p++) {
            struct shape left = tensor_shape(kernel_input(ctx, i)),
                         right = tensor_shape(kernel_input(ctx, j));
            if (left.rank > 0 && right.rank > 0 && !shape_equal(left, right))
                return kernel_fail(ctx,
                                   status_invalid("Shapes of %s and %s are inconsistent: %s vs. %s",
                                                  pairs[p][0], pairs[p][1], SHAPE_TEXT(left),
                                                  SHAPE_TEXT(right)));
        }
        job.in[i] = tensor_cdata(kernel_input(ctx, i));
        job.step[i] = kernel_input(ctx, i)->rank > 0;
        if (shape.rank == 0)
            shape = tensor_shape(kernel_input(ctx, i));
    }
    enum dtype dtype = (enum dtype)kernel_input(ctx, 0)->dtype;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, shape));
    job.out = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, ctx->outputs[0].n_elements, 300,
                      dtype == DT_FLOAT ? betainc_float : betainc_double, &job);
    return KERNEL_DONE;
}

static const struct kernel_def rows[] = {
    {"Betainc",
     {{"T", DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE)}},
     betainc_compute,
     .cost_ns_per_element = 300},
};

const struct kernel_list math_betainc_kernels = {rows, ARRAY_LEN(rows)};
