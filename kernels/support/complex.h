/* Complex products, and log(1 + z), as inline functions that several families share. */
#ifndef MILLRACE_KERNELS_SUPPORT_COMPLEX_H
#define MILLRACE_KERNELS_SUPPORT_COMPLEX_H

#include <complex.h>
#include <math.h>

/* By the textbook formula. The library's functions also treat infinities with care, but cost ten
 * times as much. */
static inline float complex mul_c64(float complex x, float complex y) {
    float a = __real__ x, b = __imag__ x, c = __real__ y, d = __imag__ y;
    return CMPLXF(a * c - b * d, a * d + b * c);
}
static inline double complex mul_c128(double complex x, double complex y) {
    double a = __real__ x, b = __imag__ x, c = __real__ y, d = __imag__ y;
    return CMPLX(a * c - b * d, a * d + b * c);
}

/* log(1 + z), with a real part that is accurate near zero. */
static inline double complex log1p_c128(double complex z) {
    double re = creal(z), im = cimag(z);
    if (fabs(re) < 0.5 && fabs(im) < 0.5)
        return CMPLX(0.5 * log1p(re * (2 + re) + im * im), atan2(im, 1 + re));
    return clog(1 + z);
}
static inline float complex log1p_c64(float complex z) {
    return (float complex)log1p_c128((double complex)z);
}

#endif
