/* Computes StringNGrams, which joins each n neighbouring strings in the rows of a ragged matrix. */
#include <stdlib.h>

#include "kernels/cpu/sparse/ragged.h"
#include "kernels/host/text/string_internal.h"

struct ngrams_state {
    struct span separator, left_pad, right_pad; /* borrowed from the node */
    const struct attr_value *widths;            /* borrowed from the node as well */
    int n_widths;
    int64_t pad_width; /* below 0: as many pads as make every string the first of an n-gram */
    bool keeps_short;
};

struct status *string_ngrams_init(struct kernel_init *init) {
    struct ngrams_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_s(init->node, "separator", &state->separator));
    TRY(node_get_s(init->node, "left_pad", &state->left_pad));
    TRY(node_get_s(init->node, "right_pad", &state->right_pad));
    TRY(node_get_list(init->node, "ngram_widths", &state->widths, &state->n_widths));
    TRY(node_get_i32(init->node, "pad_width", &state->pad_width));
    TRY(node_get_b(init->node, "preserve_short_sequences", &state->keeps_short));
    for (int i = 0; i < state->n_widths; i++)
        if (state->widths[i].i <= 0 || state->widths[i].i > INT32_MAX)
            return status_invalid("ngram_widths must contain positive values, got %lld",
                                  (long long)state->widths[i].i);
    return NULL;
}

static int64_t pads_of(const struct ngrams_state *state, int64_t width) {
    return state->pad_width < 0 ? width - 1 : MIN(state->pad_width, width - 1);
}

static int64_t count_of(const struct ngrams_state *state, int64_t len, int64_t width) {
    return MAX(len + 2 * pads_of(state, width) - width + 1, 0);
}

enum { MAX_TOKENS = 1 << 28 }; /* the limit of strings and pads in all n-grams together */

static struct status *add_tokens(int64_t *n_tokens, int64_t n, int64_t width) {
    int64_t more;
    if (__builtin_mul_overflow(n, width, &more) || more > MAX_TOKENS - *n_tokens)
        return status_exhausted("These n-grams would hold more than %d strings", MAX_TOKENS);
    *n_tokens += more;
    return NULL;
}

/* Counts the n-grams of all widths that a row of len strings gives. *ret_short: there is only one,
 * which is the whole row. */
static struct status *count_row(const struct ngrams_state *state, int64_t len, int64_t *n_tokens,
                                int64_t *ret_n, bool *ret_short) {
    int64_t n = 0;
    for (int i = 0; i < state->n_widths; i++) {
        int64_t own = count_of(state, len, state->widths[i].i);
        TRY(add_tokens(n_tokens, own, state->widths[i].i));
        n += own;
    }
    *ret_short = state->keeps_short && n == 0 && len > 0;
    if (*ret_short && state->pad_width < 0)
        return status_invalid("Pad width should be >= 0 when preserve_short_sequences is True and "
                              "ngram_widths are not provided, got %lld",
                              (long long)state->pad_width);
    *ret_n = n + *ret_short;
    return *ret_short ? add_tokens(n_tokens, 1, len + 2 * state->pad_width) : NULL;
}

static struct status *check_splits(const struct tensor *splits, int64_t n_values) {
    if (splits->n_elements > 0 && tensor_index_at(splits, 0) != 0)
        return status_invalid("First split value must be 0, got %lld",
                              (long long)tensor_index_at(splits, 0));
    for (int64_t i = 1; i < splits->n_elements; i++) {
        int64_t before = tensor_index_at(splits, i - 1), here = tensor_index_at(splits, i);
        if (here < before || here > n_values)
            return status_invalid("Invalid split value %lld, must be in [%lld, %lld]",
                                  (long long)here, (long long)before, (long long)n_values);
    }
    int64_t last =
        splits->n_elements > 0 ? tensor_index_at(splits, splits->n_elements - 1) : n_values;
    if (last != n_values)
        return status_invalid("Last split value must be data size. Expected %lld, got %lld",
                              (long long)n_values, (long long)last);
    return NULL;
}

static void add_part(struct str *out, struct span separator, struct span part, bool *is_first) {
    if (!*is_first)
        str_add_bytes(out, separator.data, separator.len);
    *is_first = false;
    str_add_bytes(out, part.data, part.len);
}

