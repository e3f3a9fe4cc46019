/* The baseline's build of math_reduce.inc. */
#include "kernels/cpu/math/math_reduce.inc"
