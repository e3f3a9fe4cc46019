/* LAPACK's routines, from the library that has BLAS (blas.h): loaded at first use. Matrices are
 * stored by columns, integers are int, lengths of texts follow the arguments. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_LINALG_LAPACK_H
#define MILLRACE_KERNELS_CPU_LINALG_LAPACK_H

#include <stddef.h>

typedef void lapack_fn(void);

/* One element type. Those whose arguments differ between real and complex numbers are cast where
 * they are called. */
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
    /* b := a⁻¹ · b for a triangular a: CBLAS's; real ones take alpha by value. */
    lapack_fn *trsm;
    lapack_fn *gesdd, *heevd, *gelsd;
    lapack_fn *geev, *gees; /* complex only */
};

struct lapack {
    struct lapack_type f32, f64, c64, c128;
};

/* CBLAS's numbers */
enum { LAPACK_LEFT = 141, LAPACK_UPPER = 121, LAPACK_LOWER = 122, LAPACK_NON_UNIT = 131 };

const struct lapack *lapack_get(void); /* NULL when no library has it */

#endif
