/* Computes AsString and StringToNumber. */
#include "kernels/host/text/string_number.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/tensor/float16.h"
#include "kernels/host/text/string_internal.h"

/* ---- AsString ---- */

enum { FORMAT_BYTES = 64, MAX_WIDTH = 1 << 16 };

struct as_string_state {
    enum dtype dtype;
    char real[FORMAT_BYTES];    /* the printf format of a double */
    char integer[FORMAT_BYTES]; /* the printf format of a long long */
    char natural[FORMAT_BYTES]; /* the printf format of an unsigned long long */
    /* of texts: as in TensorFlow, the precision cuts a text where there is a width */
    int width, precision;
    bool is_left, is_bare; /* is_bare: whole numbers are printed with neither width nor flag */
};

/* As in TensorFlow, attrs that a dtype cannot follow are refused. */
static struct status *check_format(enum dtype dtype, int64_t precision, bool is_scientific,
                                   bool is_shortest) {
    if (dtype == DT_STRING || dtype_in(dtype, DTYPES_REAL_FLOAT | DTYPES_COMPLEX)) {
        if (is_scientific && is_shortest)
            return status_invalid("Cannot select both scientific and shortest notation");
        return NULL;
    }
    if (is_scientific || is_shortest)
        return status_invalid("scientific and shortest format not supported for datatype %s",
                              dtype_name(dtype));
    if (precision >= 0)
        return status_invalid("precision not supported for datatype %s", dtype_name(dtype));
    return NULL;
}

static struct status *check_fill(struct span fill) {
    if (fill.len > 1)
        return status_invalid("Fill string must be one or fewer characters");
    if (fill.len == 1 && !memchr(" +-0#", fill.data[0], 5))
        return status_invalid("Fill argument not supported: \"%c\"", fill.data[0]);
    return NULL;
}

/* Makes a printf format from parts that were checked: a flag, numbers, a conversion. */
static void format_make(char format[FORMAT_BYTES], const char *flag, int width, int precision,
                        const char *conversion) {
    char width_text[16] = "", precision_text[16] = "";
    if (width >= 0)
        snprintf(width_text, sizeof(width_text), "%d", width);
    if (precision >= 0)
        snprintf(precision_text, sizeof(precision_text), ".%d", precision);
    snprintf(format, FORMAT_BYTES, "%%%s%s%s%s", flag, width_text, precision_text, conversion);
}

