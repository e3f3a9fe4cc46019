/* Reads and writes PNG by libpng [ISO/IEC 15948]. The library reports errors by longjmp, so state
 * that must survive it is volatile or in structs. */
#include <png.h>
#include <setjmp.h>

#include "common/base/pool_cancel.h"
#include "kernels/cpu/media/codec.h"

enum { CHUNK_LIMIT = 8 << 20 };

static void on_error(png_structp png, png_const_charp message) {
    (void)message;
    png_longjmp(png, 1);
}
static void on_warning(png_structp png, png_const_charp message) { (void)png, (void)message; }

static void read_bytes(png_structp png, png_bytep to, size_t n) {
    struct span *rest = png_get_io_ptr(png);
    if (rest->len < n)
        png_error(png, "the data ends early");
    memcpy(to, rest->data, n);
    rest->data += n;
    rest->len -= n;
}

struct reading {
    struct span rest;
    png_structp png;
    png_infop info;
    struct codec_size size;
    int bits;
    bool widens; /* the file has 8 bits, the output 16 */
    char *pixels;
};

/* Tells the library how to convert the file's channels to the requested ones. */
static void set_channels(struct reading *r, int channels) {
    int color = png_get_color_type(r->png, r->info), depth = png_get_bit_depth(r->png, r->info);
    bool has_transparency = png_get_valid(r->png, r->info, PNG_INFO_tRNS) != 0,
         has_alpha = (color & PNG_COLOR_MASK_ALPHA) != 0;
    bool is_grey = !(color & PNG_COLOR_MASK_COLOR);
    if (channels == 0)
        channels = color == PNG_COLOR_TYPE_PALETTE ? 3 + has_transparency
                                                   : png_get_channels(r->png, r->info);
    r->size.channels = channels;
    if (channels % 2 == 1 && (has_alpha || has_transparency))
        png_set_strip_alpha(r->png);
    else if (channels % 2 == 0 && has_transparency)
        png_set_tRNS_to_alpha(r->png);
    else if (channels % 2 == 0 && !has_alpha)
        png_set_add_alpha(r->png, (1u << depth) - 1, PNG_FILLER_AFTER);
    if (depth > 8 && r->bits == 8)
        png_set_strip_16(r->png);
    r->widens = depth <= 8 && r->bits == 16;
    png_set_packing(r->png);
    if (r->bits == 16)
        png_set_swap(r->png);
    if (color == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(r->png);
    if (is_grey && depth < 8)
        png_set_expand_gray_1_2_4_to_8(r->png);
    if (channels < 3 && !is_grey)
        png_set_rgb_to_gray(r->png, PNG_ERROR_ACTION_NONE, 0.299, 0.587);
    if (channels >= 3 && is_grey)
        png_set_gray_to_rgb(r->png);
}

/* Reads everything before the pixels. False when the library has reported an error. */
static bool read_header(struct reading *r, int channels) {
    if (setjmp(png_jmpbuf(r->png)))
        return false;
    png_set_user_limits(r->png, CODEC_MAX_SIDE - 1, CODEC_MAX_SIDE - 1);
    png_set_chunk_malloc_max(r->png, CHUNK_LIMIT);
    png_set_read_fn(r->png, &r->rest, read_bytes);
    png_read_info(r->png, r->info);
    r->size.frames = 1;
    r->size.height = png_get_image_height(r->png, r->info);
    r->size.width = png_get_image_width(r->png, r->info);
    set_channels(r, channels);
    png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    return true;
}

static bool read_pixels(struct reading *r, size_t row_bytes) {
    if (setjmp(png_jmpbuf(r->png)))
        return false;
    int n_passes = png_get_interlace_type(r->png, r->info) == PNG_INTERLACE_ADAM7
                       ? PNG_INTERLACE_ADAM7_PASSES
                       : 1;
    for (int pass = 0; pass < n_passes; pass++) {
        for (int64_t y = 0; y < r->size.height && !pool_is_unwanted(); y++)
            png_read_row(r->png, (png_bytep)r->pixels + (size_t)y * row_bytes, NULL);
    }
    if (!pool_is_unwanted())
        png_read_end(r->png, NULL);
    return true;
}

/* Rows of 8 bits are stored at the beginning of their 16-bit rows. Going backwards, each sample
 * becomes two bytes of its value. */
static void widen(struct reading *r, size_t row_bytes) {
    for (int64_t y = 0; y < r->size.height && !pool_is_unwanted(); y++) {
        uint8_t *from = (uint8_t *)r->pixels + (size_t)y * row_bytes;
        uint16_t *to = (uint16_t *)(void *)from;
        for (int64_t i = r->size.width * r->size.channels - 1; i >= 0; i--)
            to[i] = (uint16_t)(from[i] * 257);
    }
}

static struct status *read_picture(struct reading *r, struct span bytes, int channels,
                                   struct codec_target *target) {
    if (!read_header(r, channels))
        return status_invalid("Invalid PNG. Failed to initialize decoder.");
    TRY(codec_size_check(r->size));
    size_t samples = (size_t)(r->size.width * r->size.channels),
           row_bytes = samples * (size_t)r->bits / 8;
    if (png_get_rowbytes(r->png, r->info) != (r->widens ? samples : row_bytes))
        return status_invalid("Invalid PNG. Its rows do not fit its header.");
    void *pixels;
    TRY(target->alloc(target, r->size, &pixels));
    r->pixels = pixels;
    if (!read_pixels(r, row_bytes))
        return status_invalid("Invalid PNG data, size %zu", bytes.len);
    if (r->widens)
        widen(r, row_bytes);
    return NULL;
}

struct status *codec_png_decode(struct span bytes, int channels, int bits,
                                struct codec_target *target) {
    struct reading r = {.rest = bytes, .bits = bits};
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, on_error, on_warning);
    if (!r.png)
        return status_exhausted("libpng cannot be used");
    r.info = png_create_info_struct(r.png);
    struct status *st = r.info ? read_picture(&r, bytes, channels, target)
                               : status_exhausted("libpng has no memory");
    png_destroy_read_struct(&r.png, &r.info, NULL);
    return st;
}

