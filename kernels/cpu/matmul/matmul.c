/* Chooses an implementation for one matrix product; see matmul.h. */
#include "kernels/cpu/matmul/matmul.h"

#include <limits.h>

#include "common/base/pool_cancel.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/matmul/matmul_amx.h"
#include "kernels/cpu/matmul/matmul_dot.h"
#include "kernels/cpu/matmul/matmul_loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/support/isa.h"

enum {
    /* below this many multiplications a call of BLAS costs more than it saves */
    SMALL_PRODUCT = 1 << 11,
    LARGE_PRODUCT = 1 << 16, /* from this many multiplications on, oneDNN is faster than BLAS */
    /* columns of a partial product that is computed beside c and then added */
    STRIP = 256,
    /* Terms of a piece of a long sum are a multiple of this, which every block of terms of the
     * libraries divides (128, 192, 256, 320, 384, 512, 768). So the pieces add the same terms in
     * the same order as one call. */
    TERM_BLOCK = 7680,
    /* The same for a matrix-vector product. BLAS adds them one after the other, and a long sum
     * loses precision. */
    VECTOR_TERMS = 2048,
    PIECE_NS = 10 * 1000 * 1000,
};

static double multiplications(const struct matmul *g) {
    return (double)matmul_whole_m(g) * (double)matmul_whole_n(g) * (double)g->k;
}

static bool fits_blas(const struct matmul *g) {
    const int64_t sizes[] = {g->m, g->n, g->k, g->lda, g->ldb, g->ldc};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        if (sizes[i] > INT_MAX)
            return false;
    }
    return true;
}

static bool is_of_vector(enum dtype dtype, const struct matmul *g) {
    return (matmul_whole_m(g) == 1 || matmul_whole_n(g) == 1) &&
           (dtype == DT_FLOAT || dtype == DT_DOUBLE);
}

/* Multiplies a single row or column as a matrix-vector product, which reads the matrix once, where
 * gemm would pack it first. */
static bool multiply_by_vector(enum dtype dtype, const struct matmul *g, const struct blas *blas) {
    if (!is_of_vector(dtype, g))
        return false;
    bool by_row = matmul_whole_m(g) == 1; /* then c' = b' · a' */
    const void *matrix = by_row ? g->b : g->a, *x = by_row ? g->a : g->b;
    bool is_stored_plain = by_row ? !g->trans_b : !g->trans_a;
    int lda = (int)(by_row ? g->ldb : g->lda), outputs = (int)(by_row ? g->n : g->m), k = (int)g->k;
    int incx = (int)(by_row ? (g->trans_a ? g->lda : 1) : (g->trans_b ? 1 : g->ldb)),
        incy = (int)(by_row ? 1 : g->ldc);
    int trans = is_stored_plain == by_row ? BLAS_TRANS : BLAS_NO_TRANS;
    int m = trans == BLAS_TRANS ? k : outputs, n = trans == BLAS_TRANS ? outputs : k;
    if (lda < n)
        return false; /* the matrix is a vector itself */
    if (dtype == DT_FLOAT)
        blas->sgemv(BLAS_ROW_MAJOR, trans, m, n, 1, matrix, lda, x, incx, g->adds ? 1 : 0, g->c,
                    incy);
    else
        blas->dgemv(BLAS_ROW_MAJOR, trans, m, n, 1, matrix, lda, x, incx, g->adds ? 1 : 0, g->c,
                    incy);
    return true;
}

