/* The engine of elementwise ops with two inputs. It runs an op's loops over scalars, equal shapes,
 * a scalar with a tensor, and any other broadcast. */
#include "kernels/cpu/math/math_internal.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/cpu/math/math_blocks.h"
#include "kernels/support/broadcast.h"
#include "kernels/support/elementwise_checks.h"
#include "kernels/support/half_blocks.h"

enum {
    /* a broadcast with shorter rows than this copies its stretched sides into blocks first, because
     * a call for each row would cost more */
    SHORT_ROW = 16,
    STRETCH_BLOCK = 512, /* elements of a stretched side that are copied at a time */
    MAX_ELEMENT = 16,
};

/* What init prepares for every execution. */
struct binary_state {
    binary_loop *loop; /* float's loop when the dtype is a narrow float */
    const struct binary_op *op;
    enum dtype in, out;
    size_t in_size, out_size;
    bool is_narrow; /* half or bfloat16 */
    bool accepts_incompatible;
    float cost_ns;
};

struct status *binary_init(struct kernel_init *init) {
    const struct binary_op *op = init->arg;
    struct binary_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    init->plain_state_bytes = sizeof(*state);
    state->op = op;
    state->in = (enum dtype)init->node->in_types[0];
    state->out = (enum dtype)init->node->out_types[0];
    state->in_size = dtype_size(state->in);
    state->out_size = dtype_size(state->out);
    state->is_narrow = dtype_is_narrow_float(state->in);
    enum dtype loop_dtype = state->is_narrow ? DT_FLOAT : state->in;
    state->loop = (op->avx2_loops && cpu_has_avx2() ? op->avx2_loops : op->loops)[loop_dtype];
    CHECK(state->loop); /* the row lists only dtypes that have a loop */
    state->cost_ns = state->is_narrow ? 2 : 0.5f;
    if (op->may_be_incompatible) {
        bool is_error = true;
        TRY(node_get_b(init->node, "incompatible_shape_error", &is_error));
        state->accepts_incompatible = !is_error;
    }
    return NULL;
}

/* Computes blocks of half or bfloat16 in float. A bool result is not converted back. */
static unsigned narrow_span(const struct binary_state *state, const char *a, const char *b,
                            char *out, int64_t n, enum operands operands) {
    float left[HALF_BLOCK], right[HALF_BLOCK], result[HALF_BLOCK];
    bool result_is_narrow = state->out == state->in;
    unsigned bad = 0;
    if (operands == LEFT_IS_ONE)
        half_block_load(state->in, left, (const uint16_t *)a, 1);
    if (operands == RIGHT_IS_ONE)
        half_block_load(state->in, right, (const uint16_t *)b, 1);
    for (int64_t done = 0; done < n; done += HALF_BLOCK) {
        int64_t count = MIN(n - done, HALF_BLOCK);
        if (operands != LEFT_IS_ONE)
            half_block_load(state->in, left, (const uint16_t *)a + done, count);
        if (operands != RIGHT_IS_ONE)
            half_block_load(state->in, right, (const uint16_t *)b + done, count);
        bad |= state->loop(
            left, right, result_is_narrow ? (void *)result : out + done * (int64_t)state->out_size,
            count, operands);
        if (result_is_narrow)
            half_block_store(state->out, (uint16_t *)out + done, result, count);
    }
    return bad;
}

static inline unsigned run_span(const struct binary_state *state, const char *a, const char *b,
                                char *out, int64_t n, enum operands operands) {
    if (unlikely(state->is_narrow))
        return narrow_span(state, a, b, out, n, operands);
    return state->loop(a, b, out, n, operands);
}

/* One execution, whose elements the pool's threads share. */
struct binary_job {
    const struct binary_state *state;
    const struct broadcast *plan;
    const char *a, *b;
    char *out;
    _Atomic unsigned bad;
};

static void run_flat(void *arg, int64_t begin, int64_t end) {
    struct binary_job *job = arg;
    const struct binary_state *state = job->state;
    bool left_is_one = job->plan->inner_stretched & 1,
         right_is_one = job->plan->inner_stretched & 2;
    unsigned bad = run_span(state, job->a + (left_is_one ? 0 : begin * (int64_t)state->in_size),
                            job->b + (right_is_one ? 0 : begin * (int64_t)state->in_size),
                            job->out + begin * (int64_t)state->out_size, end - begin,
                            left_is_one    ? LEFT_IS_ONE
                            : right_is_one ? RIGHT_IS_ONE
                                           : BOTH_VECTORS);
    if (unlikely(bad))
        atomic_store_explicit(&job->bad, bad, memory_order_relaxed);
}

/* Computes long rows, with one call of the loop for each row. One element stands for a stretched
 * side. */
static void run_rows(void *arg, int64_t begin, int64_t end) {
    struct binary_job *job = arg;
    const struct binary_state *state = job->state;
    const struct broadcast *plan = job->plan;
    enum operands operands = plan->inner_stretched & 1   ? LEFT_IS_ONE
                             : plan->inner_stretched & 2 ? RIGHT_IS_ONE
                                                         : BOTH_VECTORS;
    struct broadcast_cursor cursor;
    broadcast_seek(plan, begin, &cursor);
    unsigned bad = 0;
    while (begin < end) {
        int64_t n = MIN(plan->dims[plan->rank - 1] - cursor.inner, end - begin);
        bad |=
            run_span(state, job->a + broadcast_offset(plan, &cursor, 0) * (int64_t)state->in_size,
                     job->b + broadcast_offset(plan, &cursor, 1) * (int64_t)state->in_size,
                     job->out + begin * (int64_t)state->out_size, n, operands);
        begin += n;
        broadcast_next_row(plan, &cursor);
    }
    if (unlikely(bad))
        atomic_store_explicit(&job->bad, bad, memory_order_relaxed);
}

