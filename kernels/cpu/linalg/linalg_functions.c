/* Computes the eigenvalues of any square matrix, and through its Schur form the square root and the
 * logarithm. Everything is computed in complex128. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/support/complex_values.h"
#include "kernels/cpu/linalg/linalg.h"

/* Copies the matrix by columns. False when an element is not finite. */
static bool load_columns(const struct linalg_problem *p, c128 *to) {
    bool finite = true;
    int64_t n = p->n;
    for (int64_t i = 0; i < n * n; i++) {
        c128 v = c128_load(p->state->in, p->in[0], i);
        to[i % n * n + i / n] = v;
        finite &= isfinite(creal(v)) && isfinite(cimag(v));
    }
    return finite;
}

/* ---- Eig ---- */

struct status *linalg_eig(struct linalg_problem *p) {
    typedef void geev_fn(const char *, const char *, const int *, void *, const int *, void *,
                         void *, const int *, void *, const int *, void *, const int *, double *,
                         int *, size_t, size_t);
    enum { WORK_COLUMNS = 66 };
    int64_t n = p->n;
    int size = (int)n, one = 1, info = 0, n_work = (int)MIN(n * WORK_COLUMNS, INT_MAX);
    enum dtype out =
        p->state->in == DT_FLOAT || p->state->in == DT_COMPLEX64 ? DT_COMPLEX64 : DT_COMPLEX128;
    if (n == 0)
        return NULL;
    c128 *a = linalg_scratch(p, (size_t)(2 * n * n + n + n_work) * sizeof(*a) +
                                    (size_t)(2 * n) * sizeof(double));
    if (!a)
        return linalg_no_memory();
    c128 *v = a + n * n, *e = v + n * n, *work = e + n;
    double *real_work = (double *)(work + n_work);
    bool finite = load_columns(p, a);
    if (finite)
        ((geev_fn *)p->lapack->c128.geev)("N", p->out[1] ? "V" : "N", &size, a, &size, e, NULL,
                                          &one, v, &size, work, &n_work, real_work, &info, 1, 1);
    if (!finite || info != 0)
        return status_invalid(
            "Eigen decomposition was not successful. The input might not be valid.");
    for (int64_t i = 0; i < n; i++)
        c128_store(out, p->out[0], i, e[i]);
    for (int64_t i = 0; p->out[1] && i < n * n; i++)
        c128_store(out, p->out[1], i, v[i % n * n + i / n]);
    return NULL;
}

/* ---- functions of a matrix: f(A) = Z·f(T)·Zᴴ for A = Z·T·Zᴴ with an upper triangle T ---- */

struct schur {
    int64_t n;
    c128 *t, *z; /* stored by columns */
    c128 *spare; /* scratch memory for three matrices */
};

static struct status *schur_decompose(struct linalg_problem *p, struct schur *ret, bool *ret_done) {
    typedef void gees_fn(const char *, const char *, void *, const int *, void *, const int *,
                         int *, void *, void *, const int *, void *, const int *, double *, int *,
                         int *, size_t, size_t);
    enum { WORK_COLUMNS = 34, N_MATRICES = 5 };
    int64_t n = p->n;
    int size = (int)n, n_sorted, info = 0, n_work = (int)MIN(n * WORK_COLUMNS, INT_MAX);
    c128 *memory = linalg_scratch(p, (size_t)(N_MATRICES * n * n + n + n_work) * sizeof(*memory) +
                                         (size_t)n * sizeof(double));
    if (!memory)
        return linalg_no_memory();
    *ret = (struct schur){n, memory, memory + n * n, memory + 2 * n * n};
    c128 *e = memory + N_MATRICES * n * n, *work = e + n;
    *ret_done = load_columns(p, ret->t);
    if (*ret_done)
        ((gees_fn *)p->lapack->c128.gees)("V", "N", NULL, &size, ret->t, &size, &n_sorted, e,
                                          ret->z, &size, work, &n_work, (double *)(work + n_work),
                                          NULL, &info, 1, 1);
    *ret_done &= info == 0;
    return NULL;
}

static struct status *store_nan(struct linalg_problem *p) {
    for (int64_t i = 0; i < p->n * p->n; i++)
        c128_store(p->state->in, p->out[0], i,
                   CMPLX(NAN, dtype_in(p->state->in, DTYPES_COMPLEX) ? NAN : 0));
    return NULL;
}

/* Writes Z·f·Zᴴ to the output. `half_way` is scratch memory for a matrix. A real matrix without a
 * real answer gives NaN. */
static struct status *store_similar(struct linalg_problem *p, const struct schur *schur,
                                    const c128 *f, c128 *half_way) {
    int64_t n = schur->n;
    const c128 *z = schur->z;
    double real_size = 0, imaginary_size = 0;
    memset(half_way, 0, (size_t)(n * n) * sizeof(*half_way));
    for (int64_t j = 0; j < n; j++) {
        for (int64_t k = 0; k <= j && linalg_goes_on(n); k++) {
            for (int64_t i = 0; i < n; i++)
                half_way[j * n + i] += z[k * n + i] * f[j * n + k];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n && linalg_goes_on(n); j++) {
            c128 sum = 0;
            for (int64_t k = 0; k < n; k++)
                sum += half_way[k * n + i] * conj(z[k * n + j]);
            real_size = fmax(real_size, fabs(creal(sum)));
            imaginary_size = fmax(imaginary_size, fabs(cimag(sum)));
            c128_store(p->state->in, p->out[0], i * n + j, sum);
        }
    }
    bool is_real = !dtype_in(p->state->in, DTYPES_COMPLEX);
    return is_real && imaginary_size > 1e-6 * real_size ? store_nan(p) : NULL;
}