/* ---- writing ---- */

static void write_bytes(png_structp png, png_bytep from, size_t n) {
    str_add_bytes(png_get_io_ptr(png), from, n);
}
static void flush_bytes(png_structp png) { (void)png; }

struct writing {
    png_structp png;
    png_infop info;
    struct str *out;
    struct codec_size size;
    int bits, compression;
};

static bool write_picture(struct writing *w, const void *pixels) {
    static const int colors[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                 PNG_COLOR_TYPE_RGB_ALPHA};
    size_t row_bytes = (size_t)(w->size.width * w->size.channels) * (size_t)w->bits / 8;
    if (setjmp(png_jmpbuf(w->png)))
        return false;
    png_set_user_limits(w->png, CODEC_MAX_SIDE - 1, CODEC_MAX_SIDE - 1);
    png_set_write_fn(w->png, w->out, write_bytes, flush_bytes);
    png_set_compression_level(w->png, w->compression);
    png_set_IHDR(w->png, w->info, (png_uint_32)w->size.width, (png_uint_32)w->size.height, w->bits,
                 colors[w->size.channels - 1], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(w->png, w->info);
    if (w->bits == 16)
        png_set_swap(w->png);
    for (int64_t y = 0; y < w->size.height && !pool_is_unwanted(); y++)
        png_write_row(w->png, (png_const_bytep)pixels + (size_t)y * row_bytes);
    if (pool_is_unwanted())
        return false; /* the library would miss the rest of the rows */
    png_write_end(w->png, NULL);
    return true;
}

struct status *codec_png_encode(const void *pixels, struct codec_size size, int bits,
                                int compression, struct str *out) {
    struct writing w = {.out = out, .size = size, .bits = bits, .compression = compression};
    w.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, on_error, on_warning);
    if (!w.png)
        return status_exhausted("libpng cannot be used");
    w.info = png_create_info_struct(w.png);
    bool is_written = w.info && write_picture(&w, pixels);
    png_destroy_write_struct(&w.png, &w.info);
    return is_written ? NULL : status_invalid("PNG encoding failed");
}
