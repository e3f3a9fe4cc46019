/* Sliding windows: what convolution, pooling, dilation and patches have in common. Their attrs,
 * and how many places a window has.
 *
 * Sizes are of the spatial dimensions only, outermost first; the batch and the channels stand
 * apart. Any thread. */
#ifndef MILLRACE_COMMON_OPS_WINDOW_H
#define MILLRACE_COMMON_OPS_WINDOW_H

#include "common/graph/graph.h"

enum { WINDOW_MAX_SPATIAL = 3, WINDOW_MAX_RANK = WINDOW_MAX_SPATIAL + 2 };

enum window_padding { WINDOW_VALID, WINDOW_SAME, WINDOW_EXPLICIT };

/* A list attr with a number per dimension, sorted by what the dimension is. All 1 where the op
 * has no such attr. */
struct window_list {
    int64_t batch, channel, spatial[WINDOW_MAX_SPATIAL];
};

struct window_attrs {
    int n_spatial; /* 1 to 3 */
    bool is_channels_first;
    bool is_vect_c; /* NCHW_VECT_C: a format that no CPU kernel takes */
    enum window_padding padding;
    struct window_list size;    /* ksize, ksizes */
    struct window_list strides; /* strides */
    struct window_list rates;   /* dilations, rates */
    int64_t pads[WINDOW_MAX_SPATIAL][2];
};

/* Reads whichever of padding, explicit_paddings, data_format, ksize(s), strides, dilations and
 * rates the node has. Errors: INVALID_ARGUMENT for lists of another length, numbers below 1,
 * paddings that are negative or where they must not be. */
struct status *window_attrs_read(const struct node *node, int n_spatial,
                                 struct window_attrs *ret) MUST_USE;
/* A list given otherwise (an input of MaxPoolV2): n numbers. `what` is for the message. */
struct status *window_list_set(const struct window_attrs *attrs, const char *what,
                               const int64_t *values, int n, struct window_list *ret) MUST_USE;

/* Where the dimensions stand in a shape of rank n_spatial + 2. */
static inline int window_channel_dim(const struct window_attrs *attrs) {
    return attrs->is_channels_first ? 1 : attrs->n_spatial + 1;
}
static inline int window_spatial_dim(const struct window_attrs *attrs, int i) {
    return (attrs->is_channels_first ? 2 : 1) + i;
}

struct window_fit {
    int64_t out, pad_before, pad_after;
};
/* How often a window of `size` fits along spatial dimension i of `input` elements, as kernels
 * count: what does not fit even once gives 0. Errors: INVALID_ARGUMENT "Computed output size
 * would be negative". */
struct status *window_fit(const struct window_attrs *attrs, int i, int64_t input, int64_t size,
                          struct window_fit *ret) MUST_USE;
/* The same for a static shape: -1 where input or size is; a window larger than what it slides
 * over is an error already. */
struct status *window_fit_static(const struct window_attrs *attrs, int i, int64_t input,
                                 int64_t size, int64_t *ret_out) MUST_USE;

#endif
