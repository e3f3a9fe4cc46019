/* Compiles the special functions of kernels/support for the CPU; see math_special.h. */
#include "kernels/cpu/math/math_special.h"

#include <math.h>
#include <stdbool.h>

#define SPECIAL
#define SPECIAL_PART static

double special_lgamma(double x) {
    int sign;
    return lgamma_r(x, &sign);
}

float special_lgammaf(float x) {
    int sign;
    return lgammaf_r(x, &sign);
}

#include "kernels/support/special_quantile.inc"
#include "kernels/support/special_gamma.inc"
#include "kernels/support/special_integrals.inc"
