/* The baseline's build of math_simple.inc. */
#include "kernels/cpu/math/math_simple.inc"
