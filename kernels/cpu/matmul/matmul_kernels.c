/* MatMul and BatchMatMul in its three versions: stacks of matrix products.
 *
 *   x        T [..., m, k]   ([..., k, m] if transposed)
 *   y        T [..., k, n]   ([..., n, k] if transposed)
 *   product  T [..., m, n]
 *
 * MatMul transposes. The batch forms take the adjoint, so they also conjugate complex numbers. V2
 * and V3 broadcast the stacks, and V3 has a result type of its own. half and bfloat16 are
 * multiplied as floats and rounded once, 8-bit integers are multiplied as int32.
 *
 * Errors   INVALID_ARGUMENT   wrong ranks, inner sizes or stacks that differ
 * Cost     2·m·n·k flops per product
 * Source   white paper 5.4; the product itself: matmul.h */
#include "kernels/cpu/matmul/matmul_loops.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "kernels/support/broadcast.h"
#include "kernels/cpu/matmul/matmul_order.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/half_blocks.h"
#include "kernels/support/moves.h"
#include "kernels/support/scratch.h"

enum batch_kind { NO_BATCH, EQUAL_BATCH, BROADCAST_BATCH };

struct matmul_state {
    bool transpose_x, transpose_y, conjugates;
    enum batch_kind batch;
    enum dtype x, y, out;
    enum dtype compute; /* float for narrow floats, int32 for 8-bit integers */
    size_t size;        /* of an element of type `compute` */
};

static struct status *matmul_init(struct kernel_init *init) {
    struct matmul_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    const struct node *node = init->node;
    state->batch = *(const enum batch_kind *)init->arg;
    TRY(node_get_b(node, state->batch == NO_BATCH ? "transpose_a" : "adj_x", &state->transpose_x));
    TRY(node_get_b(node, state->batch == NO_BATCH ? "transpose_b" : "adj_y", &state->transpose_y));
    state->x = (enum dtype)node->in_types[0];
    state->y = (enum dtype)node->in_types[1];
    state->out = (enum dtype)node->out_types[0];
    state->compute = dtype_is_narrow_float(state->out) ? DT_FLOAT : state->out;
    state->size = dtype_size(state->compute);
    state->conjugates = state->batch != NO_BATCH && dtype_in(state->out, DTYPES_COMPLEX);
    return NULL;
}

/* One execution, which computes n_products products of equal size. */
struct matmul_job {
    const struct matmul_state *state;
    const struct kernel_ctx *ctx;
    const struct broadcast *plan; /* of the stacks; NULL when there is one product */
    const char *x, *y;
    char *out;
    int64_t m, k, n, n_products;
    struct matmul whole; /* the only product, which is divided over the pool */
    struct matmul_division division;
    int64_t tile_rows, tile_columns, row_tiles, column_tiles; /* of a product that takes long */
    bool conjugates; /* the product does it, the operands are as they came */
    bool hands_over; /* what has been computed is what the output holds */
};

/* ---- one product, or a part of one ---- */

static void conjugate_into(enum dtype dtype, void *to, const void *from, int64_t n) {
    for (int64_t i = 0; i < n && pool_goes_on(i); i++) {
        if (dtype == DT_COMPLEX64)
            ((float complex *)to)[i] = conjf(((const float complex *)from)[i]);
        else
            ((double complex *)to)[i] = conj(((const double complex *)from)[i]);
    }
}

static struct matmul product_of(const struct matmul_job *job, int64_t index) {
    const struct matmul_state *state = job->state;
    int64_t m = job->m, k = job->k, n = job->n, size = (int64_t)state->size, x_index = 0,
            y_index = 0;
    if (job->plan) {
        struct broadcast_cursor cursor;
        broadcast_seek(job->plan, index, &cursor);
        x_index = broadcast_offset(job->plan, &cursor, 0);
        y_index = broadcast_offset(job->plan, &cursor, 1);
    }
    return (struct matmul){.m = m,
                           .n = n,
                           .k = k,
                           .a = job->x + x_index * m * k * size,
                           .b = job->y + y_index * k * n * size,
                           .c = job->out + index * m * n * size,
                           .lda = state->transpose_x ? m : k,
                           .ldb = state->transpose_y ? k : n,
                           .ldc = n,
                           .trans_a = state->transpose_x,
                           .trans_b = state->transpose_y,
                           .conjugates = job->conjugates};
}

static void hand_rows_over(const struct matmul_job *job, int64_t index, int64_t row,
                           int64_t n_rows) {
    if (job->hands_over)
        kernel_hand_over(job->ctx, (index * job->m + row) * job->n,
                         (index * job->m + row + n_rows) * job->n);
}

