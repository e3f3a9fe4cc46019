/* Decodes GIF [GIF89a, CompuServe 1990]. Frames are drawn on a canvas one after the other, and a
 * transparent pixel shows the frame before. As in TensorFlow, disposal modes are ignored. Data
 * after damage is ignored when at least one frame is whole. */
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "kernels/cpu/media/codec.h"

enum { HEADER_BYTES = 6, SCREEN_BYTES = 7, IMAGE_BYTES = 9, MAX_CODES = 4096, NO_CODE = 0xffff };
enum { CODES_PER_POLL = 1 << 16 };

struct gif {
    const uint8_t *data;
    size_t len, at;
    /* the canvas has the size of the largest picture, whatever the screen's size */
    int64_t width, height;
    const uint8_t *colors; /* the colours of all pictures, or NULL */
    int n_colors;
};

struct picture {
    int64_t left, top, width, height;
    const uint8_t *colors;
    int n_colors, transparent; /* transparent: -1 when no colour is */
    bool is_interlaced;
    size_t at; /* the position of the code size, which the data's blocks follow */
};

/* ---- the structure ---- */

static bool take(struct gif *gif, size_t n, const uint8_t **ret) {
    if (gif->len - gif->at < n)
        return false;
    *ret = gif->data + gif->at;
    gif->at += n;
    return true;
}

static int64_t number(const uint8_t *at) { return at[0] | at[1] << 8; }

static bool take_colors(struct gif *gif, int flags, const uint8_t **ret_colors, int *ret_n) {
    if (!(flags & 0x80))
        return true;
    *ret_n = 2 << (flags & 7);
    return take(gif, (size_t)*ret_n * 3, ret_colors);
}

static bool open_gif(struct span bytes, struct gif *gif) {
    const uint8_t *at;
    *gif = (struct gif){.data = (const uint8_t *)bytes.data, .len = bytes.len};
    if (!take(gif, HEADER_BYTES, &at) || !take(gif, SCREEN_BYTES, &at))
        return false;
    return take_colors(gif, at[4], &gif->colors, &gif->n_colors);
}

static bool skip_blocks(struct gif *gif) {
    const uint8_t *at;
    do {
        if (!take(gif, 1, &at) || !take(gif, at[0], &(const uint8_t *){NULL}))
            return false;
    } while (at[0] > 0);
    return true;
}

/* Reads an extension. The only one that matters says which colour is transparent in the next
 * picture. */
static bool take_extension(struct gif *gif, int *transparent) {
    const uint8_t *at;
    if (!take(gif, 1, &at))
        return false;
    if (at[0] == 0xf9 && gif->len - gif->at >= 5 && gif->data[gif->at] == 4)
        *transparent = gif->data[gif->at + 1] & 1 ? gif->data[gif->at + 4] : -1;
    return skip_blocks(gif);
}

/* Finds the next picture, and skips its data. False at the end, and where the data is damaged. */
static bool next_picture(struct gif *gif, struct picture *ret) {
    int transparent = -1;
    const uint8_t *at;
    for (;;) {
        if (!take(gif, 1, &at))
            return false;
        if (at[0] == 0x21) {
            if (!take_extension(gif, &transparent))
                return false;
            continue;
        }
        if (at[0] != 0x2c || !take(gif, IMAGE_BYTES, &at))
            return false;
        break;
    }
    *ret = (struct picture){number(at),     number(at + 2),      number(at + 4),
                            number(at + 6), gif->colors,         gif->n_colors,
                            transparent,    (at[8] & 0x40) != 0, 0};
    if (!take_colors(gif, at[8], &ret->colors, &ret->n_colors))
        return false;
    ret->at = gif->at;
    return take(gif, 1, &at) && skip_blocks(gif);
}

/* Counts the pictures, up to max, and computes their canvas. */
static int64_t count_pictures(struct gif *gif, int64_t max) {
    size_t begin = gif->at;
    struct picture p;
    int64_t n = 0;
    for (; n < max && next_picture(gif, &p); n++) {
        gif->width = MAX(gif->width, p.width);
        gif->height = MAX(gif->height, p.height);
    }
    gif->at = begin;
    return n;
}

/* ---- the data: LZW [Welch 1984] in blocks of up to 255 bytes ---- */

struct decoder {
    const uint8_t *data;
    size_t at, block_left;
    uint32_t bits;
    int n_bits, first_size;
    uint16_t prefix[MAX_CODES];
    uint8_t suffix[MAX_CODES], stack[MAX_CODES];
};

static bool next_byte(struct decoder *d, uint8_t *ret) {
    if (d->block_left == 0) {
        d->block_left = d->data[d->at++];
        if (d->block_left == 0) {
            d->at--; /* the end block is read again by the next call */
            return false;
        }
    }
    *ret = d->data[d->at++];
    d->block_left--;
    return true;
}

static bool next_code(struct decoder *d, int size, int *ret) {
    while (d->n_bits < size) {
        uint8_t byte;
        if (!next_byte(d, &byte))
            return false;
        d->bits |= (uint32_t)byte << d->n_bits;
        d->n_bits += 8;
    }
    *ret = (int)(d->bits & ((1u << size) - 1));
    d->bits >>= size;
    d->n_bits -= size;
    return true;
}

