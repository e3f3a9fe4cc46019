/* Computes the ops of TensorArrays that work on many elements: gather (stack), concat, scatter
 * (unstack), split.
 *
 * Unstacking copies nothing, because an element is a view of its rows. */
#include <stdlib.h>

#include "kernels/host/resources/join_parts.h"
#include "kernels/host/resources/tensor_array.h"
#include "kernels/support/device_engine.h"

extern const struct kernel_list tensor_array_bulk_kernels;

struct bulk_state {
    enum dtype dtype;
    struct shape wanted; /* element_shape or element_shape_except0; borrowed from the node */
};

static struct status *gather_init(struct kernel_init *init) {
    struct bulk_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_type(init->node, "dtype", &state->dtype));
    return node_get_shape(init->node, "element_shape", &state->wanted);
}

static struct status *concat_init(struct kernel_init *init) {
    struct bulk_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_type(init->node, "dtype", &state->dtype));
    return node_get_shape(init->node, "element_shape_except0", &state->wanted);
}

/* ---- the array in input 0 ---- */

typedef struct status *array_fn(struct kernel_ctx *ctx, struct tensor_array *array);

static enum kernel_result with_array(struct kernel_ctx *ctx, array_fn *fn) {
    struct tensor_array *array = NULL;
    KERNEL_TRY(ctx, tensor_array_of_input(ctx, &array));
    struct status *st = fn(ctx, array);
    tensor_array_unref(array);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* As with_array, for an op that writes: output 0 is the flow that input `flow` contains. */
static enum kernel_result write_array(struct kernel_ctx *ctx, array_fn *fn, int flow) {
    enum kernel_result result = with_array(ctx, fn);
    if (!ctx->status)
        kernel_pass(ctx, flow, 0);
    return result;
}

/* ---- TensorArrayGatherV3 ---- */

static struct status *gather_check(const struct bulk_state *state, const int32_t *indices,
                                   const struct tensor *parts, int64_t n) {
    struct shape first = tensor_shape(&parts[0]);
    if (!shape_is_compatible(state->wanted, first))
        return status_invalid("TensorArray was passed element_shape %s which does not match the "
                              "Tensor at index %d: %s",
                              SHAPE_TEXT(state->wanted), indices ? indices[0] : 0,
                              SHAPE_TEXT(first));
    for (int64_t i = 1; i < n; i++) {
        if (unlikely(!shape_equal(first, tensor_shape(&parts[i]))))
            return status_invalid("TensorArray has inconsistent shapes.  Index 0 has shape: %s but "
                                  "index %lld has shape: %s",
                                  SHAPE_TEXT(first), (long long)i, TENSOR_SHAPE_TEXT(&parts[i]));
    }
    return NULL;
}

/* Makes an output of the shape [n] + inner. */
static struct status *alloc_stacked(struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
                                    struct shape inner) {
    int64_t dims[SHAPE_MAX_RANK + 1];
    if (inner.rank + 1 > SHAPE_MAX_RANK)
        return status_invalid("Stacked shape of rank %d is beyond the limit of %d", inner.rank + 1,
                              SHAPE_MAX_RANK);
    dims[0] = n;
    for (int i = 0; i < inner.rank; i++)
        dims[i + 1] = inner.dims[i];
    return kernel_alloc(ctx, 0, dtype, (struct shape){inner.rank + 1, dims});
}

static struct status *gather_parts(struct kernel_ctx *ctx, struct tensor_array *array,
                                   const int32_t *indices, int64_t n) {
    const struct bulk_state *state = ctx->instance->state;
    struct tensor *parts = tensors_new(n);
    if (!parts)
        return status_exhausted("Out of memory for the %lld elements of TensorArray %s",
                                (long long)n, array->name);
    struct status *st = NULL;
    TRY_OUT(tensor_array_read_many(array, ctx, indices, n, parts));
    TRY_OUT(gather_check(state, indices, parts, n));
    TRY_OUT(alloc_stacked(ctx, state->dtype, n, tensor_shape(&parts[0])));
    struct join_parts join = {
        .dtype = state->dtype, .parts = parts, .part_len = parts[0].n_elements};
    st = join_parts(ctx, &join, n);
out:
    tensors_free(parts, n);
    return st;
}

static COLD struct status *no_elements(const struct bulk_state *state) {
    return status_unimplemented("TensorArray has size zero, but element shape %s is not fully "
                                "defined. Currently only static shapes are supported when packing "
                                "zero-size TensorArrays.",
                                SHAPE_TEXT(state->wanted));
}

static struct status *gather_all(struct kernel_ctx *ctx, struct tensor_array *array) {
    const struct bulk_state *state = ctx->instance->state;
    const struct tensor *indices = kernel_input(ctx, 1);
    TRY(tensor_array_check_read(array, state->dtype));
    if (indices->rank != 1)
        return status_invalid("Expected indices to be a vector, but received shape: %s",
                              TENSOR_SHAPE_TEXT(indices));
    if (indices->n_elements > 0)
        return gather_parts(ctx, array, tensor_cdata(indices), indices->n_elements);
    if (!shape_is_full(state->wanted))
        return no_elements(state);
    return alloc_stacked(ctx, state->dtype, 0, state->wanted);
}

static enum kernel_result array_gather(struct kernel_ctx *ctx) {
    return with_array(ctx, gather_all);
}

/* ---- TensorArrayConcatV3 ---- */

static struct shape except_0(const struct tensor *t) {
    return (struct shape){t->rank - 1, tensor_dims(t) + 1};
}

/* Checks that the parts fit. offsets[i] is where part i begins and offsets[n] where the last one
 * ends, *ret_rows the sum of their first sizes. */
static struct status *concat_check(const struct bulk_state *state, const struct tensor *parts,
                                   int64_t n, int64_t *offsets, int64_t *ret_rows) {
    int64_t rows = 0, elements = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct tensor *part = &parts[i];
        if (part->rank < 1)
            return status_invalid("Concat saw a scalar shape at index %lld but requires at least "
                                  "vectors.  Did you mean to call pack?",
                                  (long long)i);
        if (!shape_is_compatible(state->wanted, except_0(part)))
            return status_invalid("TensorArray was passed element_shape_except0 %s but index %lld "
                                  "has (excepting dimension 0) shape: %s which "
                                  "does not match.",
                                  SHAPE_TEXT(state->wanted), (long long)i,
                                  SHAPE_TEXT(except_0(part)));
        if (!shape_equal(except_0(&parts[0]), except_0(part)))
            return status_invalid("TensorArray has inconsistent shapes.  Index 0 has (excepting "
                                  "dimension 0) shape: %s but index %lld has "
                                  "(excepting dimension 0) shape: %s",
                                  SHAPE_TEXT(except_0(&parts[0])), (long long)i,
                                  SHAPE_TEXT(except_0(part)));
        offsets[i] = elements;
        if (add_overflows_i64(rows, tensor_dim(part, 0), &rows) ||
            add_overflows_i64(elements, part->n_elements, &elements))
            return status_invalid("The elements of a TensorArray are too large to be concatenated");
    }
    offsets[n] = elements;
    *ret_rows = rows;
    return NULL;
}

