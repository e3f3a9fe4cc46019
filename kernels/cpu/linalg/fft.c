/* Plans and runs Fourier transforms of single lines; see fft.h. */
#include "kernels/cpu/linalg/fft.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/pool_cancel.h"

typedef double complex c128;

enum {
    MAX_FACTORS = 64,
    LARGEST_RADIX = 13,
    N_KEPT = 8,
    KEPT_MAX_LENGTH = 1 << 16,
    ROOTS_PER_POLL = 1 << 16,
    /* butterflies, or numbers, between which a long transform asks whether it is wanted: some
     * milliseconds */
    WORK_PER_POLL = 1 << 18,
};

/* One step of Stockham's form, which splits a radix p off. For s interleaved transforms of length n
 * = p·m it computes
 *   y[j + s·(p·q + k)] = w_n^(q·k) · Σ_i x[j + s·(q + m·i)]·w_p^(i·k)
 * Real and imaginary parts are in separate arrays, so that the loops over j, and over q while s is
 * 1, vectorise. */
struct pass {
    int p;
    int64_t m, s;
    /* w_n^(q·k): for each k from 1 to p - 1 the m real parts, then the m imaginary ones */
    double *twiddles;
};

struct fft_plan {
    atomic_int n_refs;
    int64_t n;
    int n_passes; /* 0 in Bluestein's form */
    struct pass passes[MAX_FACTORS];
    double *twiddles;
    c128 *roots;            /* Bluestein's form: the chirp e^(-πi·k²/n) */
    struct fft_plan *inner; /* Bluestein's form: the plan of a power of two, m >= 2n - 1 */
    /* Bluestein's form: the spectrum of the conjugate chirp, m elements, divided by m */
    c128 *chirp_spectrum;
};

/* ---- steps ---- */

struct parts {
    const double *restrict xr, *restrict xi;
    double *restrict yr, *restrict yi;
};

/* y[at] = w · (re, im) */
#define PUT(at, wr, wi, re, im)      \
    do {                             \
        double r_ = (re), i_ = (im); \
        yr[at] = (wr)*r_ - (wi)*i_;  \
        yi[at] = (wr)*i_ + (wi)*r_;  \
    } while (0)
#define PUT_PLAIN(at, re, im) (yr[at] = (re), yi[at] = (im))
/* Twiddle k (from 1) of q. */
#define TR(k) t[(int64_t)(2 * ((k)-1)) * m + q]
#define TI(k) t[(int64_t)(2 * ((k)-1) + 1) * m + q]

/* The part of a pass that a step computes: q and j of struct pass. */
struct part {
    int64_t q, q_end, j, j_end;
};

/* Defines a radix' step from its butterfly, which reads at i, i + d, …, and writes at o, o + e,
 * … */
#define STEP(p, BUTTERFLY)                                                                       \
    VECTOR_CLONES static void step_##p(const struct pass *pass, struct parts v, struct part w) { \
        const double *restrict xr = v.xr, *restrict xi = v.xi, *restrict t = pass->twiddles;     \
        double *restrict yr = v.yr, *restrict yi = v.yi;                                         \
        int64_t m = pass->m, s = pass->s, d = s * m, e = w.q_end, f = w.j_end;                   \
        if (s == 1) {                                                                            \
            _Pragma("GCC ivdep") for (int64_t q = w.q; q < e; q++) { BUTTERFLY(q, p *q, 1); }    \
            return;                                                                              \
        }                                                                                        \
        for (int64_t q = w.q; q < e; q++) {                                                      \
            _Pragma("GCC ivdep") for (int64_t j = w.j; j < f; j++) {                             \
                BUTTERFLY(s *q + j, p * s * q + j, s);                                           \
            }                                                                                    \
        }                                                                                        \
    }

#define BUTTERFLY_2(i, o, e)                                           \
    double ar = xr[i], ai = xi[i], br = xr[(i) + d], bi = xi[(i) + d]; \
    PUT_PLAIN(o, ar + br, ai + bi);                                    \
    PUT((o) + (e), TR(1), TI(1), ar - br, ai - bi)
