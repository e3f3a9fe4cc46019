/* The baseline's build of math_simple.inc. */
#include "kernels/cpu/math_simple.inc"
