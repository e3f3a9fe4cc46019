/* Converts ragged tensors to dense ones (RaggedTensorToTensor) and to sparse ones
 * (RaggedTensorToSparse). */
#include <stdlib.h>

#include "kernels/kernel.h"
#include "common/base/pool_cancel.h"
#include "kernels/support/broadcast.h"
#include "kernels/support/cancel.h"
#include "kernels/cpu/sparse/ragged.h"
#include "kernels/support/update.h"

extern const struct kernel_list ragged_dense_kernels;

/* ---- RaggedTensorToTensor ----
 *
 * Each ragged dimension turns the list "where row i begins in the output, or -1" into the same list
 * for the next dimension. Offsets count inner elements. An inner element has all dimensions of the
 * values except their first. */

enum partition { FIRST_DIM_SIZE, VALUE_ROWIDS, ROW_SPLITS };

struct to_tensor_state {
    int n_partitions, ragged_rank;
    enum partition partitions[SHAPE_MAX_RANK];
};

static struct status *partition_of(struct span text, enum partition *ret) {
    static const char *const names[] = {"FIRST_DIM_SIZE", "VALUE_ROWIDS", "ROW_SPLITS"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (span_is(text, names[i])) {
            *ret = (enum partition)i;
            return NULL;
        }
    }
    return status_invalid("Unknown string for partition info type: %.*s",
                          (int)MIN(text.len, (size_t)64), text.data);
}

static struct status *to_tensor_init(struct kernel_init *init) {
    const struct attr_value *names;
    int n = 0;
    struct to_tensor_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_list(init->node, "row_partition_types", &names, &n));
    if (n < 1 || n > SHAPE_MAX_RANK)
        return status_invalid("Partition info types should not be empty, nor more than %d",
                              SHAPE_MAX_RANK);
    if (n != init->node->n_data - 3)
        return status_invalid("Number of row partition tensors (%d) does not equal the number of "
                              "row partition types(%d).",
                              init->node->n_data - 3, n);
    for (int i = 0; i < n; i++) {
        TRY(partition_of(names[i].s, &state->partitions[i]));
        if (i > 0 && state->partitions[i] == FIRST_DIM_SIZE)
            return status_invalid("FIRST_DIM_SIZE must be first");
    }
    state->n_partitions = n;
    state->ragged_rank = n - (state->partitions[0] == FIRST_DIM_SIZE);
    return NULL;
}

/* Returns the partition of ragged dimension d, and its kind. */
static const struct tensor *partition_at(const struct kernel_ctx *ctx, int d, enum partition *ret) {
    const struct to_tensor_state *state = ctx->instance->state;
    int i = d + (state->partitions[0] == FIRST_DIM_SIZE);
    *ret = state->partitions[i];
    return &ctx->inputs[3 + i];
}

static struct status *first_size(const struct kernel_ctx *ctx, int64_t *ret) {
    const struct to_tensor_state *state = ctx->instance->state;
    const struct tensor *first = &ctx->inputs[3];
    if (first->n_elements == 0)
        return status_invalid(
            "Invalid first partition input. Tensor requires at least one element.");
    if (state->partitions[0] == VALUE_ROWIDS)
        return status_invalid("Cannot handle VALUE_ROWIDS in first dimension.");
    if (state->partitions[0] == FIRST_DIM_SIZE && first->n_elements != 1)
        return status_invalid("FIRST_DIM_SIZE must be a scalar.");
    if (state->partitions[0] == ROW_SPLITS && first->rank != 1)
        return status_invalid("Row partition must be a vector.");
    *ret =
        state->partitions[0] == FIRST_DIM_SIZE ? tensor_index_at(first, 0) : first->n_elements - 1;
    return *ret < 0
               ? status_invalid("The size of the first dimension must not be negative, but is %lld",
                                (long long)*ret)
               : NULL;
}

/* The length of the longest row. The caller has checked the partition. */
static int64_t longest_row(const struct tensor *partition, enum partition kind) {
    int64_t longest = 0, run = 0;
    for (int64_t i = 0; kind == ROW_SPLITS && i + 1 < partition->n_elements && pool_goes_on(i + 1);
         i++)
        longest = MAX(longest, tensor_index_at(partition, i + 1) - tensor_index_at(partition, i));
    for (int64_t i = 0; kind == VALUE_ROWIDS && i < partition->n_elements && pool_goes_on(i + 1);
         i++) {
        run = i > 0 && tensor_index_at(partition, i) == tensor_index_at(partition, i - 1) ? run + 1
                                                                                          : 1;
        longest = MAX(longest, run);
    }
    return longest;
}

