/* The build of math_arith.inc for machines with AVX2: nothing here runs unless cpu_has_avx2()
 * says so. */
#ifdef __x86_64__
#pragma GCC target("avx2,f16c,bmi,bmi2,popcnt")
#define LOOP_ISA avx2
#include "kernels/cpu/math/math_arith.inc"
#else
typedef int math_arith_avx2_is_empty; /* another machine: the baseline serves */
#endif
