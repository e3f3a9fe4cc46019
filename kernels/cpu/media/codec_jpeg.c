/* Reads and writes JPEG by libjpeg-turbo [ITU-T T.81]. The library reports errors by longjmp, so
 * state that must survive it is in structs. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

#include "common/base/pool_cancel.h"
#include "kernels/cpu/media/codec.h"

/* Limits for the memory of a picture's coefficients and for the scans of a progressive picture. No
 * photograph needs more. */
enum { MAX_COEFFICIENT_BYTES = 1 << 30, MAX_SCANS = 500, REREAD_MAX_BYTES = 1 << 24 };

/* The library's error message, and where its longjmp returns to. */
struct guard {
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf leave;
};

static void on_error(j_common_ptr any) {
    longjmp(CONTAINER_OF(any->err, struct guard, errors)->leave, 1);
}
static void on_message(j_common_ptr any, int level) { any->err->num_warnings += level < 0; }
static void on_output(j_common_ptr any) { (void)any; }

static void guard_init(struct guard *guard, j_common_ptr any) {
    any->err = jpeg_std_error(&guard->errors);
    guard->errors.error_exit = on_error;
    guard->errors.emit_message = on_message;
    guard->errors.output_message = on_output;
}

/* ---- the source: bytes in memory ---- */

struct source {
    struct jpeg_source_mgr base;
    struct span bytes;
    size_t n_reread;
    bool is_recovering, is_ended; /* is_ended: the data lacked an end, so one was added */
};

struct reader {
    struct jpeg_decompress_struct jpeg;
    struct guard guard;
    struct source source;
    const struct jpeg_options *options;
    struct codec_size size; /* the size of the result */
    int64_t n_lines;        /* lines that were read so far */
    /* samples of a line from the library: those to skip at its left, and all of them */
    int64_t left, line_samples;
    uint8_t *line, *pixels;
};

static void source_nothing(j_decompress_ptr jpeg) { (void)jpeg; }

/* Called when there are no more bytes, whatever bytes_in_buffer says, because the library works on
 * copies of that count. As in TensorFlow, a library that has not reported any progress reads again
 * from where it last reported. TensorFlow's decoder may do so forever, but here REREAD_MAX_BYTES is
 * the limit. Otherwise an end is added to the data. */
static boolean source_fill(j_decompress_ptr jpeg) {
    static const JOCTET end[2] = {0xff, JPEG_EOI};
    struct source *source = CONTAINER_OF(jpeg->src, struct source, base);
    if (!source->is_recovering || source->is_ended || source->bytes.len == 0)
        on_error((j_common_ptr)jpeg);
    if (source->base.bytes_in_buffer > 0 && source->n_reread < REREAD_MAX_BYTES) {
        source->n_reread += source->base.bytes_in_buffer;
        return TRUE;
    }
    source->is_ended = true;
    source->base.next_input_byte = end;
    source->base.bytes_in_buffer = sizeof(end);
    return TRUE;
}

static void source_skip(j_decompress_ptr jpeg, long n) {
    struct jpeg_source_mgr *base = jpeg->src;
    if (n <= 0)
        return;
    size_t taken = MIN((size_t)n, base->bytes_in_buffer);
    base->next_input_byte += taken;
    base->bytes_in_buffer -= taken;
}

static void source_init(struct reader *r, struct span bytes) {
    r->source =
        (struct source){.bytes = bytes, .is_recovering = r->options && r->options->is_recovering};
    struct jpeg_source_mgr *base = &r->source.base;
    base->init_source = source_nothing;
    base->fill_input_buffer = source_fill;
    base->skip_input_data = source_skip;
    base->resync_to_restart = jpeg_resync_to_restart;
    base->term_source = source_nothing;
    base->next_input_byte = (const JOCTET *)bytes.data;
    base->bytes_in_buffer = bytes.len;
    r->jpeg.src = base;
}

/* The library calls these between lines of blocks. */
static void limit_reading(j_common_ptr any) {
    if (((j_decompress_ptr)any)->input_scan_number > MAX_SCANS || pool_is_unwanted())
        on_error(any);
}
static void limit_writing(j_common_ptr any) {
    if (pool_is_unwanted())
        on_error(any);
}

static void reader_open(struct reader *r, struct span bytes) {
    jpeg_create_decompress(&r->jpeg);
    source_init(r, bytes);
    r->guard.progress.progress_monitor = limit_reading;
    r->jpeg.progress = &r->guard.progress;
    r->jpeg.mem->max_memory_to_use = MAX_COEFFICIENT_BYTES;
    jpeg_read_header(&r->jpeg, TRUE);
}

/* ---- reading ---- */

static bool is_cmyk(const struct reader *r) {
    return r->jpeg.jpeg_color_space == JCS_CMYK || r->jpeg.jpeg_color_space == JCS_YCCK;
}

