/* CPU kernels that decode pictures from the bytes of files, and encode them. */
#include <stdlib.h>

#include "kernels/cpu/media/codec.h"
#include "common/base/pool_cancel.h"
#include "kernels/kernel.h"

extern const struct kernel_list codec_kernels;

/* ---- reading ---- */

enum codec_op { OP_ANY, OP_JPEG, OP_CROP, OP_PNG, OP_GIF, OP_BMP };

struct decode_state {
    enum codec_op op;
    int channels;
    bool expands; /* the output of a GIF has a dimension of frames */
    struct jpeg_options jpeg;
};

static struct status *jpeg_attrs(const struct node *node, struct jpeg_options *options) {
    int64_t ratio;
    struct span method;
    TRY(node_get_i(node, "ratio", &ratio));
    if (ratio != 1 && ratio != 2 && ratio != 4 && ratio != 8)
        return status_invalid("ratio must be 1, 2, 4, or 8, got %lld", (long long)ratio);
    options->ratio = (int)ratio;
    TRY(node_get_b(node, "fancy_upscaling", &options->is_fancy));
    TRY(node_get_b(node, "try_recover_truncated", &options->is_recovering));
    TRY(node_get_f(node, "acceptable_fraction", &options->acceptable_fraction));
    TRY(node_get_s(node, "dct_method", &method));
    if (method.len > 0 && !span_is(method, "INTEGER_FAST") && !span_is(method, "INTEGER_ACCURATE"))
        return status_invalid("dct_method must be one of {'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}");
    options->is_accurate = span_is(method, "INTEGER_ACCURATE");
    return NULL;
}

static struct status *decode_init(struct kernel_init *init) {
    struct decode_state *state = xcalloc(1, sizeof(*state));
    int64_t channels = 0;
    init->state = state;
    state->op = (enum codec_op)(intptr_t)init->arg;
    state->jpeg = (struct jpeg_options){.ratio = 1, .is_fancy = true, .acceptable_fraction = 1};
    state->expands = state->op == OP_GIF;
    if (state->op != OP_GIF)
        TRY(node_get_i32(init->node, "channels", &channels));
    if (channels != 0 && channels != 1 && channels != 3 && channels != 4)
        return status_invalid("`channels` must be 0, 1, 3 or 4 but got %lld", (long long)channels);
    state->channels = (int)channels;
    if (state->op == OP_ANY)
        TRY(node_get_b(init->node, "expand_animations", &state->expands));
    return state->op == OP_JPEG || state->op == OP_CROP ? jpeg_attrs(init->node, &state->jpeg)
                                                        : NULL;
}

/* Memory for pixels: the output's own, or bytes that are converted to the output's type
 * afterwards. */
struct output {
    struct codec_target target;
    struct kernel_ctx *ctx;
    enum dtype pixel_dtype;
    bool has_frames;
    struct tensor pixels; /* used when the types differ */
    int64_t dims[4];
};

static struct status *output_alloc(struct codec_target *target, struct codec_size size,
                                   void **ret_data) {
    struct output *out = CONTAINER_OF(target, struct output, target);
    int64_t dims[4] = {size.frames, size.height, size.width, size.channels};
    int first = out->has_frames ? 0 : 1;
    CHECK(out->has_frames || size.frames == 1);
    enum dtype dtype = (enum dtype)out->ctx->instance->out_types[0];
    memcpy(out->dims, dims, sizeof(dims));
    struct shape shape = {4 - first, out->dims + first};
    TRY(kernel_alloc(out->ctx, 0, dtype, shape));
    if (dtype != out->pixel_dtype)
        TRY(tensor_new(out->ctx->instance->allocator, out->pixel_dtype, shape, &out->pixels));
    *ret_data = tensor_data(dtype == out->pixel_dtype ? &out->ctx->outputs[0] : &out->pixels);
    return NULL;
}

/* Converts bytes to the upper half of 16 bits, or to floats in [0, 1]. */
static void convert(struct output *out) {
    struct tensor *to = &out->ctx->outputs[0];
    const void *from = tensor_cdata(&out->pixels);
    for (int64_t i = 0; i < to->n_elements && pool_goes_on(i + 1); i++) {
        if (to->dtype == DT_UINT16)
            ((uint16_t *)tensor_data(to))[i] = (uint16_t)(((const uint8_t *)from)[i] * 256);
        else if (out->pixel_dtype == DT_UINT16)
            ((float *)tensor_data(to))[i] = (float)((const uint16_t *)from)[i] / 65535.0f;
        else
            ((float *)tensor_data(to))[i] = (float)((const uint8_t *)from)[i] / 255.0f;
    }
}

static const char *const format_names[] = {"unknown", "JPEG", "PNG", "GIF", "BMP", "WebP"};

