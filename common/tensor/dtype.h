/* Names the element types, by TensorFlow's numbers, and sets of them.
 *
 * A reference type (of the output of a reference variable) is its base type plus 100. Any
 * thread. */
#ifndef MILLRACE_COMMON_TENSOR_DTYPE_H
#define MILLRACE_COMMON_TENSOR_DTYPE_H

#include "common/base/base.h"

enum dtype {
    DT_INVALID = 0,
    DT_FLOAT = 1,
    DT_DOUBLE = 2,
    DT_INT32 = 3,
    DT_UINT8 = 4,
    DT_INT16 = 5,
    DT_INT8 = 6,
    DT_STRING = 7,
    DT_COMPLEX64 = 8,
    DT_INT64 = 9,
    DT_BOOL = 10,
    DT_QINT8 = 11,
    DT_QUINT8 = 12,
    DT_QINT32 = 13,
    DT_BFLOAT16 = 14,
    DT_QINT16 = 15,
    DT_QUINT16 = 16,
    DT_UINT16 = 17,
    DT_COMPLEX128 = 18,
    DT_HALF = 19,
    DT_RESOURCE = 20,
    DT_VARIANT = 21,
    DT_UINT32 = 22,
    DT_UINT64 = 23,
    DT_FLOAT8_E5M2 = 24,
    DT_FLOAT8_E4M3FN = 25,
    DT_FLOAT8_E4M3FNUZ = 26,
    DT_FLOAT8_E4M3B11FNUZ = 27,
    DT_FLOAT8_E5M2FNUZ = 28,
    DT_INT4 = 29,
    DT_UINT4 = 30,
    DT_INT2 = 31,
    DT_UINT2 = 32,
    DT_FLOAT4_E2M1FN = 33,
    DT_N_TYPES = 34,
    DT_REF_OFFSET = 100,
};

typedef uint64_t dtype_set;
#define DTYPE_BIT(type) (1ull << (type))

#define DTYPES_REAL_FLOAT \
    (DTYPE_BIT(DT_HALF) | DTYPE_BIT(DT_BFLOAT16) | DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE))
#define DTYPES_COMPLEX (DTYPE_BIT(DT_COMPLEX64) | DTYPE_BIT(DT_COMPLEX128))
#define DTYPES_FLOAT (DTYPES_REAL_FLOAT)
#define DTYPES_SIGNED_INT \
    (DTYPE_BIT(DT_INT8) | DTYPE_BIT(DT_INT16) | DTYPE_BIT(DT_INT32) | DTYPE_BIT(DT_INT64))
#define DTYPES_UNSIGNED_INT \
    (DTYPE_BIT(DT_UINT8) | DTYPE_BIT(DT_UINT16) | DTYPE_BIT(DT_UINT32) | DTYPE_BIT(DT_UINT64))
#define DTYPES_INT (DTYPES_SIGNED_INT | DTYPES_UNSIGNED_INT)
#define DTYPES_REAL (DTYPES_REAL_FLOAT | DTYPES_INT)
#define DTYPES_NUMBER (DTYPES_REAL | DTYPES_COMPLEX)
#define DTYPES_INDEX (DTYPE_BIT(DT_INT32) | DTYPE_BIT(DT_INT64))
#define DTYPES_QUANTIZED                                                                         \
    (DTYPE_BIT(DT_QINT8) | DTYPE_BIT(DT_QUINT8) | DTYPE_BIT(DT_QINT16) | DTYPE_BIT(DT_QUINT16) | \
     DTYPE_BIT(DT_QINT32))
#define DTYPES_FLOAT8                                                                          \
    (DTYPE_BIT(DT_FLOAT8_E5M2) | DTYPE_BIT(DT_FLOAT8_E4M3FN) | DTYPE_BIT(DT_FLOAT8_E4M3FNUZ) | \
     DTYPE_BIT(DT_FLOAT8_E4M3B11FNUZ) | DTYPE_BIT(DT_FLOAT8_E5M2FNUZ))
#define DTYPES_TINY                                                                        \
    (DTYPE_BIT(DT_INT4) | DTYPE_BIT(DT_UINT4) | DTYPE_BIT(DT_INT2) | DTYPE_BIT(DT_UINT2) | \
     DTYPE_BIT(DT_FLOAT4_E2M1FN))
/* Elements of these are pointers to counted objects (common/tensor/object.h). */
#define DTYPES_OBJECT (DTYPE_BIT(DT_STRING) | DTYPE_BIT(DT_RESOURCE) | DTYPE_BIT(DT_VARIANT))
/* Elements of these are plain memory: copied with memcpy. */
#define DTYPES_PLAIN \
    (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_QUANTIZED | DTYPES_FLOAT8 | DTYPES_TINY)
#define DTYPES_ALL (DTYPES_PLAIN | DTYPES_OBJECT)

static inline bool dtype_is_ref(enum dtype type) { return type > DT_REF_OFFSET; }
static inline enum dtype dtype_base(enum dtype type) {
    return type > DT_REF_OFFSET ? (enum dtype)(type - DT_REF_OFFSET) : type;
}
static inline enum dtype dtype_ref(enum dtype type) { return (enum dtype)(type + DT_REF_OFFSET); }
static inline bool dtype_in(enum dtype type, dtype_set set) {
    return type < DT_N_TYPES && (set >> type & 1);
}
static inline bool dtype_is_object(enum dtype type) { return dtype_in(type, DTYPES_OBJECT); }
static inline bool dtype_is_known(int type) { return type > DT_INVALID && type < DT_N_TYPES; }

/* half or bfloat16: float16.h converts them, and kernels compute with them in float */
static inline bool dtype_is_narrow_float(enum dtype type) {
    return type == DT_HALF || type == DT_BFLOAT16;
}

/* Bytes per element: 8 for the object types (one pointer); 4-bit and 2-bit types take a whole
 * byte; 0 for unknown numbers. */
size_t dtype_size(enum dtype type);
/* "float", "int32", "bfloat16", "float_ref"; "invalid" for unknown numbers. Static storage. */
const char *dtype_name(enum dtype type);
/* Finds a type by its name, also "float_ref"; DT_INVALID when unknown. */
enum dtype dtype_parse(struct span name);
/* Writes "{float, double}", in the order of the numbers, to `out`: at most len bytes with the
 * NUL. */
void dtype_set_print(dtype_set set, char *out, size_t len);

#endif
