/* Computes UnicodeDecode, UnicodeDecodeWithOffsets, UnicodeEncode, UnicodeTranscode and
 * UnicodeScript. */
#include <stdlib.h>

#include "kernels/host/text/string_internal.h"
#include "kernels/host/text/unicode_internal.h"

enum encoding { UTF8, UTF16BE, UTF32BE };
enum on_error { ON_ERROR_REPLACE, ON_ERROR_STRICT, ON_ERROR_IGNORE };

struct unicode_state {
    struct span input_encoding; /* borrowed from the node */
    enum encoding output_encoding;
    enum on_error on_error;
    int32_t replacement;
    bool replaces_controls;
};

static bool is_text(struct span a, const char *b) {
    return a.len == strlen(b) && memcmp(a.data, b, a.len) == 0;
}

struct status *unicode_init(struct kernel_init *init) {
    struct unicode_state *state = xcalloc(1, sizeof(*state));
    struct span text;
    int64_t replacement;
    init->state = state;
    TRY(node_get_s(init->node, "errors", &text));
    state->on_error = is_text(text, "strict")   ? ON_ERROR_STRICT
                      : is_text(text, "ignore") ? ON_ERROR_IGNORE
                                                : ON_ERROR_REPLACE;
    TRY(node_get_i(init->node, "replacement_char", &replacement));
    if (replacement < 0 || replacement > UNICODE_MAX)
        return status_invalid("replacement_char out of unicode codepoint range");
    state->replacement = (int32_t)replacement;
    if (node_attr(init->node, "replace_control_characters"))
        TRY(node_get_b(init->node, "replace_control_characters", &state->replaces_controls));
    if (node_attr(init->node, "input_encoding"))
        TRY(node_get_s(init->node, "input_encoding", &state->input_encoding));
    if (!node_attr(init->node, "output_encoding"))
        return NULL;
    TRY(node_get_s(init->node, "output_encoding", &text));
    state->output_encoding = is_text(text, "UTF-16-BE")   ? UTF16BE
                             : is_text(text, "UTF-32-BE") ? UTF32BE
                                                          : UTF8;
    return NULL;
}

/* ---- one character ---- */

static void add_big_endian(struct str *out, uint32_t value, int n_bytes) {
    for (int shift = 8 * (n_bytes - 1); shift >= 0; shift -= 8)
        str_add_char(out, (char)(value >> shift & 0xff));
}

static void add_char(struct str *out, enum encoding encoding, uint32_t code) {
    if (encoding == UTF8) {
        str_add_utf8(out, code >= 0xd800 && code <= 0xdfff ? UNICODE_REPLACEMENT : code);
    } else if (encoding == UTF32BE) {
        add_big_endian(out, code, 4);
    } else if (code < 0x10000) {
        add_big_endian(out, code, 2);
    } else {
        add_big_endian(out, 0xd800 + ((code - 0x10000) >> 10), 2);
        add_big_endian(out, 0xdc00 + ((code - 0x10000) & 0x3ff), 2);
    }
}

/* Replaces a character that is wrong, or a control character that the attr wants replaced. False
 * when nothing takes its place. */
static bool handle_wrong(const struct unicode_state *state, bool is_wrong, int32_t *code) {
    if (!is_wrong && !(state->replaces_controls && *code <= 0x1f))
        return true;
    *code = state->replacement;
    return state->on_error != ON_ERROR_IGNORE;
}

static struct status *wrong_input(void) {
    return status_invalid("Invalid formatting on input string");
}

/* ---- UnicodeTranscode ---- */

static struct status *transcode(const struct unicode_state *state, struct unicode_decoder *decoder,
                                struct text_work *work, struct span text, struct str *out) {
    int32_t code;
    size_t len;
    bool is_wrong;
    unicode_decoder_start(decoder, text);
    while (unicode_decoder_next(decoder, &code, &len, &is_wrong)) {
        bool is_control = state->replaces_controls && code <= 0x1f;
        TRY(text_work_add(work, 1));
        if ((is_wrong || is_control) && state->on_error == ON_ERROR_STRICT)
            return wrong_input();
        if (handle_wrong(state, is_wrong, &code))
            add_char(out, state->output_encoding, (uint32_t)code);
    }
    return NULL;
}

