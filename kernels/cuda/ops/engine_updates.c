/* Launches scatters, updates, optimizers' steps and random numbers. */
#include <float.h>

#include "kernels/cpu/random/random_fill.h"
#include "kernels/cuda/ops/engine_internal.h"
#include "kernels/cuda/ops/random_args.h"
#include "kernels/cuda/ops/train_args.h"

static struct gpu_stem scatter_assign_stem = {"scatter_assign"};
static struct gpu_stem scatter_stem = {"scatter"};
static struct gpu_stem update_stem = {"update"};
static struct gpu_stem segment_stem = {"segment"};
static struct gpu_stem narrow_stem = {"narrow"};
static struct gpu_stem random_advance_stem = {"random_advance"};
static struct gpu_stem multinomial_sums_stem = {"multinomial_sums"};
static struct gpu_stem multinomial_draw_stem = {"multinomial_draw"};

struct status *engine_scatter(struct kernel_ctx *ctx, const struct device_scatter *job) {
    struct scatter_args args = {.params = job->params,
                                .updates = job->updates,
                                .scalar = engine_scalar(&job->scalar),
                                .op = job->op,
                                .slices = engine_slices(&job->slices)};
    size_t element_bytes = dtype_size(job->dtype), size = element_bytes;
    bool is_assign = job->op == UPDATE_ASSIGN;
    if (is_assign && job->updates) {
        size = engine_widen(element_bytes, args.slices.len,
                            (uintptr_t)job->params | (uintptr_t)job->updates);
        args.slices.len /= (int64_t)(size / element_bytes);
    }
    struct gpu_grid grid = engine_owner_grid(&args.slices, &args.n_groups, &args.n_parts);
    return engine_launch(ctx, is_assign ? &scatter_assign_stem : &scatter_stem,
                         is_assign ? gpu_size_suffix(size) : gpu_dtype_suffix(job->dtype), grid,
                         &args);
}

struct status *engine_update(struct kernel_ctx *ctx, enum update_op op, enum dtype dtype, void *dst,
                             const void *a, const void *b, int64_t n) {
    struct update_args args = {.dst = dst, .a = a, .b = b, .op = op, .n = n};
    return engine_launch_for(ctx, &update_stem, gpu_dtype_suffix(dtype), n, &args);
}

/* ---- segments ---- */

/* The element that changes nothing, in the type that sums are made in. */
static void neutral_of(enum update_op op, enum dtype dtype, char value[16]) {
    double real = op == UPDATE_MUL ? 1 : 0;
    if (op == UPDATE_MIN || op == UPDATE_MAX)
        real = dtype == DT_DOUBLE     ? DBL_MAX
               : dtype == DT_HALF     ? 65504
               : dtype == DT_BFLOAT16 ? 0x1.fep127
                                      : (double)FLT_MAX;
    real = op == UPDATE_MAX ? -real : real;
    float narrow = (float)real;
    int32_t integer = op == UPDATE_MIN ? INT32_MAX : op == UPDATE_MAX ? INT32_MIN : (int32_t)real;
    memset(value, 0, 16);
    if (dtype == DT_INT32)
        memcpy(value, &integer, sizeof integer);
    else if (dtype == DT_DOUBLE || dtype == DT_COMPLEX128)
        memcpy(value, &real, sizeof real);
    else
        memcpy(value, &narrow, sizeof narrow);
}

static struct status *segments_into(struct kernel_ctx *ctx, const struct device_segments *segments,
                                    char *out, size_t element_bytes) {
    struct device_move fill = {
        .to = out, .n_loops = 1, .dims = {segments->n_out}, .to_strides = {1}};
    neutral_of(segments->op, segments->dtype, fill.value);
    TRY(engine_move(ctx, element_bytes, &fill, 1));
    if (segments->slices.n_rows == 0)
        return NULL;
    struct segment_args args = {.out = out,
                                .data = segments->data,
                                .op = segments->op,
                                .slices = engine_slices(&segments->slices)};
    args.slices.n_stacks = segments->n_parts;
    struct gpu_grid grid = engine_owner_grid(&args.slices, &args.n_groups, &args.n_parts);
    return engine_launch(ctx, &segment_stem, gpu_dtype_suffix(segments->dtype), grid, &args);
}

