/* The baseline's build of matmul_loops.inc. */
#include "kernels/cpu/matmul/matmul_loops.inc"
