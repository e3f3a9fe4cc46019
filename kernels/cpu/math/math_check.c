/* Runs CheckNumerics: passes its input on, or fails when an element is infinite or NaN.
 *
 * Errors   INVALID_ARGUMENT   the attr `message`, and what was found (V2: with infinities' signs)
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/cpu/math/math_internal.h"

extern const struct kernel_list math_check_kernels;

enum finding { POSITIVE = 1, NEGATIVE = 2, NOT_A_NUMBER = 4 };

struct check_state {
    struct span message; /* owned by the node */
    enum dtype dtype;
    bool says_sign;
};

static struct status *check_init(struct kernel_init *init) {
    struct check_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->dtype = (enum dtype)init->node->in_types[0];
    state->says_sign = init->arg != NULL;
    return node_get_s(init->node, "message", &state->message);
}

struct check_job {
    enum dtype dtype;
    const void *values;
    _Atomic unsigned found;
};

/* Without its sign, a NaN has bits above those of infinity. The loop has no branch, so that it
 * vectorises. */
#define CHECK_BITS(T, sign, infinity)                                            \
    static unsigned check_##T(const T *bits, int64_t begin, int64_t end) {       \
        unsigned found = 0;                                                      \
        for (int64_t i = begin; i < end; i++) {                                  \
            T size = bits[i] & (T) ~(T)(sign);                                   \
            found |= (unsigned)(bits[i] == (T)(infinity)) * POSITIVE;            \
            found |= (unsigned)(bits[i] == (T)((sign) | (infinity))) * NEGATIVE; \
            found |= (unsigned)(size > (T)(infinity)) * NOT_A_NUMBER;            \
        }                                                                        \
        return found;                                                            \
    }
CHECK_BITS(uint32_t, 0x80000000u, 0x7f800000u)
CHECK_BITS(uint64_t, 1ull << 63, 0x7ff0000000000000ull)
static unsigned check_half(const uint16_t *bits, int64_t begin, int64_t end, uint16_t infinity) {
    unsigned found = 0;
    for (int64_t i = begin; i < end; i++) {
        uint16_t size = bits[i] & 0x7fffu;
        found |= (unsigned)(bits[i] == infinity) * POSITIVE;
        found |= (unsigned)(bits[i] == (uint16_t)(0x8000u | infinity)) * NEGATIVE;
        found |= (unsigned)(size > infinity) * NOT_A_NUMBER;
    }
    return found;
}

static void check_range(void *arg, int64_t begin, int64_t end) {
    struct check_job *job = arg;
    unsigned found =
        job->dtype == DT_FLOAT ? check_uint32_t(job->values, begin, end)
        : job->dtype == DT_DOUBLE
            ? check_uint64_t(job->values, begin, end)
            : check_half(job->values, begin, end, job->dtype == DT_HALF ? 0x7c00u : 0x7f80u);
    if (found)
        atomic_fetch_or_explicit(&job->found, found, memory_order_relaxed);
}

static const char *finding_text(unsigned found, bool says_sign) {
    static const char *const signed_texts[8] = {
        "",    "+Inf",         "-Inf",         "-Inf and +Inf",
        "NaN", "+Inf and NaN", "-Inf and NaN", "-Inf, +Inf, and NaN"};
    if (says_sign)
        return signed_texts[found];
    return found == NOT_A_NUMBER ? "NaN" : found & NOT_A_NUMBER ? "Inf and NaN" : "Inf";
}

static enum kernel_result check_compute(struct kernel_ctx *ctx) {
    const struct check_state *state = ctx->instance->state;
    struct check_job job = {.dtype = state->dtype, .values = tensor_cdata(&ctx->inputs[0])};
    pool_parallel_for(ctx->pool, ctx->inputs[0].n_elements, 0.3, check_range, &job);
    unsigned found = atomic_load(&job.found);
    if (found)
        return kernel_fail(ctx,
                           status_invalid("%.*s : Tensor had %s values", (int)state->message.len,
                                          (const char *)state->message.data,
                                          finding_text(found, state->says_sign)));
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

static const bool with_sign = true;
static const struct kernel_def rows[] = {
    {"CheckNumerics", {{"T", DTYPES_REAL_FLOAT}}, check_compute, check_init},
    {"CheckNumericsV2", {{"T", DTYPES_REAL_FLOAT}}, check_compute, check_init, .arg = &with_sign},
};
const struct kernel_list math_check_kernels = {rows, ARRAY_LEN(rows)};
