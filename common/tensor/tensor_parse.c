/* Reads the text form of tensors: of graphs as text (tests, dumps) and of feeds on a command
 * line. */
#include "common/tensor/tensor.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "common/tensor/float16.h"
#include "common/tensor/text.h"

static const char ellipsis[] = "…";

static void advance(struct span *in, size_t n) {
    in->data += n;
    in->len -= n;
}

void text_skip_blanks(struct span *in) {
    while (in->len > 0 && (*in->data == ' ' || *in->data == '\t'))
        advance(in, 1);
}

bool text_take(struct span *in, const char *token) {
    text_skip_blanks(in);
    size_t len = strlen(token);
    if (in->len < len || memcmp(in->data, token, len) != 0)
        return false;
    advance(in, len);
    return true;
}

struct span text_take_word(struct span *in, const char *extra) {
    text_skip_blanks(in);
    struct span word = {in->data, 0};
    while (word.len < in->len && in->data[word.len] &&
           (isalnum_l((unsigned char)in->data[word.len], text_locale()) ||
            strchr(extra, in->data[word.len])))
        word.len++;
    advance(in, word.len);
    return word;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads one escape, after its backslash. */
static bool take_escape(struct span *in, char *ret) {
    if (in->len == 0)
        return false;
    char c = *in->data;
    advance(in, 1);
    switch (c) {
    case 'n':
        *ret = '\n';
        return true;
    case 't':
        *ret = '\t';
        return true;
    case '\\':
    case '"':
        *ret = c;
        return true;
    case 'x':
        if (in->len < 2 || hex_digit(in->data[0]) < 0 || hex_digit(in->data[1]) < 0)
            return false;
        *ret = (char)(hex_digit(in->data[0]) << 4 | hex_digit(in->data[1]));
        advance(in, 2);
        return true;
    default:
        return false;
    }
}

bool text_take_quoted(struct span *in, struct str *ret) {
    if (!text_take(in, "\""))
        return false;
    while (in->len > 0) {
        char c = *in->data;
        advance(in, 1);
        if (c == '"')
            return true;
        if (c == '\\' && !take_escape(in, &c))
            return false;
        str_add_char(ret, c);
    }
    return false;
}

/* Copies the text of a number, which is short, and adds a NUL. */
static bool number_text(struct span *in, char *text, size_t len) {
    text_skip_blanks(in);
    size_t n = 0;
    while (n < in->len && n < len - 1 && in->data[n] &&
           (isalnum_l((unsigned char)in->data[n], text_locale()) || strchr("+-.", in->data[n])))
        n++;
    memcpy(text, in->data, n);
    text[n] = '\0';
    return n > 0;
}

bool text_take_double(struct span *in, double *ret) {
    char text[64], *end;
    if (!number_text(in, text, sizeof(text)))
        return false;
    *ret = strtod_l(text, &end, text_locale());
    if (end == text)
        return false;
    advance(in, (size_t)(end - text));
    return true;
}

/* Reads up to 2^64 - 1 where is_unsigned, and int64 otherwise. False beyond. */
static bool take_integer(struct span *in, bool is_unsigned, int64_t *ret) {
    char text[64], *end;
    if (!number_text(in, text, sizeof(text)) || (is_unsigned && text[0] == '-'))
        return false;
    errno = 0;
    int64_t value =
        is_unsigned ? (int64_t)strtoull(text, &end, 10) : (int64_t)strtoll(text, &end, 10);
    if (end == text || errno == ERANGE)
        return false;
    *ret = value;
    advance(in, (size_t)(end - text));
    return true;
}

bool text_take_int(struct span *in, int64_t *ret) { return take_integer(in, false, ret); }

bool text_take_shape(struct span *in, int64_t *dims, int *ret_rank) {
    if (text_take(in, "<unknown>")) {
        *ret_rank = SHAPE_UNKNOWN_RANK;
        return true;
    }
    if (!text_take(in, "["))
        return false;
    int rank = 0;
    while (!text_take(in, "]")) {
        if (rank == SHAPE_MAX_RANK || (rank > 0 && !text_take(in, ",")))
            return false;
        if (text_take(in, "?"))
            dims[rank++] = -1;
        else if (!text_take_int(in, &dims[rank++]))
            return false;
    }
    *ret_rank = rank;
    return true;
}

/* ---- elements ---- */

/* Returns the pattern with the nearest value. There are only 256. */
static uint8_t small_float_nearest(struct small_float format, double v) {
    int best = 0;
    double best_distance = INFINITY;
    for (int pattern = 0; pattern < 1 << format.n_bits; pattern++) {
        double candidate = (double)small_float_to_float(format, (uint8_t)pattern);
        if (isnan(v) ? isnan(candidate) : candidate == v && !signbit(candidate) == !signbit(v))
            return (uint8_t)pattern;
        double distance = fabs(candidate - v);
        if (distance < best_distance) {
            best = pattern;
            best_distance = distance;
        }
    }
    return (uint8_t)best;
}

static bool store_real(enum dtype dtype, double v, void *at) {
    float f = (float)v;
    uint16_t bits16;
    uint8_t bits8 = 0;
    switch (dtype) {
    case DT_FLOAT:
    case DT_COMPLEX64:
        memcpy(at, &f, sizeof(f));
        return true;
    case DT_DOUBLE:
    case DT_COMPLEX128:
        memcpy(at, &v, sizeof(v));
        return true;
    case DT_HALF:
    case DT_BFLOAT16:
        bits16 = dtype == DT_HALF ? half_from_float(f) : bfloat16_from_float(f);
        memcpy(at, &bits16, sizeof(bits16));
        return true;
    case DT_FLOAT8_E5M2:
        bits8 = small_float_nearest(SMALL_FLOAT_E5M2, v);
        break;
    case DT_FLOAT8_E4M3FN:
        bits8 = small_float_nearest(SMALL_FLOAT_E4M3FN, v);
        break;
    case DT_FLOAT8_E4M3FNUZ:
        bits8 = small_float_nearest(SMALL_FLOAT_E4M3FNUZ, v);
        break;
    case DT_FLOAT8_E4M3B11FNUZ:
        bits8 = small_float_nearest(SMALL_FLOAT_E4M3B11FNUZ, v);
        break;
    case DT_FLOAT8_E5M2FNUZ:
        bits8 = small_float_nearest(SMALL_FLOAT_E5M2FNUZ, v);
        break;
    case DT_FLOAT4_E2M1FN:
        bits8 = small_float_nearest(SMALL_FLOAT_E2M1FN, v);
        break;
    default:
        return false;
    }
    memcpy(at, &bits8, 1);
    return true;
}

/* Reads an integer that the dtype can hold. Hosts are little-endian, so the low bytes are it. */
static bool take_integer_element(struct span *in, enum dtype dtype, void *at) {
    size_t size = dtype_size(dtype);
    int n_bits = dtype == DT_INT2 || dtype == DT_UINT2   ? 2
                 : dtype == DT_INT4 || dtype == DT_UINT4 ? 4
                                                         : 8 * (int)size;
    bool is_unsigned =
        dtype_in(dtype, DTYPES_UNSIGNED_INT | DTYPE_BIT(DT_QUINT8) | DTYPE_BIT(DT_QUINT16) |
                            DTYPE_BIT(DT_UINT4) | DTYPE_BIT(DT_UINT2));
    int64_t value;
    if (!take_integer(in, is_unsigned, &value))
        return false;
    if (n_bits < 64) {
        int64_t end = (int64_t)1 << (n_bits - !is_unsigned), least = is_unsigned ? 0 : -end;
        if (value < least || value >= end)
            return false;
    }
    memcpy(at, &value, size);
    return true;
}

static bool take_element(struct span *in, enum dtype dtype, void *at) {
    size_t size = dtype_size(dtype);
    double real, imaginary;
    uint8_t flag;
    if (dtype_in(dtype, DTYPES_COMPLEX))
        return text_take(in, "(") && text_take_double(in, &real) && text_take(in, ",") &&
               text_take_double(in, &imaginary) && text_take(in, ")") &&
               store_real(dtype, real, at) && store_real(dtype, imaginary, (char *)at + size / 2);
    if (dtype_in(dtype, DTYPES_REAL_FLOAT | DTYPES_FLOAT8 | DTYPE_BIT(DT_FLOAT4_E2M1FN)))
        return text_take_double(in, &real) && store_real(dtype, real, at);
    if (dtype == DT_BOOL) {
        flag = text_take(in, "true");
        memcpy(at, &flag, 1);
        return flag || text_take(in, "false");
    }
    return take_integer_element(in, dtype, at);
}

static bool take_elements(struct span *in, struct tensor *t) {
    enum dtype dtype = (enum dtype)t->dtype;
    size_t size = dtype_size(dtype);
    char *data = tensor_data(t);
    int64_t n = 0;
    struct str text = STR_INIT;
    bool is_good = text_take(in, "{");
    while (is_good && !text_take(in, "}")) {
        if (n > 0 && !text_take(in, ",")) {
            is_good = false;
        } else if (text_take(in, ellipsis)) {
            for (; n > 0 && n < t->n_elements; n++)
                elements_copy(dtype, data + (size_t)n * size, data + (size_t)(n - 1) * size, 1);
            n = t->n_elements;
            is_good = text_take(in, "}");
            break;
        } else if (n == t->n_elements) {
            is_good = false;
        } else if (dtype == DT_STRING) {
            str_clear(&text);
            is_good = text_take_quoted(in, &text);
            tensor_set_string(t, n++, str_text(&text), text.len);
        } else {
            is_good = take_element(in, dtype, data + (size_t)n++ * size);
        }
    }
    str_fini(&text);
    return is_good && n == t->n_elements;
}

struct status *tensor_parse(struct span *text, struct allocator *allocator, struct tensor *ret) {
    struct span word = text_take_word(text, "_");
    enum dtype dtype = dtype_parse(word);
    if (word.len == 0)
        return status_invalid("'%.*s' is not a tensor; a tensor is written as float[2]{1, 2}",
                              (int)MIN(text->len, (size_t)40), text->data);
    if (!dtype_in(dtype, DTYPES_PLAIN | DTYPE_BIT(DT_STRING)))
        return status_invalid("'%.*s' is not a type whose tensors can be written as text",
                              (int)word.len, word.data);
    int64_t dims[SHAPE_MAX_RANK];
    int rank;
    if (!text_take_shape(text, dims, &rank))
        return status_invalid("A tensor of type %s needs a shape such as [2,3]", dtype_name(dtype));
    struct tensor t = TENSOR_INIT;
    TRY(tensor_new_zeroed(allocator, dtype, (struct shape){rank, dims}, &t));
    if (!take_elements(text, &t)) {
        int64_t n = t.n_elements;
        tensor_clear(&t);
        return status_invalid("Malformed elements in a tensor of type %s: %lld of its values are "
                              "wanted, as {1, 2, …}",
                              dtype_name(dtype), (long long)n);
    }
    tensor_move(ret, &t);
    return NULL;
}