/* Decodes n colour numbers. False when the data has fewer, or is damaged. */
static bool decode_indices(struct decoder *d, uint8_t *out, int64_t n) {
    d->first_size = d->data[d->at++];
    if (d->first_size < 1 || d->first_size > 8)
        return false;
    const int clear = 1 << d->first_size, end = clear + 1;
    int size = d->first_size + 1, next = end + 1, previous = NO_CODE, code;
    uint8_t first = 0;
    for (int64_t done = 0, n_codes = 0; done < n; n_codes++) {
        if (n_codes % CODES_PER_POLL == 0 && pool_is_unwanted())
            return false;
        if (!next_code(d, size, &code) || code == end || code > next ||
            (code == next && previous == NO_CODE))
            return false;
        if (code == clear) {
            size = d->first_size + 1;
            next = end + 1;
            previous = NO_CODE;
            continue;
        }
        int depth = 0, at = code;
        /* the code is being defined: the string before, followed by its own first number */
        if (code == next) {
            d->stack[depth++] = first;
            at = previous;
        }
        for (; at > end; at = d->prefix[at])
            d->stack[depth++] = d->suffix[at];
        if (at >= clear)
            return false;
        first = (uint8_t)at;
        d->stack[depth++] = first;
        while (depth > 0 && done < n)
            out[done++] = d->stack[--depth];
        if (previous != NO_CODE && next < MAX_CODES) {
            d->prefix[next] = (uint16_t)previous;
            d->suffix[next++] = first;
            if (next == 1 << size && size < 12)
                size++;
        }
        previous = code;
    }
    return true;
}

/* ---- pictures ---- */

/* The line of the picture that the n-th line of interlaced data is. */
static int64_t interlaced_line(int64_t n, int64_t height) {
    static const int first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    for (int pass = 0; pass < 4; pass++) {
        int64_t lines =
            height > first[pass] ? (height - first[pass] + step[pass] - 1) / step[pass] : 0;
        if (n < lines)
            return first[pass] + n * step[pass];
        n -= lines;
    }
    return 0;
}

static struct status *paint(const struct gif *gif, const struct picture *p, const uint8_t *indices,
                            uint8_t *canvas) {
    for (int64_t n = 0; n < p->height && !pool_is_unwanted(); n++) {
        int64_t y = p->top + (p->is_interlaced ? interlaced_line(n, p->height) : n);
        if (y >= gif->height)
            continue;
        uint8_t *to = canvas + (size_t)(y * gif->width + p->left) * 3;
        for (int64_t x = 0; x < MIN(p->width, gif->width - p->left); x++, to += 3) {
            int color = indices[n * p->width + x];
            if (color == p->transparent)
                continue;
            if (color >= p->n_colors)
                return status_invalid("Invalid GIF data (size %zu), found color index %d outside "
                                      "of color map range %d",
                                      gif->len, color, p->n_colors);
            memcpy(to, p->colors + 3 * color, 3);
        }
    }
    return NULL;
}

static struct status *paint_all(struct gif gif, int64_t n_frames, uint8_t *pixels) {
    struct picture p;
    struct status *st = NULL;
    struct decoder *decoder = xmalloc(sizeof(*decoder));
    uint8_t *indices = NULL;
    size_t frame_bytes = (size_t)(gif.width * gif.height) * 3;
    for (int64_t f = 0; f < n_frames && !st && next_picture(&gif, &p); f++) {
        if (pool_is_unwanted())
            break;
        uint8_t *canvas = pixels + (size_t)f * frame_bytes;
        if (f == 0)
            memset(canvas, 0, frame_bytes);
        else
            memcpy(canvas, canvas - frame_bytes, frame_bytes);
        int64_t n = p.width * p.height;
        free(indices);
        indices = malloc((size_t)MAX(n, (int64_t)1));
        *decoder = (struct decoder){.data = gif.data, .at = p.at};
        if (!indices)
            st = status_exhausted("OOM for a picture of %lld pixels", (long long)n);
        else if (!decode_indices(decoder, indices, n))
            st = status_invalid("Invalid GIF data (size %zu), frame %lld is damaged", gif.len,
                                (long long)f);
        else if (!p.colors)
            st = status_invalid("Invalid GIF data (size %zu), missing color map for frame %lld",
                                gif.len, (long long)f);
        else if (p.left < gif.width)
            st = paint(&gif, &p, indices, canvas);
    }
    free(indices);
    free(decoder);
    return st;
}

struct status *codec_gif_decode(struct span bytes, enum gif_frames frames,
                                struct codec_target *target) {
    struct gif gif;
    void *pixels;
    if (!open_gif(bytes, &gif))
        return status_invalid("Invalid GIF data (size %zu), its header is damaged", bytes.len);
    int64_t n = count_pictures(&gif, frames == GIF_FIRST ? 1 : INT64_MAX);
    struct codec_size size = {n, gif.height, gif.width, 3};
    if (size.frames == 0)
        return status_invalid("Invalid GIF data (size %zu), it has no picture", bytes.len);
    if (frames == GIF_ONLY_ONE && size.frames > 1)
        return status_invalid("Got %lld frames, but animated gifs can only be decoded by "
                              "tf.io.decode_gif or tf.io.decode_image",
                              (long long)size.frames);
    TRY(codec_size_check(size));
    TRY(target->alloc(target, size, &pixels));
    return paint_all(gif, size.frames, pixels);
}