/* Computes rows [row, row + n_rows) and columns [column, column + n_columns) of product `index`. */
static void multiply(const struct matmul_job *job, int64_t index, int64_t row, int64_t n_rows,
                     int64_t column, int64_t n_columns) {
    enum dtype compute = job->state->compute;
    struct matmul whole = product_of(job, index),
                  g = matmul_part(compute, &whole, row, n_rows, column, n_columns);
    matmul_run(compute, &g);
    hand_rows_over(job, index, row, n_rows);
}

static void multiply_stack(void *arg, int64_t begin, int64_t end) {
    const struct matmul_job *job = arg;
    for (; begin < end; begin++)
        multiply(job, begin, 0, job->m, 0, job->n);
}

/* Units of rows that are computed, and handed over, at a time. What is handed over should still be
 * in the second-level cache, if the rows are many beside k: each time the right operand is packed
 * again. Measured with bench/fused_kernel: 8192 x 32 x 256 takes 0.87 of its time so,
 * 512 x 512 x 512 would take 1.1. */
static int64_t units_at_a_time(const struct matmul_job *job, int64_t n_units) {
    enum { CACHE_BYTES = 1 << 19, LEAST_ROWS = 256, ROWS_BY_DEPTH = 8 };
    int64_t unit = job->division.unit, row_bytes = job->n * (int64_t)job->state->size,
            some = MAX(CACHE_BYTES / row_bytes, (int64_t)LEAST_ROWS) / unit;
    bool pays = some > 0 && n_units >= 2 * some && some * unit >= ROWS_BY_DEPTH * job->k;
    return job->hands_over && job->ctx->epilogue && pays ? some : n_units;
}

/* Computes units of the only product. */
static void multiply_units(void *arg, int64_t begin, int64_t end) {
    const struct matmul_job *job = arg;
    const struct matmul_division *division = &job->division;
    int64_t step = division->by_rows ? units_at_a_time(job, end - begin) : end - begin;
    for (; begin < end; begin += step) {
        int64_t to = MIN(begin + step, end), row = begin * division->unit;
        matmul_run_units(job->state->compute, &job->whole, division, begin, to);
        if (division->by_rows)
            hand_rows_over(job, 0, row, MIN(to * division->unit, job->m) - row);
    }
}

/* ---- products that take long ---- */

/* Units are tiles of all products, each row of tiles from left to right. */
static void multiply_tiles(void *arg, int64_t begin, int64_t end) {
    const struct matmul_job *job = arg;
    for (; begin < end; begin++) {
        int64_t column = begin % job->column_tiles * job->tile_columns,
                row = begin / job->column_tiles % job->row_tiles * job->tile_rows;
        multiply(job, begin / job->column_tiles / job->row_tiles, row,
                 MIN(job->tile_rows, job->m - row), column,
                 MIN(job->tile_columns, job->n - column));
    }
}

/* A product is cut where it would keep its thread for longer than TILE_NS, so that a cancel is seen
 * in time. Smaller tiles would pack the operands too often. */
static bool cut_into_tiles(struct matmul_job *job, double cost_ns) {
    enum { TILE_NS = 30 * 1000 * 1000, LEAST_SIDE = 256 };
    if (cost_ns <= 2 * TILE_NS)
        return false;
    double elements = TILE_NS / cost_ns * (double)job->m * (double)job->n;
    int64_t side = MAX((int64_t)sqrt(elements), (int64_t)LEAST_SIDE);
    job->tile_rows = MIN(side, job->m);
    job->tile_columns = MIN(MAX((int64_t)(elements / (double)job->tile_rows), side), job->n);
    if (job->tile_columns == job->n)
        job->tile_rows = MIN(MAX((int64_t)(elements / (double)job->n), side), job->m);
    job->row_tiles = (job->m - 1) / job->tile_rows + 1;
    job->column_tiles = (job->n - 1) / job->tile_columns + 1;
    return true;
}

/* ---- all of them ---- */

static struct status *multiply_divided(struct matmul_job *job, double cost_ns) {
    enum dtype compute = job->state->compute;
    struct tensor copies[2] = {TENSOR_INIT, TENSOR_INIT};
    struct status *st = NULL;
    job->whole = product_of(job, 0);
    job->division = matmul_divide(compute, &job->whole, matmul_is_by_rows(compute, &job->whole));
    job->hands_over &= job->division.by_rows;
    TRY_OUT(matmul_put_in_order(job->ctx, compute, &job->division, &job->whole, copies));
    int64_t units = job->division.n_units;
    pool_parallel_for(job->ctx->pool, units, cost_ns / (double)units, multiply_units, job);
out:
    tensor_clear(&copies[0]);
    tensor_clear(&copies[1]);
    return st;
}

