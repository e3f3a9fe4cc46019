/* Compiles matmul_loops.inc for machines with AVX2 and FMA. Its loops run only where cpu_has_avx2()
 * is true. */
#ifdef __x86_64__
#pragma GCC target("avx2,fma,f16c,bmi,bmi2")
#define LOOP_ISA avx2
#include "kernels/cpu/matmul/matmul_loops.inc"
#include "kernels/support/isa.h"
#else
typedef int matmul_loops_avx2_is_empty; /* on other processors the baseline's loops run */
#endif
