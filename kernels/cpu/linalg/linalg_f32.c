/* Compiles the matrix routines for float elements. */
#define T float
#define R float
#define IS_COMPLEX 0
#define TYPE f32
#include "kernels/cpu/linalg/linalg_template.h"

#include "kernels/cpu/linalg/linalg_factor.inc"
#include "kernels/cpu/linalg/linalg_solve.inc"
#include "kernels/cpu/linalg/linalg_spectral.inc"