static struct status *matmul_run_job(struct matmul_job *job) {
    struct pool *pool = job->ctx->pool;
    double multiplications = (double)job->m * (double)job->n * (double)job->k;
    double cost = multiplications * matmul_cost_ns(job->state->compute, multiplications) + 20;
    if (cut_into_tiles(job, cost)) {
        job->hands_over &= job->column_tiles == 1;
        int64_t n_tiles = job->row_tiles * job->column_tiles;
        pool_parallel_for(pool, n_tiles * job->n_products, cost / (double)n_tiles, multiply_tiles,
                          job);
        return NULL;
    }
    if (job->n_products == 1 && multiplications >= 1e5)
        return multiply_divided(job, cost);
    pool_parallel_for(pool, job->n_products, cost, multiply_stack, job);
    return NULL;
}

/* Gives an input as compute elements: the input itself, or a converted copy that *ret_copy
 * holds. */
static struct status *as_compute(const struct kernel_ctx *ctx, bool conjugate,
                                 const struct tensor *t, const char **ret,
                                 struct tensor *ret_copy) {
    const struct matmul_state *state = ctx->instance->state;
    enum dtype from = (enum dtype)t->dtype;
    *ret = tensor_cdata(t);
    if (from == state->compute && !conjugate)
        return NULL;
    void *copy;
    TRY(scratch_new(ctx, state->compute, t->n_elements, 1, ret_copy, &copy));
    if (conjugate)
        conjugate_into(from, copy, *ret, t->n_elements);
    else if (dtype_is_narrow_float(from))
        half_block_load(from, (float *)copy, (const uint16_t *)*ret, t->n_elements);
    else
        for (int64_t i = 0; i < t->n_elements && pool_goes_on(i); i++) {
            int value = from == DT_INT8 ? ((const int8_t *)*ret)[i] : ((const uint8_t *)*ret)[i];
            if (state->compute == DT_FLOAT)
                ((float *)copy)[i] = (float)value;
            else
                ((int32_t *)copy)[i] = value;
        }
    *ret = copy;
    return NULL;
}

static struct status *matmul_convert_and_run(struct kernel_ctx *ctx, struct matmul_job *job) {
    const struct matmul_state *state = job->state;
    struct tensor x_copy = TENSOR_INIT, y_copy = TENSOR_INIT, out_copy = TENSOR_INIT;
    void *wide = NULL;
    struct tensor *out = &ctx->outputs[0];
    struct status *st = NULL;
    struct matmul sizes = {.m = job->m,
                           .n = job->n,
                           .k = job->k,
                           .lda = MAX(job->m, job->k),
                           .ldb = MAX(job->k, job->n),
                           .ldc = job->n};
    job->conjugates = state->conjugates && matmul_conjugates(&sizes);
    bool conjugates = state->conjugates && !job->conjugates;
    TRY_OUT(as_compute(ctx, conjugates && state->transpose_x, &ctx->inputs[0], &job->x, &x_copy));
    TRY_OUT(as_compute(ctx, conjugates && state->transpose_y, &ctx->inputs[1], &job->y, &y_copy));
    job->out = tensor_data(out);
    if (state->compute != state->out) {
        TRY_OUT(scratch_new(ctx, state->compute, out->n_elements, 1, &out_copy, &wide));
        job->out = wide;
    }
    job->hands_over = !wide;
    TRY_OUT(matmul_run_job(job));
    if (wide)
        half_block_store(state->out, tensor_data(out), wide, out->n_elements);
out:
    tensor_clear(&x_copy);
    tensor_clear(&y_copy);
    tensor_clear(&out_copy);
    return st;
}

/* ---- on a device ---- */

