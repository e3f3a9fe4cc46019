/* Compiles conv_winograd_loops.inc for machines with AVX2. Its loops run only where cpu_has_avx2()
 * is true. */
#ifdef __x86_64__
#pragma GCC target("avx2,fma,bmi,bmi2")
#define LOOP_ISA avx2
enum { WIDTH = 8, ROWS = 6 };
#include "kernels/cpu/nn/conv_winograd_loops.inc"
#else
typedef int conv_winograd_avx2_is_empty; /* other processors have other implementations */
#endif
