/* Compiles math_arith.inc for the baseline. */
#include "kernels/cpu/math/math_arith.inc"
