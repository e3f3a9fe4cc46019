/* Lists the element types: names and sizes. */
#include "common/tensor/dtype.h"

#include <stdio.h>

static const struct {
    const char *name, *ref_name;
    uint8_t size_bytes;
} dtype_table[DT_N_TYPES] = {
    /* clang-format off */
    [DT_INVALID]             = {"invalid", "invalid", 0},
    [DT_FLOAT]               = {"float", "float_ref", 4},
    [DT_DOUBLE]              = {"double", "double_ref", 8},
    [DT_INT32]               = {"int32", "int32_ref", 4},
    [DT_UINT8]               = {"uint8", "uint8_ref", 1},
    [DT_INT16]               = {"int16", "int16_ref", 2},
    [DT_INT8]                = {"int8", "int8_ref", 1},
    [DT_STRING]              = {"string", "string_ref", 8},
    [DT_COMPLEX64]           = {"complex64", "complex64_ref", 8},
    [DT_INT64]               = {"int64", "int64_ref", 8},
    [DT_BOOL]                = {"bool", "bool_ref", 1},
    [DT_QINT8]               = {"qint8", "qint8_ref", 1},
    [DT_QUINT8]              = {"quint8", "quint8_ref", 1},
    [DT_QINT32]              = {"qint32", "qint32_ref", 4},
    [DT_BFLOAT16]            = {"bfloat16", "bfloat16_ref", 2},
    [DT_QINT16]              = {"qint16", "qint16_ref", 2},
    [DT_QUINT16]             = {"quint16", "quint16_ref", 2},
    [DT_UINT16]              = {"uint16", "uint16_ref", 2},
    [DT_COMPLEX128]          = {"complex128", "complex128_ref", 16},
    [DT_HALF]                = {"half", "half_ref", 2},
    [DT_RESOURCE]            = {"resource", "resource_ref", 8},
    [DT_VARIANT]             = {"variant", "variant_ref", 8},
    [DT_UINT32]              = {"uint32", "uint32_ref", 4},
    [DT_UINT64]              = {"uint64", "uint64_ref", 8},
    [DT_FLOAT8_E5M2]         = {"float8_e5m2", "float8_e5m2_ref", 1},
    [DT_FLOAT8_E4M3FN]       = {"float8_e4m3fn", "float8_e4m3fn_ref", 1},
    [DT_FLOAT8_E4M3FNUZ]     = {"float8_e4m3fnuz", "float8_e4m3fnuz_ref", 1},
    [DT_FLOAT8_E4M3B11FNUZ]  = {"float8_e4m3b11fnuz", "float8_e4m3b11fnuz_ref", 1},
    [DT_FLOAT8_E5M2FNUZ]     = {"float8_e5m2fnuz", "float8_e5m2fnuz_ref", 1},
    [DT_INT4]                = {"int4", "int4_ref", 1},
    [DT_UINT4]               = {"uint4", "uint4_ref", 1},
    [DT_INT2]                = {"int2", "int2_ref", 1},
    [DT_UINT2]               = {"uint2", "uint2_ref", 1},
    [DT_FLOAT4_E2M1FN]       = {"float4_e2m1fn", "float4_e2m1fn_ref", 1},
    /* clang-format on */
};

size_t dtype_size(enum dtype type) {
    unsigned base = (unsigned)dtype_base(type);
    return likely(base < DT_N_TYPES) ? dtype_table[base].size_bytes : 0;
}

const char *dtype_name(enum dtype type) {
    unsigned base = (unsigned)dtype_base(type);
    if (base >= DT_N_TYPES)
        return "invalid";
    return dtype_is_ref(type) ? dtype_table[base].ref_name : dtype_table[base].name;
}

enum dtype dtype_parse(struct span name) {
    for (int i = DT_FLOAT; i < DT_N_TYPES; i++) {
        if (span_is(name, dtype_table[i].name))
            return (enum dtype)i;
        if (span_is(name, dtype_table[i].ref_name))
            return dtype_ref((enum dtype)i);
    }
    return DT_INVALID;
}

void dtype_set_print(dtype_set set, char *out, size_t len) {
    if (len == 0)
        return;
    size_t used = (size_t)snprintf(out, len, "{");
    const char *separator = "";
    for (int i = DT_FLOAT; i < DT_N_TYPES && used < len; i++) {
        if (!dtype_in((enum dtype)i, set))
            continue;
        used += (size_t)snprintf(out + used, len - used, "%s%s", separator, dtype_table[i].name);
        separator = ", ";
    }
    if (used < len)
        snprintf(out + used, len - used, "}");
}
