/* The baseline's build of math_arith.inc. */
#include "kernels/cpu/math_arith.inc"
