/* Reads and writes single elements of the float and complex types as complex doubles, for kernels
 * that compute in complex doubles whatever their type. */
#ifndef MILLRACE_KERNELS_SUPPORT_COMPLEX_VALUES_H
#define MILLRACE_KERNELS_SUPPORT_COMPLEX_VALUES_H

#include <complex.h>

#include "common/tensor/dtype.h"

typedef double complex c128;

/* dtype: DT_FLOAT, DT_DOUBLE, DT_COMPLEX64 or DT_COMPLEX128. */
static inline c128 c128_load(enum dtype dtype, const void *from, int64_t i) {
    switch (dtype) {
    case DT_FLOAT:
        return ((const float *)from)[i];
    case DT_DOUBLE:
        return ((const double *)from)[i];
    case DT_COMPLEX64:
        return ((const float complex *)from)[i];
    default:
        return ((const c128 *)from)[i];
    }
}

/* Stores v; a float type gets its real part. */
static inline void c128_store(enum dtype dtype, void *to, int64_t i, c128 v) {
    switch (dtype) {
    case DT_FLOAT:
        ((float *)to)[i] = (float)creal(v);
        break;
    case DT_DOUBLE:
        ((double *)to)[i] = creal(v);
        break;
    case DT_COMPLEX64:
        ((float complex *)to)[i] = (float complex)v;
        break;
    default:
        ((c128 *)to)[i] = v;
    }
}

#endif
