/* Splits a convolution that takes long into pieces, between which its step may be cancelled.
 *
 *   share   images [0, batch) ─► groups of `images` ─► bands of rows, of a group of one image
 *
 * A band is some rows of what the convolution writes (for the filter's gradient, of the incoming
 * gradient) and the rows that they read. Each band is a smaller convolution. The shape alone
 * decides how it is split. */
#ifndef MILLRACE_KERNELS_CPU_NN_CONV_SPLIT_H
#define MILLRACE_KERNELS_CPU_NN_CONV_SPLIT_H

#include "kernels/cpu/nn/conv.h"

enum { CONV_MAX_BANDS = 64 };

struct conv_split {
    int64_t images, n_groups; /* of a share */
    int n_bands;
    struct conv_band {
        struct conv_shape shape; /* its batch is `images` */
        int64_t in_row, out_row; /* the first row of the image that the band reads or writes */
    } bands[CONV_MAX_BANDS];
    int64_t in_row_elements, out_row_elements; /* of a row of the dimension that is split */
};

/* One piece: the share itself. */
void conv_split_none(const struct conv_shape *share, struct conv_split *ret);
/* Pieces of about `most` multiplications, as far as there are images and rows for it. */
void conv_split(enum conv_direction direction, const struct conv_shape *share, double most,
                struct conv_split *ret);

#endif
