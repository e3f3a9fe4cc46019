/* The baseline's build of math_matmul.inc. */
#include "kernels/cpu/matmul/math_matmul.inc"
