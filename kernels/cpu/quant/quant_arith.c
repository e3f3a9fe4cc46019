/* Computes rectifiers and sums of codes, element by element. */

#include "kernels/kernel.h"
#include "common/base/pool_cancel.h"
#include "kernels/support/broadcast.h"
#include "kernels/cpu/quant/quant_internal.h"

/* ---- rectifiers ---- */

struct relu_job {
    enum dtype dtype;
    int32_t low, high;
    const void *x;
    void *y;
};

static void relu_range(void *arg, int64_t begin, int64_t end) {
    const struct relu_job *job = arg;
    int32_t codes[QUANT_BLOCK];
    for (int64_t i = begin; i < end; i += QUANT_BLOCK) {
        int64_t n = MIN(end - i, (int64_t)QUANT_BLOCK);
        quant_codes_load(job->dtype, codes, job->x, i, n);
        for (int64_t j = 0; j < n; j++) {
            int32_t code = MAX(codes[j], job->low);
            codes[j] = MIN(code, job->high);
        }
        quant_codes_store(job->dtype, job->y, i, codes, n);
    }
}

/* QuantizedRelu, QuantizedRelu6.
 *   features                          Tinput
 *   min_features, max_features        float scalars
 *   activations                       the codes, at least that of 0 (Relu6: at most that of 6)
 *   min_activations, max_activations  the same range
 * Errors   INVALID_ARGUMENT   ranges that are no scalars */
enum kernel_result quant_relu(struct kernel_ctx *ctx) {
    const struct tensor *x = kernel_input(ctx, 0);
    struct relu_job job = {.dtype = (enum dtype)x->dtype, .x = tensor_cdata(x)};
    float min, max;
    KERNEL_TRY(ctx, quant_scalar(ctx, 1, "`min_input`", &min));
    KERNEL_TRY(ctx, quant_scalar(ctx, 2, "`max_input`", &max));
    bool is_bounded = strcmp(ctx->instance->node->op_name, "QuantizedRelu6") == 0;
    job.low = quant_code_exact(job.dtype, 0, min, max);
    job.high = is_bounded ? quant_code_exact(job.dtype, 6, min, max) : INT32_MAX;
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, job.dtype, tensor_shape(x)));
    job.y = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, ctx->outputs[0].n_elements, 1.0, relu_range, &job);
    quant_set_range(ctx, 1, min, max);
    return KERNEL_DONE;
}

/* ---- two operands, element by element ---- */

struct status *quant_pairs_read(const struct kernel_ctx *ctx, float ranges[4],
                                struct broadcast *plan) {
    static const char *const names[] = {"min_x", "max_x", "min_y", "max_y"};
    const struct tensor *x = kernel_input(ctx, 0), *y = kernel_input(ctx, 1);
    for (int i = 0; i < 4; i++)
        TRY(quant_scalar(ctx, 2 + i, names[i], &ranges[i]));
    for (int i = 0; i < 4; i += 2) {
        if (!(ranges[i + 1] > ranges[i]))
            return status_invalid("%s must be larger than %s.", names[i + 1], names[i]);
    }
    if (!broadcast_init(plan, (struct shape[]){tensor_shape(x), tensor_shape(y)}, 2))
        return status_invalid("Incompatible shapes: %s vs. %s", TENSOR_SHAPE_TEXT(x),
                              TENSOR_SHAPE_TEXT(y));
    if (plan->n_elements == 0)
        return status_invalid("Must have some elements, must have at least 1 element: %s and %s",
                              TENSOR_SHAPE_TEXT(x), TENSOR_SHAPE_TEXT(y));
    return NULL;
}

void quant_gather(const struct broadcast *plan, int k, enum dtype dtype, const void *from,
                  int64_t first, int64_t n, int32_t *to) {
    uint32_t raw[QUANT_BLOCK];
    broadcast_gather(plan, k, from, dtype_size(dtype), first, n, raw);
    quant_codes_load(dtype, to, raw, 0, n);
}

/* ---- sums ---- */

/* Makes a range around 0 that has room for 2^room sums. */
static void sum_range(const float ranges[4], int room, float *ret_min, float *ret_max) {
    float most =
        fmaxf(fmaxf(fabsf(ranges[0]), fabsf(ranges[1])), fmaxf(fabsf(ranges[2]), fabsf(ranges[3])));
    *ret_max = most * (float)(1 << room);
    *ret_min = -*ret_max;
}

/* The codes of an operand in the sum's range are base + c · step, wrapping. */
struct add_operand {
    enum dtype dtype;
    const void *codes;
    uint32_t base, step;
};

struct add_job {
    const struct broadcast *plan;
    struct add_operand operands[2];
    int32_t *z;
};

static void add_range(void *arg, int64_t begin, int64_t end) {
    const struct add_job *job = arg;
    const struct add_operand *x = &job->operands[0], *y = &job->operands[1];
    int32_t codes[2][QUANT_BLOCK];
    for (int64_t i = begin; i < end; i += QUANT_BLOCK) {
        int64_t n = MIN(end - i, (int64_t)QUANT_BLOCK);
        for (int k = 0; k < 2; k++)
            quant_gather(job->plan, k, job->operands[k].dtype, job->operands[k].codes, i, n,
                         codes[k]);
        for (int64_t j = 0; j < n; j++)
            job->z[i + j] = (int32_t)(x->base + (uint32_t)codes[0][j] * x->step + y->base +
                                      (uint32_t)codes[1][j] * y->step);
    }
}

