/* The engine of elementwise ops with one input, which runs an op's loops. */
#include "kernels/cpu/math/math_internal.h"

#include <stdlib.h>

#include "kernels/cpu/math/math_blocks.h"
#include "kernels/support/half_blocks.h"

struct unary_state {
    unary_loop *loop; /* float's loop when the dtype is a narrow float */
    enum dtype in, out;
    size_t in_size, out_size;
    bool is_narrow;
    float cost_ns;
};

struct status *unary_init(struct kernel_init *init) {
    const struct unary_op *op = init->arg;
    struct unary_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    init->plain_state_bytes = sizeof(*state);
    state->in = (enum dtype)init->node->in_types[0];
    state->out = (enum dtype)init->node->out_types[0];
    state->in_size = dtype_size(state->in);
    state->out_size = dtype_size(state->out);
    state->is_narrow = dtype_is_narrow_float(state->in);
    unary_loop *const *loops = op->loops;
    if (op->avx512_loops && cpu_has_avx512())
        loops = op->avx512_loops;
    else if (op->avx2_loops && cpu_has_avx2())
        loops = op->avx2_loops;
    state->loop = loops[state->is_narrow ? DT_FLOAT : state->in];
    CHECK(state->loop); /* the row lists only dtypes that have a loop */
    state->cost_ns = op->avx2_loops ? 0.5f : 8;
    return NULL;
}

static void narrow_span(const struct unary_state *state, const char *in, char *out, int64_t n) {
    float from[HALF_BLOCK], to[HALF_BLOCK];
    bool result_is_narrow = state->out == state->in;
    for (int64_t done = 0; done < n; done += HALF_BLOCK) {
        int64_t count = MIN(n - done, HALF_BLOCK);
        half_block_load(state->in, from, (const uint16_t *)in + done, count);
        state->loop(from, result_is_narrow ? (void *)to : out + done * (int64_t)state->out_size,
                    count);
        if (result_is_narrow)
            half_block_store(state->out, (uint16_t *)out + done, to, count);
    }
}

struct unary_job {
    const struct unary_state *state;
    const char *in;
    char *out;
};

static void run_flat(void *arg, int64_t begin, int64_t end) {
    const struct unary_job *job = arg;
    const struct unary_state *state = job->state;
    const char *in = job->in + begin * (int64_t)state->in_size;
    char *out = job->out + begin * (int64_t)state->out_size;
    if (state->is_narrow)
        narrow_span(state, in, out, end - begin);
    else
        state->loop(in, out, end - begin);
}

enum kernel_result unary_compute(struct kernel_ctx *ctx) {
    const struct unary_state *state = ctx->instance->state;
    struct tensor *in = &ctx->inputs[0];
    struct unary_job job = {.state = state, .in = tensor_cdata(in)};
    if (is_inline_scalar(in)) {
        job.out = output_scalar(&ctx->outputs[0], state->out);
        run_flat(&job, 0, 1);
        return KERNEL_DONE;
    }
    int64_t n = in->n_elements;
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, state->out, tensor_shape(in)));
    job.out = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, n, state->cost_ns, run_flat, &job);
    return KERNEL_DONE;
}

static unsigned unary_block(const struct kernel_instance *instance, const void *const *operands,
                            unsigned ones, void *out, int64_t n) {
    (void)ones;
    struct unary_job job = {.state = instance->state, .in = operands[0], .out = out};
    run_flat(&job, 0, n);
    return 0;
}

const struct block_engine math_unary_engine = {unary_compute, unary_block, BLOCK_BROADCAST, NULL,
                                               NULL};