/* Writes the row's n-grams of one width to out[0 .. n). */
static struct status *make_row(const struct ngrams_state *state, const struct tensor *data,
                               int64_t row, int64_t n, int64_t width, struct str *text,
                               struct bytes **out) {
    int64_t pads = pads_of(state, width);
    for (int64_t i = 0; i < n; i++) {
        int64_t left = MAX(pads - i, 0), right = MAX(pads - (n - i - 1), 0),
                tokens = width - left - right;
        int64_t begin = row + (left > 0 ? 0 : i - pads);
        bool is_first = true;
        str_clear(text);
        for (int64_t k = 0; k < left; k++)
            add_part(text, state->separator, state->left_pad, &is_first);
        for (int64_t k = 0; k < tokens; k++)
            add_part(text, state->separator, tensor_string(data, begin + k), &is_first);
        for (int64_t k = 0; k < right; k++)
            add_part(text, state->separator, state->right_pad, &is_first);
        out[i] = bytes_new(str_text(text), text->len);
    }
    return NULL;
}

static struct status *make_all(struct kernel_ctx *ctx, const struct tensor *data,
                               const struct tensor *splits) {
    const struct ngrams_state *state = ctx->instance->state;
    struct bytes **out = string_elements(&ctx->outputs[0]);
    struct str text = STR_INIT;
    struct status *st = NULL;
    for (int64_t i = 0; i + 1 < splits->n_elements && !st && text_goes_on(i); i++) {
        int64_t begin = tensor_index_at(splits, i), len = tensor_index_at(splits, i + 1) - begin,
                n_all, n_tokens = 0;
        bool is_short;
        TRY_OUT(count_row(state, len, &n_tokens, &n_all, &is_short));
        if (is_short) {
            TRY_OUT(make_row(state, data, begin, 1, len + 2 * state->pad_width, &text, out++));
            continue;
        }
        for (int k = 0; k < state->n_widths; k++) {
            int64_t n = count_of(state, len, state->widths[k].i);
            TRY_OUT(make_row(state, data, begin, n, state->widths[k].i, &text, out));
            out += n;
        }
    }
out:
    str_fini(&text);
    return st;
}

/* Makes the output's splits. *ret_n is the number of n-grams. */
static struct status *split_output(struct kernel_ctx *ctx, const struct tensor *splits,
                                   int64_t *ret_n) {
    const struct ngrams_state *state = ctx->instance->state;
    TRY(kernel_alloc(ctx, 1, (enum dtype)splits->dtype, tensor_shape(splits)));
    int64_t n_tokens = 0;
    *ret_n = 0;
    for (int64_t i = 0; i < splits->n_elements; i++) {
        int64_t n = 0;
        bool is_short;
        if (i > 0)
            TRY(count_row(state, tensor_index_at(splits, i) - tensor_index_at(splits, i - 1),
                          &n_tokens, &n, &is_short));
        *ret_n += n;
        if (splits->dtype == DT_INT32 && *ret_n > INT32_MAX)
            return status_invalid("%lld n-grams are more than splits of int32 can count",
                                  (long long)*ret_n);
        tensor_set_index(&ctx->outputs[1], i, *ret_n);
    }
    return NULL;
}

/* StringNGrams: attrs ngram_widths (each row has first all n-grams of the first width, …),
 * separator, left_pad, right_pad, pad_width, preserve_short_sequences (a row that is too short for
 * any n-gram gives one of its own length).
 *   data            string [m]
 *   data_splits     Tsplits [n + 1]
 *   ngrams          string [k]
 *   ngrams_splits   Tsplits [n + 1]
 * Errors   INVALID_ARGUMENT   splits that do not fit the data; at init: a width below 1 */
enum kernel_result string_ngrams(struct kernel_ctx *ctx) {
    const struct tensor *data = kernel_input(ctx, 0), *splits = kernel_input(ctx, 1);
    int64_t n = 0;
    if (splits->rank != 1)
        return kernel_fail(ctx,
                           status_invalid("Shape must be rank 1 but is rank %d", splits->rank));
    KERNEL_TRY(ctx, check_splits(splits, data->n_elements));
    /* there are no rows, or all rows are empty, which are not padded */
    if (data->n_elements == 0 || splits->n_elements == 0) {
        KERNEL_TRY(ctx, tensor_new_zeroed(ctx->instance->allocator, (enum dtype)splits->dtype,
                                          tensor_shape(splits), &ctx->outputs[1]));
        /* as in TensorFlow, these are empty strings */
        KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, tensor_shape(data)));
        return KERNEL_DONE;
    }
    KERNEL_TRY(ctx, split_output(ctx, splits, &n));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, (struct shape){1, &n}));
    KERNEL_TRY(ctx, make_all(ctx, data, splits));
    return KERNEL_DONE;
}