static struct status *check_partition(const struct tensor *partition, enum partition kind,
                                      int64_t n_parents) {
    if (partition->rank != 1)
        return status_invalid("Row partition must be a vector.");
    if (kind == ROW_SPLITS) {
        TRY(ragged_check_splits(partition, -1, false));
        if (partition->n_elements - 1 > n_parents)
            return status_invalid("Row partition size is greater than output size: %lld > %lld",
                                  (long long)(partition->n_elements - 1), (long long)n_parents);
        return tensor_index_at(partition, 0) != 0 ? status_invalid("Invalid row split size.")
                                                  : NULL;
    }
    for (int64_t i = 0; i < partition->n_elements; i++) {
        TRY(kernel_loop_check(i + 1));
        int64_t id = tensor_index_at(partition, i);
        if (id < 0 || id >= n_parents)
            return status_invalid("Got value_rowid=%lld which is not in [0, %lld)", (long long)id,
                                  (long long)n_parents);
    }
    return NULL;
}

/* The number of rows of the next dimension. */
static int64_t n_children(const struct tensor *partition, enum partition kind) {
    return kind == ROW_SPLITS ? tensor_index_at(partition, partition->n_elements - 1)
                              : partition->n_elements;
}

static struct status *check_partitions(const struct kernel_ctx *ctx, int64_t first) {
    const struct to_tensor_state *state = ctx->instance->state;
    int64_t n_parents = first;
    for (int d = 0; d < state->ragged_rank; d++) {
        enum partition kind;
        const struct tensor *partition = partition_at(ctx, d, &kind);
        TRY(check_partition(partition, kind, n_parents));
        n_parents = n_children(partition, kind);
    }
    if (n_parents > tensor_dim(&ctx->inputs[1], 0))
        return status_invalid("The row partitions tell of %lld values, but there are %lld",
                              (long long)n_parents, (long long)tensor_dim(&ctx->inputs[1], 0));
    return NULL;
}

static struct status *check_default(const struct tensor *value, const struct tensor *values) {
    if (value->rank >= values->rank)
        return status_invalid("default_value.shape=%s and rt_input.flat_values.shape=%s are "
                              "incompatible: default_value.rank = %d  must be "
                              "less than rt_input.flat_values.rank = %d",
                              TENSOR_SHAPE_TEXT(value), TENSOR_SHAPE_TEXT(values), value->rank,
                              values->rank);
    for (int i = 0; i < value->rank; i++) {
        int64_t mine = tensor_dim(value, i), theirs = tensor_dim(values, i + 1);
        if (mine != 1 && mine != theirs)
            return status_invalid(
                "default_value.shape=%s and rt_input.flat_values.shape=%s are incompatible",
                TENSOR_SHAPE_TEXT(value), TENSOR_SHAPE_TEXT(values));
    }
    return NULL;
}

/* Computes the output's sizes: the requested ones, else those of the values, else the longest row's
 * length. */
static struct status *output_sizes(const struct kernel_ctx *ctx, int64_t first, int64_t *dims,
                                   int *ret_rank) {
    const struct to_tensor_state *state = ctx->instance->state;
    const struct tensor *asked = &ctx->inputs[0], *values = &ctx->inputs[1];
    int rank = state->ragged_rank + values->rank;
    if (asked->rank > 1 || (asked->rank == 0 && tensor_index_at(asked, 0) != -1))
        return status_invalid("shape must be a vector, or the scalar -1");
    if (rank > SHAPE_MAX_RANK || (asked->rank == 1 && asked->n_elements != rank))
        return status_invalid(
            "rt_input.shape and shape of %lld sizes are incompatible: rt_input.rank = %d",
            (long long)asked->n_elements, rank);
    for (int i = 0; i < rank; i++) {
        int64_t size = asked->rank == 1 ? tensor_index_at(asked, i) : -1,
                own = i - state->ragged_rank;
        enum partition kind;
        if (size < -1)
            return status_invalid("Invalid dimension size: %lld", (long long)size);
        if (own > 0) {
            int64_t value_size = tensor_dim(values, (int)own);
            if (size >= 0 && size != value_size)
                return status_invalid("rt_input.shape and shape are incompatible: "
                                      "rt_input.shape[%d] = %lld but shape[%d] = %lld",
                                      i, (long long)value_size, i, (long long)size);
            size = value_size;
        } else if (size < 0) {
            const struct tensor *partition = i > 0 ? partition_at(ctx, i - 1, &kind) : NULL;
            size = i == 0 ? first : longest_row(partition, kind);
        }
        dims[i] = size;
    }
    *ret_rank = rank;
    return NULL;
}

