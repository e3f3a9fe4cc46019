/* Special functions of one argument: Bessel's, Dawson's, Fresnel's and exponential integrals,
 * the dilogarithm. */
#include <complex.h>
#include <math.h>
#include <stdbool.h>

#include "kernels/cpu/math/math_special.h"

static const double pi = 3.14159265358979323846;
enum { MAX_TERMS = 2000 };

/* ---- modified Bessel functions ---- */

/* e^-|x|·I_order(x): the power series (Abramowitz and Stegun 9.6.10), all of whose terms have
 * one sign; from 30 on the asymptotic one (9.7.1). */
static double bessel_ie(int order, double x) {
    double size = fabs(x), sum, term;
    if (isnan(x))
        return x;
    if (size <= 30) {
        sum = term = order == 0 ? 1 : size / 2;
        for (int k = 1; k < MAX_TERMS && term > sum * 1e-17; k++) {
            term *= size * size / 4 / ((double)k * (k + order));
            sum += term;
        }
        sum *= exp(-size);
    } else {
        double mu = 4.0 * order * order;
        sum = term = 1;
        for (int k = 1; k < 40 && fabs(term) > 1e-17; k++) {
            term *= -(mu - (2.0 * k - 1) * (2.0 * k - 1)) / (k * 8.0 * size);
            sum += term;
        }
        sum /= sqrt(2 * pi * size);
    }
    return order == 1 && x < 0 ? -sum : sum;
}
double special_bessel_i0e(double x) { return bessel_ie(0, x); }
double special_bessel_i1e(double x) { return bessel_ie(1, x); }
static double unscaled(double scaled, double x) {
    return scaled == 0 ? scaled : scaled * exp(fabs(x) / 2) * exp(fabs(x) / 2);
}
double special_bessel_i0(double x) { return unscaled(bessel_ie(0, x), x); }
double special_bessel_i1(double x) { return unscaled(bessel_ie(1, x), x); }

/* e^x·K_order(x) for small x, from the first terms of the series at 0 (9.6.11, 9.6.13). */
static double bessel_ke_near_zero(int order, double x) {
    const double euler = 0.57721566490153286061;
    return order == 0 ? (1 + x) * (-log(x / 2) - euler) : 1 / x + 1;
}

/* e^x·K_order(x) for large x, by the asymptotic series (9.7.2). */
static double bessel_ke_asymptotic(int order, double x) {
    double mu = 4.0 * order * order, sum = 1, term = 1;
    for (int k = 1; k < 40 && fabs(term) > 1e-17; k++) {
        term *= (mu - (2.0 * k - 1) * (2.0 * k - 1)) / (k * 8.0 * x);
        sum += term;
    }
    return sqrt(pi / (2 * x)) * sum;
}

/* e^x·K_order(x) = ∫ e^(-x(cosh t - 1))·cosh(order·t) dt over t > 0 (9.6.24). The trapezoidal rule
 * is as exact as doubles here. For x in [small_k, large_k] it takes a few hundred steps. */
static double bessel_ke(int order, double x) {
    const double step = 0.125, small_k = 1e-9, large_k = 30;
    if (isnan(x))
        return NAN;
    if (x <= 0) /* beyond the domain too, as TensorFlow has it */
        return INFINITY;
    if (x < small_k)
        return bessel_ke_near_zero(order, x);
    if (x > large_k)
        return bessel_ke_asymptotic(order, x);
    double sum = 0.5, end = acosh(1 + 45 / x) + (order == 1 ? 1 : 0);
    double h = step / fmax(1.0, sqrt(x)); /* the integrand narrows as x grows */
    for (int i = 1; i * h <= end; i++) {
        double half_sinh = sinh(i * h / 2);
        sum += exp(-2 * x * half_sinh * half_sinh) * (order == 0 ? 1 : cosh(i * h));
    }
    return sum * h;
}
double special_bessel_k0e(double x) { return bessel_ke(0, x); }
double special_bessel_k1e(double x) { return bessel_ke(1, x); }
double special_bessel_k0(double x) { return bessel_ke(0, x) * exp(-x); }
double special_bessel_k1(double x) { return bessel_ke(1, x) * exp(-x); }

static double second_kind(double x, double (*function)(double)) {
    return x <= 0 ? -INFINITY : function(x);
}
double special_bessel_y0(double x) { return second_kind(x, y0); }
double special_bessel_y1(double x) { return second_kind(x, y1); }
/* TensorFlow's for floats takes 0·log 0 for no number. */
double special_bessel_y1f(double x) { return x == 0 ? NAN : special_bessel_y1(x); }

