/* Compiles the matrix routines for float complex elements. */
#define T float complex
#define R float
#define IS_COMPLEX 1
#define TYPE c64
#include "kernels/cpu/linalg/linalg_template.h"

#include "kernels/cpu/linalg/linalg_factor.inc"
#include "kernels/cpu/linalg/linalg_solve.inc"
#include "kernels/cpu/linalg/linalg_spectral.inc"