/* Does the op take the format? The ops for JPEG, PNG and GIF also take each other's formats, except
 * that DecodeAndCropJpeg takes JPEG only. DecodeBmp takes BMP only, and DecodeImage takes all
 * formats. */
static struct status *check_format(const struct decode_state *state, const char *op,
                                   enum codec_format format) {
    if (format == CODEC_UNKNOWN)
        return status_invalid("Unknown image file format. One of JPEG, PNG, GIF, BMP required.");
    if (format == CODEC_WEBP)
        return status_unimplemented("%s cannot decode WebP", op);
    if (state->op == OP_CROP && format != CODEC_JPEG)
        return status_invalid("DecodeAndCropJpeg operation can run on JPEG only, but detected %s.",
                              format_names[format]);
    if (format == CODEC_BMP && state->op != OP_BMP && state->op != OP_ANY)
        return status_invalid("Trying to decode BMP format using a wrong op. Use `decode_bmp` or "
                              "`decode_image` instead. Op used: %s",
                              op);
    if (state->op == OP_BMP && format != CODEC_BMP)
        return status_invalid(
            "Trying to decode %s format using DecodeBmp op. Use `decode_image` instead.",
            format_names[format]);
    return NULL;
}

static struct status *set_crop(const struct kernel_ctx *ctx, struct jpeg_options *options) {
    const struct tensor *window = kernel_input(ctx, 1);
    if (window->rank != 1)
        return status_invalid("crop_window must be 1-D, got shape %s", TENSOR_SHAPE_TEXT(window));
    if (window->n_elements != 4)
        return status_invalid("crop_size must have four elements %s", TENSOR_SHAPE_TEXT(window));
    const int32_t *at = tensor_cdata(window);
    options->is_cropped = true;
    options->crop_y = at[0];
    options->crop_x = at[1];
    options->crop_height = at[2];
    options->crop_width = at[3];
    return NULL;
}

static struct status *decode_jpeg(const struct decode_state *state, struct span bytes,
                                  struct output *out) {
    struct jpeg_options options = state->jpeg;
    if (state->channels == 4)
        return status_invalid("JPEG does not support 4 channels");
    options.channels = state->channels;
    if (state->op == OP_CROP)
        TRY(set_crop(out->ctx, &options));
    return codec_jpeg_decode(bytes, &options, &out->target);
}

static struct status *decode(const struct decode_state *state, struct span bytes,
                             struct output *out) {
    enum dtype dtype = (enum dtype)out->ctx->instance->out_types[0];
    enum codec_format format = codec_format_of(bytes);
    out->has_frames = state->op == OP_GIF;
    out->pixel_dtype = DT_UINT8;
    TRY(check_format(state, out->ctx->instance->node->op_name, format));
    switch (format) {
    case CODEC_JPEG:
        return decode_jpeg(state, bytes, out);
    case CODEC_PNG:
        out->pixel_dtype = dtype == DT_UINT8 ? DT_UINT8 : DT_UINT16;
        return codec_png_decode(bytes, state->channels, dtype == DT_UINT8 ? 8 : 16, &out->target);
    case CODEC_GIF:
        if (state->channels != 0 && state->channels != 3)
            return status_invalid("channels must be 0 or 3 for GIF, got %d", state->channels);
        out->has_frames = state->expands;
        return codec_gif_decode(bytes,
                                state->expands        ? GIF_ALL
                                : state->op == OP_ANY ? GIF_FIRST
                                                      : GIF_ONLY_ONE,
                                &out->target);
    default:
        return codec_bmp_decode(bytes, state->channels, &out->target);
    }
}

/* DecodeImage, DecodeJpeg, DecodeAndCropJpeg, DecodePng, DecodeGif, DecodeBmp.
 *   contents      string, scalar
 *   crop_window   int32 [4]: y, x, height, width
 *   image         dtype [height, width, channels]; of a GIF [frames, height, width, 3] where the op
 *                 says so
 * Errors   INVALID_ARGUMENT   bytes that are no picture, or a picture that the op does not take
 *          UNIMPLEMENTED      WebP */
