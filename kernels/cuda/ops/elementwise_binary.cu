/* Kernels of the elementwise ops with two operands: arithmetic, quotients, powers, bits and truth,
 * gradients of functions. See elementwise_forms.h. */
#include "kernels/cuda/ops/complex_math.h"
#include "kernels/cuda/ops/elementwise_forms.h"

/* ---- arithmetic ---- */

EACH_FLOAT(BINARY, add, x + y)
EACH_INT(BINARY, add, wrap(x) + wrap(y))
EACH_I32(BINARY, add, wrap(x) + wrap(y)) /* BiasAdd */
EACH_COMPLEX(BINARY, add, x + y)
EACH_FLOAT(BINARY, sub, x - y)
EACH_INT(BINARY, sub, wrap(x) - wrap(y))
EACH_COMPLEX(BINARY, sub, x - y)
EACH_FLOAT(BINARY, mul, x * y)
EACH_INT(BINARY, mul, wrap(x) * wrap(y))
EACH_COMPLEX(BINARY, mul, x * y)
EACH_FLOAT(BINARY, mul_no_nan, y == 0 ? (value)0 : x * y)
EACH_COMPLEX(BINARY, mul_no_nan, y == value(0) ? value(0) : x * y)
/* NaN when either operand is. Comparing x with itself finds a NaN in x. */
EACH_FLOAT(BINARY, maximum, x > y || x != x ? x : y)
EACH_INT(BINARY, maximum, x > y ? x : y)
EACH_FLOAT(BINARY, minimum, x < y || x != x ? x : y)
EACH_INT(BINARY, minimum, x < y ? x : y)
EACH_FLOAT(BINARY, squared_difference, (x - y) * (x - y))
EACH_SIGNED(BINARY, squared_difference, (wrap(x) - wrap(y)) * (wrap(x) - wrap(y)))
#define MAKE_COMPLEX(suffix, T, name) \
    BINARY_TO(suffix, T, gpu_complex<T>, name, gpu_complex<T>(x, y))
EACH_WIDE(MAKE_COMPLEX, make_complex)

/* ---- quotients ---- */

/* A kernel cannot fail, so on a GPU the quotient by an integer zero has all bits set and the
 * remainder is the dividend, as TensorFlow's GPU kernels have it. A CPU's kernel fails. The least
 * number divided by -1 is itself. */
template <class T> __device__ static inline bool is_negative(T x) {
    return x < (T)1 && x != 0; /* unlike x < 0 it is no riddle where T has no sign */
}
template <class T> __device__ __noinline__ static T int_quotient(T x, T y) {
    if (y == 0)
        return (T)-1;
    if (is_negative((T)-1) && y == (T)-1)
        return (T)(0 - wrap(x));
    return (T)(x / y);
}
template <class T> __device__ __noinline__ static T int_remainder(T x, T y) {
    if (y == 0)
        return x;
    if (is_negative((T)-1) && y == (T)-1)
        return 0;
    return (T)(x % y);
}
/* Rounds towards minus infinity: where the signs differ and there is a remainder, one less. */
template <class T> __device__ __noinline__ static T int_floor_quotient(T x, T y) {
    T quotient = int_quotient(x, y);
    bool is_above = y != 0 && int_remainder(x, y) != 0 && is_negative(x) != is_negative(y);
    return (T)(quotient - (is_above ? 1 : 0));
}
template <class T> __device__ __noinline__ static T int_floor_remainder(T x, T y) {
    T rest = int_remainder(x, y);
    return y != 0 && rest != 0 && is_negative(rest) != is_negative(y) ? (T)(rest + y) : rest;
}
template <class T> __device__ static inline T float_floor_remainder(T x, T y) {
    T rest = fmod(x, y);
    return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}

