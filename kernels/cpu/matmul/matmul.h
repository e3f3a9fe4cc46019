/* The one matrix product: oneDNN, BLAS or our own loops, whichever is fastest for the type and
 * the sizes and is there. MatMul, Einsum, convolutions and recurrent cells are made of it.
 * Serial: the callers split work over the pool. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_MATMUL_MATMUL_H
#define MILLRACE_KERNELS_CPU_MATMUL_MATMUL_H

#include "common/tensor/dtype.h"

/* c[m,n] = op(a)[m,k] · op(b)[k,n], added to c if `adds`. Rows lie lda, ldb, ldc elements apart;
 * op transposes what is stored, and conjugates it if `conjugates` (complex numbers; only where
 * matmul_conjugates says so). Nothing overlaps c. k of 0 gives zeros. */
struct matmul {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc;
    bool trans_a, trans_b, adds, conjugates;
};

/* dtype: DT_FLOAT, DT_DOUBLE, DT_INT32 (wraps), DT_INT64; not to add: DT_INT16, DT_COMPLEX64,
 * DT_COMPLEX128. */
void matmul_run(enum dtype dtype, const struct matmul *g);

/* Nanoseconds of one multiplication, about, in a product of so many. */
double matmul_cost_ns(enum dtype dtype, double multiplications);

/* Is there a library that conjugates what it transposes, for sizes like these? */
bool matmul_conjugates(const struct matmul *g);

#endif
