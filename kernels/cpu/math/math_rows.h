/* Reductions of contiguous rows, for fused programs (kernels/cpu/fused): a program hands over the
 * elements of a row piece by piece, while a cache has them. Every result has the bits that the
 * kernel of the reduction gives for the whole tensor. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_MATH_MATH_ROWS_H
#define MILLRACE_KERNELS_CPU_MATH_MATH_ROWS_H

#include "kernels/kernel.h"

/* The rows that a reduction over the last dimensions of a shape has. */
struct math_rows {
    int64_t n_rows, n_elements; /* of a row */
    int64_t n_chunks; /* > 1: the kernel reduces a row in chunks, and merges their accumulators */
};

/* The shape of the result, whose sizes are written to `dims`. */
struct shape math_reduced_shape(const struct kernel_instance *reduction, struct shape shape,
                                const bool *is_reduced, int64_t *dims);
/* What an element takes in a cache. */
double math_reduced_ns(const struct kernel_instance *reduction);

/* False: it reduces nothing, or other dimensions than the last ones, or there are no elements. */
bool math_rows_find(const struct kernel_instance *reduction, struct shape shape,
                    const bool *is_reduced, struct math_rows *ret);
/* The chunk's first element in its row. */
static inline int64_t math_chunk_begin(const struct math_rows *rows, int64_t chunk) {
    return chunk == rows->n_chunks ? rows->n_elements : rows->n_elements / rows->n_chunks * chunk;
}

/* out[i] = the reduction of row i of `n` elements, where a row is one chunk. */
void math_rows_reduce(const struct kernel_instance *reduction, const void *in, int64_t n_rows,
                      int64_t n, void *out);

enum {
    MATH_ROW_PIECE = 512, /* each piece but the last is a multiple of this many elements */
    MATH_ROW_ACCUMULATOR = 16,
    MATH_ROW_WIDE = 512,
};

/* A row, or a chunk of one, of which pieces come in order. */
struct math_row {
    char wide[MATH_ROW_WIDE] __attribute__((aligned(64)));
    char accumulator[MATH_ROW_ACCUMULATOR];
    bool is_long;
};
/* `n` is the number of elements of all pieces together. */
void math_row_begin(const struct kernel_instance *reduction, int64_t n, struct math_row *row);
void math_row_take(const struct kernel_instance *reduction, struct math_row *row, const void *in,
                   int64_t n, bool is_last);
/* The result of a whole row of n elements. */
void math_row_finish(const struct kernel_instance *reduction, const struct math_row *row, int64_t n,
                     void *out);

/* Keeps what a chunk has come to in `to`, which has MATH_ROW_ACCUMULATOR bytes for a chunk. */
void math_row_keep(const struct math_row *row, void *to);
/* out[i] = the result of row i, from the chunks of all rows. */
void math_rows_merge(const struct kernel_instance *reduction, const struct math_rows *rows,
                     void *chunks, void *out);

#endif
