/* Reduces runs of entries that agree in some dimensions: SparseReduceSum and SparseReduceMax, with
 * dense and with sparse results, and SparseSoftmax. */
#include <math.h>
#include <stdlib.h>

#include "kernels/kernel.h"
#include "kernels/support/half_blocks.h"
#include "kernels/cpu/sparse/sparse.h"
#include "kernels/support/update.h"
#include "kernels/support/cancel.h"

extern const struct kernel_list sparse_reduce_kernels;

/* ---- reductions ---- */

struct reduce_state {
    bool keeps_dims;
};

/* The arg of a row. */
struct reduce_op {
    enum update_op op;
    bool is_sparse; /* whether the result is sparse */
};

struct reduction {
    struct sparse in;
    int kept[SHAPE_MAX_RANK]; /* the dimensions that are kept, in order */
    int n_kept, out_rank;
    int64_t out_dims[SHAPE_MAX_RANK];
    int64_t *order; /* the entries, sorted by the kept dimensions, then by the others */
    update_fn *fn;
    bool keeps_dims;
};

static struct status *reduce_init(struct kernel_init *init) {
    struct reduce_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    return node_get_b(init->node, "keep_dims", &state->keeps_dims);
}

/* Checks the axes by the shape alone, before the entries: TensorFlow names a wrong axis first. */
static struct status *check_axes(const struct tensor *shape, const struct tensor *axes) {
    if (shape->rank != 1)
        return status_invalid("Expected input_shape to be a vector; got shape: %s",
                              TENSOR_SHAPE_TEXT(shape));
    if (axes->rank > 1)
        return status_invalid("Expected reduction_axes to be a scalar or a vector; got shape: %s",
                              TENSOR_SHAPE_TEXT(axes));
    int64_t rank = shape->n_elements;
    for (int64_t i = 0; i < axes->n_elements; i++) {
        int64_t axis = tensor_index_at(axes, i);
        if (axis < -rank || axis >= rank)
            return status_invalid(
                "Invalid reduction dimension %lld, for input with %lld dimensions.",
                (long long)axis, (long long)rank);
    }
    return NULL;
}

/* check_axes has accepted the axes. */
static void read_axes(const struct tensor *axes, struct reduction *reduction) {
    bool is_reduced[SHAPE_MAX_RANK] = {false};
    int rank = reduction->in.rank;
    for (int64_t i = 0; i < axes->n_elements; i++) {
        int64_t axis = tensor_index_at(axes, i);
        is_reduced[axis < 0 ? axis + rank : axis] = true;
    }
    for (int d = 0; d < rank; d++) {
        if (!is_reduced[d])
            reduction->kept[reduction->n_kept++] = d;
        if (!is_reduced[d] || reduction->keeps_dims)
            reduction->out_dims[reduction->out_rank++] = is_reduced[d] ? 1 : reduction->in.dims[d];
    }
}

static struct status *reduction_init(const struct kernel_ctx *ctx, struct reduction *reduction) {
    const struct reduce_op *op = ctx->instance->def->arg;
    int by[SHAPE_MAX_RANK], n = 0;
    int64_t n_dense;
    reduction->keeps_dims = ((const struct reduce_state *)ctx->instance->state)->keeps_dims;
    TRY(check_axes(&ctx->inputs[2], &ctx->inputs[3]));
    TRY(sparse_of_inputs(ctx, 0, &reduction->in));
    TRY(sparse_check_dims(reduction->in.dims, reduction->in.rank, &n_dense));
    read_axes(&ctx->inputs[3], reduction);
    for (; n < reduction->n_kept; n++)
        by[n] = reduction->kept[n];
    for (int d = 0, k = 0; d < reduction->in.rank; d++) {
        if (k < reduction->n_kept && reduction->kept[k] == d)
            k++;
        else
            by[n++] = d;
    }
    reduction->fn = update_find(op->op, (enum dtype)reduction->in.values->dtype);
    return sparse_order(&reduction->in, by, n, &reduction->order);
}

/* The end, in order, of the run of entries that agree with the one at `begin` in the kept
 * dimensions; the last entry's once nobody wants the result. */
static int64_t run_end(const struct reduction *reduction, int64_t begin) {
    const int64_t *first = sparse_at(&reduction->in, reduction->order[begin]);
    for (int64_t end = begin + 1; end < reduction->in.n && pool_goes_on(end); end++) {
        const int64_t *at = sparse_at(&reduction->in, reduction->order[end]);
        for (int k = 0; k < reduction->n_kept; k++)
            if (at[reduction->kept[k]] != first[reduction->kept[k]])
                return end;
    }
    return reduction->in.n;
}

