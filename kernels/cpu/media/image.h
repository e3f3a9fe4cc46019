/* What the image kernels share. An image batch has the shape [batch, height, width, channels]. */
#ifndef MILLRACE_KERNELS_CPU_MEDIA_IMAGE_H
#define MILLRACE_KERNELS_CPU_MEDIA_IMAGE_H

#include "kernels/kernel.h"

/* ---- image_values.c: elements of any real dtype as float and back ---- */

/* Reads n elements from `first` on as floats. Wide integers and doubles are rounded to nearest. */
void image_load(const struct tensor *t, int64_t first, int64_t n, float *to);
/* Stores n floats from `first` on, rounded to the tensor's float dtype. */
void image_store(struct tensor *t, int64_t first, int64_t n, const float *from);
/* Returns the elements as floats: those of a float tensor, else a copy. The caller frees
 * *ret_owned, which is NULL or the copy. */
const float *image_floats(const struct tensor *t, float **ret_owned);

/* The sizes of a batch, which the caller has checked to be of rank 4. */
struct image_size {
    int64_t batch, height, width, channels;
};
struct image_size image_size_of(const struct tensor *t);

/* ---- image_axis.c: the weights of a resampled axis ---- */

enum image_filter {
    FILTER_LANCZOS1,
    FILTER_LANCZOS3,
    FILTER_LANCZOS5,
    FILTER_GAUSSIAN,
    FILTER_BOX,
    FILTER_TRIANGLE,
    FILTER_CUBIC,
    FILTER_MITCHELL
};

/* Output position i is the sum, over k < n_taps[i], of weights[i * stride + k] times input position
 * first[i] + k. */
struct image_axis {
    int64_t n_in, n_out, stride;
    int64_t *first, *n_taps;
    float *weights;
    double cost;    /* the mean number of taps */
    bool is_linear; /* every position has one or two taps, and stride is 2 */
};
struct image_grid { /* how output positions map to the input */
    int64_t n_in, n_out;
    bool align_corners, half_pixel_centers;
};
float image_grid_scale(struct image_grid grid);
/* Errors: RESOURCE_EXHAUSTED. */
struct status *image_axis_bilinear(struct image_grid grid, struct image_axis *ret) MUST_USE;
struct status *image_axis_bicubic(struct image_grid grid, struct image_axis *ret) MUST_USE;
struct status *image_axis_area(struct image_grid grid, struct image_axis *ret) MUST_USE;
struct image_placement { /* output = input * scale + translation */
    int64_t n_in, n_out;
    float scale, translation;
    enum image_filter filter;
    bool antialias;
};
struct status *image_axis_placed(const struct image_placement *placement,
                                 struct image_axis *ret) MUST_USE;
void image_axis_fini(struct image_axis *axis); /* Accepts an all-zero axis. */

/* ---- image_resample.c: both axes at once ---- */

/* Sets output (float) to the input (any real dtype) with its rows and columns resampled. */
void image_resample(struct pool *pool, const struct tensor *input, const struct image_axis *rows,
                    const struct image_axis *columns, struct tensor *output);
/* Applies the transposed map: turns gradients of the output into gradients of the input. Both have
 * float dtypes. */
void image_resample_grad(struct pool *pool, const struct tensor *grads,
                         const struct image_axis *rows, const struct image_axis *columns,
                         struct tensor *output);

/* ---- image_resize.c ---- */

struct resize_state {
    struct image_grid grid; /* the attrs align_corners and half_pixel_centers */
};
struct status *resize_init(struct kernel_init *init) MUST_USE;
/* Checks images and size, and allocates output 0 with the dtype. Errors: INVALID_ARGUMENT. */
struct status *resize_output(struct kernel_ctx *ctx, enum dtype dtype) MUST_USE;

#endif