struct status *string_as_string_init(struct kernel_init *init) {
    int64_t precision, width;
    bool is_scientific, is_shortest;
    struct span fill;
    struct as_string_state state = {.dtype = (enum dtype)init->node->in_types[0]};
    TRY(node_get_i32(init->node, "precision", &precision));
    TRY(node_get_i32(init->node, "width", &width));
    TRY(node_get_b(init->node, "scientific", &is_scientific));
    TRY(node_get_b(init->node, "shortest", &is_shortest));
    TRY(node_get_s(init->node, "fill", &fill));
    TRY(check_format(state.dtype, precision, is_scientific, is_shortest));
    TRY(check_fill(fill));
    if (precision > MAX_WIDTH || width > MAX_WIDTH)
        return status_invalid("width %lld and precision %lld must not be above %d",
                              (long long)width, (long long)precision, MAX_WIDTH);
    char flag[2] = {fill.len ? fill.data[0] : '\0', '\0'};
    state.width = (int)MAX(width, -1);
    state.precision = (int)MAX(precision, -1);
    state.is_left = flag[0] == '-';
    state.is_bare = state.width < 0 && !flag[0];
    format_make(state.real, flag, state.width, state.precision,
                is_scientific ? "e"
                : is_shortest ? "g"
                              : "f");
    format_make(state.integer, flag, state.width, -1, "lld");
    format_make(state.natural, flag, state.width, -1, "llu");
    init->state = xmalloc(sizeof(state));
    memcpy(init->state, &state, sizeof(state));
    return NULL;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#define ADD(out, format, value)                                         \
    do {                                                                \
        char small_[128];                                               \
        int len_ = snprintf(small_, sizeof(small_), (format), (value)); \
        if (len_ >= (int)sizeof(small_))                                \
            str_addf((out), (format), (value));                         \
        else                                                            \
            str_add_bytes((out), small_, (size_t)len_);                 \
    } while (0)

static void add_real(const struct as_string_state *state, double v, struct str *out) {
    if (isnan(v))
        v = NAN; /* replaces a NaN with a sign, which printf would show */
    ADD(out, state->real, v);
}

static void add_pair(const struct as_string_state *state, double real, double imaginary,
                     struct str *out) {
    str_add_char(out, '(');
    add_real(state, real, out);
    str_add_char(out, ',');
    add_real(state, imaginary, out);
    str_add_char(out, ')');
}

static void add_text(const struct as_string_state *state, struct span text, struct str *out) {
    if (state->precision >= 0 && state->width > 0)
        text.len = MIN(text.len, (size_t)state->precision);
    size_t n_spaces =
        state->width > 0 && text.len < (size_t)state->width ? (size_t)state->width - text.len : 0;
    if (state->is_left)
        str_add_bytes(out, text.data, text.len);
    for (size_t i = 0; i < n_spaces; i++)
        str_add_char(out, ' ');
    if (!state->is_left)
        str_add_bytes(out, text.data, text.len);
}

static void add_element(const struct as_string_state *state, const struct tensor *input, int64_t i,
                        struct str *out) {
    const void *data = tensor_cdata(input);
    switch (state->dtype) {
    case DT_INT8:
        ADD(out, state->integer, (long long)((const int8_t *)data)[i]);
        break;
    case DT_INT16:
        ADD(out, state->integer, (long long)((const int16_t *)data)[i]);
        break;
    case DT_INT32:
        ADD(out, state->integer, (long long)((const int32_t *)data)[i]);
        break;
    case DT_INT64:
        ADD(out, state->integer, (long long)((const int64_t *)data)[i]);
        break;
    case DT_UINT8:
        ADD(out, state->natural, (unsigned long long)((const uint8_t *)data)[i]);
        break;
    case DT_UINT16:
        ADD(out, state->natural, (unsigned long long)((const uint16_t *)data)[i]);
        break;
    case DT_UINT32:
        ADD(out, state->natural, (unsigned long long)((const uint32_t *)data)[i]);
        break;
    case DT_UINT64:
        ADD(out, state->natural, (unsigned long long)((const uint64_t *)data)[i]);
        break;
    case DT_HALF:
        add_real(state, half_to_float(((const uint16_t *)data)[i]), out);
        break;
    case DT_BFLOAT16:
        add_real(state, bfloat16_to_float(((const uint16_t *)data)[i]), out);
        break;
    case DT_FLOAT:
        add_real(state, ((const float *)data)[i], out);
        break;
    case DT_DOUBLE:
        add_real(state, ((const double *)data)[i], out);
        break;
    case DT_COMPLEX64:
        add_pair(state, ((const float *)data)[2 * i], ((const float *)data)[2 * i + 1], out);
        break;
    case DT_COMPLEX128:
        add_pair(state, ((const double *)data)[2 * i], ((const double *)data)[2 * i + 1], out);
        break;
    case DT_BOOL:
        str_add(out, ((const uint8_t *)data)[i] ? "true" : "false");
        break;
    default:
        add_text(state, tensor_string(input, i), out);
    }
}
#pragma GCC diagnostic pop

/* Writes the digits of v so that the last is at end[-1]. Returns the first. */
static char *write_digits(char *end, uint64_t v) {
    static const char pairs[] = "000102030405060708091011121314151617181920212223242526272829303132"
                                "33343536373839404142434445464748495051525354"
                                "555657585960616263646566676869707172737475767778798081828384858687"
                                "888990919293949596979899";
    for (; v >= 100; v /= 100) {
        end -= 2;
        memcpy(end, pairs + 2 * (v % 100), 2);
    }
    if (v >= 10) {
        end -= 2;
        memcpy(end, pairs + 2 * v, 2);
    } else {
        *--end = (char)('0' + v);
    }
    return end;
}

static struct bytes *whole_text(uint64_t magnitude, bool is_negative) {
    char text[24], *end = text + sizeof(text), *first = write_digits(end, magnitude);
    if (is_negative)
        *--first = '-';
    return bytes_new(first, (size_t)(end - first));
}

#define SIGNED_TEXTS(DT, T)                                                  \
    case DT:                                                                 \
        for (int64_t i = 0; i < input->n_elements && text_goes_on(i); i++) { \
            int64_t v = ((const T *)tensor_cdata(input))[i];                 \
            out[i] = whole_text(v < 0 ? -(uint64_t)v : (uint64_t)v, v < 0);  \
        }                                                                    \
        return true;
#define UNSIGNED_TEXTS(DT, T)                                                \
    case DT:                                                                 \
        for (int64_t i = 0; i < input->n_elements && text_goes_on(i); i++)   \
            out[i] = whole_text(((const T *)tensor_cdata(input))[i], false); \
        return true;

/* Writes whole numbers without printf. False when the type is another one. */
static bool write_whole(const struct tensor *input, struct bytes **out) {
    switch (input->dtype) {
        SIGNED_TEXTS(DT_INT8, int8_t)
        SIGNED_TEXTS(DT_INT16, int16_t)
        SIGNED_TEXTS(DT_INT32, int32_t)
        SIGNED_TEXTS(DT_INT64, int64_t)
        UNSIGNED_TEXTS(DT_UINT8, uint8_t)
        UNSIGNED_TEXTS(DT_UINT16, uint16_t)
        UNSIGNED_TEXTS(DT_UINT32, uint32_t)
        UNSIGNED_TEXTS(DT_UINT64, uint64_t)
    default:
        return false;
    }
}

/* AsString: each element as text, by printf's rules: attrs precision, scientific (%e), shortest
 * (%g), width, fill (a flag).
 * Errors   INVALID_ARGUMENT   at init: attrs that the dtype cannot follow */
enum kernel_result string_as_string(struct kernel_ctx *ctx) {
    const struct as_string_state *state = ctx->instance->state;
    const struct tensor *input = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, tensor_shape(input)));
    struct bytes **out = string_elements(&ctx->outputs[0]);
    if (state->is_bare && write_whole(input, out))
        return KERNEL_DONE;
    struct str text = STR_INIT;
    for (int64_t i = 0; i < input->n_elements && text_goes_on(i); i++) {
        str_clear(&text);
        add_element(state, input, i, &text);
        out[i] = bytes_new(text.data, text.len);
    }
    str_fini(&text);
    return KERNEL_DONE;
}