/* The square root of an upper triangle, stored by columns [Björck, Hammarling: "A Schur method for
 * the square root of a matrix", 1983]. */
static void triangle_square_root(const c128 *t, int64_t n, c128 *r) {
    memset(r, 0, (size_t)(n * n) * sizeof(*r));
    for (int64_t j = 0; j < n; j++) {
        r[j * n + j] = csqrt(t[j * n + j]);
        for (int64_t i = j - 1; i >= 0 && linalg_goes_on(n); i--) {
            c128 rest = t[j * n + i];
            for (int64_t k = i + 1; k < j; k++)
                rest -= r[k * n + i] * r[j * n + k];
            r[j * n + i] = rest / (r[i * n + i] + r[j * n + j]);
        }
    }
}

struct status *linalg_square_root(struct linalg_problem *p) {
    struct schur schur;
    bool done;
    if (p->n == 0)
        return NULL;
    TRY(schur_decompose(p, &schur, &done));
    if (!done)
        return store_nan(p);
    triangle_square_root(schur.t, schur.n, schur.spare);
    return store_similar(p, &schur, schur.spare, schur.spare + schur.n * schur.n);
}

/* x := (I + node·y)⁻¹·y for upper triangles y, all stored by columns. */
static void solve_shifted(const c128 *y, int64_t n, double node, c128 *x) {
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = n - 1; i >= 0 && linalg_goes_on(n); i--) {
            c128 rest = i <= j ? y[j * n + i] : 0;
            for (int64_t k = i + 1; k <= j; k++)
                rest -= node * y[k * n + i] * x[j * n + k];
            x[j * n + i] = i <= j ? rest / (1 + node * y[i * n + i]) : 0;
        }
    }
}

static double distance_from_identity(const c128 *t, int64_t n) {
    double largest = 0;
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t i = 0; i <= j; i++)
            sum += cabs(t[j * n + i] - (i == j));
        largest = fmax(largest, sum);
    }
    return largest;
}

/* Computes log T of an upper triangle in place. It takes square roots until T is near I, then log(I
 * + Y) = ∫ Y·(I + x·Y)⁻¹ dx over [0, 1] by Gauss' rule with 8 nodes, which is the Padé approximant
 * of that order [Higham: "Functions of Matrices", 2008, 11.4 and 11.5]. */
static bool triangle_logarithm(c128 *t, int64_t n, c128 *spare) {
    static const double nodes[4] = {0.1834346424956498, 0.5255324099163290, 0.7966664774136267,
                                    0.9602898564975363};
    static const double weights[4] = {0.3626837833783620, 0.3137066458778873, 0.2223810344533745,
                                      0.1012285362903763};
    enum { MAX_ROOTS = 100 };
    c128 *x = spare, *sum = spare + n * n;
    double scale = 1, distance;
    for (int roots = 0; (distance = distance_from_identity(t, n)) > 0.1; roots++) {
        if (roots == MAX_ROOTS || !isfinite(distance))
            return false;
        triangle_square_root(t, n, x);
        memcpy(t, x, (size_t)(n * n) * sizeof(*t));
        scale *= 2;
    }
    for (int64_t i = 0; i < n; i++)
        t[i * n + i] -= 1;
    memset(sum, 0, (size_t)(n * n) * sizeof(*sum));
    for (int q = 0; q < 8; q++) {
        double node = 0.5 + (q % 2 ? 0.5 : -0.5) * nodes[q / 2];
        solve_shifted(t, n, node, x);
        for (int64_t i = 0; i < n * n; i++)
            sum[i] += 0.5 * weights[q / 2] * x[i];
    }
    for (int64_t i = 0; i < n * n; i++)
        t[i] = scale * sum[i];
    return true;
}

/* Computes the diagonal directly, because the square roots have rounded some of its digits away. */
static void set_log_diagonal(c128 *logarithm, const c128 *diagonal, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        logarithm[i * n + i] = clog(diagonal[i]);
}

struct status *linalg_logarithm(struct linalg_problem *p) {
    struct schur schur;
    bool done;
    int64_t n = p->n;
    if (n == 0)
        return NULL;
    TRY(schur_decompose(p, &schur, &done));
    if (!done)
        return store_nan(p);
    c128 *diagonal = schur.spare + 2 * n * n;
    for (int64_t i = 0; i < n; i++) {
        diagonal[i] = schur.t[i * n + i];
        if (cabs(diagonal[i]) <= 1e-15 * cabs(diagonal[0]) || diagonal[i] == 0)
            return store_nan(p); /* a singular matrix has no logarithm */
    }
    if (!triangle_logarithm(schur.t, n, schur.spare))
        return store_nan(p);
    set_log_diagonal(schur.t, diagonal, n);
    return store_similar(p, &schur, schur.t, schur.spare);
}
