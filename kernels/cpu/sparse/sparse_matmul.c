/* Runs SparseTensorDenseMatMul: multiplies a sparse matrix with a dense one. Entries may be in any
 * order, and each adds a multiple of a row of b to a row of the product. half and bfloat16 are
 * summed in float and rounded once. */
#include <stdlib.h>

#include "kernels/cpu/sparse/sparse_dense.h"
#include "kernels/kernel.h"
#include "kernels/support/cancel.h"
#include "kernels/support/half_blocks.h"
#include "kernels/support/number_types.h"

extern const struct kernel_list sparse_matmul_kernels;

struct matmul_job;
/* Computes columns [begin, end) of the product. */
typedef void matmul_loop(const struct matmul_job *job, int64_t begin, int64_t end);

struct matmul_job {
    matmul_loop *loop;
    const struct tensor *indices;
    const void *values, *b; /* elements of the type that products are computed in */
    void *out;              /* [m, n], zeros at first */
    int64_t n_entries, n;
    int64_t b_row, b_column; /* strides of b, transposed when the attr says so */
    bool adjoint_a, adjoint_b;
};

#define SAME(v) (v)
/* W is the type that products are computed in. */
#define NAME(x) x##_f32
#define T float
#define W float
#define CONJ SAME
#include "kernels/cpu/sparse/sparse_matmul.inc"
#define NAME(x) x##_f64
#define T double
#define W double
#define CONJ SAME
#include "kernels/cpu/sparse/sparse_matmul.inc"
#define NAME(x) x##_i32
#define T int32_t
#define W uint32_t
#define CONJ SAME
#include "kernels/cpu/sparse/sparse_matmul.inc"
#define NAME(x) x##_c64
#define T float complex
#define W float complex
#define CONJ conjf
#include "kernels/cpu/sparse/sparse_matmul.inc"
#define NAME(x) x##_c128
#define T double complex
#define W double complex
#define CONJ conj
#include "kernels/cpu/sparse/sparse_matmul.inc"
static matmul_loop *const loops[DT_N_TYPES] = {
    [DT_FLOAT] = matmul_f32,      [DT_HALF] = matmul_f32,  [DT_BFLOAT16] = matmul_f32,
    [DT_DOUBLE] = matmul_f64,     [DT_INT32] = matmul_i32, [DT_COMPLEX64] = matmul_c64,
    [DT_COMPLEX128] = matmul_c128};

struct status *sparse_product_init(struct kernel_init *init) {
    struct sparse_product_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_b(init->node, "adjoint_a", &state->adjoint_a));
    return node_get_b(init->node, "adjoint_b", &state->adjoint_b);
}

struct status *sparse_product_check(const struct kernel_ctx *ctx, struct sparse_product *ret) {
    const struct sparse_product_state *state = ctx->instance->state;
    const struct tensor *indices = &ctx->inputs[0], *values = &ctx->inputs[1],
                        *shape = &ctx->inputs[2], *b = &ctx->inputs[3];
    if (b->rank != 2)
        return status_invalid("Tensor 'b' is not a matrix");
    if (shape->rank != 1)
        return status_invalid("Tensor 'a_shape' is not a vector");
    if (shape->n_elements != 2)
        return status_invalid("Tensor 'a_shape' must have 2 elements");
    if (values->rank != 1)
        return status_invalid("Tensor 'a_values' is not a vector");
    if (indices->rank != 2)
        return status_invalid("Tensor 'a_indices' is not a matrix");
    if (tensor_dim(indices, 0) != values->n_elements)
        return status_invalid(
            "Number of rows of a_indices does not match number of entries in a_values");
    if (tensor_dim(indices, 1) != 2)
        return status_invalid(
            "Number of columns of a_indices does not match number of entries in a_shape");
    int64_t rows = tensor_index_at(shape, state->adjoint_a),
            inner = tensor_index_at(shape, !state->adjoint_a);
    if (rows < 0 || inner < 0)
        return status_invalid("a_shape must not be negative, but is [%lld,%lld]",
                              (long long)tensor_index_at(shape, 0),
                              (long long)tensor_index_at(shape, 1));
    if (inner != tensor_dim(b, state->adjoint_b))
        return status_invalid("Cannot multiply A and B because inner dimension does not match: "
                              "%lld vs. %lld.  Did you forget a transpose?  "
                              "Dimensions of A: [%lld, %lld).  Dimensions of B: %s",
                              (long long)inner, (long long)tensor_dim(b, state->adjoint_b),
                              (long long)tensor_index_at(shape, 0),
                              (long long)tensor_index_at(shape, 1), TENSOR_SHAPE_TEXT(b));
    int64_t n = tensor_dim(b, !state->adjoint_b);
    *ret = (struct sparse_product){.m = rows,
                                   .n = n,
                                   .inner = inner,
                                   .b_row = state->adjoint_b ? 1 : n,
                                   .b_column = state->adjoint_b ? inner : 1};
    return NULL;
}

