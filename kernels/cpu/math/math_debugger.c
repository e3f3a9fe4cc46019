/* Computes what debuggers put between a tensor and its consumers: copies, and a few numbers that
 * tell whether the tensor is healthy (DebugNumericSummaryV2). */
#include <math.h>
#include <stdlib.h>

#include "common/tensor/element.h"
#include "common/base/pool_cancel.h"
#include "kernels/kernel.h"

extern const struct kernel_list math_debugger_kernels;

/* tensor_debug_mode, with TensorFlow's values. Each comment lists the output's elements. */
enum debug_mode {
    MODE_CURT_HEALTH = 2,    /* id, whether anything is infinite or NaN */
    MODE_CONCISE_HEALTH = 3, /* id, elements, -inf, +inf, NaN */
    /* id, device (-1), dtype, rank, elements, -inf, +inf, NaN, negative, zero, positive */
    MODE_FULL_HEALTH = 4,
    MODE_SHAPE = 5,          /* id, dtype, rank, elements, the last 6 sizes */
    MODE_REDUCE_INF_NAN = 8, /* -inf, +inf, NaN: the value itself where it occurs, else 0 */
};
enum { SHAPE_SLOTS = 6, MAX_SLOTS = 11 };

struct debug_state {
    enum debug_mode mode;
    int64_t id;
    enum dtype out;
};

static struct status *debug_init(struct kernel_init *init) {
    struct debug_state *state = init->state = xcalloc(1, sizeof(*state));
    int64_t mode;
    TRY(node_get_i(init->node, "tensor_debug_mode", &mode));
    TRY(node_get_i(init->node, "tensor_id", &state->id));
    state->out = (enum dtype)init->node->out_types[0];
    int digits = state->out == DT_FLOAT ? 24 : 53;
    state->mode = (enum debug_mode)MIN(MAX(mode, (int64_t)0), (int64_t)INT32_MAX);
    if (state->id > INT64_C(1) << digits)
        return status_invalid("DebugNumericSummaryV2Op requires tensor_id to be less than or equal "
                              "to (2^%d). Given tensor_id:%lld",
                              digits, (long long)state->id);
    if (mode != MODE_CURT_HEALTH && mode != MODE_CONCISE_HEALTH && mode != MODE_FULL_HEALTH &&
        mode != MODE_SHAPE && mode != MODE_REDUCE_INF_NAN)
        return status_unimplemented("Unimplemented tensor debug mode: %lld", (long long)mode);
    return NULL;
}

struct counts {
    int64_t negative_inf, positive_inf, nan, negative, zero, positive;
};

static void count_value(struct counts *c, double v) {
    if (isnan(v))
        c->nan++;
    else if (isinf(v))
        *(v < 0 ? &c->negative_inf : &c->positive_inf) += 1;
    else
        *(v < 0 ? &c->negative : v > 0 ? &c->positive : &c->zero) += 1;
}

static void count_elements(const struct tensor *t, struct counts *ret) {
    enum dtype dtype = tensor_dtype(t);
    for (int64_t i = 0; i < t->n_elements && pool_goes_on(i + 1); i++) {
        if (dtype_in(dtype, DTYPES_REAL_FLOAT))
            count_value(ret, tensor_real_at(t, i));
        else if (dtype == DT_BOOL)
            count_value(ret, *(const bool *)tensor_cat(t, i));
        else if (dtype == DT_UINT64)
            count_value(ret, (double)*(const uint64_t *)tensor_cat(t, i));
        else
            count_value(ret, (double)tensor_int_at(t, i));
    }
}

static int set_slots(double *to, int n, const double *slots) {
    memcpy(to, slots, (size_t)n * sizeof(*to));
    return n;
}
#define SLOTS(...) \
    set_slots(ret, (int)ARRAY_LEN(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})

/* Writes the numbers of the mode to `ret`, and returns how many there are. */
static int summarize(const struct debug_state *state, const struct tensor *t,
                     double ret[static MAX_SLOTS]) {
    struct counts c = {0};
    double id = (double)state->id, n = (double)t->n_elements, type = t->dtype, rank = t->rank;
    if (state->mode != MODE_SHAPE)
        count_elements(t, &c);
    double inf_minus = (double)c.negative_inf, inf_plus = (double)c.positive_inf,
           nan_count = (double)c.nan;
    switch (state->mode) {
    case MODE_CURT_HEALTH:
        return SLOTS(id, inf_minus + inf_plus + nan_count > 0);
    case MODE_CONCISE_HEALTH:
        return SLOTS(id, n, inf_minus, inf_plus, nan_count);
    case MODE_FULL_HEALTH:
        return SLOTS(id, -1, type, rank, n, inf_minus, inf_plus, nan_count, (double)c.negative,
                     (double)c.zero, (double)c.positive);
    case MODE_SHAPE:
        SLOTS(id, type, rank, n);
        for (int i = 0; i < SHAPE_SLOTS; i++) {
            int d = MAX(t->rank - SHAPE_SLOTS, 0) + i;
            ret[4 + i] = d < t->rank ? (double)tensor_dim(t, d) : 0;
        }
        return 4 + SHAPE_SLOTS;
    case MODE_REDUCE_INF_NAN:
        return SLOTS(c.negative_inf ? -INFINITY : 0, c.positive_inf ? INFINITY : 0,
                     c.nan ? NAN : 0);
    }
    return 0;
}

static enum kernel_result debug_summary(struct kernel_ctx *ctx) {
    const struct debug_state *state = ctx->instance->state;
    double slots[MAX_SLOTS];
    int64_t n = summarize(state, kernel_input(ctx, 0), slots);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->out, (struct shape){1, &n}));
    void *to = tensor_data(&ctx->outputs[0]);
    for (int64_t i = 0; i < n; i++) {
        if (state->out == DT_FLOAT)
            ((float *)to)[i] = (float)slots[i];
        else
            ((double *)to)[i] = slots[i];
    }
    return KERNEL_DONE;
}

/* These ops pass the tensor on. Publishing it to debug_urls is not implemented. */
static struct status *copy_init(struct kernel_init *init) {
    const struct attr_value *urls = node_attr(init->node, "debug_urls");
    if (urls && urls->type == ATTR_LIST_STRING && urls->list.n_values > 0)
        return status_unimplemented("%s: tensors are not published to debug_urls",
                                    init->node->op->name);
    return NULL;
}

#define SUMMARY_TYPES (DTYPES_REAL_FLOAT | DTYPES_INT | DTYPE_BIT(DT_BOOL))

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "DebugNumericSummaryV2", {{"T", SUMMARY_TYPES}}, .compute = debug_summary,
        .init = debug_init},
    {.op = "DebugIdentityV2", .compute = kernel_identity, .init = copy_init},
    {.op = "Copy", .compute = kernel_identity},
    {.op = "CopyHost", .compute = kernel_identity},
};
// clang-format on

const struct kernel_list math_debugger_kernels = {rows, ARRAY_LEN(rows)};
