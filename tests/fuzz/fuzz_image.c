/* Bytes of pictures, as DecodeImage and its kin take them. The first byte chooses how they are
 * read; what can be read of a JPEG's or PNG's size is written again and read back. */
#include <stdlib.h>

#include "kernels/cpu/media/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_BYTES = 1 << 24 };

struct memory {
    struct codec_target target;
    struct codec_size size;
    int sample_bytes;
    void *pixels;
};

static struct status *take_memory(struct codec_target *target, struct codec_size size,
                                  void **ret_data) {
    struct memory *memory = CONTAINER_OF(target, struct memory, target);
    int64_t n = 0;
    bool is_large = mul_overflows_i64(size.frames * size.height, size.width * size.channels, &n) ||
                    n > MAX_BYTES;
    if (is_large)
        return status_exhausted("a picture of %lld samples", (long long)n);
    memory->size = size;
    memory->pixels = xmalloc((size_t)n * (size_t)memory->sample_bytes);
    *ret_data = memory->pixels;
    return NULL;
}

static void release(struct memory *memory, struct status *st) {
    free(memory->pixels);
    memory->pixels = NULL;
    status_unref(st);
}

static void read_jpeg(struct span bytes, uint8_t how) {
    static const int ratios[] = {1, 2, 4, 8}, channels[] = {0, 1, 3};
    struct memory memory = {.target = {take_memory}, .sample_bytes = 1};
    struct codec_size size;
    struct jpeg_options options = {.ratio = ratios[how & 3],
                                   .channels = channels[(how >> 2) % 3],
                                   .acceptable_fraction = 0.5f};
    options.is_fancy = how & 16;
    options.is_recovering = how & 32;
    options.is_accurate = how & 64;
    options.is_cropped = how & 128;
    options.crop_y = options.crop_x = how & 7;
    options.crop_height = options.crop_width = (how >> 3 & 7) + 1;
    struct status *st = codec_jpeg_size(bytes, &size);
    if (!st)
        st = codec_jpeg_decode(bytes, &options, &memory.target);
    release(&memory, st);
}

static void read_any(struct span bytes, uint8_t how) {
    struct memory memory = {.target = {take_memory}, .sample_bytes = 1};
    switch (codec_format_of(bytes)) {
    case CODEC_JPEG:
        read_jpeg(bytes, how);
        break;
    case CODEC_PNG:
        memory.sample_bytes = how & 1 ? 2 : 1;
        release(&memory,
                codec_png_decode(bytes, (how >> 1) % 5, 8 * memory.sample_bytes, &memory.target));
        break;
    case CODEC_GIF:
        release(&memory, codec_gif_decode(bytes, (enum gif_frames)(how % 3), &memory.target));
        break;
    default:
        release(&memory, codec_bmp_decode(bytes,
                                          (how & 3) == 0   ? 0
                                          : (how & 3) == 1 ? 3
                                                           : 4,
                                          &memory.target));
    }
}

/* The bytes as pixels: written in both formats, and read. */
static void write_and_read(struct span bytes, uint8_t how) {
    int64_t width = 1 + how % 37, channels = how & 64 ? 3 : 1,
            height = (int64_t)bytes.len / (width * channels);
    struct str jpeg = STR_INIT, png = STR_INIT;
    struct codec_size size = {1, height, width, channels};
    struct jpeg_writing writing = {.quality = how % 101,
                                   .is_progressive = how & 1,
                                   .is_optimized = how & 2,
                                   .halves_chroma = how & 4};
    if (height == 0 || height > 4096)
        return;
    status_unref(codec_jpeg_encode((const uint8_t *)bytes.data, size, &writing, &jpeg));
    status_unref(codec_png_encode(bytes.data, size, 8, how % 11 - 1, &png));
    read_any((struct span){str_text(&jpeg), jpeg.len}, (uint8_t)(how * 31));
    read_any((struct span){str_text(&png), png.len}, (uint8_t)(how * 31));
    str_fini(&jpeg);
    str_fini(&png);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    /* A buffer of its own, so that what is read beyond it is seen. */
    char *copy = xmalloc(size - 1);
    memcpy(copy, data + 1, size - 1);
    struct span bytes = {copy, size - 1};
    read_any(bytes, data[0]);
    write_and_read(bytes, data[0]);
    free(copy);
    return 0;
}