/* When the product has no elements, the entries are not checked. */
static struct status *check_entries(const struct kernel_ctx *ctx, bool adjoint_a) {
    const struct tensor *indices = &ctx->inputs[0], *shape = &ctx->inputs[2];
    for (int64_t i = 0; i < indices->n_elements; i++) {
        TRY(kernel_loop_check(i + 1));
        int64_t at = tensor_index_at(indices, i), size = tensor_index_at(shape, i % 2);
        if (at < 0 || at >= size)
            return status_invalid("%s (%lld) from index[%lld,%lld] out of bounds (>=%lld)",
                                  (i % 2 == 1) == adjoint_a ? "m" : "k", (long long)at,
                                  (long long)(i / 2), (long long)(i % 2), (long long)size);
    }
    return NULL;
}

static void run_columns(void *arg, int64_t begin, int64_t end) {
    const struct matmul_job *job = arg;
    job->loop(job, begin, end);
}

static void multiply(struct kernel_ctx *ctx, struct matmul_job *job) {
    pool_parallel_for(ctx->pool, job->n, 0.5 * (double)job->n_entries + 1, run_columns, job);
}

/* Computes in float, with copies of both inputs and of the product. */
static struct status *multiply_narrow(struct kernel_ctx *ctx, struct matmul_job *job,
                                      enum dtype dtype) {
    const struct tensor *values = &ctx->inputs[1], *b = &ctx->inputs[3];
    struct tensor *out = &ctx->outputs[0];
    struct status *st = NULL;
    float *wide_values = malloc((size_t)values->n_elements * sizeof(float) + 1),
          *wide_b = malloc((size_t)b->n_elements * sizeof(float) + 1);
    float *wide_out = calloc((size_t)out->n_elements + 1, sizeof(float));
    if (!wide_values || !wide_b || !wide_out) {
        st = status_exhausted(
            "OOM when allocating the float form of a sparse product of %lld elements",
            (long long)out->n_elements);
        goto out;
    }
    half_block_load(dtype, wide_values, tensor_cdata(values), values->n_elements);
    half_block_load(dtype, wide_b, tensor_cdata(b), b->n_elements);
    job->values = wide_values;
    job->b = wide_b;
    job->out = wide_out;
    multiply(ctx, job);
    half_block_store(dtype, tensor_data(out), wide_out, out->n_elements);
out:
    free(wide_values);
    free(wide_b);
    free(wide_out);
    return st;
}

static enum kernel_result sparse_matmul(struct kernel_ctx *ctx) {
    const struct sparse_product_state *state = ctx->instance->state;
    const struct tensor *values = &ctx->inputs[1], *b = &ctx->inputs[3];
    enum dtype dtype = (enum dtype)b->dtype;
    struct sparse_product product;
    KERNEL_TRY(ctx, sparse_product_check(ctx, &product));
    KERNEL_TRY(ctx, tensor_new_zeroed(ctx->instance->allocator, dtype,
                                      (struct shape){2, (int64_t[]){product.m, product.n}},
                                      &ctx->outputs[0]));
    struct matmul_job job = {.loop = loops[dtype],
                             .indices = &ctx->inputs[0],
                             .values = tensor_cdata(values),
                             .b = tensor_cdata(b),
                             .out = tensor_data(&ctx->outputs[0]),
                             .n_entries = values->n_elements,
                             .n = product.n,
                             .b_row = product.b_row,
                             .b_column = product.b_column,
                             .adjoint_a = state->adjoint_a,
                             .adjoint_b = state->adjoint_b};
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    KERNEL_TRY(ctx, check_entries(ctx, state->adjoint_a));
    if (dtype_is_narrow_float(dtype))
        KERNEL_TRY(ctx, multiply_narrow(ctx, &job, dtype));
    else
        multiply(ctx, &job);
    return KERNEL_DONE;
}

#define PRODUCT_TYPES (DTYPES_REAL_FLOAT | DTYPES_COMPLEX | DTYPE_BIT(DT_INT32))
static const struct kernel_def rows[] = {
    {.op = "SparseTensorDenseMatMul",
     .constraints = {{"T", PRODUCT_TYPES}, {"Tindices", DTYPES_INDEX}},
     .compute = sparse_matmul,
     .init = sparse_product_init},
};

const struct kernel_list sparse_matmul_kernels = {rows, ARRAY_LEN(rows)};
