/* Multiplies matrices of floats by AMX, block by block.
 *
 *   for a block of k and a block of columns     pack the right tiles (second-level cache)
 *     for a block of 32 rows                    pack the left tiles (first-level cache)
 *       for each 16 columns                     32 x 16 results, summed in tiles
 */
#include "kernels/cpu/matmul/matmul_amx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/matmul/amx.h"

#if HAS_AMX_FILES
enum {
    BLOCK_DEPTH = 12 * AMX_DEPTH,
    BLOCK_COLUMNS = 512,
    BLOCK_ROWS = 2 * AMX_ROWS,
    /* Smaller products are faster without: packing costs more than it saves. */
    LEAST_ROWS = 96,
    LEAST_COLUMNS = 48,
    LEAST_DEPTH = 48,
};

bool matmul_amx_suits(const struct matmul *g) {
    return matmul_whole_m(g) >= LEAST_ROWS && matmul_whole_n(g) >= LEAST_COLUMNS &&
           g->k >= LEAST_DEPTH && amx_is_there();
}

static bool are_finite(const struct matmul *g) {
    return amx_are_finite(g->a, g->trans_a ? g->k : g->m, g->trans_a ? g->m : g->k, g->lda) &&
           amx_are_finite(g->b, g->trans_b ? g->n : g->k, g->trans_b ? g->k : g->n, g->ldb);
}

/* Adds a block of sums to c, or stores it there. False: one of them is NaN. */
AMX_CODE static bool write_block(const struct matmul *g, const float *sums, int64_t row,
                                 int64_t column, bool adds) {
    int64_t rows = MIN(g->m - row, (int64_t)BLOCK_ROWS), left = g->n - column;
    __mmask16 mask = left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1), is_nan = 0;
    float *c = (float *)g->c + row * g->ldc + column;
    for (int64_t i = 0; i < rows; i++, c += g->ldc) {
        __m512 x = _mm512_load_ps(sums + i * AMX_COLUMNS);
        if (adds)
            x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(mask, c));
        is_nan |= _mm512_mask_cmp_ps_mask(mask, x, x, _CMP_UNORD_Q);
        _mm512_mask_storeu_ps(c, mask, x);
    }
    return !is_nan;
}

static int part_of(int64_t whole, int64_t at, int most) { return (int)MIN(whole - at, most); }

/* Packs columns [column, column + columns) of a block of k: the tiles of 16 columns lie behind each
 * other along k. */
static void pack_right(const struct matmul *g, int64_t k, int64_t depth, int64_t column,
                       int64_t columns, uint16_t *to) {
    for (int64_t j = column; j < column + columns; j += AMX_COLUMNS) {
        for (int64_t l = k; l < k + depth; l += AMX_DEPTH, to += AMX_TRIPLE)
            amx_pack_right((const float *)g->b + (g->trans_b ? j * g->ldb + l : l * g->ldb + j),
                           g->ldb, !g->trans_b, part_of(g->n, j, AMX_COLUMNS),
                           part_of(g->k, l, AMX_DEPTH), to);
    }
}

/* Packs 32 rows: for each step along k the tiles of the first 16 and of the others. */
static void pack_left(const struct matmul *g, int64_t k, int64_t depth, int64_t row, uint16_t *to) {
    for (int64_t l = k; l < k + depth; l += AMX_DEPTH) {
        for (int64_t i = row; i < row + BLOCK_ROWS; i += AMX_ROWS, to += AMX_TRIPLE)
            amx_pack_left((const float *)g->a + (g->trans_a ? l * g->lda + i : i * g->lda + l),
                          g->lda, g->trans_a, MAX(part_of(g->m, i, AMX_ROWS), 0),
                          part_of(g->k, l, AMX_DEPTH), to);
    }
}

AMX_CODE static bool multiply_rows(const struct matmul *g, int64_t n_steps, int64_t row,
                                   int64_t column, int64_t columns, const uint16_t *left,
                                   const uint16_t *right, bool adds) {
    bool is_number = true;
    float sums[BLOCK_ROWS * AMX_COLUMNS] __attribute__((aligned(64)));
    for (int64_t j = column; j < column + columns; j += AMX_COLUMNS) {
        amx_zero_sums();
        for (int64_t s = 0; s < n_steps; s++, right += AMX_TRIPLE) {
            const uint16_t *a = left + s * 2 * AMX_TRIPLE;
            amx_add(a, a + AMX_TRIPLE, amx_packed, right, amx_packed);
        }
        amx_store_sums(sums);
        is_number &= write_block(g, sums, row, j, adds);
    }
    return is_number;
}

