/* Compiles math_reduce.inc for the baseline. */
#include "kernels/cpu/math/math_reduce.inc"
