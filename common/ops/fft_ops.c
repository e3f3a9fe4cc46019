/* Lists the Fourier transforms. */
#include "common/ops/op_def.h"

static struct status *complex_transform(struct shape_inference *ctx, int rank) {
    TRY(shape_require_rank_at_least(ctx, 0, rank));
    ctx->out[0] = ctx->in[0];
    return NULL;
}

/* The last `rank` sizes are those in fft_length; the last size of the forward transform is half of
 * it plus one. */
static struct status *real_transform(struct shape_inference *ctx, int rank, bool forward) {
    struct shape in = ctx->in[0], lengths;
    TRY(shape_require_rank_at_least(ctx, 0, rank));
    TRY(shape_require_rank(ctx, 1, 1, &lengths));
    int64_t n;
    TRY(shape_merge_dims(lengths.dims[0], rank, &n));
    if (in.rank == SHAPE_UNKNOWN_RANK)
        return NULL;
    const struct tensor *value = ctx->in_values[1];
    int64_t sizes[3];
    for (int i = 0; i < rank; i++) {
        int64_t length = value && value->n_elements == rank ? tensor_index_at(value, i) : -1;
        sizes[i] = length < 0                               ? -1
                   : forward && i == rank - 1 && length > 0 ? length / 2 + 1
                                                            : length;
    }
    return shape_concat(ctx, shape_sub(ctx, in, 0, in.rank - rank), shape_make(ctx, rank, sizes),
                        &ctx->out[0]);
}

#define SHAPES(rank)                                                          \
    static struct status *shape_complex_##rank(struct shape_inference *ctx) { \
        return complex_transform(ctx, rank);                                  \
    }                                                                         \
    static struct status *shape_forward_##rank(struct shape_inference *ctx) { \
        return real_transform(ctx, rank, true);                               \
    }                                                                         \
    static struct status *shape_inverse_##rank(struct shape_inference *ctx) { \
        return real_transform(ctx, rank, false);                              \
    }
SHAPES(1)
SHAPES(2)
SHAPES(3)

// clang-format off
static const struct op_def rows[] = {
    {"FFT", "the Fourier transform of the last dimension", shape_complex_1},
    {"IFFT", "its inverse", shape_complex_1},
    {"FFT2D", "the Fourier transform of the last two dimensions", shape_complex_2},
    {"IFFT2D", "its inverse", shape_complex_2},
    {"FFT3D", "the Fourier transform of the last three dimensions", shape_complex_3},
    {"IFFT3D", "its inverse", shape_complex_3},
    {"RFFT", "the half spectrum of real numbers, last dimension", shape_forward_1},
    {"IRFFT", "real numbers from their half spectrum, last dimension", shape_inverse_1},
    {"RFFT2D", "the half spectrum of real numbers, last two dimensions", shape_forward_2},
    {"IRFFT2D", "real numbers from their half spectrum, last two dimensions", shape_inverse_2},
    {"RFFT3D", "the half spectrum of real numbers, last three dimensions", shape_forward_3},
    {"IRFFT3D", "real numbers from their half spectrum, last three dimensions", shape_inverse_3},
};
// clang-format on
const struct op_def_list fft_ops = {rows, ARRAY_LEN(rows)};
