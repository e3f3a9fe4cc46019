/* Special functions around Γ: Hurwitz' ζ, polygamma, the incomplete Γ with its derivative, and the
 * incomplete B. */
#include <math.h>
#include <stdbool.h>

#include "kernels/cpu/math/math_special.h"

enum { MAX_TERMS = 10000 };

/* ζ(x, q) = Σ (q + k)^-x for x > 1 and q > 0, by Euler and Maclaurin's summation (Abramowitz and
 * Stegun 23.1.30). */
static double zeta_of_positive(double x, double q) {
    static const double c[] = {/* B_2k / (2k)! */ 1.0 / 12,
                               -1.0 / 720,
                               1.0 / 30240,
                               -1.0 / 1209600,
                               1.0 / 47900160,
                               -691.0 / 1307674368000.0,
                               1.0 / 74724249600.0,
                               -3617.0 / 10670622842880000.0};
    double sum = 0;
    for (; q < 12; q += 1)
        sum += pow(q, -x);
    double power = pow(q, -x), rising = x / q;
    sum += power * q / (x - 1) + power / 2;
    for (int k = 0; k < 8; k++) {
        sum += c[k] * rising * power;
        rising *= (x + 2 * k + 1) * (x + 2 * k + 2) / (q * q);
    }
    return sum;
}

/* For q below 0 and a whole x: of the terms q + k, those below 0 are -(j - f) for j up to n = -⌊q⌋
 * with f = q + n. So their sum is the difference of two values of ζ, and takes no more steps for a
 * large n. */
static double zeta_of_negative(double x, double q) {
    double sign = fmod(x, 2) == 0 ? 1 : -1, f = q - floor(q), from_above = floor(q) + 1 - q;
    /* for odd x and f near 1/2 the first two cancel, and then no digits of the third are lost */
    return zeta_of_positive(x, f) + sign * zeta_of_positive(x, from_above) -
           sign * zeta_of_positive(x, 1 - q);
}

double special_zeta(double x, double q) {
    if (x == 1)
        return INFINITY;
    if (!(x > 1) || isnan(q))
        return NAN;
    if (q <= 0 && q == floor(q)) /* a pole, whose sides have one sign for even x only */
        return fmod(x, 2) == 0 ? INFINITY : NAN;
    if (q == INFINITY)
        return 0;
    if (q <= 0 && x != floor(x)) /* a root of something negative */
        return NAN;
    return q > 0 ? zeta_of_positive(x, q) : zeta_of_negative(x, q);
}

/* The derivative of order n of ψ. */
double special_polygamma(double n, double x) {
    if (!(n >= 0) || n != floor(n))
        return NAN;
    if (n == 0)
        return special_digamma(x);
    double sign = fmod(n, 2) == 0 ? -1 : 1;
    return sign * tgamma(n + 1) * special_zeta(n + 1, x);
}

/* ---- the incomplete Γ, with its derivative by a carried through each formula ---- */

struct dual {
    double v, da;
};

/* x^a·e^-x / Γ(a + 1), without the cancellation of large arguments. */
static struct dual gamma_density(double a, double x) {
    double log_value = a * log(x) - x - special_lgamma(a + 1);
    if (a > 200) { /* Stirling's series, and log(x/a) - (x - a)/a in one */
        double d = (x - a) / a, shape = fabs(d) < 0.5 ? log1p(d) - d : log(x / a) - d;
        log_value = a * shape - 0.5 * log(2 * 3.14159265358979323846 * a) - 1 / (12 * a) +
                    1 / (360 * a * a * a);
    }
    double value = exp(log_value);
    return (struct dual){value, value * (log(x) - special_digamma(a + 1))};
}

/* P by its series (6.5.29). */
static struct dual lower_series(double a, double x) {
    double term = 1, term_da = 0, sum = 1, sum_da = 0;
    for (int k = 1; k < MAX_TERMS; k++) {
        double ratio = x / (a + k);
        term_da = ratio * (term_da - term / (a + k));
        term *= ratio;
        sum += term;
        sum_da += term_da;
        if (term <= sum * 1e-17 && fabs(term_da) <= fabs(sum_da) * 1e-17)
            break;
    }
    struct dual density = gamma_density(a, x);
    return (struct dual){density.v * sum, density.da * sum + density.v * sum_da};
}

