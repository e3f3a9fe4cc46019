/* Counts how often each integer occurs in each row of a dense, sparse or ragged batch.
 * DenseCountSparseOutput and its variants output a sparse matrix of the values that occur,
 * SparseBincount and RaggedBincount a dense matrix. All of them read their input as values that
 * belong to rows. */
#include <stdlib.h>

#include "common/base/pool_sort.h"
#include "kernels/cpu/sparse/ragged.h"
#include "kernels/kernel.h"
#include "kernels/support/cancel.h"
#include "kernels/support/update.h"

extern const struct kernel_list ragged_count_kernels;

enum layout { DENSE, SPARSE, RAGGED };

struct occurrence_state {
    int64_t min_len, max_len; /* CountSparseOutput's attrs; -1 when not given */
    bool is_binary;
};

/* One batch, in the form that serves every layout. */
struct batch {
    enum layout layout;
    const struct tensor *values, *weights;
    /* the tensors of their layout; the others are NULL */
    const struct tensor *indices, *shape, *splits;
    int64_t n_rows, row_len; /* row_len: dense layout only */
    /* the input is one row, and the output has no dimension of rows */
    bool is_vector;
};

static int64_t row_of(const struct batch *batch, int64_t i, int64_t *cursor) {
    switch (batch->layout) {
    case DENSE:
        return i / batch->row_len;
    case SPARSE:
        return batch->is_vector
                   ? 0
                   : tensor_index_at(batch->indices, i * tensor_dim(batch->indices, 1));
    default:
        while (tensor_index_at(batch->splits, *cursor + 1) <= i)
            ++*cursor;
        return *cursor;
    }
}

static struct status *check_sparse(const struct batch *batch, bool needs_entry) {
    const struct tensor *indices = batch->indices, *values = batch->values, *shape = batch->shape;
    if (indices->rank != 2)
        return status_invalid("Input indices must be a 2-dimensional tensor. Got: %s",
                              TENSOR_SHAPE_TEXT(indices));
    if (values->rank != 1)
        return status_invalid("Input values must be a vector. Got: %s", TENSOR_SHAPE_TEXT(values));
    if (shape->rank != 1)
        return status_invalid("Input shape must be a vector. Got: %s", TENSOR_SHAPE_TEXT(shape));
    if (tensor_dim(values, 0) != tensor_dim(indices, 0))
        return status_invalid("Number of values must match first dimension of indices. Got %lld "
                              "values, indices shape: %s",
                              (long long)tensor_dim(values, 0), TENSOR_SHAPE_TEXT(indices));
    if (tensor_dim(shape, 0) != tensor_dim(indices, 1))
        return status_invalid("Number of dimensions must match second dimension of indices. Got "
                              "%lld dimensions, indices shape: %s",
                              (long long)tensor_dim(shape, 0), TENSOR_SHAPE_TEXT(indices));
    if (needs_entry && shape->n_elements == 0)
        return status_invalid("The shape argument requires at least one element.");
    int64_t rank = shape->n_elements;
    for (int64_t i = 0; i < indices->n_elements; i++) {
        TRY(kernel_loop_check(i + 1));
        int64_t index = tensor_index_at(indices, i), size = tensor_index_at(shape, i % rank);
        if (index < 0 || index >= size)
            return status_invalid("Invalid index value at %lld: dimension %lld has value %lld "
                                  "which is not in [0, %lld)",
                                  (long long)(i / rank), (long long)(i % rank), (long long)index,
                                  (long long)size);
    }
    return NULL;
}

static struct status *check_splits(const struct batch *batch, int least) {
    const struct tensor *splits = batch->splits;
    if (splits->rank != 1 || splits->n_elements < least)
        return status_invalid("Must provide at least %d elements for the splits argument", least);
    if (tensor_index_at(splits, 0) != 0)
        return status_invalid("Splits must start with 0, not with %lld",
                              (long long)tensor_index_at(splits, 0));
    if (tensor_index_at(splits, splits->n_elements - 1) != batch->values->n_elements)
        return status_invalid("Splits must end with the number of values, got %lld instead of %lld",
                              (long long)tensor_index_at(splits, splits->n_elements - 1),
                              (long long)batch->values->n_elements);
    return ragged_check_splits(splits, batch->values->n_elements, true);
}

