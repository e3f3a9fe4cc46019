/* Infers the static shapes of ops with sliding windows (common/ops/window_shapes.c). */
#ifndef MILLRACE_COMMON_OPS_WINDOW_SHAPES_H
#define MILLRACE_COMMON_OPS_WINDOW_SHAPES_H

#include "common/ops/op_def.h"
#include "common/ops/window.h"

/* Sets output `output` to the positions of a window over input 0, with `channels` channels (-1:
 * unknown). window[i] is the size of spatial dimension i, -1 where unknown. */
struct status *shape_of_positions(struct shape_inference *ctx, const struct window_attrs *attrs,
                                  const int64_t *window, int64_t channels, int output) MUST_USE;
/* Sets output 0 to the shape that an input, a vector of `rank` sizes, contains. */
struct status *shape_of_sizes(struct shape_inference *ctx, int input, int rank) MUST_USE;
op_shape_fn shape_conv; /* Conv2D, Conv3D: inputs 0 and 1 */
/* MaxPool, AvgPool and similar ops: every output has an element for each position in input 0 */
op_shape_fn shape_pool;
/* Copies the sizes of a shape of rank `rank`; -1 for each where the rank is unknown. */
void shape_dims_or_unknown(struct shape shape, int rank, int64_t *ret);

#endif
