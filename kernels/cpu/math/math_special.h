/* Special functions that libm lacks. They are accurate to a few units in the last place of a
 * double. Any thread. Every function ends after a bounded number of steps for every argument, NaN
 * and infinities included. */
#ifndef MILLRACE_KERNELS_CPU_MATH_MATH_SPECIAL_H
#define MILLRACE_KERNELS_CPU_MATH_MATH_SPECIAL_H

#include "kernels/host.h"

double special_digamma(double x);
/* the quantile of the standard normal distribution: -inf at 0, inf at 1, NaN outside */
double special_ndtri(double p);
double special_erfinv(double x);
double special_lgamma(double x); /* log |Γ(x)|; does not set libm's global sign */
float special_lgammaf(float x);

/* kernels/support/special_integrals.inc. Outside of their domains these return NaN. */
double special_bessel_i0(double x);
double special_bessel_i1(double x);
double special_bessel_i0e(double x);
double special_bessel_i1e(double x);
double special_bessel_k0(double x);
double special_bessel_k1(double x);
double special_bessel_k0e(double x);
double special_bessel_k1e(double x);
double special_bessel_y0(double x);
double special_bessel_y1(double x);
double special_bessel_y1f(double x); /* for floats: NaN at 0 */
double special_dawsn(double x);
double special_expint(double x);
double special_spence(double x);
double special_fresnel_cos(double x);
double special_fresnel_sin(double x);

/* kernels/support/special_gamma.inc */
double special_zeta(double x, double q);
double special_polygamma(double n, double x);
double special_igamma(double a, double x);        /* P(a, x), the integral from 0 to x */
double special_igammac(double a, double x);       /* Q = 1 - P */
double special_igamma_grad_a(double a, double x); /* the derivative of P by a */
double special_random_gamma_grad(double a, double x);
double special_betainc(double a, double b, double x);

#endif
