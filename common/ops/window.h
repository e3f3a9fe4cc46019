/* Reads the attrs of sliding windows and counts a window's positions: for convolution, pooling,
 * dilation and patches.
 *
 * Lists of sizes are for the spatial dimensions, outermost first; batch and channels have fields of
 * their own. Any thread. */
#ifndef MILLRACE_COMMON_OPS_WINDOW_H
#define MILLRACE_COMMON_OPS_WINDOW_H

#include "common/graph/graph.h"

enum { WINDOW_MAX_SPATIAL = 3, WINDOW_MAX_RANK = WINDOW_MAX_SPATIAL + 2 };

enum window_padding { WINDOW_VALID, WINDOW_SAME, WINDOW_EXPLICIT };

/* A list attr with a number for each dimension, by the kind of dimension. All 1 where the op has no
 * such attr. */
struct window_list {
    int64_t batch, channel, spatial[WINDOW_MAX_SPATIAL];
};

struct window_attrs {
    int n_spatial; /* 1 to 3 */
    bool is_channels_first;
    bool is_vect_c; /* NCHW_VECT_C, which only MaxPool of qint8 on a device accepts */
    enum window_padding padding;
    struct window_list size;    /* ksize, ksizes */
    struct window_list strides; /* strides */
    struct window_list rates;   /* dilations, rates */
    int64_t pads[WINDOW_MAX_SPATIAL][2];
};

/* Reads those of padding, explicit_paddings, data_format, ksize(s), strides, dilations and rates
 * that the op has. Errors: INVALID_ARGUMENT for a list of wrong length, a number below 1, or a
 * padding that is negative or not allowed. */
struct status *window_attrs_read(const struct node *node, int n_spatial,
                                 struct window_attrs *ret) MUST_USE;
/* Reads a list of n numbers that is not an attr, such as an input of MaxPoolV2. `what` is its name
 * in messages. */
struct status *window_list_set(const struct window_attrs *attrs, const char *what,
                               const int64_t *values, int n, struct window_list *ret) MUST_USE;

/* The index of a dimension in a shape of rank n_spatial + 2. */
static inline int window_channel_dim(const struct window_attrs *attrs) {
    return attrs->is_channels_first ? 1 : attrs->n_spatial + 1;
}
static inline int window_spatial_dim(const struct window_attrs *attrs, int i) {
    return (attrs->is_channels_first ? 2 : 1) + i;
}

struct window_fit {
    int64_t out, pad_before, pad_after;
};
/* Counts the positions of a window of `size` along spatial dimension i with `input` elements, as
 * kernels count: a window that does not fit has 0 positions. Errors: INVALID_ARGUMENT "Computed
 * output size would be negative". */
struct status *window_fit(const struct window_attrs *attrs, int i, int64_t input, int64_t size,
                          struct window_fit *ret) MUST_USE;
/* Does the same for static shapes: *ret_out is -1 when input or size is -1. A window that is larger
 * than the padded input is INVALID_ARGUMENT. */
struct status *window_fit_static(const struct window_attrs *attrs, int i, int64_t input,
                                 int64_t size, int64_t *ret_out) MUST_USE;

#endif
