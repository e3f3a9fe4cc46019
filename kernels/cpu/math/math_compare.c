/* The baseline's build of math_compare.inc. */
#include "kernels/cpu/math/math_compare.inc"