#define BUTTERFLY_3(i, o, e)                                                                  \
    double ar = xr[i], ai = xi[i], br = xr[(i) + d], bi = xi[(i) + d], cr = xr[(i) + 2 * d],  \
           ci = xi[(i) + 2 * d];                                                              \
    double sr = br + cr, si = bi + ci, mr = ar - 0.5 * sr, mi = ai - 0.5 * si;                \
    double hr = 0.86602540378443864676 * (bi - ci), hi = -0.86602540378443864676 * (br - cr); \
    PUT_PLAIN(o, ar + sr, ai + si);                                                           \
    PUT((o) + (e), TR(1), TI(1), mr + hr, mi + hi);                                           \
    PUT((o) + 2 * (e), TR(2), TI(2), mr - hr, mi - hi)
#define BUTTERFLY_4(i, o, e)                                                                       \
    double ar = xr[i], ai = xi[i], br = xr[(i) + d], bi = xi[(i) + d];                             \
    double cr = xr[(i) + 2 * d], ci = xi[(i) + 2 * d], gr = xr[(i) + 3 * d], gi = xi[(i) + 3 * d]; \
    double er = ar + cr, ei = ai + ci, fr = ar - cr, fi = ai - ci;                                 \
    double hr = br + gr, hi = bi + gi, kr = bi - gi, ki = gr - br; /* k = -i·(b - g) */           \
    PUT_PLAIN(o, er + hr, ei + hi);                                                                \
    PUT((o) + (e), TR(1), TI(1), fr + kr, fi + ki);                                                \
    PUT((o) + 2 * (e), TR(2), TI(2), er - hr, ei - hi);                                            \
    PUT((o) + 3 * (e), TR(3), TI(3), fr - kr, fi - ki)
/* cos and sin of 2π/5 and 4π/5. */
#define C51 0.30901699437494742410
#define C52 -0.80901699437494742410
#define S51 0.95105651629515357212
#define S52 0.58778525229247312917
#define BUTTERFLY_5(i, o, e)                                                                       \
    double ar = xr[i], ai = xi[i], br = xr[(i) + d], bi = xi[(i) + d], cr = xr[(i) + 2 * d],       \
           ci = xi[(i) + 2 * d];                                                                   \
    double fr = xr[(i) + 3 * d], fi = xi[(i) + 3 * d], gr = xr[(i) + 4 * d], gi = xi[(i) + 4 * d]; \
    double pr = br + gr, pi = bi + gi, ur = br - gr, ui = bi - gi, hr = cr + fr, hi = ci + fi,     \
           vr = cr - fr, vi = ci - fi;                                                             \
    double mr = ar + C51 * pr + C52 * hr, mi = ai + C51 * pi + C52 * hi,                           \
           nr = ar + C52 * pr + C51 * hr, ni = ai + C52 * pi + C51 * hi;                           \
    double wr = S51 * ui + S52 * vi, wi = -S51 * ur - S52 * vr, zr = S52 * ui - S51 * vi,          \
           zi = -S52 * ur + S51 * vr;                                                              \
    PUT_PLAIN(o, ar + pr + hr, ai + pi + hi);                                                      \
    PUT((o) + (e), TR(1), TI(1), mr + wr, mi + wi);                                                \
    PUT((o) + 2 * (e), TR(2), TI(2), nr + zr, ni + zi);                                            \
    PUT((o) + 3 * (e), TR(3), TI(3), nr - zr, ni - zi);                                            \
    PUT((o) + 4 * (e), TR(4), TI(4), mr - wr, mi - wi)

STEP(2, BUTTERFLY_2)
STEP(3, BUTTERFLY_3)
STEP(4, BUTTERFLY_4)
STEP(5, BUTTERFLY_5)

/* A step of any larger prime p: sums of p products. These are the last steps, so that s is large
 * when the length has small factors as well. */
