/* Computes products of codes: QuantizedMatMul, QuantizedConv2D, QuantizedMul.
 *
 * The code of 0 is subtracted first. The sums of products of the differences then stand for sums of
 * products of reals. A step of the result is the product of both operands' steps, and the result's
 * range says so. All arithmetic is in 32 bits and wraps. */
#include <stdlib.h>

#include "kernels/kernel.h"
#include "kernels/support/broadcast.h"
#include "kernels/cpu/nn/conv.h"
#include "kernels/cpu/quant/quant_internal.h"
#include "kernels/support/scratch.h"

/* ---- operands ---- */

struct operand {
    enum dtype dtype;
    float min, max;
    int64_t zero; /* the code of 0, which may be outside of the type's codes */
    const void *codes;
};

static void operand_init(const struct tensor *t, float min, float max, struct operand *ret) {
    *ret = (struct operand){(enum dtype)t->dtype, min, max, 0, tensor_cdata(t)};
    ret->zero = quant_code_unclamped(ret->dtype, 0, min, max);
}

static float step_of(const struct operand *operand) {
    struct quant_type type = quant_type_of(operand->dtype);
    return (operand->max - operand->min) / (float)(type.highest - type.lowest);
}

/* Makes outputs 1 and 2: the reals that the least and the greatest 32-bit code stand for. */
static void set_product_range(struct kernel_ctx *ctx, const struct operand *a,
                              const struct operand *b) {
    float step = step_of(a) * step_of(b);
    quant_set_range(ctx, 1, step * (float)INT32_MIN, step * (float)INT32_MAX);
}

static void load_centered(const struct operand *operand, int32_t *to, int64_t first, int64_t n) {
    quant_codes_load(operand->dtype, to, operand->codes, first, n);
    for (int64_t i = 0; i < n; i++)
        to[i] = (int32_t)((uint32_t)to[i] - (uint32_t)operand->zero);
}

struct center_job {
    const struct operand *operand;
    int32_t *to;
};

static void center_range(void *arg, int64_t begin, int64_t end) {
    const struct center_job *job = arg;
    load_centered(job->operand, job->to + begin, begin, end - begin);
}

/* Loads a whole operand into scratch memory, with the code of 0 subtracted. */
static struct status *centered(const struct kernel_ctx *ctx, const struct operand *operand,
                               int64_t n, struct tensor *scratch, const int32_t **ret) {
    struct center_job job = {.operand = operand};
    TRY(scratch_new(ctx, DT_INT32, n, 1, scratch, &job.to));
    pool_parallel_for(ctx->pool, n, 0.3, center_range, &job);
    *ret = job.to;
    return NULL;
}

/* ---- QuantizedMatMul ---- */

struct matmul_state {
    bool transpose_a, transpose_b;
};

struct status *quant_matmul_init(struct kernel_init *init) {
    struct matmul_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_b(init->node, "transpose_a", &state->transpose_a));
    return node_get_b(init->node, "transpose_b", &state->transpose_b);
}

/* Reads the scalars after two operands: a min and a max for each, where max must be above min. */
static struct status *read_two_ranges(const struct kernel_ctx *ctx, const char *const names[4],
                                      float ranges[4]) {
    for (int i = 0; i < 4; i++)
        TRY(quant_scalar(ctx, 2 + i, names[i], &ranges[i]));
    for (int i = 0; i < 4; i += 2) {
        if (!(ranges[i + 1] > ranges[i]))
            return status_invalid("%s must be larger than %s.", names[i + 1], names[i]);
    }
    return NULL;
}

static void transpose(const int32_t *from, int64_t rows, int64_t columns, int32_t *to) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            to[j * rows + i] = from[i * columns + j];
}

/* Loads [rows, columns] into scratch memory, transposed when the attr says so. */
static struct status *matrix_of(const struct kernel_ctx *ctx, const struct operand *operand,
                                int64_t rows, int64_t columns, bool is_transposed,
                                struct tensor scratch[2], const int32_t **ret) {
    TRY(centered(ctx, operand, rows * columns, &scratch[0], ret));
    if (is_transposed) {
        int32_t *to;
        TRY(scratch_new(ctx, DT_INT32, rows * columns, 1, &scratch[1], &to));
        transpose(*ret, columns, rows, to);
        *ret = to;
    }
    return NULL;
}