EACH_FLOAT(BINARY, div, x / y)
EACH_INT(BINARY, div, int_quotient(x, y))
EACH_COMPLEX(BINARY, div, complex_quotient(x, y))
EACH_FLOAT(BINARY, div_no_nan, y == 0 ? (value)0 : x / y)
EACH_COMPLEX(BINARY, div_no_nan, y == value(0) ? value(0) : complex_quotient(x, y))
EACH_FLOAT(BINARY, truncate_div, trunc(x / y))
EACH_INT(BINARY, truncate_div, int_quotient(x, y))
EACH_FLOAT(BINARY, floor_div, floor(x / y))
EACH_INT(BINARY, floor_div, int_floor_quotient(x, y))
EACH_FLOAT_SLOWLY_2(floor_mod, float_floor_remainder(x, y))
EACH_INT(BINARY, floor_mod, int_floor_remainder(x, y))

/* ---- powers, logarithms, angles ---- */

/* Powers by squaring, which wrap. A negative exponent gives what the quotient 1 / x^-y is, rounded
 * towards zero, and 0 for base 0; a CPU's kernel fails. */
template <class T> __device__ __noinline__ static T int_power(T x, T y) {
    if (y < 0)
        return x == 1 ? (T)1 : x == (T)-1 ? (y & 1 ? (T)-1 : (T)1) : (T)0;
    typename gpu_wrapping<T>::type power = 1, base = wrap(x);
    for (; y > 0; y = (T)(y >> 1), base *= base)
        if (y & 1)
            power *= base;
    return (T)power;
}
EACH_FLOAT_SLOWLY_2(pow, pow(x, y))
EACH_SIGNED(BINARY, pow, int_power(x, y))
EACH_FLOAT_SLOWLY_2(atan2, atan2(x, y))
EACH_FLOAT_SLOWLY_2(xlogy, x == 0 ? (T)0 : x * log(y))
EACH_COMPLEX(BINARY, xlogy, x == value(0) ? value(0) : x * complex_log(y))
EACH_FLOAT(BINARY, xdivy, x == 0 ? (value)0 : x / y)
EACH_COMPLEX(BINARY, xdivy, x == value(0) ? value(0) : complex_quotient(x, y))
EACH_FLOAT_SLOWLY_2(xlog1py, x == 0 ? (T)0 : x * log1p(y))
EACH_COMPLEX(BINARY, xlog1py, x == value(0) ? value(0) : x * complex_log1p(y))
EACH_WIDE(BINARY, next_after, nextafter(x, y))

/* ---- bits and truth ---- */

/* A shift is limited to the bits that there are. */
template <class T> __device__ static inline int shift_of(T y) {
    const int most = (int)(8 * sizeof(T)) - 1;
    return is_negative(y) ? 0 : y > (T)most ? most : (int)y;
}
#define BITS(X)                                          \
    X(BINARY, bitwise_and, x & y)                        \
    X(BINARY, bitwise_or, x | y)                         \
    X(BINARY, bitwise_xor, x ^ y)                        \
    X(BINARY, left_shift, wrap(x) << shift_of(y))        \
    X(BINARY, right_shift, x >> shift_of(y))
BITS(EACH_INT)
BITS(EACH_I32)
EACH_BOOL(BINARY, logical_and, (x != 0) & (y != 0))
EACH_BOOL(BINARY, logical_or, (x | y) != 0)

/* ---- gradients of functions, from the function's value x and the gradient y ---- */

/* of roots and reciprocals, whose derivative may be infinite, a gradient of 0 stays 0 */
EACH_FLOAT(BINARY, reciprocal_grad, y == 0 ? (value)0 : -y * x * x)
EACH_FLOAT(BINARY, sigmoid_grad, y * x * (1 - x))
EACH_FLOAT(BINARY, tanh_grad, y * (1 - x * x))
EACH_FLOAT(BINARY, sqrt_grad, y == 0 ? (value)0 : (value)0.5 * y / x)
EACH_FLOAT(BINARY, rsqrt_grad, y == 0 ? (value)0 : (value)-0.5 * y * x * x * x)
