/* Compiles math_simple.inc for the baseline. */
#include "kernels/cpu/math/math_simple.inc"
