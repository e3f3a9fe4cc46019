/* The loops of convolutions by tiles (conv_winograd.c). conv_winograd_loops.inc defines them, once
 * per instruction set. Included by this folder only. */
#ifndef MILLRACE_KERNELS_CPU_NN_CONV_WINOGRAD_H
#define MILLRACE_KERNELS_CPU_NN_CONV_WINOGRAD_H

#include "common/base/base.h"

enum {
    WINOGRAD_SIDE = 6, /* pixels of a tile's side that are read */
    WINOGRAD_PLANES = WINOGRAD_SIDE * WINOGRAD_SIDE,
    WINOGRAD_MAX_OUT = 4,   /* pixels of a side that are written, at most */
    WINOGRAD_CHANNELS = 16, /* channels are multiples of it */
};

/* c[m,n] = a[m,k] · b[k,n], or c += a · b. Columns of b and c are neighbours, and n is a multiple
 * of WINOGRAD_CHANNELS. */
struct winograd_product {
    const float *a, *b;
    float *c;
    int64_t a_row, a_step; /* between rows of a, and along k */
    int64_t b_step, c_row;
    int64_t m, n, k;
    bool adds;
};

/* A tile's value (i, j) is stored at `plane` · (i · WINOGRAD_SIDE + j). Channels are neighbours. */
struct winograd_loops {
    /* Bᵀ d B of the 6 x 6 pixels of an image */
    void (*cut)(const float *const *pixels, int64_t channels, float *to, int64_t plane);
    /* A d Aᵀ of side x side pixels of a gradient */
    void (*spread)(const float *const *pixels, int side, int64_t channels, float *to,
                   int64_t plane);
    /* Aᵀ t A: side x side pixels; those whose address is NULL are dropped. Returns false if a
     * value is not finite. */
    bool (*join)(const float *from, int64_t plane, int side, int64_t channels,
                 float *const *pixels);
    /* G w Gᵀ of `n` filters, each window x window values, `n` apart */
    void (*cut_filter)(const float *filter, int window, int64_t n, float *to, int64_t plane);
    /* Gᵀ t G. Returns false if a value is not finite. */
    bool (*join_filter)(const float *from, int64_t plane, int window, int64_t n, float *filter);
    void (*multiply)(const struct winograd_product *product);
};
extern const struct winograd_loops winograd_loops_avx2, winograd_loops_avx512;

#endif