/* Computes short rows. Stretched sides are first copied into blocks, so that each call of the loop
 * covers many elements. */
static void run_short_rows(void *arg, int64_t begin, int64_t end) {
    struct binary_job *job = arg;
    const struct binary_state *state = job->state;
    char left[STRETCH_BLOCK * MAX_ELEMENT] __attribute__((aligned(64))),
        right[STRETCH_BLOCK * MAX_ELEMENT] __attribute__((aligned(64)));
    unsigned bad = 0;
    const struct broadcast *plan = job->plan;
    int64_t inner = plan->dims[plan->rank - 1], block = STRETCH_BLOCK / inner * inner,
            in_size = (int64_t)state->in_size;
    /* A side that repeats row by row ([n,3] + [3]) is the same in every block, so it is copied
     * once. */
    bool repeats[2] = {plan->rank == 2 && !(plan->inner_stretched & 1),
                       plan->rank == 2 && !(plan->inner_stretched & 2)};
    bool is_first = true;
    for (; begin < end; begin += block, is_first = false) {
        int64_t n = MIN(end - begin, block);
        const char *a = job->a + begin * in_size, *b = job->b + begin * in_size;
        if (plan->ever_stretched & 1) {
            if (is_first || !repeats[0])
                broadcast_gather(plan, 0, job->a, state->in_size, begin, n, left);
            a = left;
        }
        if (plan->ever_stretched & 2) {
            if (is_first || !repeats[1])
                broadcast_gather(plan, 1, job->b, state->in_size, begin, n, right);
            b = right;
        }
        bad |= run_span(state, a, b, job->out + begin * (int64_t)state->out_size, n, BOTH_VECTORS);
    }
    if (unlikely(bad))
        atomic_store_explicit(&job->bad, bad, memory_order_relaxed);
}

static COLD enum kernel_result out_of_domain(struct kernel_ctx *ctx,
                                             const struct binary_state *state) {
    return kernel_fail(ctx, status_invalid("%s", state->op->domain_error));
}

/* Makes the output in the memory of an input of the same size that nobody else holds, if there is
 * one. */
static struct status *make_output(struct kernel_ctx *ctx, const struct binary_state *state,
                                  const struct broadcast *plan) {
    const struct tensor *left = &ctx->inputs[0];
    bool takes_left = left->storage == TENSOR_BUFFER && left->n_elements == plan->n_elements &&
                      buffer_is_sole(left->buffer);
    return kernel_forward_or_alloc(ctx, takes_left ? 0 : 1, 0, state->out, broadcast_shape(plan));
}

enum kernel_result binary_compute(struct kernel_ctx *ctx) {
    const struct binary_state *state = ctx->instance->state;
    struct tensor *left = &ctx->inputs[0], *right = &ctx->inputs[1];
    if (is_inline_scalar(left) && is_inline_scalar(right)) {
        unsigned bad = run_span(state, left->bytes, right->bytes,
                                output_scalar(&ctx->outputs[0], state->out), 1, BOTH_VECTORS);
        return unlikely(bad) ? out_of_domain(ctx, state) : KERNEL_DONE;
    }
    struct broadcast plan;
    struct shape shapes[2] = {tensor_shape(left), tensor_shape(right)};
    if (state->op->needs_equal_sizes) {
        KERNEL_TRY(ctx, elementwise_check_equal_sizes(ctx));
        shapes[1] = shapes[0];
    }
    if (unlikely(!broadcast_init(&plan, shapes, 2))) {
        if (!state->accepts_incompatible)
            return kernel_fail(ctx, elementwise_incompatible(shapes[0], shapes[1]));
        *(bool *)output_scalar(&ctx->outputs[0], DT_BOOL) = state->op->incompatible_result;
        return KERNEL_DONE;
    }
    struct binary_job job = {
        .state = state, .plan = &plan, .a = tensor_cdata(left), .b = tensor_cdata(right)};
    KERNEL_TRY(ctx, make_output(ctx, state, &plan));
    job.out = tensor_data(&ctx->outputs[0]);
    if (plan.n_elements == 0)
        return KERNEL_DONE;
    if (plan.rank == 1)
        pool_parallel_for(ctx->pool, plan.n_elements, state->cost_ns, run_flat, &job);
    else if (plan.dims[plan.rank - 1] >= SHORT_ROW)
        pool_parallel_for(ctx->pool, plan.n_elements, state->cost_ns, run_rows, &job);
    else
        pool_parallel_for(ctx->pool, plan.n_elements, state->cost_ns + 1, run_short_rows, &job);
    return unlikely(atomic_load_explicit(&job.bad, memory_order_relaxed))
               ? out_of_domain(ctx, state)
               : KERNEL_DONE;
}

static unsigned binary_block(const struct kernel_instance *instance, const void *const *operands,
                             unsigned ones, void *out, int64_t n) {
    return run_span(instance->state, operands[0], operands[1], out, n,
                    ones & 1   ? LEFT_IS_ONE
                    : ones & 2 ? RIGHT_IS_ONE
                               : BOTH_VECTORS);
}

static enum block_shapes binary_shapes(const struct kernel_instance *instance) {
    const struct binary_state *state = instance->state;
    return state->op->needs_equal_sizes ? BLOCK_EQUAL : BLOCK_BROADCAST;
}

static bool binary_may_fail(const struct kernel_instance *instance) {
    const struct binary_state *state = instance->state;
    return state->op->domain_error && dtype_in(state->in, DTYPES_INT);
}

const struct block_engine math_binary_engine = {binary_compute, binary_block, BLOCK_BROADCAST,
                                                binary_shapes, binary_may_fail};
