/* The baseline's build of math_exp.inc. */
#include "kernels/cpu/math_exp.inc"