static bool crop_is_inside(const struct reader *r) {
    const struct jpeg_options *o = r->options;
    int64_t width = r->jpeg.output_width, height = r->jpeg.output_height;
    return o->crop_width > 0 && o->crop_height > 0 && o->crop_x >= 0 && o->crop_y >= 0 &&
           o->crop_x <= width - o->crop_width && o->crop_y <= height - o->crop_height;
}

/* Chooses the output's size and format. False when there is no such picture. */
static bool set_output(struct reader *r) {
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    int channels = r->options->channels ? r->options->channels : MIN(jpeg->num_components, 3);
    if (channels != 1 && channels != 3)
        return false;
    jpeg->out_color_space = channels == 1 ? JCS_GRAYSCALE : is_cmyk(r) ? JCS_CMYK : JCS_RGB;
    jpeg->do_fancy_upsampling = r->options->is_fancy;
    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned)r->options->ratio;
    jpeg->dct_method = r->options->is_accurate ? JDCT_ISLOW : JDCT_IFAST;
    jpeg_calc_output_dimensions(jpeg);
    r->size = (struct codec_size){1, jpeg->output_height, jpeg->output_width, channels};
    if ((int64_t)jpeg->output_width * (int64_t)jpeg->output_height *
            MAX(channels, jpeg->output_components) >=
        CODEC_MAX_SAMPLES)
        return false;
    if (r->options->is_cropped && !crop_is_inside(r))
        return false;
    return true;
}

/* The library's window begins at a block's edge. The lines above our window are read and
 * dropped. */
static void start(struct reader *r) {
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    jpeg_start_decompress(jpeg);
    if (r->options->is_cropped) {
        JDIMENSION x = (JDIMENSION)r->options->crop_x, width = (JDIMENSION)r->options->crop_width;
        r->size.height = r->options->crop_height;
        r->size.width = r->options->crop_width;
        if (width < jpeg->output_width)
            jpeg_crop_scanline(jpeg, &x, &width);
        else
            x = 0;
        r->left = r->options->crop_x - x;
        jpeg_skip_scanlines(jpeg, (JDIMENSION)r->options->crop_y);
    }
    r->line_samples = (int64_t)jpeg->output_width * jpeg->output_components;
}

/* CMYK in files of Adobe's programs is inverted. */
static void cmyk_to_rgb(const struct reader *r, const uint8_t *from, uint8_t *to) {
    for (int64_t i = 0; i < r->size.width; i++, from += 4, to += 3) {
        for (int c = 0; c < 3; c++)
            to[c] = (uint8_t)(r->jpeg.saw_Adobe_marker ? from[3] * from[c] / 255
                                                       : (255 - from[3]) * (255 - from[c]) / 255);
    }
}

/* False when too little of the picture could be read. */
static bool read_lines(struct reader *r) {
    size_t row = (size_t)(r->size.width * r->size.channels);
    int components = r->jpeg.output_components;
    while (r->n_lines < r->size.height) {
        uint8_t *to = r->pixels + (size_t)r->n_lines * row;
        JSAMPROW lines[1] = {r->line};
        if (jpeg_read_scanlines(&r->jpeg, lines, 1) == 0)
            break;
        if (r->jpeg.out_color_space == JCS_CMYK)
            cmyk_to_rgb(r, r->line + 4 * r->left, to);
        else
            memcpy(to, r->line + components * r->left, row);
        r->n_lines++;
    }
    if (r->n_lines == r->size.height)
        return true;
    if (!r->options->is_recovering ||
        (float)r->n_lines < r->options->acceptable_fraction * (float)r->size.height)
        return false;
    for (; r->n_lines < r->size.height; r->n_lines++) {
        uint8_t *to = r->pixels + (size_t)r->n_lines * row;
        if (r->n_lines == 0)
            memset(to, 0, row);
        else
            memcpy(to, to - row, row);
    }
    return true;
}

static bool open_picture(struct reader *r, struct span bytes) {
    if (setjmp(r->guard.leave))
        return false;
    reader_open(r, bytes);
    if (!set_output(r))
        return false;
    start(r);
    return true;
}

static bool read_picture(struct reader *r) {
    if (setjmp(r->guard.leave))
        return false;
    if (!read_lines(r))
        return false;
    if (r->jpeg.output_scanline >= r->jpeg.output_height)
        jpeg_finish_decompress(&r->jpeg);
    return true;
}

