/* Parses a value of --feed into a tensor. */
#include "tfctl/feed_value.h"

#include "common/tensor/npy.h"
#include "common/tensor/text.h"

static struct status *bad_value(const char *text) {
    return status_invalid(
        "\"%s\" is no value: @FILE.npy, 3, 1.5, true, \"text\" or DTYPE[SHAPE]{ELEMENTS}", text);
}

static struct status *parse_string(const char *text, struct tensor *ret) {
    struct span in = span_of(text);
    struct str bytes = STR_INIT;
    struct status *st = NULL;
    if (text_take_quoted(&in, &bytes) && in.len == 0) {
        st = tensor_new(allocator_host(), DT_STRING, SHAPE_SCALAR, ret);
        if (!st)
            tensor_set_string(ret, 0, str_text(&bytes), bytes.len);
    } else {
        st = bad_value(text);
    }
    str_fini(&bytes);
    return st;
}

static struct status *parse_long_form(const char *text, struct tensor *ret) {
    struct span in = span_of(text);
    struct status *st = tensor_parse(&in, allocator_host(), ret);
    if (!st && in.len > 0) {
        tensor_clear(ret);
        st = bad_value(text);
    }
    return st;
}

static struct status *parse_number(const char *text, struct tensor *ret) {
    struct span in = span_of(text);
    int64_t integer;
    double real;
    if (text[strspn(text, "+-0123456789")] == '\0') {
        if (!text_take_int(&in, &integer) || in.len > 0)
            return bad_value(text);
        if (integer < INT32_MIN || integer > INT32_MAX)
            return status_invalid("%s does not fit an int32; write int64[]{%s}", text, text);
        tensor_init_scalar_i32(ret, (int32_t)integer);
        return NULL;
    }
    in = span_of(text);
    if (!text_take_double(&in, &real) || in.len > 0)
        return bad_value(text);
    tensor_init_scalar_f32(ret, (float)real);
    return NULL;
}

struct status *feed_value_parse(const char *text, struct tensor *ret) {
    if (text[0] == '@')
        return npy_read(text + 1, allocator_host(), ret);
    if (text[0] == '"')
        return parse_string(text, ret);
    if (strchr(text, '['))
        return parse_long_form(text, ret);
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        tensor_init_scalar_bool(ret, text[0] == 't');
        return NULL;
    }
    return parse_number(text, ret);
}
