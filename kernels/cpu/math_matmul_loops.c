/* The baseline's build of math_matmul.inc. */
#include "kernels/cpu/math_matmul.inc"