/* UnicodeTranscode: texts from any encoding to UTF-8, UTF-16-BE or UTF-32-BE.
 *   input  string    output  string, its shape
 * Errors   INVALID_ARGUMENT   an encoding that is unknown; with errors="strict", ill-formed text */
enum kernel_result unicode_transcode(struct kernel_ctx *ctx) {
    const struct unicode_state *state = ctx->instance->state;
    const struct tensor *input = kernel_input(ctx, 0);
    struct unicode_decoder *decoder = NULL;
    struct text_work work = {.ctx = ctx};
    struct str text = STR_INIT;
    struct status *st = NULL;
    KERNEL_TRY(ctx, unicode_decoder_new(state->input_encoding, &decoder));
    TRY_OUT(kernel_alloc(ctx, 0, DT_STRING, tensor_shape(input)));
    struct bytes **out = string_elements(&ctx->outputs[0]);
    for (int64_t i = 0; i < input->n_elements; i++) {
        str_clear(&text);
        TRY_OUT(transcode(state, decoder, &work, tensor_string(input, i), &text));
        out[i] = text_new(str_text(&text), text.len);
    }
out:
    str_fini(&text);
    unicode_decoder_free(decoder);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}

/* ---- UnicodeDecode ---- */

struct chars {
    int32_t *codes;
    int64_t *starts;
    int64_t n, capacity;
};

static void chars_add(struct chars *chars, int32_t code, int64_t start) {
    if (chars->n == chars->capacity) {
        chars->capacity = chars->capacity ? 2 * chars->capacity : 64;
        chars->codes = xreallocarray(chars->codes, (size_t)chars->capacity, sizeof(*chars->codes));
        chars->starts =
            xreallocarray(chars->starts, (size_t)chars->capacity, sizeof(*chars->starts));
    }
    chars->codes[chars->n] = code;
    chars->starts[chars->n++] = start;
}

static struct status *decode(const struct unicode_state *state, struct unicode_decoder *decoder,
                             struct text_work *work, struct span text, struct chars *chars) {
    int32_t code;
    size_t len;
    bool is_wrong;
    int64_t start = 0;
    unicode_decoder_start(decoder, text);
    while (unicode_decoder_next(decoder, &code, &len, &is_wrong)) {
        TRY(text_work_add(work, 1));
        if (is_wrong && state->on_error == ON_ERROR_STRICT)
            return wrong_input();
        if (handle_wrong(state, is_wrong, &code))
            chars_add(chars, code, start);
        start += (int64_t)len;
    }
    return NULL;
}

static struct status *set_split(struct tensor *splits, int64_t i, int64_t n) {
    if (splits->dtype == DT_INT64) {
        ((int64_t *)tensor_data(splits))[i] = n;
        return NULL;
    }
    if (n > INT32_MAX)
        return status_invalid("%lld characters are more than row splits of int32 can count",
                              (long long)n);
    ((int32_t *)tensor_data(splits))[i] = (int32_t)n;
    return NULL;
}

/* UnicodeDecode, UnicodeDecodeWithOffsets: the characters of all texts as a ragged matrix.
 *   input                 string, n texts
 *   row_splits            Tsplits [n + 1]
 *   char_values           int32 [m]
 *   char_to_byte_starts   int64 [m]: where in its text each character begins
 * Errors   as UnicodeTranscode */
enum kernel_result unicode_decode(struct kernel_ctx *ctx) {
    const struct unicode_state *state = ctx->instance->state;
    const struct tensor *input = kernel_input(ctx, 0);
    struct unicode_decoder *decoder = NULL;
    struct text_work work = {.ctx = ctx};
    struct chars chars = {0};
    struct status *st = NULL;
    int64_t n_splits = input->n_elements + 1;
    KERNEL_TRY(ctx, unicode_decoder_new(state->input_encoding, &decoder));
    TRY_OUT(kernel_alloc(ctx, 0, (enum dtype)ctx->instance->out_types[0],
                         (struct shape){1, &n_splits}));
    TRY_OUT(set_split(&ctx->outputs[0], 0, 0));
    for (int64_t i = 0; i < input->n_elements; i++) {
        TRY_OUT(decode(state, decoder, &work, tensor_string(input, i), &chars));
        TRY_OUT(set_split(&ctx->outputs[0], i + 1, chars.n));
    }
    struct shape shape = {1, &chars.n};
    TRY_OUT(kernel_alloc(ctx, 1, DT_INT32, shape));
    if (chars.n > 0)
        memcpy(tensor_data(&ctx->outputs[1]), chars.codes, (size_t)chars.n * sizeof(*chars.codes));
    if (ctx->instance->n_outputs > 2) {
        TRY_OUT(kernel_alloc(ctx, 2, DT_INT64, shape));
        if (chars.n > 0)
            memcpy(tensor_data(&ctx->outputs[2]), chars.starts,
                   (size_t)chars.n * sizeof(*chars.starts));
    }
out:
    free(chars.codes);
    free(chars.starts);
    unicode_decoder_free(decoder);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}