AMX_CODE static bool multiply(const struct matmul *g, uint16_t *left, uint16_t *right) {
    bool is_number = true;
    amx_begin();
    for (int64_t k = 0; k < g->k; k += BLOCK_DEPTH) {
        int64_t depth = MIN(g->k - k, (int64_t)BLOCK_DEPTH);
        for (int64_t j = 0; j < g->n; j += BLOCK_COLUMNS) {
            int64_t columns = MIN(g->n - j, (int64_t)BLOCK_COLUMNS);
            pack_right(g, k, depth, j, columns, right);
            for (int64_t i = 0; i < g->m; i += BLOCK_ROWS) {
                pack_left(g, k, depth, i, left);
                is_number &= multiply_rows(g, (depth + AMX_DEPTH - 1) / AMX_DEPTH, i, j, columns,
                                           left, right, k > 0 || g->adds);
            }
        }
    }
    amx_end();
    return is_number;
}

/* False: a result is NaN. */
static bool multiply_all(const struct matmul *g) {
    enum { STEPS = BLOCK_DEPTH / AMX_DEPTH };
    int64_t columns = (MIN(g->n, (int64_t)BLOCK_COLUMNS) + AMX_COLUMNS - 1) / AMX_COLUMNS;
    size_t left = STEPS * 2 * AMX_TRIPLE * sizeof(uint16_t),
           right = (size_t)columns * STEPS * AMX_TRIPLE * sizeof(uint16_t);
    char *memory = amx_thread_memory(left + right);
    return multiply(g, (uint16_t *)(void *)memory, (uint16_t *)(void *)(memory + left));
}

/* ---- infinities and NaN ---- */

static struct matmul rows_of(const struct matmul *g, int64_t row, int64_t n_rows) {
    struct matmul block = *g;
    block.m = n_rows;
    block.whole_m = matmul_whole_m(g);
    block.whole_n = matmul_whole_n(g);
    block.a = (const float *)g->a + (g->trans_a ? row : row * g->lda);
    block.c = (float *)g->c + row * g->ldc;
    return block;
}

static bool has_nan(const struct matmul *g) {
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++)
            if (isnan(((const float *)g->c)[i * g->ldc + j]))
                return true;
    return false;
}

static void copy_rows(const struct matmul *g, float *to) {
    for (int64_t i = 0; i < g->m; i++)
        memcpy(to + i * g->n, (const float *)g->c + i * g->ldc, (size_t)g->n * sizeof(*to));
}

/* Computes the rows by other means into `spare`, which has what was in c, and takes from there what
 * is NaN in c. So the bits of a result depend on its own row and column only. */
static void replace_nan(const struct matmul *g, float *spare, matmul_other *other) {
    struct matmul again = *g;
    again.c = spare;
    again.ldc = g->n;
    other(&again);
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            float *x = (float *)g->c + i * g->ldc + j;
            *x = isnan(*x) ? spare[i * g->n + j] : *x;
        }
    }
}

/* A product that is added destroys the values that were in c, so its blocks of rows are multiplied
 * one by one, with a copy of them. */
static void repair(const struct matmul *g, matmul_other *other) {
    enum { ROWS = 4 * BLOCK_ROWS };
    float *spare = xmalloc((size_t)(MIN(g->m, (int64_t)ROWS) * g->n) * sizeof(*spare));
    for (int64_t row = 0; row < g->m; row += ROWS) {
        struct matmul block = rows_of(g, row, MIN(g->m - row, (int64_t)ROWS));
        bool is_number = false;
        if (g->adds) {
            copy_rows(&block, spare);
            is_number = multiply_all(&block);
        }
        if (!is_number && has_nan(&block))
            replace_nan(&block, spare, other);
    }
    free(spare);
}

bool matmul_amx(const struct matmul *g, matmul_other *other) {
    if (!matmul_amx_suits(g))
        return false;
    if (g->adds && are_finite(g))
        multiply_all(g);
    else if (g->adds || !multiply_all(g))
        repair(g, other);
    return true;
}
#else
bool matmul_amx_suits(const struct matmul *g) {
    (void)g;
    return false;
}

bool matmul_amx(const struct matmul *g, matmul_other *other) {
    (void)g, (void)other;
    return false;
}
#endif
