/* Compiles math_reduce.inc for machines with AVX-512. Its loops run only where cpu_has_avx512() is
 * true. Products are rounded before they are added, as in the other builds, so results are the same
 * on every machine. */
#ifdef __x86_64__
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#pragma GCC optimize("fp-contract=off")
#define LOOP_ISA avx512
#include "kernels/cpu/math/math_reduce.inc"
#else
typedef int math_reduce_avx512_is_empty; /* on other processors the baseline's loops run */
#endif
