/* The baseline's build of math_exp.inc. */
#include "kernels/cpu/math/math_exp.inc"
