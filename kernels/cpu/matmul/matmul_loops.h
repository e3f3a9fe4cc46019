/* Our own loops of matrix products, for small matrices, integers, and machines without BLAS. */
#ifndef MILLRACE_KERNELS_CPU_MATMUL_MATMUL_LOOPS_H
#define MILLRACE_KERNELS_CPU_MATMUL_MATMUL_LOOPS_H

#include "kernels/kernel.h"
#include "kernels/support/isa.h"
#include "kernels/support/number_types.h"

/* c[m,n] = a[m,k] · b[k,n]. Strides count elements. One stride of b is 1. Rows of c are c_row
 * apart. */
struct product {
    const void *a, *b;
    void *c;
    int64_t a_row, a_col, b_row, b_col, c_row;
    int64_t m, k, n;
};
typedef void product_loop(const struct product *p);

/* By dtype: float, double, complex64, complex128, int16, int32 and int64; NULL for the others. */
extern product_loop *const matmul_loops_base[DT_N_TYPES], *const matmul_loops_avx2[DT_N_TYPES];

#endif
