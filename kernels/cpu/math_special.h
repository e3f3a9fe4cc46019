/* Special functions that libm lacks. Accurate to a few units in the last place of a double. */
#ifndef MILLRACE_KERNELS_CPU_MATH_SPECIAL_H
#define MILLRACE_KERNELS_CPU_MATH_SPECIAL_H

double special_digamma(double x);
double special_ndtri(double p); /* the standard normal distribution's quantile: -inf at 0, inf at 1, NaN outside */
double special_erfinv(double x);
double special_lgamma(double x); /* log |Γ(x)|, without libm's global sign */
float special_lgammaf(float x);

#endif
