/* Lists the element types for loop templates. */
#ifndef MILLRACE_KERNELS_SUPPORT_NUMBER_TYPES_H
#define MILLRACE_KERNELS_SUPPORT_NUMBER_TYPES_H

#include <complex.h>

#include "common/tensor/dtype.h"

/* ---- element types: X(tag, type, wide, dtype, …) where wide is the unsigned type in which
 * integers wrap without UB ---- */
#define NUMBERS_SIGNED(X, ...)                       \
    X(i8, int8_t, uint32_t, DT_INT8, __VA_ARGS__)    \
    X(i16, int16_t, uint32_t, DT_INT16, __VA_ARGS__) \
    X(i32, int32_t, uint32_t, DT_INT32, __VA_ARGS__) \
    X(i64, int64_t, uint64_t, DT_INT64, __VA_ARGS__)
#define NUMBERS_UNSIGNED(X, ...)                       \
    X(u8, uint8_t, uint32_t, DT_UINT8, __VA_ARGS__)    \
    X(u16, uint16_t, uint32_t, DT_UINT16, __VA_ARGS__) \
    X(u32, uint32_t, uint32_t, DT_UINT32, __VA_ARGS__) \
    X(u64, uint64_t, uint64_t, DT_UINT64, __VA_ARGS__)
#define NUMBERS_INTS(X, ...) NUMBERS_SIGNED(X, __VA_ARGS__) NUMBERS_UNSIGNED(X, __VA_ARGS__)
#define NUMBERS_F32(X, ...) X(f32, float, float, DT_FLOAT, __VA_ARGS__)
#define NUMBERS_F64(X, ...) X(f64, double, double, DT_DOUBLE, __VA_ARGS__)
#define NUMBERS_FLOATS(X, ...) NUMBERS_F32(X, __VA_ARGS__) NUMBERS_F64(X, __VA_ARGS__)
#define NUMBERS_C64(X, ...) X(c64, float complex, float, DT_COMPLEX64, __VA_ARGS__)
#define NUMBERS_C128(X, ...) X(c128, double complex, double, DT_COMPLEX128, __VA_ARGS__)
#define NUMBERS_COMPLEX(X, ...) NUMBERS_C64(X, __VA_ARGS__) NUMBERS_C128(X, __VA_ARGS__)
#define NUMBERS_BOOL(X, ...) X(bool, uint8_t, uint32_t, DT_BOOL, __VA_ARGS__)
/* x with a suffix for the type, where x and tag may be macros. */
#define NAME_OF(x, tag) NAME_OF_(x, tag)
#define NAME_OF_(x, tag) x##_##tag
#define NAME_BOOL(x) x##_bool /* bool is a macro itself */
/* The quantized types, for ops that only compare their numbers. */
#define NUMBERS_QUANTIZED(X, ...)                     \
    X(q8, int8_t, uint32_t, DT_QINT8, __VA_ARGS__)    \
    X(q16, int16_t, uint32_t, DT_QINT16, __VA_ARGS__) \
    X(q32, int32_t, uint32_t, DT_QINT32, __VA_ARGS__) \
    X(qu8, uint8_t, uint32_t, DT_QUINT8, __VA_ARGS__) \
    X(qu16, uint16_t, uint32_t, DT_QUINT16, __VA_ARGS__)

#endif
