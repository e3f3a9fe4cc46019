/* Runs Einsum on a device: the engine copies operands into the layout of the product, sums labels
 * that only one of them has, multiplies, and copies the product into the output's layout. half and
 * bfloat16 stay as they are, since the engine sums in float. */
#include "kernels/cpu/matmul/matmul_einsum.h"
#include "kernels/support/moves.h"

static void add_loops(struct strided *s, const struct walk *walk, bool is_scatter) {
    int64_t contiguous[SHAPE_MAX_RANK], stride = 1;
    for (int i = walk->n_axes - 1; i >= 0; i--) {
        contiguous[i] = stride;
        stride *= walk->axes[i].size;
    }
    strided_init(s);
    for (int i = 0; i < walk->n_axes; i++)
        strided_add(s, walk->axes[i].size, is_scatter ? contiguous[i] : walk->axes[i].stride,
                    is_scatter ? walk->axes[i].stride : contiguous[i]);
}

static struct status *new_elements(struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
                                   struct tensor *ret) {
    return kernel_new(ctx, dtype, (struct shape){1, &n}, ret);
}

/* Brings an operand into the layout that the product wants. `memory` and `sums` hold what that
 * takes. */
static struct status *gather_operand(struct kernel_ctx *ctx, enum dtype dtype,
                                     struct operand *operand, const struct tensor *t,
                                     struct tensor *memory, struct tensor *sums) {
    const struct walk *walk = &operand->walk;
    int n_kept = walk->n_axes - walk->n_summed;
    int64_t n = walk_elements(walk, 0, n_kept),
            n_summed = walk_elements(walk, n_kept, walk->n_axes);
    struct strided s;
    operand->data = tensor_cdata(t);
    if (walk_is_contiguous(walk))
        return NULL;
    TRY(new_elements(ctx, dtype, n * n_summed, memory));
    add_loops(&s, walk, false);
    TRY(move_run(ctx, &s, dtype, memory->data, operand->data));
    operand->data = memory->data;
    if (walk->n_summed == 0)
        return NULL;
    TRY(new_elements(ctx, dtype, n, sums));
    operand->data = sums->data;
    return ctx->instance->engine->sum_rows(ctx, dtype, memory->data, sums->data, n, n_summed);
}

static struct status *fill_zeros(struct kernel_ctx *ctx, enum dtype dtype, void *to, int64_t n) {
    static const char zero[16];
    return move_fill(ctx, dtype, to, zero, n);
}

static struct status *multiply(struct kernel_ctx *ctx, const struct einsum_job *job) {
    enum dtype dtype = job->state->dtype;
    if (job->inner == 0)
        return fill_zeros(ctx, dtype, job->c, job->n_batch * job->rows * job->columns);
    struct device_products products = {.dtype = dtype,
                                       .x = job->in[0].data,
                                       .y = job->in[1].data,
                                       .out = job->c,
                                       .m = job->rows,
                                       .n = job->columns,
                                       .k = job->inner,
                                       .n_products = job->n_batch,
                                       .x_stride = job->rows * job->inner,
                                       .y_stride = job->inner * job->columns};
    return ctx->instance->engine->multiply(ctx, &products);
}

struct status *einsum_run_on_device(struct kernel_ctx *ctx, struct einsum_job *job) {
    enum dtype dtype = job->state->dtype;
    struct tensor *out = &ctx->outputs[0], product = TENSOR_INIT, memory[EINSUM_MAX_INPUTS],
                  sums[EINSUM_MAX_INPUTS];
    int n_inputs = job->state->equation.n_inputs;
    int64_t n = job->n_batch * job->rows * job->columns;
    struct status *st = NULL;
    struct strided s;
    for (int i = 0; i < EINSUM_MAX_INPUTS; i++)
        memory[i] = sums[i] = (struct tensor)TENSOR_INIT;
    for (int i = 0; i < n_inputs; i++)
        TRY_OUT(gather_operand(ctx, dtype, &job->in[i], &ctx->inputs[i], &memory[i], &sums[i]));
    bool is_contiguous = walk_is_contiguous(&job->out.walk);
    const void *result = job->in[0].data;
    if (n_inputs == 2) {
        if (!is_contiguous)
            TRY_OUT(new_elements(ctx, dtype, n, &product));
        job->c = is_contiguous ? tensor_data(out) : product.data;
        TRY_OUT(multiply(ctx, job));
        result = job->c;
    }
    if (result == tensor_data(out))
        goto out;
    if (n != out->n_elements) /* elements off the diagonals are 0 */
        TRY_OUT(fill_zeros(ctx, dtype, tensor_data(out), out->n_elements));
    add_loops(&s, &job->out.walk, true);
    TRY_OUT(move_run(ctx, &s, dtype, tensor_data(out), result));
out:
    for (int i = 0; i < EINSUM_MAX_INPUTS; i++) {
        tensor_clear(&memory[i]);
        tensor_clear(&sums[i]);
    }
    tensor_clear(&product);
    return st;
}
