/* The baseline's build of math_arith.inc. */
#include "kernels/cpu/math/math_arith.inc"