static bool multiply_by_blas(enum dtype dtype, const struct matmul *g) {
    bool is_small = multiplications(g) < SMALL_PRODUCT && !g->conjugates;
    if (is_small || !dtype_in(dtype, DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPES_COMPLEX) ||
        !fits_blas(g))
        return false;
    const struct blas *blas = blas_get();
    if (!blas)
        return false;
    if (multiply_by_vector(dtype, g, blas))
        return true;
    int transpose = g->conjugates ? BLAS_CONJ_TRANS : BLAS_TRANS;
    int trans_a = g->trans_a ? transpose : BLAS_NO_TRANS,
        trans_b = g->trans_b ? transpose : BLAS_NO_TRANS;
    int m = (int)g->m, n = (int)g->n, k = (int)g->k, lda = (int)g->lda, ldb = (int)g->ldb,
        ldc = (int)g->ldc;
    const float complex one_c64 = 1, beta_c64 = g->adds ? 1 : 0;
    const double complex one_c128 = 1, beta_c128 = g->adds ? 1 : 0;
    switch (dtype) {
    case DT_FLOAT:
        blas->sgemm(BLAS_ROW_MAJOR, trans_a, trans_b, m, n, k, 1, g->a, lda, g->b, ldb,
                    g->adds ? 1 : 0, g->c, ldc);
        break;
    case DT_DOUBLE:
        blas->dgemm(BLAS_ROW_MAJOR, trans_a, trans_b, m, n, k, 1, g->a, lda, g->b, ldb,
                    g->adds ? 1 : 0, g->c, ldc);
        break;
    case DT_COMPLEX64:
        blas->cgemm(BLAS_ROW_MAJOR, trans_a, trans_b, m, n, k, &one_c64, g->a, lda, g->b, ldb,
                    &beta_c64, g->c, ldc);
        break;
    default:
        blas->zgemm(BLAS_ROW_MAJOR, trans_a, trans_b, m, n, k, &one_c128, g->a, lda, g->b, ldb,
                    &beta_c128, g->c, ldc);
        break;
    }
    return true;
}

bool matmul_conjugates(const struct matmul *g) { return fits_blas(g) && blas_get(); }

double matmul_cost_ns(enum dtype dtype, double n) {
    if (n < SMALL_PRODUCT)
        return 0.2;
    switch (dtype) {
    case DT_FLOAT:
        return n < LARGE_PRODUCT ? 0.03 : 0.015;
    case DT_DOUBLE:
        return 0.06;
    default:
        return 0.2;
    }
}

static void add_strip(enum dtype dtype, void *to, const void *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (dtype == DT_FLOAT)
            ((float *)to)[i] += ((const float *)from)[i];
        else if (dtype == DT_DOUBLE)
            ((double *)to)[i] += ((const double *)from)[i];
        else if (dtype == DT_COMPLEX64)
            ((float complex *)to)[i] += ((const float complex *)from)[i];
        else if (dtype == DT_COMPLEX128)
            ((double complex *)to)[i] += ((const double complex *)from)[i];
        else if (dtype == DT_INT16)
            ((uint16_t *)to)[i] = (uint16_t)(((uint16_t *)to)[i] + ((const uint16_t *)from)[i]);
        else if (dtype == DT_INT32)
            ((uint32_t *)to)[i] += ((const uint32_t *)from)[i];
        else
            ((uint64_t *)to)[i] += ((const uint64_t *)from)[i];
    }
}

/* Our loops overwrite c, so a sum is computed beside c, a strip of a row at a time, and then
 * added. */
static void multiply_and_add(enum dtype dtype, product_loop *loop, struct product p) {
    int64_t size = (int64_t)dtype_size(dtype), n = p.n, m = p.m;
    const char *a = p.a, *b = p.b;
    char *c = p.c;
    double complex strip[STRIP];
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j += STRIP) {
            p.m = 1;
            p.n = MIN(n - j, STRIP);
            p.a = a + i * p.a_row * size;
            p.b = b + j * p.b_col * size;
            p.c = strip;
            loop(&p);
            add_strip(dtype, c + (i * p.c_row + j) * size, strip, p.n);
        }
    }
}

static bool is_large(enum dtype dtype, const struct matmul *g) {
    return dtype == DT_FLOAT && matmul_whole_m(g) != 1 && matmul_whole_n(g) != 1 &&
           multiplications(g) >= LARGE_PRODUCT;
}