static float sum_of_floats(const struct reduction *reduction, int64_t begin, int64_t end) {
    const float *from = tensor_cdata(reduction->in.values);
    double sum = (double)from[reduction->order[begin]];
    for (int64_t i = begin + 1; i < end && pool_goes_on(i); i++)
        sum += (double)from[reduction->order[i]];
    return (float)sum;
}

/* Computes one value from a run. Sums of floats are made in double precision, half and bfloat16 are
 * rounded once, at the end. */
static void reduce_run(const struct reduction *reduction, enum update_op op, int64_t begin,
                       int64_t end, char *to) {
    const struct tensor *values = reduction->in.values;
    enum dtype dtype = (enum dtype)values->dtype;
    size_t size = dtype_size(dtype);
    const char *from = tensor_cdata(values);
    if (dtype == DT_FLOAT && op == UPDATE_ADD) {
        float sum = sum_of_floats(reduction, begin, end);
        memcpy(to, &sum, sizeof(sum));
        return;
    }
    if (dtype != DT_HALF && dtype != DT_BFLOAT16) {
        memcpy(to, from + (size_t)reduction->order[begin] * size, size);
        for (int64_t i = begin + 1; i < end && pool_goes_on(i); i++)
            reduction->fn(to, to, from + (size_t)reduction->order[i] * size, 1, 1);
        return;
    }
    const uint16_t *narrow = tensor_cdata(values);
    float result = half_value_load(dtype, narrow[reduction->order[begin]]);
    for (int64_t i = begin + 1; i < end && pool_goes_on(i); i++) {
        float v = half_value_load(dtype, narrow[reduction->order[i]]);
        result = op == UPDATE_ADD ? result + v : result < v ? v : result;
    }
    uint16_t rounded = half_value_store(dtype, result);
    memcpy(to, &rounded, sizeof(rounded));
}

static struct status *reduce_to_dense(struct kernel_ctx *ctx, const struct reduction *reduction,
                                      enum update_op op) {
    enum dtype dtype = (enum dtype)reduction->in.values->dtype;
    struct shape shape = {reduction->out_rank, reduction->out_dims};
    TRY(tensor_new_zeroed(ctx->instance->allocator, dtype, shape, &ctx->outputs[0]));
    int64_t n_polls = 0;
    for (int64_t begin = 0, end; begin < reduction->in.n; begin = end) {
        TRY(kernel_loop_check(n_polls++));
        const int64_t *at = sparse_at(&reduction->in, reduction->order[begin]);
        uint64_t place = 0; /* wraps where an entry is outside of the shape */
        for (int k = 0; k < reduction->n_kept; k++)
            place = place * (uint64_t)reduction->in.dims[reduction->kept[k]] +
                    (uint64_t)at[reduction->kept[k]];
        if (place >= (uint64_t)ctx->outputs[0].n_elements)
            return status_invalid(
                "Obtained a write index of %lld which is outside of bounds of [0, %lld)",
                (long long)place, (long long)ctx->outputs[0].n_elements);
        end = run_end(reduction, begin);
        reduce_run(reduction, op, begin, end,
                   (char *)tensor_data(&ctx->outputs[0]) + place * dtype_size(dtype));
    }
    return NULL;
}

static struct status *reduce_to_sparse(struct kernel_ctx *ctx, const struct reduction *reduction,
                                       enum update_op op) {
    enum dtype dtype = (enum dtype)reduction->in.values->dtype;
    int64_t n_runs = 0;
    for (int64_t begin = 0; begin < reduction->in.n; begin = run_end(reduction, begin))
        n_runs++;
    TRY(sparse_alloc(ctx, 0, n_runs, reduction->out_rank, dtype, reduction->out_dims));
    int64_t *places = tensor_data(&ctx->outputs[0]);
    char *values = tensor_data(&ctx->outputs[1]);
    memset(places, 0, tensor_size_bytes(&ctx->outputs[0]));
    int64_t n_polls = 0;
    for (int64_t begin = 0, end; begin < reduction->in.n; begin = end) {
        TRY(kernel_loop_check(n_polls++));
        const int64_t *at = sparse_at(&reduction->in, reduction->order[begin]);
        for (int k = 0; k < reduction->n_kept; k++)
            places[reduction->keeps_dims ? reduction->kept[k] : k] = at[reduction->kept[k]];
        end = run_end(reduction, begin);
        reduce_run(reduction, op, begin, end, values);
        places += reduction->out_rank;
        values += dtype_size(dtype);
    }
    return NULL;
}