/* ---- StringToNumber ---- */

/* a double holds every whole number of this many digits, and every power of ten up to it */
enum { EXACT_DIGITS = 15 };

/* Parses a plain decimal [sign] digits [. digits] of few digits: m / 10^k. Both numbers are exact,
 * so that one division rounds as strtod does [Clinger: "How to read floating point numbers
 * accurately", PLDI 1990]. False when the text is something else, perhaps no number. */
static bool parse_decimal(struct span text, double *ret) {
    size_t i = text.data[0] == '-' || text.data[0] == '+', begin = i, point = 0;
    uint64_t m = 0;
    for (; i < text.len; i++) {
        unsigned digit = (unsigned char)text.data[i] - (unsigned)'0';
        if (digit <= 9 && i - begin <= EXACT_DIGITS)
            m = m * 10 + digit;
        else if (text.data[i] == '.' && !point)
            point = i + 1;
        else
            return false;
    }
    size_t n_digits = text.len - begin - (point != 0), n_places = point ? text.len - point : 0;
    if (n_digits == 0 || n_digits > EXACT_DIGITS)
        return false;
    static const double powers[EXACT_DIGITS + 1] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    double v = (double)m / powers[n_places];
    *ret = text.data[0] == '-' ? -v : v;
    return true;
}

/* v is a rounded number. Does rounding v to a float give the same as rounding that number directly?
 * It does unless v is almost half-way between two floats. */
