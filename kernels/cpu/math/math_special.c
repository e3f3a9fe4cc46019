/* Computes quantiles, lgamma, digamma and erfinv; see math_special.h. */
#include "kernels/cpu/math/math_special.h"

#include <math.h>

double special_lgamma(double x) {
    int sign;
    return lgamma_r(x, &sign);
}

float special_lgammaf(float x) {
    int sign;
    return lgammaf_r(x, &sign);
}

/* Reflection for negative x; the recurrence ψ(x) = ψ(x + 1) - 1/x up to 10; then the asymptotic
 * series ψ(x) ~ ln x - 1/2x - Σ B_2k / (2k x^2k) (Abramowitz and Stegun 6.3.5, 6.3.7, 6.3.18).
 * Poles are NaN. */
double special_digamma(double x) {
    static const double pi = 3.14159265358979323846;
    double shift = 0;
    if (x <= 0) {
        double whole = floor(x);
        if (x == whole)
            return NAN; /* poles, and minus infinity */
        double fraction = x - whole;
        if (fraction != 0.5)
            shift = pi / tan(pi * (fraction > 0.5 ? fraction - 1 : fraction));
        x = 1 - x;
    }
    if (x == INFINITY)
        return INFINITY;
    double sum = 0;
    while (x < 10) {
        sum += 1 / x;
        x += 1;
    }
    double z = 1 / (x * x);
    double series =
        z *
        (1.0 / 12 -
         z * (1.0 / 120 -
              z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
    return log(x) - 0.5 / x - series - sum - shift;
}

static double polynomial(const double *c, int n, double x) {
    double r = c[n - 1];
    for (int i = n - 2; i >= 0; i--)
        r = r * x + c[i];
    return r;
}
#define RATIO(a, b, x) (polynomial(a, 8, x) / polynomial(b, 8, x))

/* Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", Applied
 * Statistics 37 (1988), PPND16.
 *   q     p - 1/2, exact for the caller
 *   tail  min(p, 1 - p), exact for the caller */
static double normal_quantile(double q, double tail) {
    static const double a[8] = {3.3871328727963666080e0, 1.3314166789178437745e2,
                                1.9715909503065514427e3, 1.3731693765509461125e4,
                                4.5921953931549871457e4, 6.7265770927008700853e4,
                                3.3430575583588128105e4, 2.5090809287301226727e3};
    static const double b[8] = {1.0,
                                4.2313330701600911252e1,
                                6.8718700749205790830e2,
                                5.3941960214247511077e3,
                                2.1213794301586595867e4,
                                3.9307895800092710610e4,
                                2.8729085735721942674e4,
                                5.2264952788528545610e3};
    static const double c[8] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                5.76949722146069140550e0,  3.64784832476320460504e0,
                                1.27045825245236838258e0,  2.41780725177450611770e-1,
                                2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double d[8] = {1.0,
                                2.05319162663775882187e0,
                                1.67638483018380384940e0,
                                6.89767334985100004550e-1,
                                1.48103976427480074590e-1,
                                1.51986665636164571966e-2,
                                5.47593808499534494600e-4,
                                1.05075007164441684324e-9};
    static const double e[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                1.78482653991729133580e0,  2.96560571828504891230e-1,
                                2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double f[8] = {1.0,
                                5.99832206555887937690e-1,
                                1.36929880922735805310e-1,
                                1.48753612908506148525e-2,
                                7.86869131145613259100e-4,
                                1.84631831751005468180e-5,
                                1.42151175831644588870e-7,
                                2.04426310338993978564e-15};
    if (fabs(q) <= 0.425) {
        double r = 0.180625 - q * q;
        return q * RATIO(a, b, r);
    }
    double r = sqrt(-log(tail));
    double z = r <= 5 ? RATIO(c, d, r - 1.6) : RATIO(e, f, r - 5);
    return q < 0 ? -z : z;
}

double special_ndtri(double p) {
    if (!(p >= 0 && p <= 1))
        return NAN;
    if (p == 0 || p == 1)
        return p == 0 ? -INFINITY : INFINITY;
    return normal_quantile(p - 0.5, p < 0.5 ? p : 1 - p);
}

/* erfinv(x) = Φ⁻¹((1 + x) / 2) / √2. */
double special_erfinv(double x) {
    if (!(x >= -1 && x <= 1))
        return NAN;
    if (fabs(x) == 1)
        return x * INFINITY;
    return normal_quantile(0.5 * x, 0.5 * (1 - fabs(x))) * 0.70710678118654752440;
}
