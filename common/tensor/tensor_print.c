/* Prints tensors as text for dumps, tests and messages. tensor_parse.c reads that text. */
#include "common/tensor/tensor.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/tensor/float16.h"
#include "common/tensor/text.h"

static locale_t c_locale;

static void make_locale(void) {
    c_locale = newlocale(LC_ALL_MASK, "C", NULL);
    CHECK(c_locale);
}

locale_t text_locale(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_locale);
    return c_locale;
}

void text_add_double(struct str *out, double v) {
    char text[40];
    if (isnan(v) || isinf(v)) {
        str_add(out, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return;
    }
    locale_t before = uselocale(text_locale());
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    uselocale(before);
    str_add(out, text);
}

void text_add_float(struct str *out, float v) {
    char text[40];
    if (isnan(v) || isinf(v)) {
        text_add_double(out, (double)v);
        return;
    }
    locale_t before = uselocale(text_locale());
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v)
            break;
    }
    uselocale(before);
    str_add(out, text);
}

void text_add_quoted(struct str *out, struct span text) {
    str_add_char(out, '"');
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c == '"' || c == '\\')
            str_addf(out, "\\%c", c);
        else if (c == '\n')
            str_add(out, "\\n");
        else if (c < 0x20 || c == 0x7f)
            str_addf(out, "\\x%02x", c);
        else
            str_add_char(out, (char)c);
    }
    str_add_char(out, '"');
}

static void add_object(struct str *out, const struct object *object) {
    if (!object)
        str_add(out, "<empty>");
    else if (object->type == &resource_handle_type)
        str_addf(out, "<%s/%s>", CONTAINER_OF(object, struct resource_handle, object)->container,
                 CONTAINER_OF(object, struct resource_handle, object)->name);
    else
        str_addf(out, "<%s>", object->type->name);
}

/* Extends the sign of an n-bit value in a byte; the upper bits are ignored. */
static int sign_extend(int v, int n_bits) {
    return (v & ((1 << n_bits) - 1)) - ((v & 1 << (n_bits - 1)) ? 1 << n_bits : 0);
}

static void add_element(struct str *out, const struct tensor *t, int64_t i) {
    const void *data = tensor_cdata(t);
#define AT(type) (((const type *)data)[i])
#define SMALL(format) text_add_float(out, small_float_to_float(format, AT(uint8_t)))
    switch ((enum dtype)t->dtype) {
        /* clang-format off */
    case DT_FLOAT: text_add_float(out, AT(float)); break;
    case DT_DOUBLE: text_add_double(out, AT(double)); break;
    case DT_HALF: text_add_float(out, half_to_float(AT(uint16_t))); break;
    case DT_BFLOAT16: text_add_float(out, bfloat16_to_float(AT(uint16_t))); break;
    case DT_COMPLEX64:
        str_add_char(out, '(');
        text_add_float(out, ((const float *)data)[2 * i]);
        str_add_char(out, ',');
        text_add_float(out, ((const float *)data)[2 * i + 1]);
        str_add_char(out, ')');
        break;
    case DT_COMPLEX128:
        str_add_char(out, '(');
        text_add_double(out, ((const double *)data)[2 * i]);
        str_add_char(out, ',');
        text_add_double(out, ((const double *)data)[2 * i + 1]);
        str_add_char(out, ')');
        break;
    case DT_INT8:
    case DT_QINT8: str_addf(out, "%d", AT(int8_t)); break;
    case DT_UINT8:
    case DT_QUINT8: str_addf(out, "%u", AT(uint8_t)); break;
    case DT_INT16:
    case DT_QINT16: str_addf(out, "%d", AT(int16_t)); break;
    case DT_UINT16:
    case DT_QUINT16: str_addf(out, "%u", AT(uint16_t)); break;
    case DT_INT32:
    case DT_QINT32: str_addf(out, "%" PRId32, AT(int32_t)); break;
    case DT_UINT32: str_addf(out, "%" PRIu32, AT(uint32_t)); break;
    case DT_INT64: str_addf(out, "%" PRId64, AT(int64_t)); break;
    case DT_UINT64: str_addf(out, "%" PRIu64, AT(uint64_t)); break;
    case DT_BOOL: str_add(out, AT(uint8_t) ? "true" : "false"); break;
    case DT_STRING: text_add_quoted(out, tensor_string(t, i)); break;
    case DT_RESOURCE:
    case DT_VARIANT: add_object(out, AT(struct object *)); break;
    case DT_FLOAT8_E5M2: SMALL(SMALL_FLOAT_E5M2); break;
    case DT_FLOAT8_E4M3FN: SMALL(SMALL_FLOAT_E4M3FN); break;
    case DT_FLOAT8_E4M3FNUZ: SMALL(SMALL_FLOAT_E4M3FNUZ); break;
    case DT_FLOAT8_E4M3B11FNUZ: SMALL(SMALL_FLOAT_E4M3B11FNUZ); break;
    case DT_FLOAT8_E5M2FNUZ: SMALL(SMALL_FLOAT_E5M2FNUZ); break;
    case DT_FLOAT4_E2M1FN: SMALL(SMALL_FLOAT_E2M1FN); break;
    case DT_INT4: str_addf(out, "%d", sign_extend(AT(uint8_t), 4)); break;
    case DT_UINT4: str_addf(out, "%d", AT(uint8_t) & 15); break;
    case DT_INT2: str_addf(out, "%d", sign_extend(AT(uint8_t), 2)); break;
    case DT_UINT2: str_addf(out, "%d", AT(uint8_t) & 3); break;
    case DT_INVALID:
    case DT_N_TYPES:
    case DT_REF_OFFSET: str_add_char(out, '?'); break;
        /* clang-format on */
    }
#undef AT
#undef SMALL
}

void tensor_print(const struct tensor *t, int64_t max_elements, struct str *out) {
    if (t->storage == TENSOR_NONE || t->storage == TENSOR_DEAD) {
        str_add(out, t->storage == TENSOR_DEAD ? "<dead>" : "<none>");
        return;
    }
    if (t->storage == TENSOR_REF) {
        str_addf(out, "<%s variable>", dtype_name((enum dtype)t->dtype));
        return;
    }
    str_add(out, dtype_name((enum dtype)t->dtype));
    shape_print(tensor_shape(t), out);
    str_add_char(out, '{');
    for (int64_t i = 0; i < t->n_elements && i < max_elements; i++) {
        if (i > 0)
            str_add(out, ", ");
        add_element(out, t, i);
    }
    if (t->n_elements > max_elements)
        str_add(out, max_elements > 0 ? ", …" : "…");
    str_add_char(out, '}');
}
