/* Makes the output tensors from the features that were read, which is the last part of
 * parsing_features.h. */
#include <stdlib.h>

#include "kernels/host/text/parsing_features.h"
#include "kernels/cpu/sparse/ragged.h"
#include "kernels/host/text/string_internal.h"

struct emit {
    struct kernel_ctx *ctx;
    int64_t n_examples;
    bool is_single, are_lists, is_of_sequence;
};

/* Row `row` is elements [row_begin, ends.at[row]). */
static int64_t row_begin(const struct feature *feature, int64_t row) {
    return row > 0 ? feature->ends.at[row - 1] : 0;
}
/* Example i of a list has rows [example_begin, outer_ends.at[i]). */
static int64_t example_begin(const struct feature *feature, int64_t i) {
    return i > 0 ? feature->outer_ends.at[i - 1] : 0;
}

/* Moves elements [from, from + n) of the feature, each of them once. The destination's strings are
 * NULL. */
static void move_values(struct feature *feature, int64_t from, int64_t n, void *to) {
    size_t size = dtype_size(feature->dtype);
    if (n == 0)
        return;
    memcpy(to, feature->values + (size_t)from * size, (size_t)n * size);
    if (feature->dtype == DT_STRING)
        memset(feature->values + (size_t)from * size, 0, (size_t)n * size);
}

static struct status *emit_values(const struct emit *emit, struct feature *feature, int output) {
    TRY(kernel_alloc(emit->ctx, output, feature->dtype, (struct shape){1, &feature->n_values}));
    move_values(feature, 0, feature->n_values, tensor_data(&emit->ctx->outputs[output]));
    return NULL;
}

/* ---- sparse ---- */

static int64_t longest_row(const struct feature *feature) {
    int64_t longest = 0;
    for (int64_t row = 0; row < feature->ends.n; row++)
        longest = MAX(longest, feature->ends.at[row] - row_begin(feature, row));
    return longest;
}

static int64_t longest_list(const struct feature *feature) {
    int64_t longest = 0;
    for (int64_t i = 0; i < feature->outer_ends.n; i++)
        longest = MAX(longest, feature->outer_ends.at[i] - example_begin(feature, i));
    return longest;
}

/* Writes indices (example, step, position in the row). A single example has no first column, and a
 * feature that is no list has no second. */
static struct status *emit_sparse(const struct emit *emit, struct feature *feature,
                                  int indices_output, int values_output, int shape_output) {
    int rank = 1 + emit->are_lists + !emit->is_single;
    int64_t dims[2] = {feature->n_values, rank}, n_rank = rank, example = 0, step = 0;
    TRY(kernel_alloc(emit->ctx, indices_output, DT_INT64, (struct shape){2, dims}));
    TRY(kernel_alloc(emit->ctx, shape_output, DT_INT64, (struct shape){1, &n_rank}));
    TRY(emit_values(emit, feature, values_output));
    int64_t *index = tensor_data(&emit->ctx->outputs[indices_output]),
            *shape = tensor_data(&emit->ctx->outputs[shape_output]);
    if (!emit->is_single)
        *shape++ = emit->n_examples;
    if (emit->are_lists)
        *shape++ = longest_list(feature);
    *shape = longest_row(feature);
    for (int64_t row = 0; row < feature->ends.n; row++, step++) {
        if (!emit->are_lists)
            example = row;
        while (emit->are_lists &&
               feature->outer_ends.at[example] <= row) { /* skips examples without steps */
            example++;
            step = 0;
        }
        int64_t n = feature->ends.at[row] - row_begin(feature, row);
        for (int64_t i = 0; i < n; i++) {
            if (!emit->is_single)
                *index++ = example;
            if (emit->are_lists)
                *index++ = step;
            *index++ = i;
        }
    }
    return NULL;
}

/* ---- dense ---- */

static struct status *alloc_dense(const struct emit *emit, const struct feature *feature,
                                  int64_t second, bool has_second, int output) {
    int64_t dims[SHAPE_MAX_RANK + 2];
    int rank = 0, skipped = feature->is_variable;
    if (!emit->is_single)
        dims[rank++] = emit->n_examples;
    if (has_second)
        dims[rank++] = second;
    for (int i = skipped; i < feature->shape.rank; i++)
        dims[rank++] = feature->shape.dims[i];
    return kernel_alloc(emit->ctx, output, feature->dtype, (struct shape){rank, dims});
}

/* Writes element `default_value`, or zeros, n times. */
static void fill(const struct feature *feature, char *to, int64_t n) {
    size_t size = dtype_size(feature->dtype);
    memset(to, 0, (size_t)n * size);
    for (int64_t i = 0; feature->default_value && i < n; i++)
        elements_copy(feature->dtype, to + (size_t)i * size, tensor_cdata(feature->default_value),
                      1);
}

/* Writes rows of different lengths side by side, padded at their ends. Example i has elements
 * [begin(i), end(i)). */