static enum kernel_result decode_compute(struct kernel_ctx *ctx) {
    const struct tensor *contents = kernel_input(ctx, 0);
    if (contents->rank != 0)
        return kernel_fail(ctx, status_invalid("`contents` must be scalar but got shape%s",
                                               TENSOR_SHAPE_TEXT(contents)));
    struct span bytes = tensor_string(contents, 0);
    if (bytes.len == 0)
        return kernel_fail(ctx, status_invalid("Input is empty."));
    if (bytes.len > INT32_MAX)
        return kernel_fail(ctx,
                           status_invalid("Input contents are too large for int: %zu", bytes.len));
    struct output out = {.target = {output_alloc}, .ctx = ctx, .pixels = TENSOR_INIT};
    struct status *st = decode(ctx->instance->state, bytes, &out);
    if (!st && tensor_has_value(&out.pixels))
        convert(&out);
    tensor_clear(&out.pixels);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ExtractJpegShape: height, width and channels of a JPEG, from its header.
 *   contents      string, scalar
 *   image_shape   output_type [3]
 * Errors   INVALID_ARGUMENT   bytes that are no JPEG */
static enum kernel_result jpeg_shape(struct kernel_ctx *ctx) {
    const struct tensor *contents = kernel_input(ctx, 0);
    struct codec_size size;
    int64_t three = 3;
    if (contents->rank != 0)
        return kernel_fail(ctx, status_invalid("contents must be scalar, got shape %s",
                                               TENSOR_SHAPE_TEXT(contents)));
    KERNEL_TRY(ctx, codec_jpeg_size(tensor_string(contents, 0), &size));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)ctx->instance->out_types[0],
                                 (struct shape){1, &three}));
    const int64_t values[3] = {size.height, size.width, size.channels};
    for (int i = 0; i < 3; i++) {
        if (ctx->outputs[0].dtype == DT_INT32)
            ((int32_t *)tensor_data(&ctx->outputs[0]))[i] = (int32_t)values[i];
        else
            ((int64_t *)tensor_data(&ctx->outputs[0]))[i] = values[i];
    }
    return KERNEL_DONE;
}

/* ---- writing ---- */

struct jpeg_state {
    struct jpeg_writing writing;
    int channels; /* 0: as many as the picture has */
};

static struct status *encode_jpeg_init(struct kernel_init *init) {
    const struct node *node = init->node;
    struct jpeg_state *state = xcalloc(1, sizeof(*state));
    int64_t quality, unit, x, y;
    struct span format;
    init->state = state;
    state->writing = (struct jpeg_writing){.quality = 95,
                                           .halves_chroma = true,
                                           .density_unit = 1,
                                           .x_density = 300,
                                           .y_density = 300};
    if (!node_attr(node, "quality")) /* EncodeJpegVariableQuality has no attr */
        return NULL;
    TRY(node_get_s(node, "format", &format));
    state->channels = span_is(format, "grayscale") ? 1 : span_is(format, "rgb") ? 3 : 0;
    TRY(node_get_i(node, "quality", &quality));
    if (quality < 0 || quality > 100)
        return status_invalid("quality must be in [0,100], got %lld", (long long)quality);
    TRY(node_get_b(node, "progressive", &state->writing.is_progressive));
    TRY(node_get_b(node, "optimize_size", &state->writing.is_optimized));
    TRY(node_get_b(node, "chroma_downsampling", &state->writing.halves_chroma));
    struct span density;
    TRY(node_get_s(node, "density_unit", &density));
    unit = span_is(density, "in") ? 1 : 2;
    TRY(node_get_i(node, "x_density", &x));
    TRY(node_get_i(node, "y_density", &y));
    TRY(node_get_s(node, "xmp_metadata", &state->writing.xmp));
    state->writing.quality = (int)quality;
    state->writing.density_unit = (int)unit;
    state->writing.x_density = (int)x;
    state->writing.y_density = (int)y;
    return NULL;
}

static struct status *set_quality(const struct kernel_ctx *ctx, struct jpeg_writing *writing) {
    const struct tensor *quality = kernel_input(ctx, 1);
    if (quality->rank != 0)
        return status_invalid("quality must be scalar: %s", TENSOR_SHAPE_TEXT(quality));
    writing->quality = *(const int32_t *)tensor_cdata(quality);
    if (writing->quality < 0 || writing->quality > 100)
        return status_invalid("quality must be in [0,100], got %d", writing->quality);
    return NULL;
}