/* Makes the lengths, which are in host memory also where the elements are on a device. */
static struct status *alloc_lengths(struct kernel_ctx *ctx, int64_t n) {
    struct allocator *allocator =
        kernel_is_for_device(ctx) ? allocator_host() : ctx->instance->allocator;
    return tensor_new(allocator, DT_INT64, (struct shape){1, &n}, &ctx->outputs[1]);
}

static struct status *concat_parts(struct kernel_ctx *ctx, struct tensor_array *array, int64_t n) {
    const struct bulk_state *state = ctx->instance->state;
    struct tensor *parts = tensors_new(n);
    int64_t *offsets = malloc((size_t)(n + 1) * sizeof(*offsets));
    struct status *st = NULL;
    if (!parts || !offsets) {
        st = status_exhausted("Out of memory for the %lld elements of TensorArray %s", (long long)n,
                              array->name);
        goto out;
    }
    int64_t n_rows = 0;
    TRY_OUT(tensor_array_read_many(array, ctx, NULL, n, parts));
    TRY_OUT(concat_check(state, parts, n, offsets, &n_rows));
    TRY_OUT(alloc_stacked(ctx, state->dtype, n_rows, except_0(&parts[0])));
    TRY_OUT(alloc_lengths(ctx, n));
    int64_t *lengths = tensor_data(&ctx->outputs[1]);
    for (int64_t i = 0; i < n; i++)
        lengths[i] = tensor_dim(&parts[i], 0);
    struct join_parts join = {.dtype = state->dtype, .parts = parts, .offsets = offsets};
    st = join_parts(ctx, &join, n);
out:
    tensors_free(parts, n);
    free(offsets);
    return st;
}

static struct status *concat_all(struct kernel_ctx *ctx, struct tensor_array *array) {
    const struct bulk_state *state = ctx->instance->state;
    TRY(tensor_array_check_read(array, state->dtype));
    int64_t n = 0;
    TRY(tensor_array_n_joined(array, &n));
    if (n > 0)
        return concat_parts(ctx, array, n);
    if (!shape_is_full(state->wanted))
        return status_unimplemented("TensorArray has size zero, but element_shape_except0 %s is "
                                    "not fully defined. Currently only static shapes "
                                    "are supported when concatenating zero-size TensorArrays.",
                                    SHAPE_TEXT(state->wanted));
    TRY(alloc_stacked(ctx, state->dtype, 0, state->wanted));
    return alloc_lengths(ctx, n);
}