/* Products whose operands are evenly apart are one call. A broadcast of stacks may need several. */
static struct status *multiply_on_device(struct kernel_ctx *ctx, const struct matmul_job *job) {
    const struct matmul_state *state = job->state;
    int64_t size = (int64_t)dtype_size(state->out), matrix[2] = {job->m * job->k, job->k * job->n};
    if (state->x != state->out || state->y != state->out)
        return status_unimplemented("A GPU multiplies matrices of one type only, not %s by %s",
                                    dtype_name(state->x), dtype_name(state->y));
    for (int64_t i = 0; i < job->n_products;) {
        int64_t first[2] = {0, 0}, at[2] = {0, 0}, stride[2] = {0, 0}, n = 0;
        for (; i + n < job->n_products; n++) {
            struct broadcast_cursor cursor;
            for (int s = 0; job->plan && s < 2; s++) {
                broadcast_seek(job->plan, i + n, &cursor);
                at[s] = broadcast_offset(job->plan, &cursor, s) * matrix[s];
            }
            if (n == 0)
                memcpy(first, at, sizeof first);
            if (n == 1)
                for (int s = 0; s < 2; s++)
                    stride[s] = at[s] - first[s];
            if (stride[0] < 0 || stride[1] < 0 || at[0] != first[0] + n * stride[0] ||
                at[1] != first[1] + n * stride[1])
                break;
        }
        if (n == 1) /* the next product is elsewhere */
            stride[0] = stride[1] = 0;
        struct device_products products = {.dtype = state->out,
                                           .x = (const char *)ctx->inputs[0].data + first[0] * size,
                                           .y = (const char *)ctx->inputs[1].data + first[1] * size,
                                           .out = ctx->outputs[0].data + i * job->m * job->n * size,
                                           .m = job->m,
                                           .n = job->n,
                                           .k = job->k,
                                           .n_products = n,
                                           .x_stride = stride[0],
                                           .y_stride = stride[1],
                                           .transposes_x = state->transpose_x,
                                           .transposes_y = state->transpose_y,
                                           .conjugates = state->conjugates};
        TRY(ctx->instance->engine->multiply(ctx, &products));
        i += n;
    }
    return NULL;
}

/* ---- shapes ---- */

static COLD struct status *size_error(const struct kernel_ctx *ctx,
                                      const struct matmul_state *state) {
    struct status *st =
        status_invalid("Matrix size-incompatible: In[0]: %s, In[1]: %s",
                       TENSOR_SHAPE_TEXT(&ctx->inputs[0]), TENSOR_SHAPE_TEXT(&ctx->inputs[1]));
    return state->batch == NO_BATCH
               ? st
               : status_suffix_take(st, " %d %d", state->transpose_x, state->transpose_y);
}

static struct status *check_ranks(const struct kernel_ctx *ctx, const struct matmul_state *state) {
    for (int i = 0; i < 2; i++) {
        int rank = ctx->inputs[i].rank;
        if (state->batch == NO_BATCH && rank > 2)
            return status_invalid("In[0] and In[1] ndims must be == 2: %d", rank);
        if (rank < 2)
            return status_invalid("In[%d] ndims must be >= 2: %d", i, rank);
    }
    if (state->batch != EQUAL_BATCH)
        return NULL;
    struct shape x = tensor_shape(&ctx->inputs[0]), y = tensor_shape(&ctx->inputs[1]);
    if (x.rank != y.rank)
        return status_invalid("In[0] and In[1] has different ndims: %s vs. %s",
                              TENSOR_SHAPE_TEXT(&ctx->inputs[0]),
                              TENSOR_SHAPE_TEXT(&ctx->inputs[1]));
    for (int i = 0; i < x.rank - 2; i++) {
        if (x.dims[i] != y.dims[i]) {
            struct status *st = status_invalid("%s vs %s", TENSOR_SHAPE_TEXT(&ctx->inputs[0]),
                                               TENSOR_SHAPE_TEXT(&ctx->inputs[1]));
            return status_prefix_take(st, "In[0].dim(%d) and In[1].dim(%d) must be the same: ", i,
                                      i);
        }
    }
    return NULL;
}

