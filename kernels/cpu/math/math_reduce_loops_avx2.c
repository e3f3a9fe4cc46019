/* The build of math_reduce.inc for machines with AVX2: nothing here runs unless cpu_has_avx2()
 * says so. */
#ifdef __x86_64__
#pragma GCC target("avx2,f16c,bmi,bmi2,popcnt")
#define LOOP_ISA avx2
#include "kernels/cpu/math/math_reduce.inc"
#else
typedef int math_reduce_avx2_is_empty; /* another machine: the baseline serves */
#endif