static enum kernel_result array_concat(struct kernel_ctx *ctx) {
    return with_array(ctx, concat_all);
}

/* ---- TensorArrayScatterV3 ---- */

/* Drops the first size, which is 1. */
static struct status *drop_dim_0(struct tensor *t) {
    if (t->rank <= TENSOR_INLINE_RANK) {
        memmove(t->dims, t->dims + 1, (size_t)(t->rank - 1) * sizeof(t->dims[0]));
        t->rank--;
        return NULL;
    }
    struct tensor made = TENSOR_INIT;
    TRY(tensor_reshape(t, (struct shape){t->rank - 1, tensor_dims(t) + 1}, &made));
    tensor_clear(t);
    tensor_move(t, &made);
    return NULL;
}

static COLD struct status *not_a_vector(const struct tensor *value) {
    return status_invalid("Input value for unpack must be at least a vector but received shape: %s",
                          TENSOR_SHAPE_TEXT(value));
}

static struct status *scatter_check(struct tensor_array *array, const struct tensor *indices,
                                    const struct tensor *value) {
    TRY(tensor_array_check_write(array, value));
    if (indices->rank != 1)
        return status_invalid("Expected indices to be a vector, but received shape: %s",
                              TENSOR_SHAPE_TEXT(indices));
    if (value->rank < 1)
        return not_a_vector(value);
    if (indices->n_elements != tensor_dim(value, 0))
        return status_invalid("Expected len(indices) == values.shape[0], but saw: %lld vs. %lld",
                              (long long)indices->n_elements, (long long)tensor_dim(value, 0));
    int64_t highest = -1, size = 0;
    bool is_dynamic = false;
    TRY(tensor_array_size(array, &size, &is_dynamic));
    for (int64_t i = 0; i < indices->n_elements; i++)
        highest = MAX(highest, tensor_index_at(indices, i));
    if (highest >= size && !is_dynamic)
        return status_invalid("Max scatter index must be < array size (%lld vs. %lld)",
                              (long long)highest, (long long)size);
    return NULL;
}

/* Writes row i of an input into element indices[i], or into element i without indices. */
static struct status *write_rows(struct kernel_ctx *ctx, struct tensor_array *array, int input,
                                 const int32_t *indices) {
    const struct tensor *value = kernel_input(ctx, input);
    int64_t n = tensor_dim(value, 0);
    struct tensor *parts = tensors_new(n);
    if (!parts)
        return status_exhausted("Out of memory for the %lld elements of TensorArray %s",
                                (long long)n, array->name);
    struct status *st = NULL;
    for (int64_t i = 0; i < n; i++) {
        TRY_OUT(tensor_slice_rows(value, i, i + 1, &parts[i]));
        TRY_OUT(drop_dim_0(&parts[i]));
    }
    tensor_clear(&ctx->inputs[input]); /* so that a single row may be alone in its memory */
    st = tensor_array_write_many(array, ctx, indices, n, parts);
out:
    tensors_free(parts, n);
    return st;
}

static struct status *scatter_all(struct kernel_ctx *ctx, struct tensor_array *array) {
    const struct tensor *indices = kernel_input(ctx, 1);
    TRY(scatter_check(array, indices, kernel_input(ctx, 2)));
    return write_rows(ctx, array, 2, tensor_cdata(indices));
}

static enum kernel_result array_scatter(struct kernel_ctx *ctx) {
    return write_array(ctx, scatter_all, 3);
}

/* ---- TensorArraySplitV3 ---- */

static struct status *split_check(struct tensor_array *array, const struct tensor *value,
                                  const struct tensor *lengths) {
    TRY(tensor_array_check_write(array, value));
    if (lengths->rank != 1)
        return status_invalid("Expected lengths to be a vector, received shape: %s",
                              TENSOR_SHAPE_TEXT(lengths));
    if (value->rank < 1)
        return status_invalid("Expected value to be at least a vector, but received shape: %s",
                              TENSOR_SHAPE_TEXT(value));
    int64_t sum = 0, n = lengths->n_elements, size = 0;
    bool is_dynamic = false;
    TRY(tensor_array_size(array, &size, &is_dynamic));
    for (int64_t i = 0; i < n; i++) {
        int64_t length = tensor_index_at(lengths, i);
        if (length < 0 || add_overflows_i64(sum, length, &sum))
            return status_invalid("Invalid value in lengths: %lld at index %lld", (long long)length,
                                  (long long)i);
    }
    if (sum != tensor_dim(value, 0))
        return status_invalid("Expected sum of lengths to be equal to values.shape[0], but sum of "
                              "lengths is %lld and value's shape is: %s",
                              (long long)sum, TENSOR_SHAPE_TEXT(value));
    if (n != size && !(n > size && is_dynamic))
        return status_invalid("TensorArray's size is not equal to the size of lengths (%lld vs. "
                              "%lld), and the TensorArray is not marked as "
                              "dynamically resizeable",
                              (long long)size, (long long)n);
    return NULL;
}

