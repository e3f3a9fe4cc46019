/* Element types of kernels (.cu): a C++ type for each dtype, lists of them, and the type that a
 * kernel computes with.
 *
 *     template <class T> __device__ void negate(const unary_args &args) { … }
 *     #define NEGATE(suffix, type) KERNEL(negate_##suffix, unary_args) { negate<type>(args); }
 *     GPU_EACH_FLOAT(NEGATE) GPU_EACH_SIGNED(NEGATE)
 *
 * makes negate_f16, negate_bf16, … which the host finds by gpu_dtype_suffix. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_DEVICE_TYPES_H
#define MILLRACE_KERNELS_CUDA_OPS_DEVICE_TYPES_H

#include <stdint.h>

#include "kernels/cuda/kernel_language.h"

/* A complex number in the layout of complex64 and complex128. */
template <class R> struct gpu_complex {
    R re, im;
    gpu_complex() = default;
    __device__ gpu_complex(R re_) : re(re_), im(0) {}
    __device__ gpu_complex(R re_, R im_) : re(re_), im(im_) {}
};
template <class R>
__device__ static inline gpu_complex<R> operator+(gpu_complex<R> a, gpu_complex<R> b) {
    return gpu_complex<R>(a.re + b.re, a.im + b.im);
}
template <class R>
__device__ static inline gpu_complex<R> operator-(gpu_complex<R> a, gpu_complex<R> b) {
    return gpu_complex<R>(a.re - b.re, a.im - b.im);
}
template <class R>
__device__ static inline gpu_complex<R> operator*(gpu_complex<R> a, gpu_complex<R> b) {
    return gpu_complex<R>(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}
template <class R> __device__ static inline bool operator==(gpu_complex<R> a, gpu_complex<R> b) {
    return a.re == b.re && a.im == b.im;
}
template <class R> __device__ static inline bool operator!=(gpu_complex<R> a, gpu_complex<R> b) {
    return !(a == b);
}

/* X(suffix, type) for each dtype of a set. */
#define GPU_EACH_NARROW(X) X(f16, __half) X(bf16, __nv_bfloat16)
#define GPU_EACH_WIDE(X) X(f32, float) X(f64, double)
#define GPU_EACH_FLOAT(X) GPU_EACH_NARROW(X) GPU_EACH_WIDE(X)
#define GPU_EACH_SIGNED(X) X(i8, int8_t) X(i16, int16_t) X(i32, int32_t) X(i64, int64_t)
#define GPU_EACH_UNSIGNED(X) X(u8, uint8_t) X(u16, uint16_t) X(u32, uint32_t) X(u64, uint64_t)
#define GPU_EACH_INT(X) GPU_EACH_SIGNED(X) GPU_EACH_UNSIGNED(X)
#define GPU_EACH_COMPLEX(X) X(c64, gpu_complex<float>) X(c128, gpu_complex<double>)
#define GPU_EACH_NUMBER(X) GPU_EACH_FLOAT(X) GPU_EACH_INT(X) GPU_EACH_COMPLEX(X)
/* Where only the size of an element matters: b1, b2, b4, b8, b16 (see gpu_size_suffix). */
struct alignas(16) gpu_bits128 {
    uint64_t low, high;
};
#define GPU_EACH_SIZE(X) \
    X(b1, uint8_t) X(b2, uint16_t) X(b4, uint32_t) X(b8, uint64_t) X(b16, gpu_bits128)

/* The type that a kernel computes with: float for half and bfloat16, otherwise the type. */
template <class T> struct gpu_wide { typedef T type; };
template <> struct gpu_wide<__half> { typedef float type; };
template <> struct gpu_wide<__nv_bfloat16> { typedef float type; };

/* The number of this thread in its grid, and how many threads the grid has. */
__device__ static inline int64_t gpu_thread() {
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ static inline int64_t gpu_n_threads() { return (int64_t)gridDim.x * blockDim.x; }

#endif