VECTOR_CLONES static void step_any(const struct pass *pass, struct parts v, struct part part) {
    const double *restrict xr = v.xr, *restrict xi = v.xi, *restrict t = pass->twiddles;
    double *restrict yr = v.yr, *restrict yi = v.yi;
    int64_t m = pass->m, s = pass->s, d = s * m, p = pass->p;
    double cosines[LARGEST_RADIX], sines[LARGEST_RADIX];
    for (int64_t k = 0; k < p; k++) {
        cosines[k] = cos(2 * 3.14159265358979323846 * (double)k / (double)p);
        sines[k] = -sin(2 * 3.14159265358979323846 * (double)k / (double)p);
    }
    for (int64_t q = part.q; q < part.q_end; q++) {
        for (int64_t k = 0; k < p; k++) {
            double wr = k ? TR(k) : 1, wi = k ? TI(k) : 0;
            for (int64_t j = part.j; j < part.j_end; j++) {
                double re = 0, im = 0;
                for (int64_t i = 0; i < p; i++) {
                    double c = cosines[i * k % p], n = sines[i * k % p], ar = xr[s * q + j + d * i],
                           ai = xi[s * q + j + d * i];
                    re += ar * c - ai * n;
                    im += ar * n + ai * c;
                }
                PUT(s * (p * q + k) + j, wr, wi, re, im);
            }
        }
    }
}

static void run_part(const struct pass *pass, struct parts v, struct part part) {
    switch (pass->p) {
    case 2:
        step_2(pass, v, part);
        break;
    case 3:
        step_3(pass, v, part);
        break;
    case 4:
        step_4(pass, v, part);
        break;
    case 5:
        step_5(pass, v, part);
        break;
    default:
        step_any(pass, v, part);
        break;
    }
}

/* Leaves out what has not begun once nobody wants the result. */
static void run_pass(const struct pass *pass, struct parts v) {
    int64_t m = pass->m, s = pass->s;
    if (m * s <= WORK_PER_POLL) {
        run_part(pass, v, (struct part){0, m, 0, s});
        return;
    }
    int64_t lines = MAX(WORK_PER_POLL / s, (int64_t)1), width = MIN(s, (int64_t)WORK_PER_POLL);
    for (int64_t q = 0; q < m; q += lines)
        for (int64_t j = 0; j < s; j += width) {
            if (pool_is_unwanted())
                return;
            run_part(pass, v, (struct part){q, MIN(q + lines, m), j, MIN(j + width, s)});
        }
}

/* Runs the forward transform in place on re and im. The lanes are independent transforms, and a
 * step's inner loop also runs over them. */
static void run_stockham(const struct fft_plan *plan, double *re, double *im, double *scratch,
                         int64_t lanes) {
    size_t size = (size_t)(plan->n * lanes) * sizeof(*re);
    double *from[2] = {re, im}, *to[2] = {scratch, scratch + plan->n * lanes};
    for (int i = 0; i < plan->n_passes && !pool_is_unwanted(); i++) {
        struct pass pass = plan->passes[i];
        pass.s *= lanes;
        run_pass(&pass, (struct parts){from[0], from[1], to[0], to[1]});
        for (int part = 0; part < 2; part++) {
            double *written = to[part];
            to[part] = from[part];
            from[part] = written;
        }
    }
    if (from[0] != re) {
        memcpy(re, from[0], size);
        memcpy(im, from[1], size);
    }
}

static void run_bluestein(const struct fft_plan *plan, double *re, double *im, double *scratch,
                          int64_t lanes);

/* The inverse is the forward transform with real and imaginary parts exchanged, before and
 * after. */
void fft_run_lanes(const struct fft_plan *plan, bool inverse, double *re, double *im,
                   double *scratch, int64_t lanes) {
    (plan->inner ? run_bluestein : run_stockham)(plan, inverse ? im : re, inverse ? re : im,
                                                 scratch, lanes);
}

void fft_run(const struct fft_plan *plan, bool inverse, c128 *line, c128 *scratch) {
    double *re = (double *)scratch, *im = re + plan->n;
    for (int64_t k = 0; k < plan->n; k++) {
        re[k] = creal(line[k]);
        im[k] = cimag(line[k]);
    }
    fft_run_lanes(plan, inverse, re, im, im + plan->n, 1);
    for (int64_t k = 0; k < plan->n; k++)
        line[k] = CMPLX(re[k], im[k]);
}

int64_t fft_plan_lane_scratch(const struct fft_plan *plan) {
    return plan->inner ? 4 * plan->inner->n : 2 * plan->n;
}
int64_t fft_plan_scratch(const struct fft_plan *plan) {
    return plan->n + fft_plan_lane_scratch(plan) / 2;
}

