/* Prints single elements of tensors; see element_text.h. */
#include "kernels/support/element_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/tensor/float16.h"
#include "common/tensor/object.h"

static void add_double(struct str *out, double v) {
    char text[40];
    if (isnan(v)) {
        str_add(out, "nan");
        return;
    }
    snprintf(text, sizeof(text), "%.15g", v);
    if (strtod(text, NULL) != v)
        snprintf(text, sizeof(text), "%.17g", v);
    str_add(out, text);
}

static void add_float(struct str *out, float v) {
    char text[40];
    if (isnan(v)) {
        str_add(out, "nan");
        return;
    }
    snprintf(text, sizeof(text), "%.6g", (double)v);
    if (strtof(text, NULL) != v)
        snprintf(text, sizeof(text), "%.9g", (double)v);
    str_add(out, text);
}

static const char *escape_of(char c) {
    switch (c) {
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    case '"':
        return "\\\"";
    case '\'':
        return "\\'";
    case '\\':
        return "\\\\";
    default:
        return NULL;
    }
}

static void add_string(struct str *out, struct span text, bool quote) {
    if (quote)
        str_add_char(out, '"');
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        const char *escape = escape_of((char)c);
        if (escape)
            str_add(out, escape);
        else if (c < 0x20 || c == 0x7f)
            str_addf(out, "\\%03o", c);
        else
            str_add_char(out, (char)c);
    }
    if (quote)
        str_add_char(out, '"');
}

static void add_handle(struct str *out, const struct object *object) {
    const struct resource_handle *handle = (const struct resource_handle *)object;
    if (!object || object->type != &resource_handle_type)
        str_add_char(out, '?');
    else
        str_addf(out, "<ResourceHandle(name=\"%s\", device=\"%s\", container=\"%s\", type=\"%s\")>",
                 handle->name, handle->device, handle->container, handle->type_name);
}

// clang-format off
#define INTEGER(T, format, W) \
    str_addf(out, format, (W)((const T *)data)[i]); break

void element_text_add(const struct tensor *t, int64_t i, bool quote_strings, struct str *out) {
    const void *data = tensor_cdata(t);
    switch (t->dtype) {
    case DT_INT8: case DT_QINT8:                  INTEGER(int8_t, "%d", int);
    case DT_INT16: case DT_QINT16:                INTEGER(int16_t, "%d", int);
    case DT_INT32: case DT_QINT32:                INTEGER(int32_t, "%d", int);
    case DT_INT64:                                INTEGER(int64_t, "%lld", long long);
    case DT_BOOL: case DT_UINT8: case DT_QUINT8:  INTEGER(uint8_t, "%u", unsigned);
    case DT_UINT16: case DT_QUINT16:              INTEGER(uint16_t, "%u", unsigned);
    case DT_UINT32:                               INTEGER(uint32_t, "%u", unsigned);
    case DT_UINT64:                               INTEGER(uint64_t, "%llu", unsigned long long);
    case DT_FLOAT:    add_float(out, ((const float *)data)[i]); break;
    case DT_DOUBLE:   add_double(out, ((const double *)data)[i]); break;
    case DT_HALF:     add_float(out, half_to_float(((const uint16_t *)data)[i])); break;
    case DT_BFLOAT16: add_float(out, bfloat16_to_float(((const uint16_t *)data)[i])); break;
    case DT_STRING:   add_string(out, tensor_string(t, i), quote_strings); break;
    case DT_RESOURCE: add_handle(out, ((struct object *const *)data)[i]); break;
    default: str_add_char(out, '?');
    }
}
// clang-format on
