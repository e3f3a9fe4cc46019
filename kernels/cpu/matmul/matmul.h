/* Multiplies two matrices by oneDNN, BLAS or our own loops: whichever is installed and fastest for
 * the type and the sizes. MatMul, Einsum, convolutions and recurrent cells all use it. A product
 * runs on the calling thread; callers split work over the pool. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_MATMUL_MATMUL_H
#define MILLRACE_KERNELS_CPU_MATMUL_MATMUL_H

#include "common/tensor/dtype.h"

/* c[m,n] = op(a)[m,k] · op(b)[k,n], or added to c when `adds` is set. Rows are lda, ldb, ldc
 * elements apart. op transposes the stored matrix when trans_a or trans_b is set, and also
 * conjugates it when `conjugates` is set; that is for complex numbers, and only where
 * matmul_conjugates answers true. a and b must not overlap c. With k of 0 the product is zeros. */
struct matmul {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc;
    bool trans_a, trans_b, adds, conjugates;
    /* Of the product that this one is rows or columns of, so that the choice of an implementation
     * does not depend on how a product is divided. 0: m and n. With AMX the bits of a result depend
     * neither on the division, nor on infinities and NaN in other rows of a and columns of b,
     * unless a sum overflows. With oneDNN and BLAS they depend on it; see matmul_division. */
    int64_t whole_m, whole_n;
};

/* dtype is DT_FLOAT, DT_DOUBLE, DT_COMPLEX64, DT_COMPLEX128, DT_INT16, DT_INT32 or DT_INT64.
 * Integers wrap. A product with a long k asks pool_is_unwanted every few milliseconds, and leaves c
 * unfinished once it is. */
void matmul_run(enum dtype dtype, const struct matmul *g);

/* The rows [row, row + n_rows) and columns [column, column + n_columns) of a product, as a product
 * that knows the whole. */
struct matmul matmul_part(enum dtype dtype, const struct matmul *whole, int64_t row, int64_t n_rows,
                          int64_t column, int64_t n_columns);

/* How one product is divided over threads: into units of `unit` rows, or of columns. The units
 * depend on the product only, and not on the pool. oneDNN and BLAS compute parts of few rows, and
 * the last rows of a part, by other loops, which round otherwise. So each unit is a call of its
 * own, and a result has the same bits whoever computes it. */
struct matmul_division {
    bool by_rows;
    bool joins; /* neighbouring units may be one call, because the bits stay the same */
    int64_t unit, n_units;
};

/* Is a product of this size divided by rows? Else by columns. Its pointers are not read, here and
 * in the next two. */
bool matmul_is_by_rows(enum dtype dtype, const struct matmul *whole);

/* Is it computed by oneDNN, which packs its operands in each call? */
bool matmul_packs_operands(enum dtype dtype, const struct matmul *whole);

/* Divides the product of this size. */
struct matmul_division matmul_divide(enum dtype dtype, const struct matmul *whole, bool by_rows);

/* Computes the units [begin, end) of a product. Units of one product may run on several threads at
 * once. */
void matmul_run_units(enum dtype dtype, const struct matmul *whole,
                      const struct matmul_division *division, int64_t begin, int64_t end);

static inline int64_t matmul_whole_m(const struct matmul *g) {
    return g->whole_m ? g->whole_m : g->m;
}
static inline int64_t matmul_whole_n(const struct matmul *g) {
    return g->whole_n ? g->whole_n : g->n;
}

/* Estimates how many nanoseconds one multiplication takes, in a product that has this many
 * multiplications. */
double matmul_cost_ns(enum dtype dtype, double multiplications);

/* Answers whether a library conjugates what it transposes, for sizes like these. */
bool matmul_conjugates(const struct matmul *g);

#endif