static struct status *decode(struct reader *r, struct span bytes, struct codec_target *target) {
    static const char message[] = "jpeg::Uncompress failed. Invalid JPEG data or crop window.";
    if (!open_picture(r, bytes))
        return status_invalid(message);
    TRY(codec_size_check(r->size));
    void *pixels;
    TRY(target->alloc(target, r->size, &pixels));
    r->pixels = pixels;
    r->line = malloc((size_t)MAX(r->line_samples, (int64_t)1));
    if (!r->line)
        return status_exhausted("OOM for a line of %lld samples", (long long)r->line_samples);
    return read_picture(r) ? NULL : status_invalid(message);
}

struct status *codec_jpeg_decode(struct span bytes, const struct jpeg_options *options,
                                 struct codec_target *target) {
    struct reader r = {.options = options};
    guard_init(&r.guard, (j_common_ptr)&r.jpeg);
    struct status *st = decode(&r, bytes, target);
    jpeg_destroy_decompress(&r.jpeg);
    free(r.line);
    return st;
}

static bool read_size(struct reader *r, struct span bytes) {
    if (setjmp(r->guard.leave))
        return false;
    reader_open(r, bytes);
    jpeg_calc_output_dimensions(&r->jpeg);
    r->size =
        (struct codec_size){1, r->jpeg.image_height, r->jpeg.image_width, r->jpeg.num_components};
    return true;
}

struct status *codec_jpeg_size(struct span bytes, struct codec_size *ret) {
    struct reader r = {.options = NULL};
    guard_init(&r.guard, (j_common_ptr)&r.jpeg);
    bool is_read = read_size(&r, bytes);
    *ret = r.size;
    jpeg_destroy_decompress(&r.jpeg);
    return is_read ? NULL : status_invalid("Invalid JPEG data, size %zu", bytes.len);
}

/* ---- writing ---- */

struct writer {
    struct jpeg_compress_struct jpeg;
    struct guard guard;
    unsigned char *bytes; /* allocated by the library with malloc */
    unsigned long n_bytes;
};

static void write_xmp(struct writer *w, struct span xmp) {
    static const char space[] = "http://ns.adobe.com/xap/1.0/"; /* with its final NUL */
    struct str marker = STR_INIT;
    str_add_bytes(&marker, space, sizeof(space));
    str_add_bytes(&marker, xmp.data, xmp.len);
    if (marker.len <= 65533) /* a longer marker would make the library report an error */
        jpeg_write_marker(&w->jpeg, JPEG_APP0 + 1, (const JOCTET *)marker.data,
                          (unsigned)marker.len);
    str_fini(&marker);
}

static bool encode(struct writer *w, const uint8_t *pixels, struct codec_size size,
                   const struct jpeg_writing *writing) {
    struct jpeg_compress_struct *jpeg = &w->jpeg;
    if (setjmp(w->guard.leave))
        return false;
    jpeg_create_compress(jpeg);
    w->guard.progress.progress_monitor = limit_writing;
    jpeg->progress = &w->guard.progress;
    jpeg_mem_dest(jpeg, &w->bytes, &w->n_bytes);
    jpeg->image_width = (JDIMENSION)size.width;
    jpeg->image_height = (JDIMENSION)size.height;
    jpeg->input_components = (int)size.channels;
    jpeg->in_color_space = size.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(jpeg);
    jpeg->optimize_coding = writing->is_optimized;
    jpeg->density_unit = (UINT8)writing->density_unit;
    jpeg->X_density = (UINT16)writing->x_density;
    jpeg->Y_density = (UINT16)writing->y_density;
    jpeg_set_quality(jpeg, writing->quality, TRUE);
    if (writing->is_progressive)
        jpeg_simple_progression(jpeg);
    for (int i = 0; i < jpeg->num_components && !writing->halves_chroma; i++)
        jpeg->comp_info[i].h_samp_factor = jpeg->comp_info[i].v_samp_factor = 1;
    jpeg_start_compress(jpeg, TRUE);
    if (writing->xmp.len > 0)
        write_xmp(w, writing->xmp);
    for (int64_t y = 0; y < size.height; y++) {
        JSAMPROW line[1] = {(JSAMPROW)(uintptr_t)pixels + (size_t)(y * size.width * size.channels)};
        jpeg_write_scanlines(jpeg, line, 1);
    }
    jpeg_finish_compress(jpeg);
    return true;
}

struct status *codec_jpeg_encode(const uint8_t *pixels, struct codec_size size,
                                 const struct jpeg_writing *writing, struct str *out) {
    struct writer w = {.bytes = NULL};
    guard_init(&w.guard, (j_common_ptr)&w.jpeg);
    bool is_written = encode(&w, pixels, size, writing);
    if (is_written) { /* the library sets the address of the bytes only when it has finished */
        str_add_bytes(out, w.bytes, w.n_bytes);
        free(w.bytes);
    }
    jpeg_destroy_compress(&w.jpeg);
    return is_written ? NULL : status_invalid("JPEG encoding failed");
}