/* ---- Dawson's integral ---- */

/* [Rybicki: "Dawson's Integral and the Sampling Theorem", Computers in Physics 3 (1989)]; the
 * series where that cancels. */
double special_dawsn(double x) {
    const double h = 0.2;
    double size = fabs(x);
    if (isnan(x))
        return x;
    if (size < 0.5) {
        double term = x, sum = x;
        for (int k = 1; k < 60; k++) {
            term *= -2 * x * x / (2 * k + 1);
            sum += term;
        }
        return sum;
    }
    if (size > 1e7)
        return 0.5 / x;
    double center = 2 * floor(size / (2 * h) + 0.5), rest = size - center * h, sum = 0;
    for (int n = -61; n <= 61; n += 2) /* center is even: center + n is never 0 */
        sum += exp(-(rest - n * h) * (rest - n * h)) / (center + n);
    return copysign(sum / sqrt(pi), x);
}

/* ---- Ei(x) = -∫ e^-t / t dt from -x ---- */

double special_expint(double x) {
    const double euler = 0.57721566490153286061;
    if (isnan(x) || x < 0)
        return NAN;
    if (x == 0)
        return -INFINITY;
    if (x == INFINITY)
        return INFINITY;
    double sum = 0, term = 1;
    if (x < 40) {
        for (int k = 1; k < MAX_TERMS; k++) {
            term *= x / k;
            sum += term / k;
            if (term / k < sum * 1e-18)
                break;
        }
        return euler + log(x) + sum;
    }
    for (int k = 1; term > 1e-18 && k < x; k++) {
        sum += term;
        term *= k / x;
    }
    return exp(x) / x * sum;
}

/* ---- Spence's integral -∫ log t / (t - 1) dt from 1 to x, which is Li2(1 - x) ---- */

/* By u = -log x: u - u²/4 + Σ B_2k·u^(2k+1)/(2k+1)!, for x in [1/2, 2]. */
static double spence_near_one(double x) {
    static const double c[] = {1.0 / 36,
                               -1.0 / 3600,
                               1.0 / 211680,
                               -1.0 / 10886400,
                               1.0 / 526901760,
                               -691.0 / 16999766784000.0,
                               1.0 / 1120863744000.0};
    double u = -log(x), power = u * u * u, sum = u - u * u / 4;
    for (int k = 0; k < 7; k++, power *= u * u)
        sum += c[k] * power;
    return sum;
}

double special_spence(double x) {
    if (isnan(x) || x < 0)
        return NAN;
    if (x == 0)
        return pi * pi / 6;
    if (x < 0.5)
        return pi * pi / 6 - log(x) * log1p(-x) - spence_near_one(1 - x);
    if (x > 2)
        return -0.5 * log(x) * log(x) - special_spence(1 / x);
    return spence_near_one(x);
}

/* ---- Fresnel's integrals: C + iS = ∫ e^(iπt²/2) dt from 0 to x ---- */

static double complex fresnel_series(double x) {
    double complex term = x, sum = x;
    for (int k = 1; k < 100; k++) {
        term *= CMPLX(0, pi * x * x / 2 / k);
        sum += term / (2 * k + 1);
    }
    return sum;
}

/* erfc's continued fraction by Lentz's method. */
static double complex fresnel_fraction(double x) {
    double square = pi * x * x;
    double complex b = CMPLX(1, -square), c = 1e300, d = 1 / b, h = d;
    for (int k = 2, n = -1; k < MAX_TERMS; k++) {
        n += 2;
        double a = -(double)n * (n + 1);
        b += 4;
        d = 1 / (a * d + b);
        c = b + a / c;
        double complex factor = c * d;
        h *= factor;
        if (fabs(creal(factor) - 1) + fabs(cimag(factor)) < 1e-16)
            break;
    }
    h *= CMPLX(x, -x);
    double angle = 0.5 * pi * fmod(x * x, 4);
    return CMPLX(0.5, 0.5) * (1 - CMPLX(cos(angle), sin(angle)) * h);
}

static double complex fresnel(double x) {
    double size = fabs(x);
    if (isnan(x))
        return CMPLX(x, x);
    if (size > 1e8)
        return copysign(0.5, x) * CMPLX(1, 1);
    double complex value = size < 1.5 ? fresnel_series(size) : fresnel_fraction(size);
    return x < 0 ? -value : value;
}
double special_fresnel_cos(double x) { return creal(fresnel(x)); }
double special_fresnel_sin(double x) { return cimag(fresnel(x)); }