/* Turns *places from a list of the rows of dimension d into a list of the rows of the next
 * dimension. Those are `step` output rows apart, and each row has at most `limit` of them. */
static struct status *descend(const struct kernel_ctx *ctx, int d, int64_t step, int64_t limit,
                              int64_t **places) {
    enum partition kind;
    const struct tensor *partition = partition_at(ctx, d, &kind);
    int64_t n = n_children(partition, kind), *next = malloc(((size_t)n + 1) * sizeof(*next)),
            at = 0;
    if (!next)
        return status_exhausted("OOM: places of %lld ragged rows", (long long)n);
    struct status *st = NULL;
    for (int64_t row = 0; !st && kind == ROW_SPLITS && row + 1 < partition->n_elements; row++) {
        st = kernel_loop_check(row);
        int64_t len = tensor_index_at(partition, row + 1) - tensor_index_at(partition, row),
                begin = (*places)[row];
        for (int64_t j = 0; j < len; j++)
            next[at++] = begin < 0 || j >= limit ? -1 : begin + j * step;
    }
    for (int64_t column = 0; !st && kind == VALUE_ROWIDS && at < n; at++) {
        st = kernel_loop_check(at);
        int64_t row = tensor_index_at(partition, at), begin = (*places)[row];
        column = at > 0 && row == tensor_index_at(partition, at - 1) ? column + 1 : 0;
        next[at] = begin < 0 || column >= limit ? -1 : begin + column * step;
    }
    free(*places);
    *places = next;
    return st;
}

/* Fills every inner element with the default value, broadcast to its shape. */
static struct status *fill_default(const struct kernel_ctx *ctx, struct tensor *out,
                                   int64_t inner) {
    const struct tensor *value = &ctx->inputs[2], *values = &ctx->inputs[1];
    enum dtype dtype = (enum dtype)value->dtype;
    size_t size = dtype_size(dtype);
    char *to = tensor_data(out);
    update_fn *assign = update_find(UPDATE_ASSIGN, dtype);
    if (value->n_elements == 1) {
        assign(to, NULL, tensor_cdata(value), out->n_elements, 0);
        return NULL;
    }
    struct shape shapes[2] = {{values->rank - 1, tensor_dims(values) + 1}, tensor_shape(value)};
    struct broadcast plan;
    struct broadcast_cursor cursor;
    if (!broadcast_init(&plan, shapes, 2) || plan.n_elements != inner)
        return status_invalid("Error broadcasting default_value");
    for (int64_t i = 0; i < inner; i++) {
        broadcast_seek(&plan, i, &cursor);
        assign(to + (size_t)i * size, NULL,
               (const char *)tensor_cdata(value) +
                   (size_t)broadcast_offset(&plan, &cursor, 1) * size,
               1, 0);
    }
    int64_t n_copies = 0;
    for (int64_t done = inner; done < out->n_elements && pool_goes_on(n_copies++); done += inner)
        elements_copy(dtype, to + (size_t)done * size, to, inner);
    return NULL;
}

static struct status *copy_rows(const struct kernel_ctx *ctx, const int64_t *places, int64_t n_rows,
                                int64_t inner) {
    const struct tensor *values = &ctx->inputs[1];
    struct tensor *out = &ctx->outputs[0];
    struct scatter_job job = {.fn = update_find(UPDATE_ASSIGN, (enum dtype)values->dtype),
                              .dtype = (enum dtype)values->dtype,
                              .params = tensor_data(out),
                              .updates = tensor_cdata(values),
                              .update_step = 1,
                              .offsets = places,
                              .n_slices = n_rows,
                              .slice_len = inner};
    return scatter_run(ctx->pool, &job);
}

static struct status *place_rows(struct kernel_ctx *ctx, int64_t first, const int64_t *dims) {
    const struct to_tensor_state *state = ctx->instance->state;
    struct tensor *out = &ctx->outputs[0];
    int64_t inner = 1, step, n_rows = first,
            *places = malloc(((size_t)first + 1) * sizeof(*places));
    struct status *st = NULL;
    if (!places)
        return status_exhausted("OOM: places of %lld ragged rows", (long long)first);
    for (int d = state->ragged_rank + 1; d < out->rank; d++)
        inner *= dims[d];
    step = out->n_elements / dims[0];
    for (int64_t i = 0; i < first; i++)
        places[i] = i < dims[0] ? i * step : -1;
    for (int d = 0; d < state->ragged_rank; d++) {
        enum partition kind;
        const struct tensor *partition = partition_at(ctx, d, &kind);
        step /= dims[d + 1];
        TRY_OUT(descend(ctx, d, step, dims[d + 1], &places));
        n_rows = n_children(partition, kind);
    }
    TRY_OUT(fill_default(ctx, out, inner));
    TRY_OUT(copy_rows(ctx, places, n_rows, inner));
out:
    free(places);
    return st;
}

