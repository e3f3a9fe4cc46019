/* The compute functions of GRUBlockCell and GRUBlockCellGrad (rnn.h). */
#include "kernels/cuda/ops/rnn_internal.h"

static struct gpu_stem gates_stem = {"gru_gates"}, outputs_stem = {"gru_outputs"};
static struct gpu_stem candidate_stem = {"gru_grad_candidate"};
static struct gpu_stem grad_gates_stem = {"gru_grad_gates"}, state_stem = {"gru_grad_state"};
static struct gpu_stem sum_stem = {"rnn_sum"};

enum { X, H_PREV, W_RU, W_C, B_RU, B_C, R, U, C, D_H }; /* inputs; from R on the gradient's */

static const float *input(const struct kernel_ctx *ctx, int i) {
    return tensor_cdata(&ctx->inputs[i]);
}
static float *output(struct kernel_ctx *ctx, int i) { return tensor_data(&ctx->outputs[i]); }

/* to[batch, width] = from[batch, k] · w, where w has rows of `width` columns. */
static struct status *project(struct kernel_ctx *ctx, int64_t batch, const float *from, int64_t k,
                              const float *w, int64_t width, float *to) {
    return rnn_multiply_on_gpu(ctx, (struct device_products){.dtype = DT_FLOAT,
                                                             .x = (const char *)from,
                                                             .y = (const char *)w,
                                                             .out = (char *)to,
                                                             .m = batch,
                                                             .n = width,
                                                             .k = k});
}

/* to[batch, n] = d[batch, width] · rowsᵀ, where `rows` are n rows of a weight matrix. */
static struct status *project_back(struct kernel_ctx *ctx, int64_t batch, const float *d,
                                   int64_t width, const float *rows, int64_t n, float *to) {
    return rnn_multiply_on_gpu(ctx, (struct device_products){.dtype = DT_FLOAT,
                                                             .x = (const char *)d,
                                                             .y = (const char *)rows,
                                                             .out = (char *)to,
                                                             .m = batch,
                                                             .n = n,
                                                             .k = width,
                                                             .transposes_y = true});
}

static struct status *float_scratch(struct kernel_ctx *ctx, int64_t n, struct buffer **ret_buffer,
                                    float **ret) {
    TRY(gpu_scratch(ctx, (size_t)n * sizeof(float), ret_buffer));
    *ret = (float *)(void *)(*ret_buffer)->data;
    return NULL;
}

/* ---- forward ---- */

static struct status *run_cell(struct kernel_ctx *ctx, const struct gru_sizes *s) {
    int64_t n = s->n_cells, batch = s->batch, n_inputs = s->n_inputs, size = batch * n;
    const float *x = input(ctx, X), *h_prev = input(ctx, H_PREV), *w_ru = input(ctx, W_RU),
                *w_c = input(ctx, W_C);
    struct buffer *scratch = NULL;
    struct gpu_divisor cells = gpu_divisor_of(n, size + 1);
    struct status *st = NULL;
    float *from_x, *from_h, *reset;
    TRY_OUT(float_scratch(ctx, 5 * size, &scratch, &from_x));
    from_h = from_x + 2 * size;
    reset = from_h + 2 * size;
    if (n_inputs > 0)
        TRY_OUT(project(ctx, batch, x, n_inputs, w_ru, 2 * n, from_x));
    TRY_OUT(project(ctx, batch, h_prev, n, w_ru + n_inputs * 2 * n, 2 * n, from_h));
    struct gru_gates_args gates = {.from_x = n_inputs > 0 ? from_x : NULL,
                                   .from_h = from_h,
                                   .b = input(ctx, B_RU),
                                   .h_prev = h_prev,
                                   .r = output(ctx, 0),
                                   .u = output(ctx, 1),
                                   .reset = reset,
                                   .n = size,
                                   .cells = cells};
    TRY_OUT(engine_launch_for(ctx, &gates_stem, "f32", size, &gates));
    if (n_inputs > 0)
        TRY_OUT(project(ctx, batch, x, n_inputs, w_c, n, from_x));
    TRY_OUT(project(ctx, batch, reset, n, w_c + n_inputs * n, n, from_h));
    struct gru_outputs_args outputs = {.from_x = gates.from_x,
                                       .from_reset = from_h,
                                       .b = input(ctx, B_C),
                                       .h_prev = h_prev,
                                       .u = gates.u,
                                       .c = output(ctx, 2),
                                       .h = output(ctx, 3),
                                       .n = size,
                                       .cells = cells};
    TRY_OUT(engine_launch_for(ctx, &outputs_stem, "f32", size, &outputs));
out:
    buffer_unref(scratch);
    return st;
}

