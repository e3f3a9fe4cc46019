/* Writes TFRecords: plain, as one zlib or gzip stream, or in Snappy blocks.
 *
 *   record: uint64 length │ its masked CRC-32C │ data │ their masked CRC-32C     (little-endian)
 *   Snappy: uint32 length of the block (big-endian) │ block of at most SNAPPY_BYTES plain bytes */
#include "common/io/record_sink.h"

#include <stdlib.h>
#include <zlib.h>

#include "common/io/crc32c.h"
#include "common/io/file_system.h"
#include "common/io/snappy.h"

enum { CHUNK_BYTES = 1 << 16, SNAPPY_BYTES = 1 << 16, GZIP_BITS = 16, MEMORY_LEVEL = 9 };

struct record_sink {
    enum record_coding coding;
    char *path;
    int fd;
    int64_t offset; /* in the file */
    struct str plain, coded;
    z_stream deflater;
    bool has_deflater;
};

static const struct file_system *const fs = &file_system_posix;

void record_sink_free(struct record_sink *sink) {
    if (!sink)
        return;
    if (sink->fd >= 0)
        fs->close(fs, sink->fd);
    if (sink->has_deflater)
        deflateEnd(&sink->deflater);
    str_fini(&sink->plain);
    str_fini(&sink->coded);
    free(sink->path);
    free(sink);
}

struct status *record_sink_open(const char *path, enum record_coding coding,
                                struct record_sink **ret) {
    struct record_sink *sink = xcalloc(1, sizeof(*sink));
    struct status *st = NULL;
    sink->coding = coding;
    sink->path = xstrdup(path);
    sink->fd = fs->open(fs, path, FILE_REPLACE);
    if (sink->fd < 0)
        st = file_failed(path, sink->fd);
    if (!st && (coding == CODING_ZLIB || coding == CODING_GZIP)) {
        int bits = MAX_WBITS + (coding == CODING_GZIP ? GZIP_BITS : 0);
        sink->has_deflater = deflateInit2(&sink->deflater, Z_DEFAULT_COMPRESSION, Z_DEFLATED, bits,
                                          MEMORY_LEVEL, Z_DEFAULT_STRATEGY) == Z_OK;
        if (!sink->has_deflater)
            st = status_exhausted("No memory to compress %s", path);
    }
    if (st)
        record_sink_free(sink);
    else
        *ret = sink;
    return st;
}

static struct status *write_bytes(struct record_sink *sink, struct str *bytes) {
    if (bytes->len == 0)
        return NULL;
    TRY(file_write_all(fs, sink->fd, sink->path, bytes->data, bytes->len, sink->offset));
    sink->offset += (int64_t)bytes->len;
    str_clear(bytes);
    return NULL;
}

static struct status *write_deflated(struct record_sink *sink, int flush) {
    z_stream *z = &sink->deflater;
    int code = Z_OK;
    z->next_in = (unsigned char *)sink->plain.data;
    z->avail_in = (unsigned)sink->plain.len;
    do {
        str_reserve(&sink->coded, CHUNK_BYTES);
        z->next_out = (unsigned char *)sink->coded.data + sink->coded.len;
        z->avail_out = CHUNK_BYTES;
        code = deflate(z, flush);
        sink->coded.len += CHUNK_BYTES - z->avail_out;
        TRY(write_bytes(sink, &sink->coded));
    } while (z->avail_in > 0 || (flush == Z_FINISH && code == Z_OK));
    str_clear(&sink->plain);
    return NULL;
}

static struct status *write_snappy(struct record_sink *sink) {
    for (size_t at = 0; at < sink->plain.len; at += SNAPPY_BYTES) {
        size_t len = MIN(sink->plain.len - at, (size_t)SNAPPY_BYTES);
        str_clear(&sink->coded);
        str_add_bytes(&sink->coded, "\0\0\0\0", 4);
        snappy_compress((struct span){sink->plain.data + at, len}, &sink->coded);
        size_t n = sink->coded.len - 4;
        for (int i = 0; i < 4; i++)
            sink->coded.data[i] = (char)(n >> (8 * (3 - i)));
        TRY(write_bytes(sink, &sink->coded));
    }
    str_clear(&sink->plain);
    return NULL;
}

static struct status *write_plain(struct record_sink *sink, bool is_last) {
    if (sink->coding == CODING_NONE)
        return write_bytes(sink, &sink->plain);
    if (sink->coding == CODING_SNAPPY)
        return write_snappy(sink);
    return write_deflated(sink, is_last ? Z_FINISH : Z_NO_FLUSH);
}

static void add_crc(struct str *out, const void *data, size_t len) {
    uint32_t crc = crc32c_mask(crc32c(data, len));
    str_add_bytes(out, &crc, sizeof(crc));
}

struct status *record_sink_add(struct record_sink *sink, struct span record) {
    uint64_t len = record.len;
    if (record.len > RECORD_MAX_BYTES)
        return status_exhausted("A record of %zu bytes for %s: at most %d are supported",
                                record.len, sink->path, RECORD_MAX_BYTES);
    str_add_bytes(&sink->plain, &len, sizeof(len));
    add_crc(&sink->plain, &len, sizeof(len));
    str_add_bytes(&sink->plain, record.data, record.len);
    add_crc(&sink->plain, record.data, record.len);
    return sink->plain.len < CHUNK_BYTES ? NULL : write_plain(sink, false);
}

struct status *record_sink_finish(struct record_sink *sink) {
    struct status *st = write_plain(sink, true);
    int error = fs->close(fs, sink->fd);
    sink->fd = -1;
    if (!st && error < 0)
        st = file_failed(sink->path, error);
    return st;
}