/* ---- Bluestein: j·k = (j² + k² - (k - j)²) / 2 makes the transform a convolution with the
 * chirp ---- */

/* to[k] = from[k] · by[k], for every lane. */
static void multiply_lanes(const double *from_re, const double *from_im, const c128 *by,
                           double *to_re, double *to_im, int64_t n, int64_t lanes) {
    for (int64_t k = 0; k < n; k++) {
        if (k % WORK_PER_POLL == WORK_PER_POLL - 1 && pool_is_unwanted())
            return;
        double wr = creal(by[k]), wi = cimag(by[k]);
        for (int64_t i = k * lanes; i < (k + 1) * lanes; i++) {
            double re = from_re[i], im = from_im[i];
            to_re[i] = re * wr - im * wi;
            to_im[i] = re * wi + im * wr;
        }
    }
}

static void run_bluestein(const struct fft_plan *plan, double *re, double *im, double *scratch,
                          int64_t lanes) {
    int64_t n = plan->n, m = plan->inner->n;
    double *wide_re = scratch, *wide_im = scratch + m * lanes, *rest = scratch + 2 * m * lanes;
    multiply_lanes(re, im, plan->roots, wide_re, wide_im, n, lanes);
    memset(wide_re + n * lanes, 0, (size_t)((m - n) * lanes) * sizeof(*re));
    memset(wide_im + n * lanes, 0, (size_t)((m - n) * lanes) * sizeof(*im));
    fft_run_lanes(plan->inner, false, wide_re, wide_im, rest, lanes);
    multiply_lanes(wide_re, wide_im, plan->chirp_spectrum, wide_re, wide_im, m, lanes);
    fft_run_lanes(plan->inner, true, wide_re, wide_im, rest, lanes);
    multiply_lanes(wide_re, wide_im, plan->roots, re, im, n, lanes);
}

/* ---- plans ---- */

/* e^(-πi·k/half). The angle is reduced to the first octant, so the result is exact to the last
 * place for every k. */
static c128 unit_root(int64_t k, int64_t half) {
    const double pi = 3.14159265358979323846;
    int64_t full = 2 * half;
    k %= full;
    if (k > half)
        return conj(unit_root(full - k, half));
    if (2 * k > half) { /* π - x */
        c128 other = unit_root(half - k, half);
        return CMPLX(-creal(other), cimag(other));
    }
    if (4 * k > half) /* π/2 - x */
        return CMPLX(sin(pi * (double)(half - 2 * k) / (double)full),
                     -cos(pi * (double)(half - 2 * k) / (double)full));
    return CMPLX(cos(pi * (double)k / (double)half), -sin(pi * (double)k / (double)half));
}

/* False when a prime factor is too large for Stockham's form. */
static bool factorise(struct fft_plan *plan) {
    int64_t rest = plan->n, s = 1;
    static const int radices[] = {4, 2, 3, 5, 7, 11, LARGEST_RADIX};
    for (size_t i = 0; i < ARRAY_LEN(radices); i++) {
        for (; rest % radices[i] == 0; rest /= radices[i]) {
            plan->passes[plan->n_passes++] =
                (struct pass){.p = radices[i], .m = rest / radices[i], .s = s};
            s *= radices[i];
        }
    }
    return rest == 1;
}

/* The step was cancelled, so the plan must not be kept half made. */
static struct status *unwanted(void) {
    return status_new(STATUS_CANCELLED, "a Fourier transform was cancelled");
}

static struct status *prepare_stockham(struct fft_plan *plan) {
    int64_t n_twiddles = 0;
    for (int i = 0; i < plan->n_passes; i++)
        n_twiddles += 2 * (plan->passes[i].p - 1) * plan->passes[i].m;
    double *t = plan->twiddles = malloc((size_t)(n_twiddles + 1) * sizeof(*t));
    if (!t)
        return status_exhausted("OOM when preparing a Fourier transform of length %lld",
                                (long long)plan->n);
    for (int i = 0; i < plan->n_passes; i++) {
        struct pass *pass = &plan->passes[i];
        int64_t n = pass->m * pass->p;
        pass->twiddles = t;
        for (int k = 1; k < pass->p; k++, t += 2 * pass->m) {
            for (int64_t q = 0; q < pass->m; q++) {
                if (q % ROOTS_PER_POLL == 0 && pool_is_unwanted())
                    return unwanted();
                c128 w = n % 2 == 0 ? unit_root(q * k, n / 2) : unit_root(2 * q * k, n);
                t[q] = creal(w);
                t[pass->m + q] = cimag(w);
            }
        }
    }
    return NULL;
}