/* A matrix product is a convolution with a window of 1 x 1. */
static struct status *multiply(struct kernel_ctx *ctx, const struct operand *a,
                               const struct operand *b, int64_t m, int64_t k, int64_t n) {
    const struct matmul_state *state = ctx->instance->state;
    struct tensor scratch[4] = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT, TENSOR_INIT};
    struct conv_shape shape = {.batch = 1,
                               .in_channels = k,
                               .out_channels = n,
                               .groups = 1,
                               .in = {1, 1, m},
                               .out = {1, 1, m},
                               .window = {1, 1, 1},
                               .stride = {1, 1, 1},
                               .rate = {1, 1, 1}};
    struct conv_operands operands = {.result = tensor_data(&ctx->outputs[0])};
    const int32_t *left, *right;
    struct status *st = NULL;
    TRY_OUT(matrix_of(ctx, a, m, k, state->transpose_a, scratch, &left));
    TRY_OUT(matrix_of(ctx, b, k, n, state->transpose_b, scratch + 2, &right));
    operands.in = left;
    operands.filter = right;
    TRY_OUT(conv_run(ctx, CONV_FORWARD, &shape, DT_INT32, &operands));
out:
    for (size_t i = 0; i < ARRAY_LEN(scratch); i++)
        tensor_clear(&scratch[i]);
    return st;
}

/* QuantizedMatMul.
 *   a, b                        T1 [m, k], T2 [k, n], each transposed when its attr says so
 *   min_a, max_a, min_b, max_b  float scalars
 *   out                         qint32 [m, n]
 *   min_out, max_out            the range of all 32-bit codes
 * Errors   INVALID_ARGUMENT   ranges that are no scalars or are empty, ranks, inner sizes that
 *                             differ */
enum kernel_result quant_matmul(struct kernel_ctx *ctx) {
    static const char *const names[4] = {"min_a", "max_a", "min_b", "max_b"};
    const struct matmul_state *state = ctx->instance->state;
    const struct tensor *t = ctx->inputs;
    float ranges[4];
    KERNEL_TRY(ctx, read_two_ranges(ctx, names, ranges));
    for (int i = 0; i < 2; i++)
        if (t[i].rank != 2)
            return kernel_fail(
                ctx, status_invalid("In[%d] is not a matrix: %s", i, TENSOR_SHAPE_TEXT(&t[i])));
    int64_t m = tensor_dim(&t[0], state->transpose_a), k = tensor_dim(&t[0], !state->transpose_a);
    int64_t n = tensor_dim(&t[1], !state->transpose_b),
            inner = tensor_dim(&t[1], state->transpose_b);
    if (k != inner)
        return kernel_fail(ctx, status_invalid("Matrix size-incompatible: In[0]: %s, In[1]: %s",
                                               TENSOR_SHAPE_TEXT(&t[0]), TENSOR_SHAPE_TEXT(&t[1])));
    struct operand a, b;
    operand_init(&t[0], ranges[0], ranges[1], &a);
    operand_init(&t[1], ranges[2], ranges[3], &b);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_QINT32, (struct shape){2, (int64_t[]){m, n}}));
    if (k == 0)
        memset(tensor_data(&ctx->outputs[0]), 0, tensor_size_bytes(&ctx->outputs[0]));
    else if (ctx->outputs[0].n_elements > 0)
        KERNEL_TRY(ctx, multiply(ctx, &a, &b, m, k, n));
    set_product_range(ctx, &a, &b);
    return KERNEL_DONE;
}

/* ---- QuantizedConv2D ---- */

struct status *quant_conv_init(struct kernel_init *init) {
    struct window_attrs *attrs = xcalloc(1, sizeof(*attrs));
    init->state = attrs;
    TRY(window_attrs_read(init->node, 2, attrs));
    TRY(conv_check_image_strides(attrs));
    if (attrs->rates.spatial[0] != 1 || attrs->rates.spatial[1] != 1)
        return status_invalid("Current implementation only supports dilated rate as 1 in the row "
                              "and column dimensions.");
    if (attrs->rates.batch != 1 || attrs->rates.channel != 1)
        return status_invalid("Current implementation does not yet support dilations in the batch "
                              "and depth dimensions.");
    return NULL;
}

static struct status *conv_geometry(const struct window_attrs *attrs, const struct tensor *in,
                                    const struct tensor *filter, struct conv_shape *shape,
                                    int64_t positions[4]) {
    if (in->rank != 4)
        return status_invalid("input must be rank 4 but is rank %d", in->rank);
    if (filter->rank != 4)
        return status_invalid("filter must be rank 4 but is rank %d", filter->rank);
    if (tensor_dim(in, 3) != tensor_dim(filter, 2))
        return status_invalid("input and filter must have the same depth: %lld vs %lld",
                              (long long)tensor_dim(in, 3), (long long)tensor_dim(filter, 2));
    if (in->n_elements == 0 || filter->n_elements == 0)
        return status_invalid("Invalid input: Shapes dimension cannot be 0.");
    *shape = (struct conv_shape){.batch = tensor_dim(in, 0),
                                 .in_channels = tensor_dim(in, 3),
                                 .out_channels = tensor_dim(filter, 3),
                                 .groups = 1,
                                 .in = {1, 1, 1},
                                 .out = {1, 1, 1},
                                 .window = {1, 1, 1},
                                 .stride = {1, 1, 1},
                                 .rate = {1, 1, 1}};
    positions[0] = shape->batch;
    positions[3] = shape->out_channels;
    for (int i = 0; i < 2; i++)
        TRY(conv_fit_dim(attrs, i, tensor_dim(in, 1 + i), tensor_dim(filter, i), shape,
                         &positions[1 + i]));
    return NULL;
}

