/* Pictures in files' formats: JPEG and PNG by their libraries, GIF and BMP by own code. Bytes
 * may be anybody's: whatever is wrong with them is INVALID_ARGUMENT, and what they claim is
 * checked before memory is taken for it. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_MEDIA_CODEC_H
#define MILLRACE_KERNELS_CPU_MEDIA_CODEC_H

#include "common/base/status.h"
#include "common/base/str.h"

enum codec_format { CODEC_UNKNOWN, CODEC_JPEG, CODEC_PNG, CODEC_GIF, CODEC_BMP, CODEC_WEBP };
enum codec_format codec_format_of(struct span bytes); /* by the first bytes */

/* Sides are below 2^27, samples of one picture fewer than 2^29. */
enum { CODEC_MAX_SIDE = 1 << 27, CODEC_MAX_SAMPLES = 1 << 29 };
struct codec_size {
    int64_t frames, height, width, channels;
};
/* Where pixels go: asked once for memory, [frames, height, width, channels] of 8 (or 16) bits,
 * undefined. */
struct codec_target {
    struct status *(*alloc)(struct codec_target *target, struct codec_size size, void **ret_data);
};
/* INVALID_ARGUMENT: nothing, or beyond the limits */
struct status *codec_size_check(struct codec_size size) MUST_USE;

struct jpeg_options {
    int channels;       /* 0: as in the file; 1, 3 */
    int ratio;          /* 1, 2, 4, 8: made smaller on the way */
    bool is_fancy;      /* chroma is interpolated */
    bool is_accurate;   /* the slow, exact integer transform */
    bool is_recovering; /* what is missing at the end becomes grey, or like the line above */
    float acceptable_fraction;
    bool is_cropped;
    int64_t crop_y, crop_x, crop_height, crop_width;
};
struct status *codec_jpeg_decode(struct span bytes, const struct jpeg_options *options,
                                 struct codec_target *target) MUST_USE;
/* Of the file, without decoding. */
struct status *codec_jpeg_size(struct span bytes, struct codec_size *ret) MUST_USE;
struct jpeg_writing {
    int quality; /* 0 … 100 */
    bool is_progressive, is_optimized, halves_chroma;
    int density_unit, x_density, y_density;
    struct span xmp;
};
/* pixels [height, width, 1 or 3]. Appends to `out`. Errors: INTERNAL. */
struct status *codec_jpeg_encode(const uint8_t *pixels, struct codec_size size,
                                 const struct jpeg_writing *writing, struct str *out) MUST_USE;

/* channels 0 (as in the file) … 4; bits 8 or 16 of a sample. */
struct status *codec_png_decode(struct span bytes, int channels, int bits,
                                struct codec_target *target) MUST_USE;
/* pixels [height, width, 1 … 4] of 8 or 16 bits; compression -1 … 9. Appends to `out`. Errors:
 * INTERNAL. */
struct status *codec_png_encode(const void *pixels, struct codec_size size, int bits,
                                int compression, struct str *out) MUST_USE;

enum gif_frames {
    GIF_ALL,     /* each on top of those before it */
    GIF_FIRST,   /* the others are left out */
    GIF_ONLY_ONE /* another one is an error */
};
/* 3 channels. */
struct status *codec_gif_decode(struct span bytes, enum gif_frames frames,
                                struct codec_target *target) MUST_USE;
/* channels 0, 3, 4. */
struct status *codec_bmp_decode(struct span bytes, int channels,
                                struct codec_target *target) MUST_USE;

#endif