struct status *engine_segments(struct kernel_ctx *ctx, const struct device_segments *segments) {
    if (!dtype_is_narrow_float(segments->dtype))
        return segments_into(ctx, segments, segments->out, dtype_size(segments->dtype));
    struct buffer *wide = NULL;
    TRY(gpu_scratch(ctx, (size_t)segments->n_out * sizeof(float), &wide));
    struct status *st = segments_into(ctx, segments, wide->data, sizeof(float));
    if (!st) {
        struct narrow_args args = {segments->out, wide->data, segments->n_out};
        st = engine_launch_for(ctx, &narrow_stem, gpu_dtype_suffix(segments->dtype), args.n, &args);
    }
    buffer_unref(wide);
    return st;
}

/* ---- optimizers ---- */

static struct gpu_stem rules[N_TRAIN_RULES] = {
    [RULE_GRADIENT_DESCENT] = {"train_gradient_descent"},
    [RULE_MOMENTUM] = {"train_momentum"},
    [RULE_KERAS_MOMENTUM] = {"train_keras_momentum"},
    [RULE_ADAGRAD] = {"train_adagrad"},
    [RULE_ADAGRAD_V2] = {"train_adagrad_v2"},
    [RULE_PROXIMAL_ADAGRAD] = {"train_proximal_adagrad"},
    [RULE_ADADELTA] = {"train_adadelta"},
    [RULE_RMSPROP] = {"train_rmsprop"},
    [RULE_CENTERED_RMSPROP] = {"train_centered_rmsprop"},
    [RULE_ADAM] = {"train_adam"},
    [RULE_ADAM_AMSGRAD] = {"train_adam_amsgrad"},
    [RULE_ADAMAX] = {"train_adamax"},
    [RULE_FTRL] = {"train_ftrl"},
    [RULE_FTRL_V2] = {"train_ftrl_v2"},
    [RULE_ADD_SIGN] = {"train_add_sign"},
    [RULE_POWER_SIGN] = {"train_power_sign"},
};
static struct gpu_stem sparse_rules[N_TRAIN_RULES] = {
    [RULE_GRADIENT_DESCENT] = {"train_sparse_gradient_descent"},
    [RULE_MOMENTUM] = {"train_sparse_momentum"},
    [RULE_KERAS_MOMENTUM] = {"train_sparse_keras_momentum"},
    [RULE_ADAGRAD] = {"train_sparse_adagrad"},
    [RULE_ADAGRAD_V2] = {"train_sparse_adagrad_v2"},
    [RULE_PROXIMAL_ADAGRAD] = {"train_sparse_proximal_adagrad"},
    [RULE_ADADELTA] = {"train_sparse_adadelta"},
    [RULE_RMSPROP] = {"train_sparse_rmsprop"},
    [RULE_CENTERED_RMSPROP] = {"train_sparse_centered_rmsprop"},
    [RULE_ADAM] = {"train_sparse_adam"},
    [RULE_ADAM_AMSGRAD] = {"train_sparse_adam_amsgrad"},
    [RULE_ADAMAX] = {"train_sparse_adamax"},
    [RULE_FTRL] = {"train_sparse_ftrl"},
    [RULE_FTRL_V2] = {"train_sparse_ftrl_v2"},
    [RULE_ADD_SIGN] = {"train_sparse_add_sign"},
    [RULE_POWER_SIGN] = {"train_sparse_power_sign"},
};

struct status *engine_train(struct kernel_ctx *ctx, const struct device_train *train) {
    struct train_args args = {.run = train->run, .n_slots = train->n_slots, .n = train->n};
    for (int i = 0; i < train->n_scalars; i++)
        args.scalars[i] = engine_scalar(&train->scalars[i]);
    struct gpu_stem *stem = &(train->indices ? sparse_rules : rules)[train->rule];
    const char *suffix = gpu_dtype_suffix(train->dtype);
    if (!train->indices)
        return engine_launch_for(ctx, stem, suffix, train->n, &args);
    args.slices = (struct pick_slices){.indices = train->indices,
                                       .index = engine_index(train->index_dtype),
                                       .depth = 1,
                                       .n_rows = train->n_indices,
                                       .len = train->row_len,
                                       .dims = {train->n_rows}};
    struct gpu_grid grid = engine_owner_grid(&args.slices, &args.n_groups, &args.n_parts);
    return engine_launch(ctx, stem, suffix, grid, &args);
}

/* ---- random numbers ---- */

