/* What the math files share: the forms of loops, and the engines that run them.
 *
 * An engine (math_unary.c, math_binary.c, math_reduce.c, …) does what does not depend on the op:
 * shapes, memory, threads. Templates make the loops, from one expression per op and kind of number.
 * Engines find a loop in a table by dtype. half and bfloat16 have no loops: engines convert blocks
 * to float, run the float loop, and round once.
 *
 * Loops that the compiler can vectorise are compiled from one .inc file several times: for the
 * baseline, for machines with AVX2 (the _avx2 files), and those of exp and similar ops also for
 * AVX-512. cpu_has_avx2 and cpu_has_avx512 choose when the kernel of a node is initialised. */
#ifndef MILLRACE_KERNELS_CPU_MATH_MATH_INTERNAL_H
#define MILLRACE_KERNELS_CPU_MATH_MATH_INTERNAL_H

#include <complex.h>
#include <math.h>

#include "common/tensor/float16.h"
#include "kernels/kernel.h"
#include "kernels/support/isa.h"
#include "kernels/support/number_types.h"

/* ---- loops ---- */

/* out[i] = op(in[i]). `out` is `in` itself, or does not overlap it. */
typedef void unary_loop(const void *in, void *out, int64_t n);

enum operands { BOTH_VECTORS, LEFT_IS_ONE, RIGHT_IS_ONE };
/* out[i] = op(a[i], b[i]). With LEFT_IS_ONE or RIGHT_IS_ONE that side is a single element. `out` is
 * a or b itself, or overlaps neither. Returns 0, or nonzero when an element is outside of the op's
 * domain, for which the engine then reports domain_error. */
typedef unsigned binary_loop(const void *a, const void *b, void *out, int64_t n,
                             enum operands operands);

/* An op's loops by the dtype of its first input. A NULL member means that the dtype has no loop;
 * half and bfloat16 use the float loop. */
struct unary_op {
    /* avx2_loops and avx512_loops may be NULL */
    unary_loop *const *loops, *const *avx2_loops, *const *avx512_loops;
};
struct binary_op {
    binary_loop *const *loops, *const *avx2_loops;
    const char *domain_error; /* the text of the INVALID_ARGUMENT status */
    bool needs_equal_sizes;   /* the op does not broadcast: gradients of functions */
    bool may_be_incompatible; /* Equal, NotEqual: they have the attr incompatible_shape_error */
    bool incompatible_result; /* what these answer for incompatible shapes when the attr is false */
};

#define LOOP_TYPES(T, W) \
    typedef T value;     \
    typedef W wide __attribute__((unused));
#define UNARY_LOOP(tag, T, W, DT, name, R, ...)                           \
    static void name##_loop_##tag(const void *in, void *out, int64_t n) { \
        LOOP_TYPES(T, W)                                                  \
        const value *from = in;                                           \
        R *to = out;                                                      \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {            \
            value x = from[i];                                            \
            to[i] = (R)(__VA_ARGS__);                                     \
        }                                                                 \
    }
#define BINARY_EACH(ONE, X, Y, R, ...)                         \
    {                                                          \
        const value one __attribute__((unused)) = ONE;         \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) { \
            value x = X, y = Y;                                \
            to[i] = (R)(__VA_ARGS__);                          \
        }                                                      \
    }
#define BINARY_LOOP(tag, T, W, DT, name, R, ...)                                          \
    static unsigned name##_loop_##tag(const void *a, const void *b, void *out, int64_t n, \
                                      enum operands operands) {                           \
        LOOP_TYPES(T, W)                                                                  \
        const value *left = a, *right = b;                                                \
        R *to = out;                                                                      \
        unsigned bad = 0;                                                                 \
        if (operands == BOTH_VECTORS)                                                     \
            BINARY_EACH(0, left[i], right[i], R, __VA_ARGS__)                             \
        else if (operands == LEFT_IS_ONE)                                                 \
            BINARY_EACH(*left, one, right[i], R, __VA_ARGS__)                             \
        else                                                                              \
            BINARY_EACH(*right, left[i], one, R, __VA_ARGS__)                             \
        return bad;                                                                       \
    }
/* For costly expressions: one loop instead of three, so a third of the code. */
#define SLOW_BINARY_LOOP(tag, T, W, DT, name, R, ...)                                       \
    static unsigned name##_loop_##tag(const void *a, const void *b, void *out, int64_t n,   \
                                      enum operands operands) {                             \
        LOOP_TYPES(T, W)                                                                    \
        const value *left = a, *right = b;                                                  \
        R *to = out;                                                                        \
        unsigned bad = 0;                                                                   \
        int64_t left_step = operands != LEFT_IS_ONE, right_step = operands != RIGHT_IS_ONE; \
        for (int64_t i = 0; i < n; i++, left += left_step, right += right_step) {           \
            value x = *left, y = *right;                                                    \
            to[i] = (R)(__VA_ARGS__);                                                       \
        }                                                                                   \
        return bad;                                                                         \
    }
#define LOOP_ENTRY(tag, T, W, DT, name, ...) [DT] = name##_loop_##tag,

/* ---- engines: a kernel row's arg is its op ---- */
kernel_fn unary_compute, binary_compute;
struct status *unary_init(struct kernel_init *init);
struct status *binary_init(struct kernel_init *init);

/* Makes `out` a scalar that is stored inside the tensor value, without the checks of tensor_new.
 * The caller writes the returned bytes. */
static inline void *output_scalar(struct tensor *out, enum dtype dtype) {
    out->dtype = (uint8_t)dtype;
    out->rank = 0;
    out->storage = TENSOR_INLINE;
    out->n_elements = 1;
    return out->bytes;
}
static inline bool is_inline_scalar(const struct tensor *t) {
    return t->storage == TENSOR_INLINE && t->rank == 0;
}

#endif