static struct status *emit_padded(const struct emit *emit, struct feature *feature, int output) {
    int64_t longest =
        emit->are_lists ? longest_list(feature) * feature->stride : longest_row(feature);
    int64_t n_steps = emit->are_lists       ? longest_list(feature)
                      : feature->stride > 0 ? longest / feature->stride
                                            : 0;
    size_t size = dtype_size(feature->dtype);
    TRY(alloc_dense(emit, feature, n_steps, true, output));
    char *to = tensor_data(&emit->ctx->outputs[output]);
    for (int64_t i = 0; i < emit->n_examples; i++, to += (size_t)longest * size) {
        int64_t begin =
            emit->are_lists ? example_begin(feature, i) * feature->stride : row_begin(feature, i);
        int64_t end =
            emit->are_lists ? feature->outer_ends.at[i] * feature->stride : feature->ends.at[i];
        move_values(feature, begin, end - begin, to);
        if (longest > end - begin)
            fill(feature, to + (size_t)(end - begin) * size, longest - (end - begin));
    }
    return NULL;
}

static struct status *emit_dense(const struct emit *emit, struct feature *feature, int output) {
    if (emit->are_lists || feature->is_variable)
        return emit_padded(emit, feature, output);
    TRY(alloc_dense(emit, feature, 0, false, output));
    move_values(feature, 0, feature->n_values, tensor_data(&emit->ctx->outputs[output]));
    return NULL;
}

static struct status *emit_lengths(const struct emit *emit, const struct feature *feature,
                                   int output) {
    struct shape shape = emit->is_single ? SHAPE_SCALAR : (struct shape){1, &emit->n_examples};
    TRY(kernel_alloc(emit->ctx, output, DT_INT64, shape));
    int64_t *to = tensor_data(&emit->ctx->outputs[output]);
    for (int64_t i = 0; i < emit->n_examples; i++)
        to[i] = feature->outer_ends.at[i] - example_begin(feature, i);
    return NULL;
}

/* ---- ragged ---- */

static struct status *emit_splits(const struct emit *emit, enum dtype dtype,
                                  const struct offsets *ends, int output) {
    int64_t n = ends->n + 1;
    if (dtype == DT_INT32 && ends->n > 0 && ends->at[ends->n - 1] > INT32_MAX)
        return status_invalid("%lld values are more than row splits of int32 can count",
                              (long long)ends->at[ends->n - 1]);
    TRY(kernel_alloc(emit->ctx, output, dtype, (struct shape){1, &n}));
    tensor_set_index(&emit->ctx->outputs[output], 0, 0);
    for (int64_t i = 0; i < ends->n; i++)
        tensor_set_index(&emit->ctx->outputs[output], i + 1, ends->at[i]);
    return NULL;
}

/* Makes outer_ends splits of zeros or without elements, because a single example needs none. */
static struct status *emit_no_splits(const struct emit *emit, enum dtype dtype, int output) {
    int64_t none = 0;
    struct shape shape = emit->is_of_sequence ? SHAPE_SCALAR : (struct shape){1, &none};
    return tensor_new_zeroed(emit->ctx->instance->allocator, dtype, shape,
                             &emit->ctx->outputs[output]);
}

static struct status *emit_ragged(const struct emit *emit, struct feature *feature,
                                  enum dtype split_dtype, int values_output, int splits_output,
                                  int inner_output) {
    const struct offsets *outer_ends = emit->are_lists ? &feature->outer_ends : &feature->ends;
    TRY(emit_values(emit, feature, values_output));
    if (emit->is_single)
        TRY(emit_no_splits(emit, split_dtype, splits_output));
    else
        TRY(emit_splits(emit, split_dtype, outer_ends, splits_output));
    return emit->are_lists ? emit_splits(emit, split_dtype, &feature->ends, inner_output) : NULL;
}

struct status *feature_set_emit(struct feature_set *set, struct kernel_ctx *ctx, int64_t n_examples,
                                bool is_single, bool has_lengths, int *output) {
    const struct emit emit = {ctx, n_examples, is_single, set->are_lists, set->is_of_sequence};
    int n_sparse = set->types->n_sparse, n_dense = set->types->n_dense,
        n_ragged = set->types->n_ragged, at = *output;
    struct feature *feature = set->features;
    for (int i = 0; i < n_sparse; i++, feature++)
        TRY(emit_sparse(&emit, feature, at + i, at + n_sparse + i, at + 2 * n_sparse + i));
    at += 3 * n_sparse;
    for (int i = 0; i < n_dense; i++, feature++) {
        if (has_lengths)
            TRY(emit_lengths(&emit, feature, at + n_dense + i));
        TRY(emit_dense(&emit, feature, at + i));
    }
    at += n_dense * (1 + has_lengths);
    for (int i = 0; i < n_ragged; i++, feature++)
        TRY(emit_ragged(&emit, feature, set->types->split_types[i].dtype, at + i, at + n_ragged + i,
                        at + 2 * n_ragged + i));
    *output = at + n_ragged * (2 + set->are_lists);
    return NULL;
}