/* ---- UnicodeEncode ---- */

static bool is_character(int32_t code) {
    return code >= 0 && code <= UNICODE_MAX && !(code >= 0xd800 && code <= 0xdfff);
}

static struct status *check_splits(const struct tensor *values, const struct tensor *splits) {
    /* the op's shape function refuses this, too, where it knows the ranks */
    if (values->rank != 1 || splits->rank != 1)
        return status_invalid("Shape must be rank 1 but is rank %d",
                              values->rank != 1 ? values->rank : splits->rank);
    if (splits->n_elements == 0)
        return status_invalid("input_splits should have at least one element");
    if (tensor_index_at(splits, 0) != 0)
        return status_invalid("First value in input_splits must be zero.");
    for (int64_t i = 1; i < splits->n_elements; i++) {
        if (tensor_index_at(splits, i) < tensor_index_at(splits, i - 1))
            return status_invalid("Values in input_splits must be equal or in ascending order.");
        if (tensor_index_at(splits, i) > values->n_elements)
            return status_invalid(
                "Values in input_splits must be less than or equal to input_tensor length.");
    }
    if (tensor_index_at(splits, splits->n_elements - 1) != values->n_elements)
        return status_invalid(
            "Last value in input_splits must be equal to length of input_tensor.");
    return NULL;
}

static struct status *encode(const struct unicode_state *state, const int32_t *codes, int64_t n,
                             struct str *out) {
    for (int64_t i = 0; i < n && pool_goes_on(i); i++) {
        int32_t code = codes[i];
        if (!is_character(code)) {
            if (state->on_error == ON_ERROR_STRICT)
                return status_invalid("Code point is out of range for Unicode, or a noncharacter.");
            if (state->on_error == ON_ERROR_IGNORE)
                continue;
            code = state->replacement;
        }
        add_char(out, state->output_encoding, (uint32_t)code);
    }
    return NULL;
}

/* UnicodeEncode: makes texts of characters.
 *   input_values   int32 [m]
 *   input_splits   Tsplits [n + 1]: text i has characters splits[i] up to splits[i + 1]
 *   output         string [n]
 * Errors   INVALID_ARGUMENT   splits that do not ascend from 0; with errors="strict", a number that
 *                             is no character */
enum kernel_result unicode_encode(struct kernel_ctx *ctx) {
    const struct unicode_state *state = ctx->instance->state;
    const struct tensor *values = kernel_input(ctx, 0), *splits = kernel_input(ctx, 1);
    struct str text = STR_INIT;
    struct status *st = NULL;
    KERNEL_TRY(ctx, check_splits(values, splits));
    int64_t n = splits->n_elements - 1;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, (struct shape){1, &n}));
    struct bytes **out = string_elements(&ctx->outputs[0]);
    const int32_t *codes = tensor_cdata(values);
    for (int64_t i = 0; i < n && !st && text_goes_on(i); i++) {
        int64_t begin = tensor_index_at(splits, i);
        str_clear(&text);
        st = encode(state, codes + begin, tensor_index_at(splits, i + 1) - begin, &text);
        out[i] = text_new(str_text(&text), text.len);
    }
    str_fini(&text);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}

/* UnicodeScript: the script of each character, by ICU's numbers; -1 for a number that is no
 * character.
 *   input    int32
 *   output   int32, its shape */
enum kernel_result unicode_script(struct kernel_ctx *ctx) {
    const struct tensor *input = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, unicode_script_load());
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT32, tensor_shape(input)));
    const int32_t *codes = tensor_cdata(input);
    int32_t *out = tensor_data(&ctx->outputs[0]);
    for (int64_t i = 0; i < input->n_elements && text_goes_on(i); i++)
        out[i] = unicode_script_of(codes[i]);
    return KERNEL_DONE;
}
