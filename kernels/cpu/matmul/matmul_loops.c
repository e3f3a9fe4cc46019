/* Compiles matmul_loops.inc for the baseline. */
#include "kernels/cpu/matmul/matmul_loops.inc"
