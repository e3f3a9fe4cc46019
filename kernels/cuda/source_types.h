/* What the compiler at run time (NVRTC) needs in place of the headers of C++ and CUDA: nvcc and the
 * simulated device have their own. No file includes it: tools/embed_ops.py puts it before the ops,
 * in place of stdint.h. */
#ifndef MILLRACE_KERNELS_CUDA_SOURCE_TYPES_H
#define MILLRACE_KERNELS_CUDA_SOURCE_TYPES_H

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long uintptr_t;

#define INT32_MAX 2147483647
#define INT32_MIN (-2147483647 - 1)
#define INT64_MAX 9223372036854775807
#define INT64_MIN (-9223372036854775807 - 1)
#define NAN __int_as_float(0x7fffffff)
#define INFINITY __int_as_float(0x7f800000)

namespace std {
template <class T, class U> struct is_same { static constexpr bool value = false; };
template <class T> struct is_same<T, T> { static constexpr bool value = true; };
template <class T> struct is_floating_point {
    static constexpr bool value = is_same<T, float>::value || is_same<T, double>::value;
};
} // namespace std

/* Narrow floats pass through float. */
struct __half {
    unsigned short bits;
    __half() = default;
    __device__ __half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    __device__ operator float() const {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
        return x;
    }
};
struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    /* Rounds to the nearest, ties to even. */
    __device__ __nv_bfloat16(float x) {
        unsigned wide = __float_as_uint(x);
        bits = x != x ? 0x7fff : (unsigned short)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
    }
    __device__ operator float() const { return __uint_as_float((unsigned)bits << 16); }
};

#endif
