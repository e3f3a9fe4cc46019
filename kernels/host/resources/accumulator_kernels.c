/* Computes the ops of conditional accumulators (kernels/host/resources/accumulator.h). */
#include <stdlib.h>

#include "kernels/host/resources/accumulator.h"

extern const struct kernel_list accumulator_kernels;

/* ---- making ---- */

struct accumulator_state {
    struct named_resource resource;
    struct accumulator_options options;
};

static void accumulator_state_fini(void *arg) {
    struct accumulator_state *state = arg;
    named_resource_fini(&state->resource);
    free((void *)(uintptr_t)state->options.shape.dims);
    free(state);
}

/* The arg of a row. */
static const bool dense = false, sparse = true;

static struct status *accumulator_init(struct kernel_init *init) {
    struct accumulator_state *state = xcalloc(1, sizeof(*state));
    struct shape shape = SHAPE_UNKNOWN;
    struct span reduction = {0};
    init->state = state;
    state->options.is_sparse = *(const bool *)init->arg;
    TRY(named_resource_init(&state->resource, init, &accumulator_type, RESOURCE_OWN,
                            accumulator_empty));
    TRY(node_get_type(init->node, "dtype", &state->options.dtype));
    TRY(node_get_shape(init->node, "shape", &shape));
    TRY(node_get_s(init->node, "reduction_type", &reduction));
    state->options.shape = shape_keep(shape);
    state->options.is_mean = span_is(reduction, "MEAN");
    if (!state->options.is_mean && !span_is(reduction, "SUM"))
        return status_invalid("Invalid reduction type: %.*s", (int)MIN(reduction.len, (size_t)64),
                              reduction.data);
    return NULL;
}

static struct status *make_accumulator(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    const struct accumulator_state *state = arg;
    *ret =
        &accumulator_new(&state->options, ctx->instance->allocator, state->resource.name)->object;
    return NULL;
}

/* Nodes that share a name share the accumulator that the first one declared. */
static enum kernel_result accumulator_compute(struct kernel_ctx *ctx) {
    struct accumulator_state *state = ctx->instance->state;
    struct object *found = NULL;
    KERNEL_TRY(ctx, named_resource_get(ctx, &state->resource, make_accumulator, state, &found));
    object_unref(found);
    KERNEL_TRY(ctx, named_resource_output(ctx, &state->resource));
    return KERNEL_DONE;
}

/* ---- operations ---- */

typedef enum kernel_result accumulator_fn(struct kernel_ctx *ctx, struct accumulator *accumulator);

static enum kernel_result with_accumulator(struct kernel_ctx *ctx, accumulator_fn *fn) {
    struct object *found = NULL;
    KERNEL_TRY(ctx, named_resource_of_input(ctx, &accumulator_type, &found));
    enum kernel_result result = fn(ctx, (struct accumulator *)found);
    object_unref(found);
    return result;
}

static struct status *check_kind(const struct accumulator *accumulator, bool is_sparse) {
    if (accumulator->is_sparse == is_sparse)
        return NULL;
    return status_invalid("Accumulator %s is %s", accumulator->name,
                          is_sparse ? "dense, not sparse" : "sparse, not dense");
}

static struct status *read_scalar(const struct kernel_ctx *ctx, int input, const char *name,
                                  int64_t *ret) {
    const struct tensor *in = kernel_input(ctx, input);
    if (in->rank != 0)
        return status_invalid("Argument %s must be scalar, but had bad shape %s", name,
                              TENSOR_SHAPE_TEXT(in));
    *ret = tensor_index_at(in, 0);
    return NULL;
}

static struct status *apply_dense(struct kernel_ctx *ctx, struct accumulator *accumulator) {
    const uint8_t in[] = {DT_INT64, (uint8_t)accumulator->dtype};
    int64_t step;
    TRY(check_kind(accumulator, false));
    TRY(check_signature(ctx, (struct type_list){in, 2}, (struct type_list){NULL, 0}));
    TRY(read_scalar(ctx, 1, "local_step", &step));
    return accumulator_apply(accumulator, step, kernel_input(ctx, 2));
}

static enum kernel_result apply(struct kernel_ctx *ctx, struct accumulator *accumulator) {
    KERNEL_TRY(ctx, apply_dense(ctx, accumulator));
    return KERNEL_DONE;
}
static enum kernel_result accumulator_apply_compute(struct kernel_ctx *ctx) {
    return with_accumulator(ctx, apply);
}

static struct status *apply_sparse_init(struct kernel_init *init) {
    bool *has_shape = init->state = xcalloc(1, sizeof(*has_shape));
    return node_get_b(init->node, "has_known_shape", has_shape);
}

static struct status *apply_rows(struct kernel_ctx *ctx, struct accumulator *accumulator) {
    const uint8_t in[] = {DT_INT64, DT_INT64, (uint8_t)accumulator->dtype, DT_INT64};
    int64_t step;
    TRY(check_kind(accumulator, true));
    TRY(check_signature(ctx, (struct type_list){in, 4}, (struct type_list){NULL, 0}));
    TRY(read_scalar(ctx, 1, "local_step", &step));
    return accumulator_apply_sparse(accumulator, step, kernel_input(ctx, 2), kernel_input(ctx, 3),
                                    kernel_input(ctx, 4), *(const bool *)ctx->instance->state);
}

