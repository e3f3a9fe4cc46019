/* Compiles math_compare.inc for the baseline. */
#include "kernels/cpu/math/math_compare.inc"