struct status *engine_random(struct kernel_ctx *ctx, const struct random_fill *fill,
                             const struct device_generator *generator, void *out, int64_t n) {
    static struct gpu_stem random_int_stem = {"random_int"};
    static struct gpu_stem uniform_stem = {"random_uniform"}, normal_stem = {"random_normal"},
                           truncated_stem = {"random_truncated"};
    static struct gpu_stem *const stems[] = {
        [RANDOM_UNIFORM] = &uniform_stem,     [RANDOM_NORMAL] = &normal_stem,
        [RANDOM_TRUNCATED] = &truncated_stem, [RANDOM_RANGE] = &random_int_stem,
        [RANDOM_BITS] = &random_int_stem,
    };
    struct random_args args = {
        .out = out,
        .n = n,
        .key = fill->generator.key,
        .lo = fill->generator.lo,
        .hi = fill->generator.hi,
        .key_at = generator->key,
        .counter_at = generator->counter,
        .low = fill->low,
        .range = fill->kind == RANDOM_RANGE ? fill->range : 0,
    };
    bool is_int = fill->kind == RANDOM_RANGE || fill->kind == RANDOM_BITS;
    size_t size = dtype_size(fill->dtype);
    return engine_launch_for(ctx, stems[fill->kind],
                             is_int ? gpu_size_suffix(size) : gpu_dtype_suffix(fill->dtype),
                             (n + 1) / 2, &args);
}

struct status *engine_advance(struct kernel_ctx *ctx, uint64_t *words, uint64_t n_blocks,
                              uint64_t *before) {
    struct random_advance_args args = {words, before, n_blocks};
    return engine_launch_for(ctx, &random_advance_stem, "u64", 1, &args);
}

struct status *engine_gamma(struct kernel_ctx *ctx, const struct device_gamma *job) {
    static struct gpu_stem gamma_stem = {"random_gamma"};
    struct gamma_args args = {.random = {.out = job->out,
                                         .n = job->n_parameters * job->samples,
                                         .key = job->generator.key,
                                         .lo = job->generator.lo,
                                         .hi = job->generator.hi,
                                         .key_at = job->generator_at.key,
                                         .counter_at = job->generator_at.counter},
                              .alpha = job->alpha,
                              .n_parameters = job->n_parameters,
                              .samples = job->samples};
    return engine_launch_for(ctx, &gamma_stem, gpu_dtype_suffix(job->dtype), args.random.n, &args);
}

struct status *engine_parameterized(struct kernel_ctx *ctx,
                                    const struct device_parameterized *job) {
    static struct gpu_stem parameterized_stem = {"random_parameterized"};
    struct parameterized_args args = {.random = {.out = job->out,
                                                 .n = job->n,
                                                 .key = job->generator.key,
                                                 .lo = job->generator.lo,
                                                 .hi = job->generator.hi},
                                      .samples = job->samples,
                                      .blocks_per_output = DEVICE_PARAMETERIZED_BLOCKS};
    for (int i = 0; i < 4; i++) {
        args.parameters[i] = job->parameters[i];
        args.is_shared[i] = job->is_shared[i];
    }
    return engine_launch_for(ctx, &parameterized_stem, gpu_dtype_suffix(job->dtype), job->n, &args);
}

struct status *engine_multinomial(struct kernel_ctx *ctx, const struct device_multinomial *job) {
    enum { MAX_BLOCKS = 1 << 16 };
    struct buffer *sums = NULL;
    TRY(gpu_scratch(ctx, (size_t)(job->n_rows * job->n_classes) * sizeof(double), &sums));
    struct multinomial_sums_args sums_args = {job->logits, (double *)(void *)sums->data,
                                              job->n_rows, job->n_classes};
    struct gpu_grid grid = {.n_blocks = (unsigned)MIN(job->n_rows, (int64_t)MAX_BLOCKS),
                            .n_threads = GPU_BLOCK_THREADS};
    struct status *st =
        engine_launch(ctx, &multinomial_sums_stem, gpu_dtype_suffix(job->dtype), grid, &sums_args);
    if (!st) {
        struct multinomial_draw_args args = {.sums = sums_args.sums,
                                             .out = job->out,
                                             .n_rows = job->n_rows,
                                             .n_classes = job->n_classes,
                                             .n_samples = job->n_samples,
                                             .key = job->generator.key,
                                             .lo = job->generator.lo,
                                             .hi = job->generator.hi};
        st = engine_launch_for(ctx, &multinomial_draw_stem, job->out_is_int32 ? "i32" : "i64",
                               job->n_rows * job->n_samples, &args);
    }
    buffer_unref(sums);
    return st;
}