/* Computes a large float product by oneDNN, which uses instructions beyond AVX2 on every processor
 * that has them. Debian's BLAS does not, so oneDNN is up to twice as fast. */
static bool multiply_large(enum dtype dtype, const struct matmul *g) {
    if (!is_large(dtype, g))
        return false;
    const struct onednn *lib = onednn_get();
    return lib &&
           lib->sgemm(g->trans_a ? 'T' : 'N', g->trans_b ? 'T' : 'N', g->m, g->n, g->k, 1, g->a,
                      g->lda, g->b, g->ldb, g->adds ? 1 : 0, g->c, g->ldc) == dnnl_success;
}

static void multiply_without_amx(enum dtype dtype, const struct matmul *g) {
    if (multiply_large(dtype, g) || multiply_by_blas(dtype, g))
        return;
    product_loop *loop =
        (HAS_AVX2_FILES && cpu_has_avx2() ? matmul_loops_avx2 : matmul_loops_base)[dtype];
    CHECK(loop);
    struct product p = {.a = g->a,
                        .b = g->b,
                        .c = g->c,
                        .a_row = g->trans_a ? 1 : g->lda,
                        .a_col = g->trans_a ? g->lda : 1,
                        .b_row = g->trans_b ? 1 : g->ldb,
                        .b_col = g->trans_b ? g->ldb : 1,
                        .c_row = g->ldc,
                        .m = g->m,
                        .k = g->k,
                        .n = g->n};
    if (g->adds)
        multiply_and_add(dtype, loop, p);
    else
        loop(&p);
}

static void multiply_floats_without_amx(const struct matmul *g) {
    multiply_without_amx(DT_FLOAT, g);
}

static void multiply_whole(enum dtype dtype, const struct matmul *g) {
    if (!is_large(dtype, g) || !matmul_amx(g, multiply_floats_without_amx))
        multiply_without_amx(dtype, g);
}

/* The terms of each sum that are added in about PIECE_NS. Where few results have long sums, memory
 * bounds the time. */
static int64_t terms_of_piece(enum dtype dtype, const struct matmul *g) {
    enum { BYTES_PER_NS = 5 };
    double per_term = (double)g->m * (double)g->n * matmul_cost_ns(dtype, multiplications(g)) +
                      (double)(g->m + g->n) * (double)dtype_size(dtype) / BYTES_PER_NS;
    int64_t block = dtype_in(dtype, DTYPES_INT) ? 8 : TERM_BLOCK;
    double blocks = PIECE_NS / per_term / (double)block;
    return blocks >= (double)(g->k / block) ? g->k : MAX((int64_t)blocks, 1) * block;
}

/* Cuts long sums into pieces, so that a cancel is seen between two of them. The result has the bits
 * of one call, except for matrix-vector products. BLAS adds the terms of a vector's piece up before
 * it adds them to c. */
void matmul_run(enum dtype dtype, const struct matmul *g) {
    if (is_large(dtype, g) && matmul_dot(g))
        return;
    bool is_vector = is_of_vector(dtype, g);
    if (likely(g->k < 2 * (is_vector ? VECTOR_TERMS : TERM_BLOCK))) {
        multiply_whole(dtype, g);
        return;
    }
    int64_t size = (int64_t)dtype_size(dtype), a_step = g->trans_a ? g->lda : 1,
            b_step = g->trans_b ? 1 : g->ldb,
            terms = is_vector ? VECTOR_TERMS : terms_of_piece(dtype, g);
    struct matmul piece = *g;
    for (int64_t at = 0; at < g->k && (at == 0 || !pool_is_unwanted()); at += piece.k) {
        piece.k = g->k - at < 2 * terms ? g->k - at : terms;
        piece.a = (const char *)g->a + at * a_step * size;
        piece.b = (const char *)g->b + at * b_step * size;
        piece.adds = g->adds || at > 0;
        multiply_whole(dtype, &piece);
    }
}

/* ---- one product on several threads ---- */

