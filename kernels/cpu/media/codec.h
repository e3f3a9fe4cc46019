/* Decodes and encodes pictures: JPEG and PNG by their libraries, GIF and BMP by our own code. The
 * bytes may come from anybody. Malformed bytes are INVALID_ARGUMENT, and the size that a file
 * claims is checked before memory is allocated for it. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_MEDIA_CODEC_H
#define MILLRACE_KERNELS_CPU_MEDIA_CODEC_H

#include "common/base/status.h"
#include "common/base/str.h"

enum codec_format { CODEC_UNKNOWN, CODEC_JPEG, CODEC_PNG, CODEC_GIF, CODEC_BMP, CODEC_WEBP };
enum codec_format codec_format_of(struct span bytes); /* Tells the format by the first bytes. */

/* Each side is below 2^27, and one picture has fewer than 2^29 samples. */
enum { CODEC_MAX_SIDE = 1 << 27, CODEC_MAX_SAMPLES = 1 << 29 };
struct codec_size {
    int64_t frames, height, width, channels;
};
/* The receiver of pixels. A decoder asks it once for memory of [frames, height, width, channels]
 * samples of 8 or 16 bits, which need not be zeroed. */
struct codec_target {
    struct status *(*alloc)(struct codec_target *target, struct codec_size size, void **ret_data);
};
/* Errors: INVALID_ARGUMENT for an empty picture, or one beyond the limits. */
struct status *codec_size_check(struct codec_size size) MUST_USE;

struct jpeg_options {
    int channels;     /* 0: as in the file; 1; 3 */
    int ratio;        /* 1, 2, 4 or 8: the decoder makes the picture smaller by this factor */
    bool is_fancy;    /* chroma is interpolated */
    bool is_accurate; /* use the slow, exact integer transform */
    /* a file that is cut off is no error: missing parts are grey, or repeat the line above */
    bool is_recovering;
    float acceptable_fraction;
    bool is_cropped;
    int64_t crop_y, crop_x, crop_height, crop_width;
};
struct status *codec_jpeg_decode(struct span bytes, const struct jpeg_options *options,
                                 struct codec_target *target) MUST_USE;
/* Reads the size and channels of the file without decoding it. */
struct status *codec_jpeg_size(struct span bytes, struct codec_size *ret) MUST_USE;
struct jpeg_writing {
    int quality; /* 0 to 100 */
    bool is_progressive, is_optimized, halves_chroma;
    int density_unit, x_density, y_density;
    struct span xmp;
};
/* Encodes pixels [height, width, 1 or 3] and appends the file to `out`. Errors: INTERNAL. */
struct status *codec_jpeg_encode(const uint8_t *pixels, struct codec_size size,
                                 const struct jpeg_writing *writing, struct str *out) MUST_USE;

/* channels is 0 (as in the file) to 4; a sample gets 8 or 16 bits. */
struct status *codec_png_decode(struct span bytes, int channels, int bits,
                                struct codec_target *target) MUST_USE;
/* Encodes pixels [height, width, 1 to 4] of 8 or 16 bits with a compression level from -1 (the
 * library's default) to 9, and appends the file to `out`. Errors: INTERNAL. */
struct status *codec_png_encode(const void *pixels, struct codec_size size, int bits,
                                int compression, struct str *out) MUST_USE;

enum gif_frames {
    GIF_ALL,     /* all frames, each drawn over those before it */
    GIF_FIRST,   /* only the first frame */
    GIF_ONLY_ONE /* only the first frame; another one is an error */
};
/* Decodes to 3 channels. */
struct status *codec_gif_decode(struct span bytes, enum gif_frames frames,
                                struct codec_target *target) MUST_USE;
/* channels is 0 (as in the file), 3 or 4. */
struct status *codec_bmp_decode(struct span bytes, int channels,
                                struct codec_target *target) MUST_USE;

#endif
