/* Loads BLAS (OpenBLAS, set to one thread) with dlopen at first use, so that a daemon that
 * multiplies no large matrices stays small. Callers use their own loops where no library is
 * installed. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_BLAS_H
#define MILLRACE_KERNELS_CPU_BLAS_H

#include "common/base/str.h"

/* CBLAS's constants */
enum { BLAS_ROW_MAJOR = 101, BLAS_NO_TRANS = 111, BLAS_TRANS = 112, BLAS_CONJ_TRANS = 113 };

struct blas {
    /* c[m,n] = alpha · op(a)[m,k] · op(b)[k,n] + beta · c, rows lda, ldb, ldc elements apart. */
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*dgemm)(int order, int trans_a, int trans_b, int m, int n, int k, double alpha,
                  const double *a, int lda, const double *b, int ldb, double beta, double *c,
                  int ldc);
    /* Complex numbers: alpha and beta are passed by address. */
    void (*cgemm)(int order, int trans_a, int trans_b, int m, int n, int k, const void *alpha,
                  const void *a, int lda, const void *b, int ldb, const void *beta, void *c,
                  int ldc);
    void (*zgemm)(int order, int trans_a, int trans_b, int m, int n, int k, const void *alpha,
                  const void *a, int lda, const void *b, int ldb, const void *beta, void *c,
                  int ldc);
    /* y = alpha · op(a)[m,n] · x + beta · y */
    void (*sgemv)(int order, int trans, int m, int n, float alpha, const float *a, int lda,
                  const float *x, int incx, float beta, float *y, int incy);
    void (*dgemv)(int order, int trans, int m, int n, double alpha, const double *a, int lda,
                  const double *x, int incx, double beta, double *y, int incy);
};

/* Returns NULL when no library is installed. The first call loads it, which takes about 10 ms. */
const struct blas *blas_get(void);
/* Appends the library's own description, for example "OpenBLAS 0.3.21 … Haswell". Returns false,
 * and appends nothing, until a library has been loaded. */
bool blas_describe(struct str *out);
/* Returns another function of the same library (LAPACK's, such as "dgetrf_"), or NULL. */
void *blas_symbol(const char *name);

#endif
