/* Decodes BMP without compression, and holds what all formats share. */
#include "kernels/cpu/media/codec.h"

#include "common/base/pool_cancel.h"

static bool begins_with(struct span bytes, const char *text, size_t len) {
    return bytes.len >= len && memcmp(bytes.data, text, len) == 0;
}

enum codec_format codec_format_of(struct span bytes) {
    static const struct {
        const char *text;
        size_t len;
        enum codec_format format;
    } marks[] = {{"\xff\xd8\xff", 3, CODEC_JPEG},
                 {"\x89PNG\r\n\x1a\n", 8, CODEC_PNG},
                 {"GIF8", 4, CODEC_GIF},
                 {"BM", 2, CODEC_BMP}};
    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        if (begins_with(bytes, marks[i].text, marks[i].len))
            return marks[i].format;
    }
    bool is_webp =
        begins_with(bytes, "RIFF", 4) && bytes.len >= 12 && memcmp(bytes.data + 8, "WEBP", 4) == 0;
    return is_webp ? CODEC_WEBP : CODEC_UNKNOWN;
}

struct status *codec_size_check(struct codec_size size) {
    int64_t samples;
    bool is_bad =
        size.height <= 0 || size.width <= 0 || size.height >= CODEC_MAX_SIDE ||
        size.width >= CODEC_MAX_SIDE || mul_overflows_i64(size.height, size.width, &samples) ||
        mul_overflows_i64(samples, size.channels, &samples) || samples >= CODEC_MAX_SAMPLES;
    if (!is_bad)
        return NULL;
    return status_invalid("Image of size %lld x %lld with %lld channels is empty or too large",
                          (long long)size.width, (long long)size.height, (long long)size.channels);
}

/* ---- BMP ---- */

enum { BMP_MIN_BYTES = 32, AT_PIXELS = 10, AT_WIDTH = 18, AT_HEIGHT = 22, AT_BITS = 28 };

struct bitmap {
    const uint8_t *pixels;
    int64_t width, height, row_bytes;
    int channels; /* channels in the file: 1, 3 or 4 */
    bool is_top_down;
};

static int64_t number_at(struct span bytes, size_t at, int n) {
    uint32_t v = 0;
    for (int i = 0; i < n; i++)
        v |= (uint32_t)(uint8_t)bytes.data[at + (size_t)i] << (8 * i);
    return n == 4 ? (int32_t)v : (int64_t)v;
}

static struct status *read_header(struct span bytes, int channels, struct bitmap *ret) {
    if (channels != 0 && channels != 3 && channels != 4)
        return status_invalid("`channels` must be 0, 3 or 4 for BMP, but got %d", channels);
    if (bytes.len < BMP_MIN_BYTES)
        return status_invalid("Incomplete bmp content, requires at least %d bytes to find the "
                              "header size, width, height, and bpp, got %zu bytes",
                              BMP_MIN_BYTES, bytes.len);
    int64_t at_pixels = number_at(bytes, AT_PIXELS, 4), height = number_at(bytes, AT_HEIGHT, 4),
            bits = number_at(bytes, AT_BITS, 2);
    *ret = (struct bitmap){.width = number_at(bytes, AT_WIDTH, 4),
                           .height = height < 0 ? -height : height,
                           .channels = (int)bits / 8};
    ret->is_top_down = height < 0;
    if (ret->width < 0)
        return status_invalid("Width must be positive");
    if (bits != 8 && bits != 24 && bits != 32)
        return status_invalid(
            "Number of channels inherent in the image must be 1, 3 or 4, was %lld",
            (long long)bits / 8);
    ret->row_bytes = (ret->width * ret->channels + 3) / 4 * 4;
    int64_t n_pixel_bytes;
    bool fits = at_pixels >= 0 && at_pixels <= (int64_t)bytes.len &&
                !mul_overflows_i64(ret->row_bytes, ret->height, &n_pixel_bytes) &&
                n_pixel_bytes == (int64_t)bytes.len - at_pixels;
    if (!fits)
        return status_invalid(
            "Input size should match (header_size + row_size * abs_height) but is %zu", bytes.len);
    ret->pixels = (const uint8_t *)bytes.data + at_pixels;
    return NULL;
}

/* The file stores blue first. Where it has fewer channels than the output, the output is grey or
 * opaque. */
static void convert_row(const struct bitmap *b, const uint8_t *from, int channels, uint8_t *to) {
    for (int64_t x = 0; x < b->width; x++, from += b->channels, to += channels) {
        to[0] = from[b->channels > 1 ? 2 : 0];
        if (channels > 1) {
            to[1] = from[b->channels > 1 ? 1 : 0];
            to[2] = from[0];
        }
        if (channels == 4)
            to[3] = b->channels == 4 ? from[3] : UINT8_MAX;
    }
}

struct status *codec_bmp_decode(struct span bytes, int channels, struct codec_target *target) {
    struct bitmap b;
    void *pixels;
    TRY(read_header(bytes, channels, &b));
    channels = channels ? channels : b.channels;
    TRY(codec_size_check((struct codec_size){1, b.height, b.width, channels}));
    TRY(target->alloc(target, (struct codec_size){1, b.height, b.width, channels}, &pixels));
    for (int64_t y = 0; y < b.height && !pool_is_unwanted(); y++)
        convert_row(&b, b.pixels + (b.is_top_down ? y : b.height - 1 - y) * b.row_bytes, channels,
                    (uint8_t *)pixels + (size_t)(y * b.width * channels));
    return NULL;
}
