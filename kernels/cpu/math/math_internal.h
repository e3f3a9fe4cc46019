/* The math family's own: element types as lists for its loop templates, and the forms of its loops and engines.
 *
 * An engine (math_unary.c, math_binary.c, math_reduce.c, …) does what does not depend on the op: shapes, memory, threads. Loops are made
 * by templates from one expression per op and kind of number, and reach the engines through tables by dtype.
 * half and bfloat16 have no loops: engines convert blocks to float, run the float loop, and round once.
 *
 * Loops that the compiler vectorises are compiled twice from one .inc file: for the baseline, and (the _avx2 files) for machines with
 * AVX2; those of exp and kin a third time, for AVX-512. math_has_avx2 and math_has_avx512 decide when a kernel is prepared. */
#ifndef MILLRACE_KERNELS_CPU_MATH_MATH_INTERNAL_H
#define MILLRACE_KERNELS_CPU_MATH_MATH_INTERNAL_H

#include <complex.h>
#include <math.h>

#include "common/tensor/float16.h"
#include "kernels/kernel.h"

/* ---- element types: X(tag, type, wide, dtype, …) where wide is the unsigned type in which integers wrap without UB ---- */
#define MATH_SIGNED(X, ...)                          \
    X(i8, int8_t, uint32_t, DT_INT8, __VA_ARGS__)    \
    X(i16, int16_t, uint32_t, DT_INT16, __VA_ARGS__) \
    X(i32, int32_t, uint32_t, DT_INT32, __VA_ARGS__) \
    X(i64, int64_t, uint64_t, DT_INT64, __VA_ARGS__)
#define MATH_UNSIGNED(X, ...)                          \
    X(u8, uint8_t, uint32_t, DT_UINT8, __VA_ARGS__)    \
    X(u16, uint16_t, uint32_t, DT_UINT16, __VA_ARGS__) \
    X(u32, uint32_t, uint32_t, DT_UINT32, __VA_ARGS__) \
    X(u64, uint64_t, uint64_t, DT_UINT64, __VA_ARGS__)
#define MATH_INTS(X, ...) MATH_SIGNED(X, __VA_ARGS__) MATH_UNSIGNED(X, __VA_ARGS__)
#define MATH_F32(X, ...) X(f32, float, float, DT_FLOAT, __VA_ARGS__)
#define MATH_F64(X, ...) X(f64, double, double, DT_DOUBLE, __VA_ARGS__)
#define MATH_FLOATS(X, ...) MATH_F32(X, __VA_ARGS__) MATH_F64(X, __VA_ARGS__)
#define MATH_C64(X, ...) X(c64, float complex, float, DT_COMPLEX64, __VA_ARGS__)
#define MATH_C128(X, ...) X(c128, double complex, double, DT_COMPLEX128, __VA_ARGS__)
#define MATH_COMPLEX(X, ...) MATH_C64(X, __VA_ARGS__) MATH_C128(X, __VA_ARGS__)
#define MATH_BOOL(X, ...) X(bool, uint8_t, uint32_t, DT_BOOL, __VA_ARGS__)
/* The quantized types, for the ops that only look at the numbers in them. */
#define MATH_QUANTIZED(X, ...)                        \
    X(q8, int8_t, uint32_t, DT_QINT8, __VA_ARGS__)    \
    X(q16, int16_t, uint32_t, DT_QINT16, __VA_ARGS__) \
    X(q32, int32_t, uint32_t, DT_QINT32, __VA_ARGS__) \
    X(qu8, uint8_t, uint32_t, DT_QUINT8, __VA_ARGS__) \
    X(qu16, uint16_t, uint32_t, DT_QUINT16, __VA_ARGS__)

/* ---- loops ---- */

/* out[i] = op(in[i]). `out` is `in` itself, or apart from it. */
typedef void unary_loop(const void *in, void *out, int64_t n);

enum operands { BOTH_VECTORS, LEFT_IS_ONE, RIGHT_IS_ONE };
/* out[i] = op(a[i], b[i]), where the side that is one holds a single element. `out` is a or b itself, or apart from them.
 * Answers 0, or nonzero when an element is outside the op's domain (the op's domain_error says how). */
typedef unsigned binary_loop(const void *a, const void *b, void *out, int64_t n, enum operands operands);

/* An op's loops by the dtype of its first input; NULL members are not there, half and bfloat16 go through float. */
struct unary_op {
    unary_loop *const *loops, *const *avx2_loops, *const *avx512_loops; /* the latter two may be NULL */
};
struct binary_op {
    binary_loop *const *loops, *const *avx2_loops;
    const char *domain_error; /* INVALID_ARGUMENT's text */
    bool needs_equal_sizes;   /* no broadcasting: gradients of functions */
    bool may_be_incompatible; /* Equal, NotEqual: attr incompatible_shape_error */
    bool incompatible_result; /* what they answer then */
};

