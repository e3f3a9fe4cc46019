/* Compiles math_simple.inc for machines with AVX2. Its loops run only where cpu_has_avx2()
 * is true. */
#ifdef __x86_64__
#pragma GCC target("avx2,f16c,bmi,bmi2,popcnt")
#define LOOP_ISA avx2
#include "kernels/cpu/math/math_simple.inc"
#else
typedef int math_simple_avx2_is_empty; /* on other processors the baseline's loops run */
#endif
