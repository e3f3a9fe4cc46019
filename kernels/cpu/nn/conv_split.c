/* Splits convolutions over images and rows; see conv_split.h. */
#include "kernels/cpu/nn/conv_split.h"

#include <math.h>

static int64_t row_elements(const int64_t spatial[3], int dim, int64_t channels) {
    int64_t n = channels;
    for (int i = dim + 1; i < 3; i++)
        n *= spatial[i];
    return n;
}

void conv_split_none(const struct conv_shape *share, struct conv_split *ret) {
    ret->images = share->batch;
    ret->n_groups = ret->n_bands = 1;
    ret->bands[0] = (struct conv_band){.shape = *share};
    ret->in_row_elements = row_elements(share->in, 0, share->in_channels);
    ret->out_row_elements = row_elements(share->out, 0, share->out_channels);
}

/* The outermost dimension that has rows; -1 when they are not contiguous. */
static int rows_of(const struct conv_shape *s) {
    int dim = 0;
    while (dim < 3 && s->in[dim] == 1 && s->out[dim] == 1 && s->window[dim] == 1)
        dim++;
    return dim < 3 ? dim : -1;
}

/* Rows [first, end) of the output, and the input rows under their windows. False: there are none,
 * so the band is padding only. */
static bool band_of_outputs(const struct conv_shape *s, int dim, int64_t first, int64_t end,
                            struct conv_band *ret) {
    int64_t begin = first * s->stride[dim] - s->pad_before[dim];
    int64_t stop =
        (end - 1) * s->stride[dim] - s->pad_before[dim] + (s->window[dim] - 1) * s->rate[dim] + 1;
    ret->out_row = first;
    ret->in_row = MAX(begin, 0);
    ret->shape.pad_before[dim] = ret->in_row - begin;
    ret->shape.in[dim] = MIN(stop, s->in[dim]) - ret->in_row;
    ret->shape.out[dim] = end - first;
    return ret->shape.in[dim] > 0;
}

/* Rows [first, end) of the input, and the output rows whose windows touch them. */
static bool band_of_inputs(const struct conv_shape *s, int dim, int64_t first, int64_t end,
                           struct conv_band *ret) {
    int64_t stride = s->stride[dim], pad = s->pad_before[dim],
            reach = (s->window[dim] - 1) * s->rate[dim];
    int64_t begin = first + pad - reach <= 0 ? 0 : (first + pad - reach + stride - 1) / stride;
    int64_t stop = MIN((end - 1 + pad) / stride + 1, s->out[dim]);
    ret->in_row = first;
    ret->out_row = begin;
    ret->shape.in[dim] = end - first;
    ret->shape.out[dim] = stop - begin;
    ret->shape.pad_before[dim] = pad + first - begin * stride;
    return stop > begin && ret->shape.pad_before[dim] >= 0;
}

/* False: the rows cannot be split. */
static bool split_rows(enum conv_direction direction, const struct conv_shape *image, double most,
                       struct conv_split *ret) {
    int dim = rows_of(image);
    if (dim < 0)
        return false;
    int64_t n_rows = direction == CONV_BACKPROP_INPUT ? image->in[dim] : image->out[dim];
    double wanted = MIN(ceil(conv_n_multiplications(image) / most), (double)CONV_MAX_BANDS);
    int64_t rows = (int64_t)ceil((double)n_rows / wanted);
    int n = 0;
    for (int64_t first = 0; first < n_rows; first += rows, n++) {
        int64_t end = MIN(first + rows, n_rows);
        struct conv_band *band = &ret->bands[n];
        *band = (struct conv_band){.shape = *image};
        if (!(direction == CONV_BACKPROP_INPUT ? band_of_inputs(image, dim, first, end, band)
                                               : band_of_outputs(image, dim, first, end, band)))
            return false;
    }
    ret->n_bands = n;
    ret->in_row_elements = row_elements(image->in, dim, image->in_channels);
    ret->out_row_elements = row_elements(image->out, dim, image->out_channels);
    return true;
}

void conv_split(enum conv_direction direction, const struct conv_shape *share, double most,
                struct conv_split *ret) {
    double per_image = conv_n_multiplications(share) / (double)share->batch;
    conv_split_none(share, ret);
    if (per_image * (double)share->batch <= 2 * most)
        return;
    int64_t images = MAX((int64_t)(most / per_image), 1);
    while (share->batch % images != 0)
        images--;
    ret->images = images;
    ret->n_groups = share->batch / images;
    struct conv_shape group = *share;
    group.batch = images;
    if (images > 1 || per_image <= 2 * most || !split_rows(direction, &group, most, ret)) {
        ret->n_bands = 1;
        ret->bands[0] = (struct conv_band){.shape = group};
    }
}