#define UNARY_LOOP(tag, T, W, DT, name, R, ...)                           \
    static void name##_loop_##tag(const void *in, void *out, int64_t n) { \
        typedef T value;                                                  \
        typedef W wide __attribute__((unused));                           \
        const value *from = in;                                           \
        R *to = out;                                                      \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {            \
            value x = from[i];                                            \
            to[i] = (R)(__VA_ARGS__);                                     \
        }                                                                 \
    }
#define BINARY_LOOP(tag, T, W, DT, name, R, ...)                                                                    \
    static unsigned name##_loop_##tag(const void *a, const void *b, void *out, int64_t n, enum operands operands) { \
        typedef T value;                                                                                            \
        typedef W wide __attribute__((unused));                                                                     \
        const value *left = a, *right = b;                                                                          \
        R *to = out;                                                                                                \
        unsigned bad = 0;                                                                                           \
        if (operands == BOTH_VECTORS) {                                                                             \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {                                                  \
                value x = left[i], y = right[i];                                                                    \
                to[i] = (R)(__VA_ARGS__);                                                                           \
            }                                                                                                       \
        } else if (operands == LEFT_IS_ONE) {                                                                       \
            value x = *left;                                                                                        \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {                                                  \
                value y = right[i];                                                                                 \
                to[i] = (R)(__VA_ARGS__);                                                                           \
            }                                                                                                       \
        } else {                                                                                                    \
            value y = *right;                                                                                       \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {                                                  \
                value x = left[i];                                                                                  \
                to[i] = (R)(__VA_ARGS__);                                                                           \
            }                                                                                                       \
        }                                                                                                           \
        return bad;                                                                                                 \
    }
/* For costly expressions: one loop, a third of the code. */
#define SLOW_BINARY_LOOP(tag, T, W, DT, name, R, ...)                                                               \
    static unsigned name##_loop_##tag(const void *a, const void *b, void *out, int64_t n, enum operands operands) { \
        typedef T value;                                                                                            \
        typedef W wide __attribute__((unused));                                                                     \
        const value *left = a, *right = b;                                                                          \
        R *to = out;                                                                                                \
        unsigned bad = 0;                                                                                           \
        int64_t left_step = operands != LEFT_IS_ONE, right_step = operands != RIGHT_IS_ONE;                         \
        for (int64_t i = 0; i < n; i++, left += left_step, right += right_step) {                                   \
            value x = *left, y = *right;                                                                            \
            to[i] = (R)(__VA_ARGS__);                                                                               \
        }                                                                                                           \
        return bad;                                                                                                 \
    }
#define LOOP_ENTRY(tag, T, W, DT, name, ...) [DT] = name##_loop_##tag,

/* A .inc file is compiled once per instruction set: MATH_ISA names which. */
#define MATH_TABLE_NAME_(name, isa) name##_loops_##isa
#define MATH_TABLE_NAME(name, isa) MATH_TABLE_NAME_(name, isa)
#ifndef MATH_ISA
#define MATH_ISA base
#endif
#define MATH_TABLE(name) MATH_TABLE_NAME(name, MATH_ISA)

#ifdef __x86_64__
#define MATH_HAS_AVX2_FILES 1
static inline bool math_has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static inline bool math_has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
#define MATH_HAS_AVX2_FILES 0
static inline bool math_has_avx2(void) { return false; }
static inline bool math_has_avx512(void) { return false; }
#endif

/* ---- engines: a kernel row's arg is its op ---- */
kernel_fn unary_compute, binary_compute;
struct status *unary_init(struct kernel_init *init);
struct status *binary_init(struct kernel_init *init);

/* An output scalar inside the tensor value, without what tensor_new must check. The caller writes its bytes. */
static inline void *output_scalar(struct tensor *out, enum dtype dtype) {
    out->dtype = (uint8_t)dtype;
    out->rank = 0;
    out->storage = TENSOR_INLINE;
    out->n_elements = 1;
    return out->bytes;
}
static inline bool is_inline_scalar(const struct tensor *t) { return t->storage == TENSOR_INLINE && t->rank == 0; }

COLD struct status *incompatible_shapes(struct shape a, struct shape b);
/* INVALID_ARGUMENT with `words`, in which %0 to %9 stand for the inputs' shapes. */
COLD struct status *input_shapes_error(const struct kernel_ctx *ctx, const char *words);

#endif
