#include "kernels/cpu/fft.h"

#include <math.h>
#include <stdlib.h>

typedef double complex c128;

enum { MAX_FACTORS = 64, LARGEST_RADIX = 13 };

struct fft_plan {
    int64_t n;
    int n_factors, factors[MAX_FACTORS]; /* none for Bluestein's form */
    c128 *roots;                         /* e^(-2πi·k/n), n of them; of Bluestein: the chirp e^(-πi·k²/n) */
    struct fft_plan *inner;              /* Bluestein: of a power of two, m >= 2n - 1 */
    c128 *chirp_spectrum;                /* of the conjugate chirp, m elements, divided by m */
};

/* ---- Stockham: one step splits off a radix p, reading x and writing y ----
 * Of length n = p·m, s interleaved transforms: y[j + s·(p·q + k)] = w_n^(q·k) · Σ_i x[j + s·(q + m·i)]·w_p^(i·k). */

struct step {
    const c128 *x;
    c128 *y;
    const c128 *roots;
    int64_t n_all, n, s; /* n_all = n·s at every step */
    bool inverse;
};

static inline c128 times(c128 a, c128 b) {
    return CMPLX(creal(a) * creal(b) - cimag(a) * cimag(b), creal(a) * cimag(b) + cimag(a) * creal(b));
}
static inline c128 root(const struct step *t, int64_t k) { return t->inverse ? conj(t->roots[k]) : t->roots[k]; }
static inline c128 times_i(c128 a) { return CMPLX(-cimag(a), creal(a)); }

static void step_2(const struct step *t) {
    int64_t m = t->n / 2, s = t->s;
    for (int64_t q = 0; q < m; q++) {
        c128 w = root(t, q * s);
        const c128 *a = t->x + s * q, *b = a + s * m;
        c128 *y = t->y + 2 * s * q;
        for (int64_t j = 0; j < s; j++) {
            c128 sum = a[j] + b[j], difference = a[j] - b[j];
            y[j] = sum;
            y[j + s] = times(w, difference);
        }
    }
}

static void step_3(const struct step *t) {
    int64_t m = t->n / 3, s = t->s;
    double half_root = t->inverse ? 0.86602540378443864676 : -0.86602540378443864676;
    for (int64_t q = 0; q < m; q++) {
        c128 w1 = root(t, q * s), w2 = root(t, 2 * q * s);
        const c128 *a = t->x + s * q, *b = a + s * m, *c = b + s * m;
        c128 *y = t->y + 3 * s * q;
        for (int64_t j = 0; j < s; j++) {
            c128 sum = b[j] + c[j], side = half_root * times_i(b[j] - c[j]), middle = a[j] - 0.5 * sum;
            y[j] = a[j] + sum;
            y[j + s] = times(w1, middle + side);
            y[j + 2 * s] = times(w2, middle - side);
        }
    }
}

static void step_4(const struct step *t) {
    int64_t m = t->n / 4, s = t->s;
    for (int64_t q = 0; q < m; q++) {
        c128 w1 = root(t, q * s), w2 = root(t, 2 * q * s), w3 = root(t, 3 * q * s);
        const c128 *a = t->x + s * q, *b = a + s * m, *c = b + s * m, *d = c + s * m;
        c128 *y = t->y + 4 * s * q;
        for (int64_t j = 0; j < s; j++) {
            c128 even = a[j] + c[j], even_side = a[j] - c[j], odd = b[j] + d[j], odd_side = times_i(b[j] - d[j]);
            if (!t->inverse)
                odd_side = -odd_side;
            y[j] = even + odd;
            y[j + s] = times(w1, even_side + odd_side);
            y[j + 2 * s] = times(w2, even - odd);
            y[j + 3 * s] = times(w3, even_side - odd_side);
        }
    }
}

static void step_any(const struct step *t, int p) {
    int64_t m = t->n / p, s = t->s, turn = t->n_all / p;
    for (int64_t q = 0; q < m; q++) {
        for (int k = 0; k < p; k++) {
            c128 w = root(t, q * k * s), *y = t->y + s * (p * q + k);
            for (int64_t j = 0; j < s; j++) {
                c128 sum = 0;
                for (int i = 0; i < p; i++)
                    sum += times(t->x[j + s * (q + m * i)], root(t, i * k % p * turn));
                y[j] = times(w, sum);
            }
        }
    }
}

static void run_stockham(const struct fft_plan *plan, bool inverse, c128 *line, c128 *scratch) {
    struct step t = {.x = line, .y = scratch, .roots = plan->roots, .n_all = plan->n, .n = plan->n, .s = 1, .inverse = inverse};
    for (int i = 0; i < plan->n_factors; i++) {
        int p = plan->factors[i];
        if (p == 2)
            step_2(&t);
        else if (p == 3)
            step_3(&t);
        else if (p == 4)
            step_4(&t);
        else
            step_any(&t, p);
        c128 *written = t.y;
        t.y = written == line ? scratch : line;
        t.x = written;
        t.n /= p;
        t.s *= p;
    }
    if (t.x != line)
        memcpy(line, t.x, (size_t)plan->n * sizeof(*line));
}

