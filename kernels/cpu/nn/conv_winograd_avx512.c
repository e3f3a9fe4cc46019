/* Compiles conv_winograd_loops.inc for machines with AVX-512. Its loops run only where
 * cpu_has_avx512() is true. */
#ifdef __x86_64__
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define LOOP_ISA avx512
enum { WIDTH = 16, ROWS = 8 };
#include "kernels/cpu/nn/conv_winograd_loops.inc"
#else
typedef int conv_winograd_avx512_is_empty; /* other processors have other implementations */
#endif