static enum kernel_result ragged_to_tensor(struct kernel_ctx *ctx) {
    int64_t first, dims[SHAPE_MAX_RANK];
    int rank;
    const struct tensor *values = &ctx->inputs[1];
    if (values->rank < 1)
        return kernel_fail(ctx, status_invalid("rt_input.flat_values must have rank >= 1"));
    KERNEL_TRY(ctx, first_size(ctx, &first));
    KERNEL_TRY(ctx, check_default(&ctx->inputs[2], values));
    KERNEL_TRY(ctx, check_partitions(ctx, first));
    KERNEL_TRY(ctx, output_sizes(ctx, first, dims, &rank));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)values->dtype, (struct shape){rank, dims}));
    if (ctx->outputs[0].n_elements > 0)
        KERNEL_TRY(ctx, place_rows(ctx, first, dims));
    return KERNEL_DONE;
}

/* ---- RaggedTensorToSparse ---- */

/* The position of a walk over all values: the current row of each ragged dimension. */
struct walk {
    const struct tensor *splits;
    int n_splits;
    int64_t row[SHAPE_MAX_RANK];
};

/* Moves every dimension to the row that holds value i, innermost first. Values are visited in
 * order, so row numbers only rise. */
static void walk_to(struct walk *walk, int64_t i, int64_t *ret_place) {
    for (int d = walk->n_splits - 1; d >= 0; d--) {
        while (tensor_index_at(&walk->splits[d], walk->row[d] + 1) <= i)
            walk->row[d]++;
        ret_place[d + 1] = i - tensor_index_at(&walk->splits[d], walk->row[d]);
        i = walk->row[d];
    }
    ret_place[0] = i;
}

static void write_places(const struct kernel_ctx *ctx, const struct tensor *values, int n_splits,
                         int64_t *to) {
    struct walk walk = {.splits = ctx->inputs, .n_splits = n_splits};
    int64_t row_len = ragged_row_len(values);
    for (int64_t i = 0; i < values->n_elements && pool_goes_on(i);
         i++, to += n_splits + values->rank) {
        int64_t rest = i % row_len;
        walk_to(&walk, i / row_len, to);
        for (int d = values->rank - 1; d > 0; d--) {
            to[n_splits + d] = rest % tensor_dim(values, d);
            rest /= tensor_dim(values, d);
        }
    }
}

static enum kernel_result ragged_to_sparse(struct kernel_ctx *ctx) {
    int n_splits = ctx->instance->n_inputs - 1, rank;
    const struct tensor *values = &ctx->inputs[n_splits];
    KERNEL_TRY(ctx, ragged_check_nested(ctx->inputs, n_splits, values, true));
    rank = n_splits + values->rank;
    if (rank > SHAPE_MAX_RANK)
        return kernel_fail(
            ctx, status_invalid("A rank of %d is beyond the limit of %d", rank, SHAPE_MAX_RANK));
    int64_t n = values->n_elements, n_dims = rank;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT64, (struct shape){2, (int64_t[]){n, rank}}));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 2, DT_INT64, (struct shape){1, &n_dims}));
    write_places(ctx, values, n_splits, tensor_data(&ctx->outputs[0]));
    int64_t *dims = tensor_data(&ctx->outputs[2]);
    dims[0] = ctx->inputs[0].n_elements - 1;
    for (int d = 0; d < n_splits; d++)
        dims[d + 1] = longest_row(&ctx->inputs[d], ROW_SPLITS);
    for (int d = 1; d < values->rank; d++)
        dims[n_splits + d] = tensor_dim(values, d);
    if (values->rank == 1)
        kernel_pass(ctx, n_splits, 1);
    else
        KERNEL_TRY(ctx, tensor_reshape(values, (struct shape){1, &n}, &ctx->outputs[1]));
    return KERNEL_DONE;
}

#define VALUE_TYPES (DTYPES_NUMBER | DTYPES_QUANTIZED | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING))
// clang-format off
static const struct kernel_def rows[] = {
    {.op = "RaggedTensorToTensor", .constraints = {{"T", VALUE_TYPES}, {"Tindex", DTYPES_INDEX}},
        .compute = ragged_to_tensor, .init = to_tensor_init},
    {.op = "RaggedTensorToSparse", .constraints = {{"Tsplits", DTYPES_INDEX}},
        .compute = ragged_to_sparse},
};
// clang-format on

const struct kernel_list ragged_dense_kernels = {rows, ARRAY_LEN(rows)};