static bool rounds_once(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    uint64_t rest = bits & 0x1fffffff; /* the fraction bits that a float does not have */
    return v == 0 || (fabs(v) >= FLT_MIN && (rest < 0x0fffffff || rest > 0x10000001));
}

/* An element ends with a NUL or with the spaces that strip_spaces took, so strtod stops at the end
 * of the text. A NUL inside makes it stop early. */
static bool parse_real(struct span text, bool is_float, double *ret) {
    if (text.len == 0)
        return false;
    if (parse_decimal(text, ret) && (!is_float || rounds_once(*ret)))
        return true;
    char *end;
    *ret = is_float ? (double)strtof(text.data, &end) : strtod(text.data, &end);
    return end == text.data + text.len;
}

static bool parse_integer(struct span text, bool is_signed, uint64_t max, uint64_t max_negative,
                          uint64_t *ret) {
    bool is_negative = text.len > 0 && text.data[0] == '-' && is_signed;
    size_t i = is_negative || (text.len > 0 && text.data[0] == '+');
    uint64_t v = 0, limit = is_negative ? max_negative : max;
    if (i == text.len)
        return false;
    for (; i < text.len; i++) {
        unsigned digit = (unsigned char)text.data[i] - (unsigned)'0';
        if (digit > 9 || v > (limit - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *ret = is_negative ? -v : v;
    return true;
}

static bool parse_into(enum dtype dtype, struct span text, void *to) {
    double real;
    uint64_t integer;
    bool is_ok = false;
    switch (dtype) {
    case DT_FLOAT:
        if ((is_ok = parse_real(text, true, &real)))
            *(float *)to = (float)real;
        break;
    case DT_DOUBLE:
        if ((is_ok = parse_real(text, false, &real)))
            *(double *)to = real;
        break;
    case DT_INT32:
        if ((is_ok = parse_integer(text, true, INT32_MAX, (uint64_t)INT32_MAX + 1, &integer)))
            *(uint32_t *)to = (uint32_t)integer;
        break;
    case DT_UINT32:
        if ((is_ok = parse_integer(text, false, UINT32_MAX, 0, &integer)))
            *(uint32_t *)to = (uint32_t)integer;
        break;
    case DT_INT64:
        is_ok = parse_integer(text, true, INT64_MAX, (uint64_t)INT64_MAX + 1, to);
        break;
    default:
        is_ok = parse_integer(text, false, UINT64_MAX, 0, to);
    }
    return is_ok;
}

bool string_parse_number(enum dtype dtype, struct span text, void *to) {
    return parse_into(dtype, strip_spaces(text), to);
}

/* StringToNumber: the number in each string, which may have spaces around it. Floats are read as
 * strtod does, integers are decimal.
 * Errors   INVALID_ARGUMENT   no such number, or beyond out_type's integers */
enum kernel_result string_to_number(struct kernel_ctx *ctx) {
    const struct tensor *input = kernel_input(ctx, 0);
    enum dtype dtype = (enum dtype)ctx->instance->out_types[0];
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, tensor_shape(input)));
    char *out = tensor_data(&ctx->outputs[0]);
    for (int64_t i = 0; i < input->n_elements && text_goes_on(i); i++) {
        struct span text = tensor_string(input, i);
        if (unlikely(!string_parse_number(dtype, text, out + (size_t)i * dtype_size(dtype))))
            return kernel_fail(
                ctx, status_invalid("StringToNumberOp could not correctly convert string: %.*s",
                                    (int)MIN(text.len, 1000), text.data));
    }
    return KERNEL_DONE;
}
