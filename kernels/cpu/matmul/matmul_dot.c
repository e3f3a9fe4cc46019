/* Computes products with a transposed right side as dot products. Both operands are contiguous
 * along k, so nothing is packed.
 *
 * Packing costs much where few rows meet a large matrix, as in the gradient of a recurrent cell's
 * inputs: for 32 x 1024 times 512 x 1024 transposed, a library spends half as long on packing as on
 * multiplying. Measured: 185 us here, 300 us in oneDNN. A tile of 4 x 6 results stays in registers,
 * each result as a vector of 16 partial sums, so 10 loads feed 24 multiplications. The partial sums
 * of a tile are added up once, at the end of k, or of a piece of it: a long sum loses precision. */
#include "kernels/cpu/matmul/matmul_dot.h"

#include "kernels/cpu/matmul/amx.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include "common/base/pool_cancel.h"

#define UNROLLED _Pragma("GCC unroll 8")
#define WIDE __attribute__((target("avx512f")))

enum {
    TILE_ROWS = 4,
    TILE_COLUMNS = 6,
    LANES = 16,
    PIECE_TERMS = 1 << 13,
};

/* Computes results[i][j] (+)= a[i] · b[j] for n_rows x n_columns results. In the main loop both
 * numbers are constants, so that the sums stay in registers. */
WIDE static inline __attribute__((always_inline)) void
dot_tile(const struct matmul *g, int64_t row, int64_t column, int n_rows, int n_columns) {
    const float *a = (const float *)g->a + row * g->lda, *b = (const float *)g->b + column * g->ldb;
    __m512 sums[TILE_ROWS][TILE_COLUMNS];
    UNROLLED for (int i = 0; i < n_rows; i++) {
        UNROLLED for (int j = 0; j < n_columns; j++) sums[i][j] = _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < g->k; k += LANES) {
        __mmask16 mask = g->k - k >= LANES ? 0xffff : (__mmask16)((1u << (g->k - k)) - 1);
        __m512 right[TILE_COLUMNS];
        UNROLLED for (int j = 0; j < n_columns; j++) right[j] =
            _mm512_maskz_loadu_ps(mask, b + j * g->ldb + k);
        UNROLLED for (int i = 0; i < n_rows; i++) {
            __m512 left = _mm512_maskz_loadu_ps(mask, a + i * g->lda + k);
            UNROLLED for (int j = 0; j < n_columns; j++) sums[i][j] =
                _mm512_fmadd_ps(left, right[j], sums[i][j]);
        }
    }
    float *c = (float *)g->c + row * g->ldc + column;
    UNROLLED for (int i = 0; i < n_rows; i++) {
        UNROLLED for (int j = 0; j < n_columns; j++) {
            float sum = _mm512_reduce_add_ps(sums[i][j]);
            c[i * g->ldc + j] = g->adds ? c[i * g->ldc + j] + sum : sum;
        }
    }
}

/* Multiplies all rows with one panel of columns, which stays in the first-level cache. */
WIDE static inline __attribute__((always_inline)) void dot_panel(const struct matmul *g,
                                                                 int64_t column, int n_columns) {
    int64_t row = 0;
    for (; row + TILE_ROWS <= g->m; row += TILE_ROWS)
        dot_tile(g, row, column, TILE_ROWS, n_columns);
    for (; row < g->m; row++)
        dot_tile(g, row, column, 1, n_columns);
}

WIDE static void dot_product(const struct matmul *g) {
    int64_t column = 0;
    for (; column + TILE_COLUMNS <= g->n; column += TILE_COLUMNS)
        dot_panel(g, column, TILE_COLUMNS);
    for (; column < g->n; column++)
        dot_panel(g, column, 1);
}

/* Is this loop faster than oneDNN's product? Measured for sizes from 4 to 4096, it is for long rows
 * when either there are few results for each row of b, or the rows are a power of two apart. At
 * such distances a library's packing uses only a few sets of the cache. Where b is larger than a
 * cache, its packed copy goes to memory, too, so some more rows are fast here; AMX is faster. */
static bool is_fast(const struct matmul *g) {
    enum {
        LONG = 256,
        FEW_ROWS = 24,
        FEW_BOTH = 64,
        SOME_ROWS = 48,
        CONFLICT = 512,
        MORE_ROWS = 96,
        LARGE = 2 << 20
    };
    int64_t m = matmul_whole_m(g), n = matmul_whole_n(g);
    return g->k >= LONG && (m <= FEW_ROWS || (m <= FEW_BOTH && n <= FEW_BOTH) ||
                            (m <= SOME_ROWS && g->ldb % CONFLICT == 0) ||
                            (m <= MORE_ROWS && n >= LARGE / g->k && !amx_is_there()));
}

bool matmul_dot_suits(const struct matmul *g) {
    return g->trans_b && !g->trans_a && is_fast(g) && __builtin_cpu_supports("avx512f");
}

bool matmul_dot(const struct matmul *g) {
    if (!matmul_dot_suits(g))
        return false;
    struct matmul piece = *g;
    for (int64_t at = 0; at < g->k && (at == 0 || !pool_is_unwanted()); at += piece.k) {
        piece.a = (const float *)g->a + at;
        piece.b = (const float *)g->b + at;
        piece.k = g->k - at < 2 * PIECE_TERMS ? g->k - at : PIECE_TERMS;
        piece.adds = g->adds || at > 0;
        dot_product(&piece);
    }
    return true;
}
#else
bool matmul_dot_suits(const struct matmul *g) {
    (void)g;
    return false;
}

bool matmul_dot(const struct matmul *g) {
    (void)g;
    return false;
}
#endif