/* Do oneDNN or BLAS compute it? */
static bool is_of_library(enum dtype dtype, const struct matmul *g) {
    if (is_large(dtype, g) && (matmul_dot_suits(g) || matmul_amx_suits(g)))
        return false;
    return dtype_in(dtype, DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPES_COMPLEX);
}

/* The rows of a call of a library. A call packs the other operand again, which costs as much as
 * some 20 rows. So there are few units, but enough for many threads, and an even number of equal
 * ones, for two. A cancel is seen between units. */
static int64_t rows_of_call(double row_ns, int64_t side) {
    enum { ROUND = 16, LEAST_UNIT = 64, LEAST_LONG_UNIT = 32, MOST_UNITS = 16 };
    const double least_ns = 20e3, long_ns = 200e3, most_ns = 30e6;
    double unit = MAX((double)side / MOST_UNITS, least_ns / row_ns);
    unit = MAX(MIN(unit, most_ns / row_ns),
               row_ns * LEAST_UNIT > long_ns ? LEAST_LONG_UNIT : LEAST_UNIT);
    int64_t n_units = MAX((int64_t)((double)side / unit) / 2 * 2, (int64_t)1);
    return ((side - 1) / n_units / ROUND + 1) * ROUND;
}

bool matmul_packs_operands(enum dtype dtype, const struct matmul *whole) {
    return is_large(dtype, whole) && is_of_library(dtype, whole) && onednn_get();
}

/* Rows lie together in memory. A slice of columns is packed from pieces of rows, and the left
 * operand once more for each slice. So rows are divided as long as there are enough of them. */
bool matmul_is_by_rows(enum dtype dtype, const struct matmul *whole) {
    enum { ENOUGH_ROWS = 256, MOST_COLUMNS = 4 /* by row */ };
    return whole->m >= whole->n ||
           (whole->m >= ENOUGH_ROWS && whole->n / MOST_COLUMNS <= whole->m &&
            matmul_packs_operands(dtype, whole));
}

struct matmul_division matmul_divide(enum dtype dtype, const struct matmul *whole, bool by_rows) {
    enum { JOINED_UNIT = 16 };
    int64_t side = by_rows ? whole->m : whole->n;
    struct matmul_division division = {.by_rows = by_rows, .unit = JOINED_UNIT, .joins = true};
    if (is_of_library(dtype, whole)) {
        double n = multiplications(whole), product_ns = n * matmul_cost_ns(dtype, n) + 1;
        division.unit =
            rows_of_call(product_ns / (double)MAX(side, (int64_t)1), MAX(side, (int64_t)1));
        division.joins = false;
    }
    division.n_units = (side + division.unit - 1) / division.unit;
    return division;
}

struct matmul matmul_part(enum dtype dtype, const struct matmul *whole, int64_t row, int64_t n_rows,
                          int64_t column, int64_t n_columns) {
    int64_t size = (int64_t)dtype_size(dtype);
    struct matmul g = *whole;
    g.whole_m = matmul_whole_m(whole);
    g.whole_n = matmul_whole_n(whole);
    g.m = n_rows;
    g.n = n_columns;
    g.a = (const char *)g.a + row * (g.trans_a ? 1 : g.lda) * size;
    g.b = (const char *)g.b + column * (g.trans_b ? g.ldb : 1) * size;
    g.c = (char *)g.c + (row * g.ldc + column) * size;
    return g;
}

void matmul_run_units(enum dtype dtype, const struct matmul *whole,
                      const struct matmul_division *division, int64_t begin, int64_t end) {
    int64_t side = division->by_rows ? whole->m : whole->n,
            step = division->joins ? end - begin : 1;
    for (; begin < end; begin += step) {
        int64_t first = begin * division->unit,
                n = MIN((begin + step) * division->unit, side) - first;
        struct matmul g = division->by_rows ? matmul_part(dtype, whole, first, n, 0, whole->n)
                                            : matmul_part(dtype, whole, 0, whole->m, first, n);
        matmul_run(dtype, &g);
    }
}
