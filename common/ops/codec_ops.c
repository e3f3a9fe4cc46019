/* Lists the ops that decode and encode pictures. */
#include "common/ops/op_def.h"

static struct status *shape_decode(struct shape_inference *ctx) {
    int64_t channels = 0;
    TRY(shape_require_rank(ctx, 0, 0, NULL));
    TRY(node_get_i(ctx->node, "channels", &channels));
    if (channels < 0)
        return status_invalid("channels must be non-negative, got %lld", (long long)channels);
    int64_t dims[3] = {-1, -1, channels == 0 ? -1 : channels};
    ctx->out[0] = shape_make(ctx, 3, dims);
    return NULL;
}

static struct status *shape_decode_image(struct shape_inference *ctx) {
    bool expands;
    TRY(node_get_b(ctx->node, "expand_animations", &expands));
    TRY(shape_decode(ctx));
    if (expands)
        ctx->out[0] = SHAPE_UNKNOWN;
    return NULL;
}

static struct status *shape_decode_crop(struct shape_inference *ctx) {
    TRY(shape_decode(ctx));
    TRY(shape_require_rank(ctx, 1, 1, NULL));
    const struct tensor *window = ctx->in_values[1];
    if (window && window->n_elements == 4) {
        int64_t dims[3] = {tensor_index_at(window, 2), tensor_index_at(window, 3),
                           ctx->out[0].dims[2]};
        if (dims[0] >= 0 && dims[1] >= 0)
            ctx->out[0] = shape_make(ctx, 3, dims);
    }
    return NULL;
}

static struct status *shape_decode_gif(struct shape_inference *ctx) {
    static const int64_t dims[] = {-1, -1, -1, 3};
    TRY(shape_require_rank(ctx, 0, 0, NULL));
    ctx->out[0] = (struct shape){4, dims};
    return NULL;
}

static struct status *shape_jpeg_shape(struct shape_inference *ctx) {
    static const int64_t three[] = {3};
    TRY(shape_require_rank(ctx, 0, 0, NULL));
    ctx->out[0] = (struct shape){1, three};
    return NULL;
}

static struct status *shape_encode_jpeg(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 3, NULL));
    return shape_scalar(ctx);
}

static struct status *shape_encode_jpeg_quality(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    return shape_encode_jpeg(ctx);
}

static struct status *shape_encode_png(struct shape_inference *ctx) {
    TRY(shape_require_rank_at_least(ctx, 0, 3));
    ctx->out[0] =
        ctx->in[0].rank < 0 ? SHAPE_UNKNOWN : shape_sub(ctx, ctx->in[0], 0, ctx->in[0].rank - 3);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"DecodeImage", "a picture from the bytes of a JPEG, PNG, GIF or BMP file", shape_decode_image},
    {"DecodeJpeg", "a picture from the bytes of a JPEG file", shape_decode},
    {"DecodeAndCropJpeg", "a part of a picture from the bytes of a JPEG file", shape_decode_crop},
    {"DecodePng", "a picture from the bytes of a PNG file", shape_decode},
    {"DecodeGif", "all frames of a GIF file's bytes", shape_decode_gif},
    {"DecodeBmp", "a picture from the bytes of a BMP file", shape_decode},
    {"ExtractJpegShape", "height, width and channels of a JPEG, from its header", shape_jpeg_shape},
    {"EncodeJpeg", "a picture as the bytes of a JPEG file", shape_encode_jpeg},
    {"EncodeJpegVariableQuality", "a picture as the bytes of a JPEG file, of a given quality",
     shape_encode_jpeg_quality},
    {"EncodePng", "pictures as the bytes of PNG files", shape_encode_png},
};
// clang-format on

const struct op_def_list codec_ops = {rows, ARRAY_LEN(rows)};