/* ---- Bluestein: j·k = (j² + k² - (k - j)²) / 2 makes the transform a convolution with the chirp ---- */

static void run_bluestein(const struct fft_plan *plan, bool inverse, c128 *line, c128 *scratch) {
    int64_t n = plan->n, m = plan->inner->n;
    c128 *wide = scratch, *rest = scratch + m;
    for (int64_t k = 0; k < n; k++)
        wide[k] = times(inverse ? conj(line[k]) : line[k], plan->roots[k]);
    memset(wide + n, 0, (size_t)(m - n) * sizeof(*wide));
    fft_run(plan->inner, false, wide, rest);
    for (int64_t k = 0; k < m; k++)
        wide[k] = times(wide[k], plan->chirp_spectrum[k]);
    fft_run(plan->inner, true, wide, rest);
    for (int64_t k = 0; k < n; k++) {
        c128 value = times(wide[k], plan->roots[k]);
        line[k] = inverse ? conj(value) : value; /* the inverse is the conjugate of the transform of the conjugate */
    }
}

void fft_run(const struct fft_plan *plan, bool inverse, c128 *line, c128 *scratch) {
    if (plan->inner)
        run_bluestein(plan, inverse, line, scratch);
    else
        run_stockham(plan, inverse, line, scratch);
}

int64_t fft_plan_scratch(const struct fft_plan *plan) { return plan->inner ? 2 * plan->inner->n : plan->n; }

/* ---- plans ---- */

/* e^(-πi·k/half), the angle brought into the first octant: exact to the last place whatever k. */
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
        return CMPLX(sin(pi * (double)(half - 2 * k) / (double)full), -cos(pi * (double)(half - 2 * k) / (double)full));
    return CMPLX(cos(pi * (double)k / (double)half), -sin(pi * (double)k / (double)half));
}

/* False when a factor is too large for Stockham's form. */
static bool factorise(struct fft_plan *plan) {
    int64_t rest = plan->n;
    static const int radices[] = {4, 2, 3, 5, 7, 11, LARGEST_RADIX};
    for (size_t i = 0; i < ARRAY_LEN(radices); i++) {
        for (; rest % radices[i] == 0; rest /= radices[i])
            plan->factors[plan->n_factors++] = radices[i];
    }
    return rest == 1;
}

static struct status *prepare_bluestein(struct fft_plan *plan) {
    int64_t n = plan->n, m = 1;
    while (m < 2 * n - 1)
        m *= 2;
    TRY(fft_plan_new(m, &plan->inner));
    plan->n_factors = 0;
    c128 *memory = plan->chirp_spectrum = calloc((size_t)(2 * m), sizeof(*memory));
    if (!memory)
        return status_exhausted("OOM when preparing a Fourier transform of length %lld", (long long)n);
    for (int64_t k = 0; k < n; k++) {
        plan->roots[k] = unit_root((int64_t)((unsigned __int128)k * (uint64_t)k % (uint64_t)(2 * n)), n);
        memory[k] = conj(plan->roots[k]);
        if (k > 0)
            memory[m - k] = memory[k];
    }
    fft_run(plan->inner, false, memory, memory + m);
    for (int64_t k = 0; k < m; k++)
        memory[k] /= (double)m;
    return NULL;
}

struct status *fft_plan_new(int64_t n, struct fft_plan **ret) {
    struct fft_plan *plan = xcalloc(1, sizeof(*plan));
    struct status *st = NULL;
    plan->n = n;
    bool is_smooth = n < INT64_MAX / 64 && factorise(plan);
    plan->roots = n < INT64_MAX / 64 ? malloc((size_t)n * sizeof(*plan->roots)) : NULL;
    if (!plan->roots) {
        st = status_exhausted("OOM when preparing a Fourier transform of length %lld", (long long)n);
        goto out;
    }
    if (!is_smooth)
        TRY_OUT(prepare_bluestein(plan));
    for (int64_t k = 0; is_smooth && k < n; k++)
        plan->roots[k] = n % 2 == 0 ? unit_root(k, n / 2) : unit_root(2 * k, n);
    *ret = plan;
    return NULL;
out:
    fft_plan_free(plan);
    return st;
}

void fft_plan_free(struct fft_plan *plan) {
    if (!plan)
        return;
    fft_plan_free(plan->inner);
    free(plan->chirp_spectrum);
    free(plan->roots);
    free(plan);
}