/* The 32-bit code in [min, max] of the real that `code` stands for in its own range. */
static int32_t code_in(enum dtype dtype, int32_t code, const float range[2], float min, float max) {
    return quant_code_exact(DT_QINT32, quant_float_exact(dtype, code, range[0], range[1]), min,
                            max);
}

/* A step is the distance between code 0 and code 1, as a whole number. A single element is
 * converted exactly instead. */
static void add_operand_init(const struct tensor *t, bool is_single, const float range[2],
                             float min, float max, struct add_operand *ret) {
    enum dtype dtype = (enum dtype)t->dtype;
    int32_t code = 0;
    *ret = (struct add_operand){.dtype = dtype, .codes = tensor_cdata(t)};
    if (is_single)
        quant_codes_load(dtype, &code, ret->codes, 0, 1);
    ret->base = (uint32_t)code_in(dtype, code, range, min, max);
    ret->step = is_single ? 0 : (uint32_t)code_in(dtype, 1, range, min, max) - ret->base;
}

/* QuantizedBiasAdd.
 *   input, bias                             T1 [..., d], T2 [d]
 *   min_input, max_input, min_bias, max_bias  float scalars
 *   output                                  qint32
 *   min_out, max_out                        a range with room for many sums
 * Errors   INVALID_ARGUMENT   shapes */
enum kernel_result quant_bias_add(struct kernel_ctx *ctx) {
    const struct tensor *x = kernel_input(ctx, 0), *bias = kernel_input(ctx, 1);
    static const char *const names[] = {"`min_input`", "`max_input`", "`min_bias`", "`max_bias`"};
    float ranges[4], min, max;
    for (int i = 0; i < 4; i++)
        KERNEL_TRY(ctx, quant_scalar(ctx, 2 + i, names[i], &ranges[i]));
    if (x->rank < 2)
        return kernel_fail(
            ctx, status_invalid("Input tensor must be at least 2D: %s", TENSOR_SHAPE_TEXT(x)));
    if (bias->rank != 1)
        return kernel_fail(ctx, status_invalid("Biases must be 1D: %s", TENSOR_SHAPE_TEXT(bias)));
    int64_t depth = bias->n_elements;
    if (depth != tensor_dim(x, x->rank - 1))
        return kernel_fail(
            ctx,
            status_invalid(
                "Must provide as many biases as the last dimension of the input tensor: %s vs. %s",
                TENSOR_SHAPE_TEXT(bias), TENSOR_SHAPE_TEXT(x)));
    if (depth == 0)
        return kernel_fail(ctx, status_invalid("Must provide at least 1 bias"));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_QINT32, tensor_shape(x)));
    sum_range(ranges, 17, &min, &max);
    struct quant_to_float of_x = quant_to_float_of((enum dtype)x->dtype, ranges[0], ranges[1]);
    struct quant_to_float of_bias =
        quant_to_float_of((enum dtype)bias->dtype, ranges[2], ranges[3]);
    struct quant_to_code to = quant_to_code_of(DT_QINT32, min, max);
    int32_t zero = quant_code_exact(DT_QINT32, 0, min, max), *y = tensor_data(&ctx->outputs[0]);
    for (int64_t i = 0; i < x->n_elements && pool_goes_on(i + 1); i++) {
        int32_t a, b;
        quant_codes_load((enum dtype)x->dtype, &a, tensor_cdata(x), i, 1);
        quant_codes_load((enum dtype)bias->dtype, &b, tensor_cdata(bias), i % depth, 1);
        uint32_t sum = (uint32_t)quant_code(&to, quant_float(&of_x, a)) +
                       (uint32_t)quant_code(&to, quant_float(&of_bias, b));
        y[i] = (int32_t)(sum + (uint32_t)zero);
    }
    quant_set_range(ctx, 1, min, max);
    return KERNEL_DONE;
}

/* QuantizedAdd, element by element; shapes are broadcast.
 *   x, y                        T1, T2
 *   min_x, max_x, min_y, max_y  float scalars
 *   z                           qint32
 *   min_z, max_z                a range with room for many sums
 * Errors   INVALID_ARGUMENT   ranges that are no scalars or are empty, shapes that do not fit,
 *                             no elements */
enum kernel_result quant_add(struct kernel_ctx *ctx) {
    struct broadcast plan;
    float ranges[4];
    KERNEL_TRY(ctx, quant_pairs_read(ctx, ranges, &plan));
    struct add_job job = {.plan = &plan};
    const struct tensor *x = kernel_input(ctx, 0), *y = kernel_input(ctx, 1);
    float min, max;
    sum_range(ranges, 14, &min, &max);
    add_operand_init(x, x->n_elements == 1, ranges, min, max, &job.operands[0]);
    add_operand_init(y, y->n_elements == 1 && x->n_elements > 1, ranges + 2, min, max,
                     &job.operands[1]);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_QINT32, broadcast_shape(&plan)));
    job.z = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, plan.n_elements, 1.5, add_range, &job);
    quant_set_range(ctx, 1, min, max);
    return KERNEL_DONE;
}
