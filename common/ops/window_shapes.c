/* Infers the static shapes of ops with sliding windows. */
#include "common/ops/window_shapes.h"

void shape_dims_or_unknown(struct shape shape, int rank, int64_t *ret) {
    for (int i = 0; i < rank; i++)
        ret[i] = shape.rank == rank ? shape.dims[i] : -1;
}

struct status *shape_of_positions(struct shape_inference *ctx, const struct window_attrs *attrs,
                                  const int64_t *window, int64_t channels, int output) {
    int rank = attrs->n_spatial + 2;
    int64_t dims[WINDOW_MAX_RANK];
    TRY(shape_require_rank(ctx, 0, rank, NULL));
    shape_dims_or_unknown(ctx->in[0], rank, dims);
    for (int i = 0; i < attrs->n_spatial; i++) {
        int at = window_spatial_dim(attrs, i);
        TRY(window_fit_static(attrs, i, dims[at], window[i], &dims[at]));
    }
    dims[window_channel_dim(attrs)] = channels;
    ctx->out[output] = shape_make(ctx, rank, dims);
    return NULL;
}

struct status *shape_of_sizes(struct shape_inference *ctx, int input, int rank) {
    struct shape shape;
    TRY(shape_from_input(ctx, input, &shape));
    if (shape.rank >= 0 && shape.rank != rank)
        return status_invalid("Shape must be rank %d but is rank %d", rank, shape.rank);
    ctx->out[0] = shape.rank < 0 ? shape_unknown_of_rank(ctx, rank) : shape;
    return NULL;
}