static struct status *split_all(struct kernel_ctx *ctx, struct tensor_array *array) {
    const struct tensor *value = kernel_input(ctx, 1), *lengths = kernel_input(ctx, 2);
    TRY(split_check(array, value, lengths));
    int64_t n = lengths->n_elements, row = 0;
    struct tensor *parts = tensors_new(n);
    if (!parts)
        return status_exhausted("Out of memory for the %lld elements of TensorArray %s",
                                (long long)n, array->name);
    struct status *st = NULL;
    for (int64_t i = 0; i < n; i++) {
        int64_t length = tensor_index_at(lengths, i);
        TRY_OUT(tensor_slice_rows(value, row, row + length, &parts[i]));
        row += length;
    }
    st = tensor_array_write_many(array, ctx, NULL, n, parts);
    if (!st)
        tensor_array_set_split(array, n);
out:
    tensors_free(parts, n);
    return st;
}

static enum kernel_result array_split(struct kernel_ctx *ctx) {
    return write_array(ctx, split_all, 3);
}

/* ---- TensorArrayPack, TensorArrayUnpack: all elements in order ---- */

static struct status *pack_all(struct kernel_ctx *ctx, struct tensor_array *array) {
    const struct bulk_state *state = ctx->instance->state;
    int64_t n = 0;
    TRY(tensor_array_check_read(array, state->dtype));
    TRY(tensor_array_size(array, &n, NULL));
    if (n > 0)
        return gather_parts(ctx, array, NULL, n);
    if (!shape_is_full(state->wanted))
        return no_elements(state);
    return alloc_stacked(ctx, state->dtype, 0, state->wanted);
}

static struct status *unpack_all(struct kernel_ctx *ctx, struct tensor_array *array) {
    const struct tensor *value = kernel_input(ctx, 1);
    int64_t size = 0;
    bool is_dynamic = false;
    TRY(tensor_array_check_write(array, value));
    if (value->rank < 1)
        return not_a_vector(value);
    TRY(tensor_array_size(array, &size, &is_dynamic));
    if (tensor_dim(value, 0) > size && !is_dynamic)
        return status_invalid("Max scatter index must be < array size (%lld vs. %lld)",
                              (long long)tensor_dim(value, 0) - 1, (long long)size);
    return write_rows(ctx, array, 1, NULL);
}

static enum kernel_result array_pack(struct kernel_ctx *ctx) { return with_array(ctx, pack_all); }

static enum kernel_result array_unpack(struct kernel_ctx *ctx) {
    return write_array(ctx, unpack_all, 2);
}

// clang-format off
static const struct kernel_def rows[] = {
    TENSOR_ARRAY_VERSIONS("TensorArrayGather", .constraints = {{"dtype", TYPES_ARRAY_GATHER}},
             .compute = array_gather, .init = gather_init, .flags = KERNEL_STATEFUL),
    TENSOR_ARRAY_VERSIONS("TensorArrayConcat", .constraints = {{"dtype", TYPES_ARRAY_CONCAT}},
             .compute = array_concat, .init = concat_init, .flags = KERNEL_STATEFUL),
    TENSOR_ARRAY_VERSIONS("TensorArrayScatter", .constraints = {{"T", TYPES_ARRAY_WRITE}},
             .compute = array_scatter, .flags = KERNEL_STATEFUL),
    TENSOR_ARRAY_VERSIONS("TensorArraySplit", .constraints = {{"T", TYPES_ARRAY_WRITE}},
             .compute = array_split, .flags = KERNEL_STATEFUL),
    {.op = "TensorArrayPack", .constraints = {{"dtype", TYPES_ARRAY_GATHER}},
     .compute = array_pack, .init = gather_init, .flags = KERNEL_STATEFUL},
    {.op = "TensorArrayUnpack", .constraints = {{"T", TYPES_ARRAY_WRITE}},
     .compute = array_unpack, .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list tensor_array_bulk_kernels = {rows, ARRAY_LEN(rows)};