static struct status *convolve(struct kernel_ctx *ctx, const struct conv_shape *shape,
                               const struct operand operands[2]) {
    struct tensor scratch[2] = {TENSOR_INIT, TENSOR_INIT};
    struct conv_operands plain = {.result = tensor_data(&ctx->outputs[0])};
    const int32_t *values[2];
    struct status *st = NULL;
    for (int i = 0; i < 2; i++)
        TRY_OUT(centered(ctx, &operands[i], ctx->inputs[i].n_elements, &scratch[i], &values[i]));
    plain.in = values[0];
    plain.filter = values[1];
    TRY_OUT(conv_run(ctx, CONV_FORWARD, shape, DT_INT32, &plain));
out:
    tensor_clear(&scratch[0]);
    tensor_clear(&scratch[1]);
    return st;
}

/* QuantizedConv2D, channels last. The border counts as the real 0.
 *   input, filter           Tinput [n, h, w, c], Tfilter [fh, fw, c, d]
 *   min_input, max_input, min_filter, max_filter  float scalars
 *   output                  qint32 [n, out height, out width, d]
 *   min_output, max_output  the range of all 32-bit codes
 * Errors   INVALID_ARGUMENT   ranges that are no scalars, ranks, channels that differ, no elements;
 *                             strides that differ, dilations */
enum kernel_result quant_conv(struct kernel_ctx *ctx) {
    static const char *const names[4] = {"min_input", "max_input", "min_filter", "max_filter"};
    struct conv_shape shape;
    int64_t positions[4];
    float ranges[4];
    for (int i = 0; i < 4; i++)
        KERNEL_TRY(ctx, quant_scalar(ctx, 2 + i, names[i], &ranges[i]));
    KERNEL_TRY(ctx, conv_geometry(ctx->instance->state, &ctx->inputs[0], &ctx->inputs[1], &shape,
                                  positions));
    struct operand operands[2];
    for (int i = 0; i < 2; i++)
        operand_init(&ctx->inputs[i], ranges[2 * i], ranges[2 * i + 1], &operands[i]);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_QINT32, (struct shape){4, positions}));
    if (ctx->outputs[0].n_elements > 0)
        KERNEL_TRY(ctx, convolve(ctx, &shape, operands));
    set_product_range(ctx, &operands[0], &operands[1]);
    return KERNEL_DONE;
}

/* ---- QuantizedMul ---- */

struct mul_job {
    const struct broadcast *plan;
    struct operand operands[2];
    int32_t *z;
};

static void mul_range(void *arg, int64_t begin, int64_t end) {
    const struct mul_job *job = arg;
    int32_t codes[2][QUANT_BLOCK];
    for (int64_t i = begin; i < end; i += QUANT_BLOCK) {
        int64_t n = MIN(end - i, (int64_t)QUANT_BLOCK);
        for (int k = 0; k < 2; k++)
            quant_gather(job->plan, k, job->operands[k].dtype, job->operands[k].codes, i, n,
                         codes[k]);
        for (int64_t j = 0; j < n; j++)
            job->z[i + j] = (int32_t)(((uint32_t)codes[0][j] - (uint32_t)job->operands[0].zero) *
                                      ((uint32_t)codes[1][j] - (uint32_t)job->operands[1].zero));
    }
}

/* QuantizedMul, element by element; shapes are broadcast.
 *   x, y                        T1, T2
 *   min_x, max_x, min_y, max_y  float scalars
 *   z                           qint32
 *   min_z, max_z                the range of all 32-bit codes
 * Errors   INVALID_ARGUMENT   ranges that are no scalars or are empty, shapes that do not fit,
 *                             no elements */
enum kernel_result quant_mul(struct kernel_ctx *ctx) {
    struct broadcast plan;
    float ranges[4];
    KERNEL_TRY(ctx, quant_pairs_read(ctx, ranges, &plan));
    struct mul_job job = {.plan = &plan};
    for (int i = 0; i < 2; i++)
        operand_init(&ctx->inputs[i], ranges[2 * i], ranges[2 * i + 1], &job.operands[i]);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_QINT32, broadcast_shape(&plan)));
    job.z = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, plan.n_elements, 1.5, mul_range, &job);
    set_product_range(ctx, &job.operands[0], &job.operands[1]);
    return KERNEL_DONE;
}
