/* Compiles math_exp.inc for machines with AVX2 and FMA. Its loops run only where cpu_has_avx2() is
 * true. */
#ifdef __x86_64__
#pragma GCC target("avx2,fma,f16c,bmi,bmi2")
#define LOOP_ISA avx2
#include "kernels/cpu/math/math_exp.inc"
#else
typedef int math_exp_avx2_is_empty; /* on other processors the baseline's loops run */
#endif
