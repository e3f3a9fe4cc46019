/* Holds what the templates of the matrix routines need. The includer first defines T (the element),
 * R (its real part), IS_COMPLEX and TYPE (the suffix of names). */
#ifndef MILLRACE_KERNELS_CPU_LINALG_LINALG_TEMPLATE_H
#define MILLRACE_KERNELS_CPU_LINALG_LINALG_TEMPLATE_H

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <tgmath.h>

#include "kernels/cpu/linalg/linalg.h"

#define FN_2(name, type) linalg_##name##_##type
#define FN_1(name, type) FN_2(name, type)
#define FN(name) FN_1(name, TYPE)
#define LAPACK(p) (&(p)->lapack->TYPE)
#if IS_COMPLEX
#define CONJ(x) conj(x)
#define REAL_PART(x) creal(x)
#else
#define CONJ(x) (x)
#define REAL_PART(x) (x)
#endif
#define R_NAN ((R)NAN)
#define R_EPSILON (sizeof(R) == sizeof(float) ? (R)FLT_EPSILON : (R)DBL_EPSILON)
#define R_TINY (sizeof(R) == sizeof(float) ? (R)FLT_MIN : (R)DBL_MIN)

/* to[columns, rows] = from[rows, columns]ᵀ */
static inline void transpose_into(T *to, const T *from, int64_t rows, int64_t columns) {
    enum { TILE = 16 };
    for (int64_t r = 0; r < rows; r += TILE) {
        for (int64_t c = 0; c < columns; c++) {
            for (int64_t i = r; i < MIN(r + TILE, rows); i++)
                to[c * rows + i] = from[i * columns + c];
        }
    }
}

#endif