static enum kernel_result apply_sparse(struct kernel_ctx *ctx, struct accumulator *accumulator) {
    KERNEL_TRY(ctx, apply_rows(ctx, accumulator));
    return KERNEL_DONE;
}
static enum kernel_result accumulator_apply_sparse_compute(struct kernel_ctx *ctx) {
    return with_accumulator(ctx, apply_sparse);
}

static struct status *check_take(const struct kernel_ctx *ctx,
                                 const struct accumulator *accumulator, bool is_sparse,
                                 int64_t *ret_n) {
    static const uint8_t in = DT_INT32;
    const uint8_t out[] = {DT_INT64, (uint8_t)accumulator->dtype, DT_INT64};
    TRY(check_kind(accumulator, is_sparse));
    TRY(check_signature(ctx, (struct type_list){&in, 1},
                        is_sparse ? (struct type_list){out, 3} : (struct type_list){out + 1, 1}));
    TRY(read_scalar(ctx, 1, "num_required", ret_n));
    return *ret_n > 0 ? NULL
                      : status_invalid("Argument num_required must be positive, but was %lld",
                                       (long long)*ret_n);
}

static enum kernel_result take_dense(struct kernel_ctx *ctx, struct accumulator *accumulator) {
    int64_t n;
    KERNEL_TRY(ctx, check_take(ctx, accumulator, false, &n));
    return accumulator_take(accumulator, ctx, n);
}
static enum kernel_result take_sparse(struct kernel_ctx *ctx, struct accumulator *accumulator) {
    int64_t n;
    KERNEL_TRY(ctx, check_take(ctx, accumulator, true, &n));
    return accumulator_take(accumulator, ctx, n);
}
static enum kernel_result accumulator_take_compute(struct kernel_ctx *ctx) {
    return with_accumulator(ctx, take_dense);
}
static enum kernel_result accumulator_take_sparse_compute(struct kernel_ctx *ctx) {
    return with_accumulator(ctx, take_sparse);
}

static enum kernel_result count(struct kernel_ctx *ctx, struct accumulator *accumulator) {
    tensor_init_scalar_i32(&ctx->outputs[0],
                           (int32_t)MIN(accumulator_n_gradients(accumulator), (int64_t)INT32_MAX));
    return KERNEL_DONE;
}
static enum kernel_result accumulator_count_compute(struct kernel_ctx *ctx) {
    return with_accumulator(ctx, count);
}

static enum kernel_result set_step(struct kernel_ctx *ctx, struct accumulator *accumulator) {
    int64_t step;
    KERNEL_TRY(ctx, read_scalar(ctx, 1, "new_global_step", &step));
    accumulator_set_global_step(accumulator, step);
    return KERNEL_DONE;
}
static enum kernel_result accumulator_set_step_compute(struct kernel_ctx *ctx) {
    return with_accumulator(ctx, set_step);
}

/* The types that TensorFlow registers. */
#define TYPES (DTYPE_BIT(DT_HALF) | DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE))
#define ACCUMULATOR(name, kind)                                                   \
    {                                                                             \
        .op = (name), {{"dtype", TYPES}}, .compute = accumulator_compute,         \
        .init = accumulator_init, .fini = accumulator_state_fini, .arg = &(kind), \
        .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE                           \
    }
#define TAKES(name, fn) \
    { .op = (name), {{"dtype", TYPES}}, .compute = (fn), .flags = KERNEL_ASYNC | KERNEL_STATEFUL }
#define APPLIES(name, fn) \
    { .op = (name), {{"dtype", TYPES}}, .compute = (fn), .flags = KERNEL_STATEFUL }
#define PLAIN(name, fn) \
    { .op = (name), .compute = (fn), .flags = KERNEL_STATEFUL }

// clang-format off
static const struct kernel_def rows[] = {
    ACCUMULATOR("ConditionalAccumulator", dense),
    ACCUMULATOR("ResourceConditionalAccumulator", dense),
    ACCUMULATOR("SparseConditionalAccumulator", sparse),
    APPLIES("AccumulatorApplyGradient", accumulator_apply_compute),
    APPLIES("ResourceAccumulatorApplyGradient", accumulator_apply_compute),
    {.op = "SparseAccumulatorApplyGradient", {{"dtype", TYPES}},
     .compute = accumulator_apply_sparse_compute,
     .init = apply_sparse_init, .flags = KERNEL_STATEFUL},
    TAKES("AccumulatorTakeGradient", accumulator_take_compute),
    TAKES("ResourceAccumulatorTakeGradient", accumulator_take_compute),
    TAKES("SparseAccumulatorTakeGradient", accumulator_take_sparse_compute),
    PLAIN("AccumulatorNumAccumulated", accumulator_count_compute),
    PLAIN("ResourceAccumulatorNumAccumulated", accumulator_count_compute),
    PLAIN("AccumulatorSetGlobalStep", accumulator_set_step_compute),
    PLAIN("ResourceAccumulatorSetGlobalStep", accumulator_set_step_compute),
};
// clang-format on

const struct kernel_list accumulator_kernels = {rows, ARRAY_LEN(rows)};
