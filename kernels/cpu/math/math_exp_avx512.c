/* The build of math_exp.inc for machines with AVX-512: nothing here runs unless cpu_has_avx512()
 * says so. */
#ifdef __x86_64__
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define LOOP_ISA avx512
#include "kernels/cpu/math/math_exp.inc"
#else
typedef int math_exp_avx512_is_empty; /* another machine: the baseline serves */
#endif