static struct status *check_weights(const struct batch *batch, const char *what) {
    if (batch->weights->n_elements > 0 &&
        !shape_equal(tensor_shape(batch->weights), tensor_shape(batch->values)))
        return status_invalid(
            "Weights and %s must have the same shape. Weight shape: %s; %s shape: %s", what,
            TENSOR_SHAPE_TEXT(batch->weights), what, TENSOR_SHAPE_TEXT(batch->values));
    return NULL;
}

static struct status *check_values(const struct tensor *values) {
    for (int64_t i = 0; i < values->n_elements; i++) {
        TRY(kernel_loop_check(i + 1));
        if (tensor_index_at(values, i) < 0)
            return status_invalid("Input values must all be non-negative, but there is %lld",
                                  (long long)tensor_index_at(values, i));
    }
    return NULL;
}

/* ---- counts as a sparse matrix ---- */

/* A value with its position in the order of the output. */
struct counted {
    int64_t row, value, i;
};

static int compare_counted(const void *a, const void *b) {
    const struct counted *x = a, *y = b;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

static struct status *dense_batch(const struct kernel_ctx *ctx, struct batch *batch) {
    batch->values = &ctx->inputs[0];
    batch->weights = &ctx->inputs[1];
    const struct tensor *values = batch->values;
    if (values->rank != 1 && values->rank != 2)
        return status_invalid("Input must be a 1 or 2-dimensional tensor. Got: %s",
                              TENSOR_SHAPE_TEXT(values));
    TRY(check_weights(batch, "data"));
    batch->is_vector = values->rank == 1;
    batch->n_rows = batch->is_vector ? 1 : tensor_dim(values, 0);
    if (batch->n_rows == 0)
        return status_invalid("Invalid input: Shapes dimension cannot be 0.");
    batch->row_len = values->n_elements / batch->n_rows;
    return NULL;
}

static struct status *sparse_batch(const struct kernel_ctx *ctx, struct batch *batch) {
    batch->indices = &ctx->inputs[0];
    batch->values = &ctx->inputs[1];
    batch->shape = &ctx->inputs[2];
    batch->weights = &ctx->inputs[3];
    TRY(check_sparse(batch, true));
    TRY(check_weights(batch, "values"));
    batch->is_vector = batch->shape->n_elements == 1;
    batch->n_rows = batch->is_vector ? 1 : tensor_index_at(batch->shape, 0);
    if (batch->n_rows <= 0 || batch->n_rows >= INT32_MAX)
        return status_invalid("Cannot allocate %lld batches, is the dense shape too wide?",
                              (long long)batch->n_rows);
    return NULL;
}

static struct status *ragged_batch(const struct kernel_ctx *ctx, struct batch *batch) {
    batch->splits = &ctx->inputs[0];
    batch->values = &ctx->inputs[1];
    batch->weights = &ctx->inputs[2];
    TRY(check_weights(batch, "values"));
    TRY(check_splits(batch, 2));
    if (batch->values->rank != 1)
        return status_invalid("values must be a vector, got shape %s",
                              TENSOR_SHAPE_TEXT(batch->values));
    batch->n_rows = batch->splits->n_elements - 1;
    return NULL;
}

static struct status *count_init_attrs(struct kernel_init *init) {
    struct occurrence_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_i(init->node, "minlength", &state->min_len));
    TRY(node_get_i(init->node, "maxlength", &state->max_len));
    return node_get_b(init->node, "binary_output", &state->is_binary);
}

/* Collects the values that count, in the order of the output, so that equal ones are neighbours.
 * Returns how many different values there are. */
static int64_t collect(const struct batch *batch, const struct occurrence_state *state,
                       struct counted *to, int64_t *ret_n, int64_t *ret_max) {
    int64_t n = 0, n_different = 0, cursor = 0;
    *ret_max = 0;
    for (int64_t i = 0; i < batch->values->n_elements && pool_goes_on(i + 1); i++) {
        int64_t value = tensor_index_at(batch->values, i), row = row_of(batch, i, &cursor);
        if (state->max_len >= 0 && value >= state->max_len)
            continue;
        *ret_max = MAX(*ret_max, value);
        to[n++] = (struct counted){row, value, i};
    }
    pool_sort(to, n, sizeof(*to), compare_counted);
    for (int64_t i = 0; i < n && pool_goes_on(i + 1); i++)
        n_different += i == 0 || to[i].row != to[i - 1].row || to[i].value != to[i - 1].value;
    *ret_n = n;
    return n_different;
}

