/* Functions of complex numbers for kernels. As in C (annex G), an infinite part makes a number
 * infinite even when the other part is NaN. None is inlined: a kernel has several copies of its
 * expression. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_COMPLEX_MATH_H
#define MILLRACE_KERNELS_CUDA_OPS_COMPLEX_MATH_H

#include "kernels/cuda/ops/device_types.h"

template <class R> __device__ static inline R complex_size(gpu_complex<R> z) {
    return hypot(z.re, z.im);
}

/* a / b. The divisor is scaled to about 1, so that nothing overflows on the way. */
template <class R>
__device__ __noinline__ static gpu_complex<R> complex_quotient(gpu_complex<R> a, gpu_complex<R> b) {
    R largest = fmax(fabs(b.re), fabs(b.im));
    int power = 0;
    if (largest > 0 && largest < (R)INFINITY) {
        power = ilogb(largest);
        b = gpu_complex<R>(scalbn(b.re, -power), scalbn(b.im, -power));
    }
    R size = b.re * b.re + b.im * b.im;
    gpu_complex<R> q(scalbn((a.re * b.re + a.im * b.im) / size, -power),
                     scalbn((a.im * b.re - a.re * b.im) / size, -power));
    if (q.re == q.re || q.im == q.im)
        return q;
    bool a_is_infinite = isinf(a.re) || isinf(a.im), b_is_infinite = isinf(b.re) || isinf(b.im);
    bool a_is_nan = a.re != a.re || a.im != a.im;
    if (size == 0 && !(a.re != a.re && a.im != a.im))
        return gpu_complex<R>(copysign((R)INFINITY, b.re) * a.re,
                              copysign((R)INFINITY, b.re) * a.im);
    if (a_is_infinite && !b_is_infinite && b.re == b.re && b.im == b.im) {
        R re = copysign(isinf(a.re) ? (R)1 : (R)0, a.re),
          im = copysign(isinf(a.im) ? (R)1 : (R)0, a.im);
        return gpu_complex<R>((R)INFINITY * (re * b.re + im * b.im),
                              (R)INFINITY * (im * b.re - re * b.im));
    }
    if (b_is_infinite && !a_is_infinite && !a_is_nan) {
        R re = copysign(isinf(b.re) ? (R)1 : (R)0, b.re),
          im = copysign(isinf(b.im) ? (R)1 : (R)0, b.im);
        return gpu_complex<R>((R)0 * (a.re * re + a.im * im), (R)0 * (a.im * re - a.re * im));
    }
    return q;
}

template <class R> __device__ __noinline__ static gpu_complex<R> complex_sign(gpu_complex<R> z) {
    R size = complex_size(z);
    return size == 0 ? gpu_complex<R>(0, 0) : gpu_complex<R>(z.re / size, z.im / size);
}

template <class R> __device__ __noinline__ static gpu_complex<R> complex_exp(gpu_complex<R> z) {
    if (z.im == 0)
        return gpu_complex<R>(exp(z.re), z.im);
    if (z.re == -(R)INFINITY && !(fabs(z.im) < (R)INFINITY)) /* 0 times an unknown direction */
        return gpu_complex<R>(0, 0);
    if (z.re == (R)INFINITY && !(fabs(z.im) < (R)INFINITY))
        return gpu_complex<R>(z.re, (R)NAN);
    /* e^x is a product, because it may overflow where e^x·cos y does not */
    R half = exp(z.re / 2);
    return gpu_complex<R>(half * cos(z.im) * half, half * sin(z.im) * half);
}

template <class R> __device__ __noinline__ static gpu_complex<R> complex_log(gpu_complex<R> z) {
    R size = complex_size(z), angle = atan2(z.im, z.re);
    /* near 1 the logarithm of the size would cancel */
    if (size > (R)0.5 && size < 2) {
        R large = fmax(fabs(z.re), fabs(z.im)), small = fmin(fabs(z.re), fabs(z.im));
        return gpu_complex<R>((R)0.5 * log1p((large - 1) * (large + 1) + small * small), angle);
    }
    return gpu_complex<R>(log(size), angle);
}

/* log(1 + z), with a real part that is accurate near zero. */
template <class R> __device__ __noinline__ static gpu_complex<R> complex_log1p(gpu_complex<R> z) {
    if (fabs(z.re) < (R)0.5 && fabs(z.im) < (R)0.5)
        return gpu_complex<R>((R)0.5 * log1p(z.re * (2 + z.re) + z.im * z.im),
                              atan2(z.im, 1 + z.re));
    return complex_log(gpu_complex<R>(1 + z.re, z.im));
}

/* sinh(x + iy) = sinh x·cos y + i·cosh x·sin y. */
template <class R> __device__ __noinline__ static gpu_complex<R> complex_sinh(gpu_complex<R> z) {
    R im = z.im == 0 ? z.im : cosh(z.re) * sin(z.im), re = sinh(z.re) * cos(z.im);
    if (z.re == 0)
        re = z.re;
    return gpu_complex<R>(re, im);
}
template <class R> __device__ __noinline__ static gpu_complex<R> complex_cosh(gpu_complex<R> z) {
    R re = cosh(z.re) * cos(z.im), im = sinh(z.re) * sin(z.im);
    if (z.im == 0 || z.re == 0)
        im = z.im * z.re;
    return gpu_complex<R>(re, im);
}
/* tanh(x + iy), by sinh x and tan y [Kahan: "Branch cuts for complex elementary functions", 1987].
 * For large x it is ±1. */
template <class R> __device__ __noinline__ static gpu_complex<R> complex_tanh(gpu_complex<R> z) {
    if (fabs(z.re) > 22)
        return gpu_complex<R>(copysign((R)1, z.re),
                              4 * sin(z.im) * cos(z.im) * exp(-2 * fabs(z.re)));
    R t = tan(z.im), beta = 1 + t * t, s = sinh(z.re), rho = sqrt(1 + s * s);
    if (!(fabs(t) < (R)INFINITY))
        return t == t ? gpu_complex<R>(rho / s, 1 / t) : gpu_complex<R>(t, t);
    R below = 1 + beta * s * s;
    return gpu_complex<R>(beta * rho * s / below, t / below);
}
/* Circular functions, from the hyperbolic ones: sin z = -i sinh(iz), cos z = cosh(iz). */
template <class R> __device__ __noinline__ static gpu_complex<R> complex_sin(gpu_complex<R> z) {
    gpu_complex<R> w = complex_sinh(gpu_complex<R>(-z.im, z.re));
    return gpu_complex<R>(w.im, -w.re);
}
template <class R> __device__ __noinline__ static gpu_complex<R> complex_cos(gpu_complex<R> z) {
    return complex_cosh(gpu_complex<R>(-z.im, z.re));
}
template <class R> __device__ __noinline__ static gpu_complex<R> complex_tan(gpu_complex<R> z) {
    gpu_complex<R> w = complex_tanh(gpu_complex<R>(-z.im, z.re));
    return gpu_complex<R>(w.im, -w.re);
}

#endif