static struct status *prepare_bluestein(struct fft_plan *plan) {
    int64_t n = plan->n, m = 1;
    while (m < 2 * n - 1)
        m *= 2;
    TRY(fft_plan_get(m, &plan->inner));
    plan->n_passes = 0;
    plan->roots = malloc((size_t)n * sizeof(*plan->roots));
    c128 *memory = plan->chirp_spectrum =
        calloc((size_t)(m + fft_plan_scratch(plan->inner)), sizeof(*memory));
    if (!memory || !plan->roots)
        return status_exhausted("OOM when preparing a Fourier transform of length %lld",
                                (long long)n);
    for (int64_t k = 0; k < n; k++) {
        if (k % ROOTS_PER_POLL == 0 && pool_is_unwanted())
            return unwanted();
        plan->roots[k] =
            unit_root((int64_t)((unsigned __int128)k * (uint64_t)k % (uint64_t)(2 * n)), n);
        memory[k] = conj(plan->roots[k]);
        if (k > 0)
            memory[m - k] = memory[k];
    }
    fft_run(plan->inner, false, memory, memory + m);
    if (pool_is_unwanted())
        return unwanted();
    for (int64_t k = 0; k < m; k++)
        memory[k] /= (double)m;
    return NULL;
}

static void plan_free(struct fft_plan *plan) {
    fft_plan_unref(plan->inner);
    free(plan->chirp_spectrum);
    free(plan->roots);
    free(plan->twiddles);
    free(plan);
}

static struct status *plan_new(int64_t n, struct fft_plan **ret) {
    if (n >= INT64_MAX / 1024)
        return status_exhausted("OOM when preparing a Fourier transform of length %lld",
                                (long long)n);
    struct fft_plan *plan = xcalloc(1, sizeof(*plan));
    atomic_init(&plan->n_refs, 1);
    plan->n = n;
    struct status *st = factorise(plan) ? prepare_stockham(plan) : prepare_bluestein(plan);
    if (st)
        plan_free(plan);
    else
        *ret = plan;
    return st;
}

void fft_plan_unref(struct fft_plan *plan) {
    if (plan && atomic_fetch_sub(&plan->n_refs, 1) == 1)
        plan_free(plan);
}

/* ---- plans are kept, because making a plan costs more than using it; the plan that was used
 * longest ago is dropped first ---- */

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
/* the last used first; guarded by kept_lock, which is not held while a plan is made */
static struct fft_plan *kept[N_KEPT];

static struct fft_plan *find_kept(int64_t n) {
    for (int i = 0; i < N_KEPT && kept[i]; i++) {
        struct fft_plan *plan = kept[i];
        if (plan->n != n)
            continue;
        memmove(kept + 1, kept, (size_t)i * sizeof(*kept));
        kept[0] = plan;
        atomic_fetch_add(&plan->n_refs, 1);
        return plan;
    }
    return NULL;
}

struct status *fft_plan_get(int64_t n, struct fft_plan **ret) {
    pthread_mutex_lock(&kept_lock);
    *ret = find_kept(n);
    pthread_mutex_unlock(&kept_lock);
    if (*ret)
        return NULL;
    TRY(plan_new(n, ret));
    if (n > KEPT_MAX_LENGTH)
        return NULL;
    atomic_fetch_add(&(*ret)->n_refs, 1);
    pthread_mutex_lock(&kept_lock);
    struct fft_plan *last = kept[N_KEPT - 1];
    memmove(kept + 1, kept, (N_KEPT - 1) * sizeof(*kept));
    kept[0] = *ret;
    pthread_mutex_unlock(&kept_lock);
    fft_plan_unref(last);
    return NULL;
}
