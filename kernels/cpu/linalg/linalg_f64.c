/* Compiles the matrix routines for double elements. */
#define T double
#define R double
#define IS_COMPLEX 0
#define TYPE f64
#include "kernels/cpu/linalg/linalg_template.h"

#include "kernels/cpu/linalg/linalg_factor.inc"
#include "kernels/cpu/linalg/linalg_solve.inc"
#include "kernels/cpu/linalg/linalg_spectral.inc"