static enum kernel_result sparse_reduce(struct kernel_ctx *ctx) {
    const struct reduce_op *op = ctx->instance->def->arg;
    struct reduction reduction = {.order = NULL};
    struct status *st = reduction_init(ctx, &reduction);
    if (!st)
        st = op->is_sparse ? reduce_to_sparse(ctx, &reduction, op->op)
                           : reduce_to_dense(ctx, &reduction, op->op);
    free(reduction.order);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- SparseSoftmax: over the entries that agree in all dimensions but the last ---- */

#define SOFTMAX_LOOP(tag, T, EXP)                                        \
    static void softmax_##tag(const void *from_, void *to_, int64_t n) { \
        const T *from = from_;                                           \
        T *to = to_, most = from[0], sum = 0;                            \
        for (int64_t i = 1; i < n && pool_goes_on(i); i++)               \
            most = from[i] > most ? from[i] : most;                      \
        for (int64_t i = 0; i < n && pool_goes_on(i); i++)               \
            sum += to[i] = EXP(from[i] - most);                          \
        for (int64_t i = 0; i < n && pool_goes_on(i); i++)               \
            to[i] /= sum;                                                \
    }
SOFTMAX_LOOP(f32, float, expf)
SOFTMAX_LOOP(f64, double, exp)

static void softmax_runs(const struct sparse *in, const void *from, void *to) {
    bool is_double = in->values->dtype == DT_DOUBLE;
    size_t size = is_double ? sizeof(double) : sizeof(float);
    int64_t n_runs = 0;
    for (int64_t begin = 0, end; begin < in->n && pool_goes_on(n_runs); begin = end, n_runs++) {
        end = sparse_run_end(in, begin, in->rank - 1);
        (is_double ? softmax_f64 : softmax_f32)((const char *)from + (size_t)begin * size,
                                                (char *)to + (size_t)begin * size, end - begin);
    }
}

static enum kernel_result sparse_softmax(struct kernel_ctx *ctx) {
    struct sparse in;
    int64_t n_dense;
    KERNEL_TRY(ctx, sparse_of_inputs(ctx, 0, &in));
    if (in.rank < 2)
        return kernel_fail(ctx,
                           status_invalid("Input should have rank >= 2, but received shape: %s",
                                          SHAPE_TEXT((struct shape){in.rank, in.dims})));
    KERNEL_TRY(ctx, sparse_check_dims(in.dims, in.rank, &n_dense));
    enum dtype dtype = (enum dtype)in.values->dtype;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, (struct shape){1, &in.n}));
    void *out = tensor_data(&ctx->outputs[0]);
    if (dtype != DT_HALF) {
        softmax_runs(&in, tensor_cdata(in.values), out);
        return KERNEL_DONE;
    }
    float *wide = malloc((size_t)in.n * sizeof(*wide) + 1);
    if (!wide)
        return kernel_fail(ctx,
                           status_exhausted("OOM: the float form of %lld values", (long long)in.n));
    half_block_load(dtype, wide, tensor_cdata(in.values), in.n);
    softmax_runs(&in, wide, wide);
    half_block_store(dtype, out, wide, in.n);
    free(wide);
    return KERNEL_DONE;
}

static const struct reduce_op sum_dense = {UPDATE_ADD, false}, sum_sparse = {UPDATE_ADD, true};
static const struct reduce_op max_dense = {UPDATE_MAX, false}, max_sparse = {UPDATE_MAX, true};
// clang-format off
#define REDUCE(name, types, kind) {.op = (name), .constraints = {{"T", types}}, \
    .compute = sparse_reduce, .init = reduce_init, .arg = &(kind)}
static const struct kernel_def rows[] = {
    REDUCE("SparseReduceSum", DTYPES_NUMBER, sum_dense),
    REDUCE("SparseReduceSumSparse", DTYPES_NUMBER, sum_sparse),
    REDUCE("SparseReduceMax", DTYPES_REAL, max_dense),
    REDUCE("SparseReduceMaxSparse", DTYPES_REAL, max_sparse),
    {.op = "SparseSoftmax", .constraints =
        {{"T", DTYPE_BIT(DT_HALF) | DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE)}},
        .compute = sparse_softmax},
};
// clang-format on

const struct kernel_list sparse_reduce_kernels = {rows, ARRAY_LEN(rows)};