static enum kernel_result end_encoding(struct kernel_ctx *ctx, struct status *st,
                                       struct str *bytes) {
    if (!st)
        st = kernel_alloc(ctx, 0, DT_STRING, SHAPE_SCALAR);
    if (!st)
        tensor_set_string(&ctx->outputs[0], 0, bytes->data, bytes->len);
    str_fini(bytes);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* EncodeJpeg, EncodeJpegVariableQuality (whose quality is input 1).
 *   image      uint8 [height, width, 1 or 3]
 *   contents   string, scalar
 * Errors   INVALID_ARGUMENT   shapes, a quality outside of [0, 100]
 *          INTERNAL           a picture without pixels */
static enum kernel_result encode_jpeg(struct kernel_ctx *ctx) {
    const struct jpeg_state *state = ctx->instance->state;
    const struct tensor *image = kernel_input(ctx, 0);
    struct jpeg_writing writing = state->writing;
    struct str bytes = STR_INIT;
    if (image->rank != 3)
        return kernel_fail(
            ctx, status_invalid("image must be 3-dimensional%s", TENSOR_SHAPE_TEXT(image)));
    struct codec_size size = {1, tensor_dim(image, 0), tensor_dim(image, 1), tensor_dim(image, 2)};
    if (state->channels && size.channels != state->channels)
        return kernel_fail(ctx, status_invalid("format %s expects %d channels, got %s",
                                               state->channels == 1 ? "grayscale" : "rgb",
                                               state->channels, TENSOR_SHAPE_TEXT(image)));
    if (size.channels != 1 && size.channels != 3)
        return kernel_fail(ctx, status_invalid("image must have 1 or 3 channels, got %s",
                                               TENSOR_SHAPE_TEXT(image)));
    if (ctx->instance->n_inputs > 1)
        KERNEL_TRY(ctx, set_quality(ctx, &writing));
    bool is_possible =
        size.height > 0 && size.width > 0 && size.height < 65536 && size.width < 65536;
    struct status *st = is_possible ? codec_jpeg_encode(tensor_cdata(image), size, &writing, &bytes)
                                    : status_invalid("JPEG encoding failed");
    return end_encoding(ctx, st, &bytes);
}

static struct status *encode_png_init(struct kernel_init *init) {
    int64_t *compression = xcalloc(1, sizeof(*compression));
    init->state = compression;
    TRY(node_get_i32(init->node, "compression", compression));
    if (*compression < -1 || *compression > 9)
        return status_invalid("compression should be in [-1,9], got %lld", (long long)*compression);
    return NULL;
}

/* EncodePng.
 *   image      uint8, uint16 [..., height, width, 1 … 4]
 *   contents   string [...]
 * Errors   INVALID_ARGUMENT   shapes */
static enum kernel_result encode_png(struct kernel_ctx *ctx) {
    const struct tensor *image = kernel_input(ctx, 0);
    int compression = (int)*(const int64_t *)ctx->instance->state, rank = image->rank;
    if (rank < 3)
        return kernel_fail(
            ctx, status_invalid("images must be at least rank 3%s", TENSOR_SHAPE_TEXT(image)));
    struct codec_size size = {1, tensor_dim(image, rank - 3), tensor_dim(image, rank - 2),
                              tensor_dim(image, rank - 1)};
    if (size.channels < 1 || size.channels > 4)
        return kernel_fail(ctx, status_invalid("image must have 1, 2, 3, or 4 channels, got %lld",
                                               (long long)size.channels));
    if (size.height >= CODEC_MAX_SIDE || size.width >= CODEC_MAX_SIDE)
        return kernel_fail(ctx, status_invalid("image is too large: %s", TENSOR_SHAPE_TEXT(image)));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, (struct shape){rank - 3, tensor_dims(image)}));
    int64_t n = ctx->outputs[0].n_elements;
    if (n > 0 && (size.height == 0 || size.width == 0))
        return kernel_fail(
            ctx, status_invalid("image must have pixels, got %s", TENSOR_SHAPE_TEXT(image)));
    size_t bytes_each = n > 0 ? tensor_size_bytes(image) / (size_t)n : 0;
    for (int64_t i = 0; i < n; i++) {
        struct str bytes = STR_INIT;
        struct status *st =
            codec_png_encode((const char *)tensor_cdata(image) + (size_t)i * bytes_each, size,
                             image->dtype == DT_UINT8 ? 8 : 16, compression, &bytes);
        if (!st)
            tensor_set_string(&ctx->outputs[0], i, bytes.data, bytes.len);
        str_fini(&bytes);
        KERNEL_TRY(ctx, st);
    }
    return KERNEL_DONE;
}

// clang-format off
#define OP(kind) ((const void *)(intptr_t)(kind))
#define DECODE(name, kind) {.op = name, .compute = decode_compute, .init = decode_init, \
    .arg = OP(kind)}
static const struct kernel_def rows[] = {
    DECODE("DecodeImage", OP_ANY),
    DECODE("DecodeJpeg", OP_JPEG),
    DECODE("DecodeAndCropJpeg", OP_CROP),
    DECODE("DecodePng", OP_PNG),
    DECODE("DecodeGif", OP_GIF),
    DECODE("DecodeBmp", OP_BMP),
    {"ExtractJpegShape", {{"output_type", DTYPES_INDEX}}, .compute = jpeg_shape},
    {.op = "EncodeJpeg", .compute = encode_jpeg, .init = encode_jpeg_init},
    {.op = "EncodeJpegVariableQuality", .compute = encode_jpeg, .init = encode_jpeg_init},
    {.op = "EncodePng", {{"T", DTYPE_BIT(DT_UINT8) | DTYPE_BIT(DT_UINT16)}}, .compute = encode_png,
        .init = encode_png_init},
};
// clang-format on

const struct kernel_list codec_kernels = {rows, ARRAY_LEN(rows)};