static enum kernel_result matmul_compute(struct kernel_ctx *ctx) {
    const struct matmul_state *state = ctx->instance->state;
    KERNEL_TRY(ctx, check_ranks(ctx, state));
    struct shape x = tensor_shape(&ctx->inputs[0]), y = tensor_shape(&ctx->inputs[1]);
    struct shape stacks[2] = {{x.rank - 2, x.dims}, {y.rank - 2, y.dims}};
    struct broadcast plan;
    struct matmul_job job = {.state = state, .ctx = ctx, .n_products = 1};
    int64_t dims[SHAPE_MAX_RANK];
    int rank = 0;
    if (x.rank > 2 || y.rank > 2) {
        if (!broadcast_init(&plan, stacks, 2))
            return kernel_fail(
                ctx, status_invalid(
                         "In[0] and In[1] must have compatible batch dimensions: %s vs. %s",
                         TENSOR_SHAPE_TEXT(&ctx->inputs[0]), TENSOR_SHAPE_TEXT(&ctx->inputs[1])));
        job.plan = &plan;
        job.n_products = plan.n_elements;
        rank = plan.out_rank;
        memcpy(dims, plan.out_dims, (size_t)rank * sizeof(*dims));
    }
    const int64_t *x_matrix = x.dims + x.rank - 2, *y_matrix = y.dims + y.rank - 2;
    job.m = x_matrix[state->transpose_x];
    job.k = x_matrix[!state->transpose_x];
    job.n = y_matrix[!state->transpose_y];
    if (job.k != y_matrix[state->transpose_y])
        return kernel_fail(ctx, size_error(ctx, state));
    dims[rank++] = job.m;
    dims[rank++] = job.n;
    KERNEL_TRY(ctx, kernel_alloc_product(ctx, state->out, (struct shape){rank, dims}));
    struct tensor *out = &ctx->outputs[0];
    if (out->n_elements == 0)
        return KERNEL_DONE;
    if (job.k == 0) {
        static const char zero[16] __attribute__((aligned(16)));
        KERNEL_TRY(ctx, move_fill(ctx, state->out, tensor_data(out), zero, out->n_elements));
        return KERNEL_DONE;
    }
    /* A stack of matrices times one matrix is one taller product. */
    if (job.plan && plan.rank == 1 && plan.inner_stretched == 2 && !state->transpose_x) {
        job.m *= job.n_products;
        job.n_products = 1;
        job.plan = NULL;
    }
    KERNEL_TRY(ctx, kernel_is_for_device(ctx) ? multiply_on_device(ctx, &job)
                                              : matmul_convert_and_run(ctx, &job));
    return KERNEL_DONE;
}

static const enum batch_kind no_batch = NO_BATCH, equal_batch = EQUAL_BATCH,
                             broadcast_batch = BROADCAST_BATCH;
#define MULTIPLIABLE (DTYPES_REAL_FLOAT | DTYPES_COMPLEX | DTYPES_INDEX)
#define PRODUCT(op, kind, types) \
    { (op), {{"T", (types)}}, matmul_compute, matmul_init, .arg = &(kind), .flags = KERNEL_PRODUCT }
#define PRODUCT_V3(x, y, out)                                                                      \
    {                                                                                              \
        "BatchMatMulV3", {{"Ta", (x)}, {"Tb", (y)}, {"Tout", (out)}}, matmul_compute, matmul_init, \
            .arg = &broadcast_batch                                                                \
    }
#define SAME_V3(dtype) PRODUCT_V3(DTYPE_BIT(dtype), DTYPE_BIT(dtype), DTYPE_BIT(dtype))
#define BYTES (DTYPE_BIT(DT_INT8) | DTYPE_BIT(DT_UINT8))

// clang-format off
/* Both sides are dense here. The attrs that say which side has many zeros are hints that the kernel
 * does not use. */
#define SPARSE_HINTED (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_BFLOAT16))
static const struct kernel_def rows[] = {
    PRODUCT("MatMul", no_batch, MULTIPLIABLE),
    {.op = "SparseMatMul", .constraints = {{"Ta", SPARSE_HINTED}, {"Tb", SPARSE_HINTED}},
        .compute = matmul_compute, .init = matmul_init, .arg = &no_batch},
    PRODUCT("BatchMatMul", equal_batch, MULTIPLIABLE),
    PRODUCT("BatchMatMulV2", broadcast_batch, MULTIPLIABLE | DTYPE_BIT(DT_INT16)),
    SAME_V3(DT_FLOAT), SAME_V3(DT_DOUBLE), SAME_V3(DT_HALF), SAME_V3(DT_BFLOAT16),
        SAME_V3(DT_COMPLEX64), SAME_V3(DT_COMPLEX128),
    SAME_V3(DT_INT16), SAME_V3(DT_INT32), SAME_V3(DT_INT64),
    PRODUCT_V3(BYTES, BYTES, DTYPE_BIT(DT_INT32)),
    PRODUCT_V3(DTYPE_BIT(DT_BFLOAT16), BYTES, DTYPE_BIT(DT_BFLOAT16)),
    PRODUCT_V3(BYTES, DTYPE_BIT(DT_BFLOAT16), DTYPE_BIT(DT_BFLOAT16)),
};
// clang-format on
const struct kernel_list matmul_kernels = {rows, ARRAY_LEN(rows)};
