/* Compiles math_exp.inc for the baseline. */
#include "kernels/cpu/math/math_exp.inc"