enum kernel_result gru_cell_on_gpu(struct kernel_ctx *ctx) {
    struct gru_sizes sizes;
    KERNEL_TRY(ctx, gru_begin(ctx, &sizes));
    if (ctx->outputs[0].n_elements > 0)
        KERNEL_TRY(ctx, run_cell(ctx, &sizes));
    return KERNEL_DONE;
}

/* ---- gradient ---- */

/* d_x = d_c · w_c[:inputs]ᵀ + d_ru · w_ru[:inputs]ᵀ */
static struct status *grad_of_x(struct kernel_ctx *ctx, const struct gru_sizes *s,
                                const struct gru_grad_args *args) {
    int64_t n = s->n_cells, size = s->batch * s->n_inputs;
    struct buffer *scratch = NULL;
    struct status *st = NULL;
    struct rnn_sum_args sum = {.out = output(ctx, 0), .n = size};
    float *other;
    TRY_OUT(float_scratch(ctx, size, &scratch, &other));
    sum.other = other;
    TRY_OUT(project_back(ctx, s->batch, args->d_c, n, input(ctx, W_C), s->n_inputs, sum.out));
    TRY_OUT(project_back(ctx, s->batch, args->d_ru, 2 * n, input(ctx, W_RU), s->n_inputs, other));
    TRY_OUT(engine_launch_for(ctx, &sum_stem, "f32", size, &sum));
out:
    buffer_unref(scratch);
    return st;
}

static struct status *run_grad(struct kernel_ctx *ctx, const struct gru_sizes *s) {
    int64_t n = s->n_cells, size = s->batch * n;
    struct buffer *scratch = NULL;
    struct status *st = NULL;
    float *d_reset, *from_ru;
    TRY_OUT(float_scratch(ctx, 2 * size, &scratch, &d_reset));
    from_ru = d_reset + size;
    struct gru_grad_args args = {.h_prev = input(ctx, H_PREV),
                                 .r = input(ctx, R),
                                 .u = input(ctx, U),
                                 .c = input(ctx, C),
                                 .d_h = input(ctx, D_H),
                                 .d_reset = d_reset,
                                 .from_ru = from_ru,
                                 .d_h_prev = output(ctx, 1),
                                 .d_c = output(ctx, 2),
                                 .d_ru = output(ctx, 3),
                                 .n = size,
                                 .cells = gpu_divisor_of(n, size + 1)};
    TRY_OUT(engine_launch_for(ctx, &candidate_stem, "f32", size, &args));
    TRY_OUT(
        project_back(ctx, s->batch, args.d_c, n, input(ctx, W_C) + s->n_inputs * n, n, d_reset));
    TRY_OUT(engine_launch_for(ctx, &grad_gates_stem, "f32", size, &args));
    TRY_OUT(project_back(ctx, s->batch, args.d_ru, 2 * n, input(ctx, W_RU) + s->n_inputs * 2 * n, n,
                         from_ru));
    TRY_OUT(engine_launch_for(ctx, &state_stem, "f32", size, &args));
    if (s->n_inputs > 0)
        TRY_OUT(grad_of_x(ctx, s, &args));
out:
    buffer_unref(scratch);
    return st;
}

enum kernel_result gru_cell_grad_on_gpu(struct kernel_ctx *ctx) {
    struct gru_sizes sizes;
    KERNEL_TRY(ctx, gru_begin_grad(ctx, &sizes));
    if (sizes.batch == 0 || sizes.n_cells == 0)
        KERNEL_TRY(ctx, gpu_zero(ctx, output(ctx, 0), tensor_size_bytes(&ctx->outputs[0])));
    else
        KERNEL_TRY(ctx, run_grad(ctx, &sizes));
    return KERNEL_DONE;
}