/* An element of the value one. */
static const void *one_of(enum dtype dtype) {
    static const float f = 1;
    static const double d = 1;
    /* in little-endian memory its first half is an int32 of one */
    static const int64_t integer = 1;
    return dtype == DT_FLOAT ? (const void *)&f : dtype == DT_DOUBLE ? (const void *)&d : &integer;
}

/* Adds the weight of element i to *to, or sets *to to one. */
static void add_weight(const struct batch *batch, bool is_binary, update_fn *add, int64_t i,
                       char *to) {
    enum dtype dtype = (enum dtype)batch->weights->dtype;
    size_t size = dtype_size(dtype);
    if (is_binary)
        memcpy(to, one_of(dtype), size);
    else if (batch->weights->n_elements > 0)
        add(to, to, (const char *)tensor_cdata(batch->weights) + (size_t)i * size, 1, 1);
    else
        add(to, to, one_of(dtype), 1, 1);
}

static void write_counts(struct kernel_ctx *ctx, const struct batch *batch,
                         const struct counted *counted, int64_t n) {
    const struct occurrence_state *state = ctx->instance->state;
    enum dtype dtype = (enum dtype)batch->weights->dtype;
    update_fn *add = update_find(UPDATE_ADD, dtype);
    int64_t *places = tensor_data(&ctx->outputs[0]), at = -1;
    char *counts = tensor_data(&ctx->outputs[1]);
    for (int64_t i = 0; i < n && pool_goes_on(i); i++) {
        if (i == 0 || counted[i].row != counted[i - 1].row ||
            counted[i].value != counted[i - 1].value) {
            at++;
            if (!batch->is_vector)
                *places++ = counted[i].row;
            *places++ = counted[i].value;
        }
        add_weight(batch, state->is_binary, add, counted[i].i,
                   counts + at * (int64_t)dtype_size(dtype));
    }
}