/* Q by Legendre's continued fraction (6.5.31), with its convergents rescaled as they grow. */
static struct dual upper_fraction(double a, double x) {
    double y = 1 - a, z = x + y + 1;
    double p2 = 1, q2 = x, p1 = x + 1, q1 = z * x, dp2 = 0, dq2 = 0, dp1 = 0, dq1 = -x;
    double value = p1 / q1, da = -value * dq1 / q1;
    for (int c = 1; c < MAX_TERMS; c++) {
        y += 1;
        z += 2;
        double yc = y * c, p = p1 * z - p2 * yc, q = q1 * z - q2 * yc;
        double dp = dp1 * z - p1 - dp2 * yc + p2 * c, dq = dq1 * z - q1 - dq2 * yc + q2 * c;
        double next = p / q, next_da = (dp - next * dq) / q;
        bool done =
            fabs(next - value) <= fabs(next) * 1e-17 && fabs(next_da - da) <= fabs(next_da) * 1e-16;
        value = next;
        da = next_da;
        if (done || !isfinite(value))
            break;
        double scale = fabs(p) > 1e100 ? 1e-100 : 1;
        p2 = p1 * scale, q2 = q1 * scale, dp2 = dp1 * scale, dq2 = dq1 * scale;
        p1 = p * scale, q1 = q * scale, dp1 = dp * scale, dq1 = dq * scale;
    }
    struct dual density = gamma_density(a, x); /* has Γ(a + 1): a times less than what is needed */
    return (struct dual){density.v * a * value,
                         (density.da * a + density.v) * value + density.v * a * da};
}

static bool takes_series(double a, double x) { return x <= 1 || x <= a; }

double special_igamma(double a, double x) {
    if (x == 0)
        return 0;
    if (isnan(a) || isnan(x) || x < 0 || a <= 0)
        return NAN;
    if (isinf(a))
        return isinf(x) ? NAN : 0;
    if (isinf(x))
        return 1;
    return takes_series(a, x) ? lower_series(a, x).v : 1 - upper_fraction(a, x).v;
}

double special_igammac(double a, double x) {
    if (isnan(a) || isnan(x) || x < 0 || a <= 0)
        return NAN;
    if (x == 0)
        return 1;
    if (isinf(a))
        return isinf(x) ? NAN : 1;
    if (isinf(x))
        return 0;
    return takes_series(a, x) ? 1 - lower_series(a, x).v : upper_fraction(a, x).v;
}

double special_igamma_grad_a(double a, double x) {
    if (x == 0)
        return 0;
    if (isnan(a) || isnan(x) || x < 0 || a <= 0)
        return NAN;
    if (isinf(x))
        return 0;
    return takes_series(a, x) ? lower_series(a, x).da : -upper_fraction(a, x).da;
}

/* How a sample of Γ(a) moves with a: -(∂P/∂a) / (∂P/∂x). */
double special_random_gamma_grad(double a, double x) {
    if (x == 0 && a > 0)
        return 0;
    return -special_igamma_grad_a(a, x) * x / (gamma_density(a, x).v * a);
}

/* ---- the incomplete B ---- */

/* The continued fraction 26.5.8 by Lentz's method. */
static double beta_fraction(double a, double b, double x) {
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double h = d;
    for (int m = 1; m < MAX_TERMS; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        for (int i = 0; i < 2; i++) {
            double factor = i == 0 ? even : odd;
            d = 1 + factor * d;
            c = 1 + factor / c;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = fabs(c) < tiny ? tiny : c;
            h *= c * d;
        }
        if (fabs(c * d - 1) < 1e-16)
            break;
    }
    return h;
}

double special_betainc(double a, double b, double x) {
    if (isnan(a) || isnan(b) || isnan(x) || a <= 0 || b <= 0 || x < 0 || x > 1)
        return NAN;
    if (x == 0 || x == 1)
        return x;
    double front = exp(special_lgamma(a + b) - special_lgamma(a) - special_lgamma(b) + a * log(x) +
                       b * log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                     : 1 - front * beta_fraction(b, a, 1 - x) / b;
}
