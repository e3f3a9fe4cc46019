/* Finds LAPACK's routines in the library that has BLAS (kernels/cpu/blas.h), at first use. LAPACK
 * stores matrices by columns, its integers are int, and the lengths of text arguments follow all
 * other arguments. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_LINALG_LAPACK_H
#define MILLRACE_KERNELS_CPU_LINALG_LAPACK_H

#include <stddef.h>

typedef void lapack_fn(void);

/* The routines for one element type. Callers cast those whose arguments differ between real and
 * complex numbers. */
struct lapack_type {
    void (*potrf)(const char *uplo, const int *n, void *a, const int *lda, int *info, size_t);
    void (*getrf)(const int *m, const int *n, void *a, const int *lda, int *pivots, int *info);
    void (*getrs)(const char *trans, const int *n, const int *n_rhs, const void *a, const int *lda,
                  const int *pivots, void *b, const int *ldb, int *info, size_t);
    void (*getri)(const int *n, void *a, const int *lda, const int *pivots, void *work,
                  const int *n_work, int *info);
    void (*geqrf)(const int *m, const int *n, void *a, const int *lda, void *tau, void *work,
                  const int *n_work, int *info);
    void (*ungqr)(const int *m, const int *n, const int *k, void *a, const int *lda,
                  const void *tau, void *work, const int *n_work, int *info);
    /* b := a⁻¹ · b for a triangular a, CBLAS's function; the real ones take alpha by value. */
    lapack_fn *trsm;
    lapack_fn *gesdd, *heevd, *gelsd;
    lapack_fn *geev, *gees; /* complex only */
};

struct lapack {
    struct lapack_type f32, f64, c64, c128;
};

/* CBLAS's constants */
enum { LAPACK_LEFT = 141, LAPACK_UPPER = 121, LAPACK_LOWER = 122, LAPACK_NON_UNIT = 131 };

/* Returns NULL when no library is installed, or when it lacks a routine. */
const struct lapack *lapack_get(void);

#endif