static enum kernel_result count_sparse_output(struct kernel_ctx *ctx) {
    static struct status *(*const readers[])(const struct kernel_ctx *, struct batch *) = {
        dense_batch, sparse_batch, ragged_batch};
    const struct occurrence_state *state = ctx->instance->state;
    struct batch batch = {.layout = *(const enum layout *)ctx->instance->def->arg};
    KERNEL_TRY(ctx, readers[batch.layout](ctx, &batch));
    KERNEL_TRY(ctx, check_values(batch.values));
    int64_t n, max, width = batch.is_vector ? 1 : 2;
    struct counted *counted = malloc(((size_t)batch.values->n_elements + 1) * sizeof(*counted));
    if (!counted)
        return kernel_fail(ctx, status_exhausted("OOM: counts of %lld values",
                                                 (long long)batch.values->n_elements));
    int64_t n_different = collect(&batch, state, counted, &n, &max);
    struct status *st =
        kernel_alloc(ctx, 0, DT_INT64, (struct shape){2, (int64_t[]){n_different, width}});
    if (!st)
        st = tensor_new_zeroed(ctx->instance->allocator, (enum dtype)batch.weights->dtype,
                               (struct shape){1, &n_different}, &ctx->outputs[1]);
    if (!st)
        st = kernel_alloc(ctx, 2, DT_INT64, (struct shape){1, &width});
    if (!st) {
        int64_t *dims = tensor_data(&ctx->outputs[2]);
        dims[0] = batch.n_rows;
        dims[width - 1] = state->max_len >= 0
                              ? state->max_len
                              : MAX(max == INT64_MAX ? max : max + 1, state->min_len);
        write_counts(ctx, &batch, counted, n);
    }
    free(counted);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- SparseBincount, RaggedBincount ---- */

static struct status *bincount_init(struct kernel_init *init) {
    struct occurrence_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    return node_get_b(init->node, "binary_output", &state->is_binary);
}

static struct status *check_n_weights(const struct batch *batch) {
    if (batch->weights->n_elements > 0 && batch->weights->n_elements != batch->values->n_elements)
        return status_invalid("Weights and values must have the same size: %lld and %lld",
                              (long long)batch->weights->n_elements,
                              (long long)batch->values->n_elements);
    return NULL;
}

static struct status *read_bins(const struct kernel_ctx *ctx, struct batch *batch,
                                int64_t *ret_size) {
    bool is_sparse = batch->layout == SPARSE;
    batch->indices = batch->splits = &ctx->inputs[0];
    batch->values = &ctx->inputs[1];
    batch->shape = &ctx->inputs[2];
    const struct tensor *size = &ctx->inputs[is_sparse ? 3 : 2];
    batch->weights = &ctx->inputs[is_sparse ? 4 : 3];
    if (size->rank != 0)
        return status_invalid("Shape must be rank 0 but is rank %d", size->rank);
    *ret_size = tensor_index_at(size, 0);
    if (*ret_size < 0)
        return status_invalid("size (%lld) must be non-negative", (long long)*ret_size);
    if (!is_sparse) {
        TRY(check_splits(batch, 1));
        TRY(check_n_weights(batch));
        batch->n_rows = batch->splits->n_elements - 1;
        return NULL;
    }
    TRY(check_sparse(batch, false));
    TRY(check_n_weights(batch));
    if (batch->shape->n_elements != 1 && batch->shape->n_elements != 2)
        return status_invalid("Shape must be rank 1 or 2 but is rank %lld",
                              (long long)batch->shape->n_elements);
    batch->is_vector = batch->shape->n_elements == 1;
    batch->n_rows = batch->is_vector ? 1 : tensor_index_at(batch->shape, 0);
    return NULL;
}

static enum kernel_result bincount(struct kernel_ctx *ctx) {
    const struct occurrence_state *state = ctx->instance->state;
    struct batch batch = {.layout = *(const enum layout *)ctx->instance->def->arg};
    int64_t size, cursor = 0;
    KERNEL_TRY(ctx, read_bins(ctx, &batch, &size));
    KERNEL_TRY(ctx, check_values(batch.values));
    enum dtype dtype = (enum dtype)batch.weights->dtype;
    struct shape shape = batch.is_vector ? (struct shape){1, &size}
                                         : (struct shape){2, (int64_t[]){batch.n_rows, size}};
    KERNEL_TRY(ctx, tensor_new_zeroed(ctx->instance->allocator, dtype, shape, &ctx->outputs[0]));
    char *out = tensor_data(&ctx->outputs[0]);
    update_fn *add = update_find(UPDATE_ADD, dtype);
    for (int64_t i = 0; i < batch.values->n_elements && pool_goes_on(i + 1); i++) {
        int64_t value = tensor_index_at(batch.values, i), row = row_of(&batch, i, &cursor);
        if (value < size)
            add_weight(&batch, state->is_binary, add, i,
                       out + (row * size + value) * (int64_t)dtype_size(dtype));
    }
    return KERNEL_DONE;
}

static const enum layout dense = DENSE, sparse = SPARSE, ragged = RAGGED;
#define COUNT_TYPES (DTYPES_INDEX | DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE))
// clang-format off
#define COUNT(name, layout) {.op = (name), .constraints =                                \
    {{"T", DTYPES_INDEX}, {"output_type", COUNT_TYPES}}, .compute = count_sparse_output, \
    .init = count_init_attrs, .arg = &(layout)}
#define BINCOUNT(name, layout) {.op = (name), .constraints =                                  \
    {{"T", COUNT_TYPES}, {"Tidx", DTYPES_INDEX}}, .compute = bincount, .init = bincount_init, \
    .arg = &(layout)}
static const struct kernel_def rows[] = {
    COUNT("DenseCountSparseOutput", dense),
    COUNT("SparseCountSparseOutput", sparse),
    COUNT("RaggedCountSparseOutput", ragged),
    BINCOUNT("SparseBincount", sparse),
    BINCOUNT("RaggedBincount", ragged),
};
// clang-format on

const struct kernel_list ragged_count_kernels = {rows, ARRAY_LEN(rows)};
