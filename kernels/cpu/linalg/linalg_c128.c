/* Compiles the matrix routines for double complex elements. */
#define T double complex
#define R double
#define IS_COMPLEX 1
#define TYPE c128
#include "kernels/cpu/linalg/linalg_template.h"

#include "kernels/cpu/linalg/linalg_factor.inc"
#include "kernels/cpu/linalg/linalg_solve.inc"
#include "kernels/cpu/linalg/linalg_spectral.inc"
