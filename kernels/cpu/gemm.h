/* A matrix product for kernels that are made of them (convolution, recurrent cells): oneDNN and BLAS where they help, our own loops for
 * what is small, for integers and for machines without either. Serial: the callers split work over the pool. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_GEMM_H
#define MILLRACE_KERNELS_CPU_GEMM_H

#include "common/tensor/dtype.h"

/* c[m,n] = op(a)[m,k] · op(b)[k,n], added to c if `adds`. Rows lie lda, ldb, ldc elements apart; op transposes what is stored.
 * Nothing overlaps c. k of 0 gives zeros. */
struct gemm {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc;
    bool trans_a, trans_b, adds;
};

/* dtype: DT_FLOAT, DT_DOUBLE, DT_INT32 (wraps) or DT_INT64. */
void gemm_run(enum dtype dtype, const struct gemm *g);

#endif
