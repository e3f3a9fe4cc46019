/* Compiles math_exp.inc for machines with AVX-512. Its loops run only where cpu_has_avx512() is
 * true. */
#ifdef __x86_64__
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define LOOP_ISA avx512
#include "kernels/cpu/math/math_exp.inc"
#else
typedef int math_exp_avx512_is_empty; /* on other processors the baseline's loops run */
#endif
