/* Decompresses zlib and gzip data with zlib. */
#include "common/io/inflate.h"

#include <zlib.h>

#include "common/base/pool_cancel.h"

enum { WINDOW_BITS = 15, GZIP = 16, STEP_BYTES = 1 << 16 };

struct status *inflate_all(enum inflate_format format, struct span data, size_t max_bytes,
                           struct str *out) {
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data.data};
    size_t rest = data.len, begin = out->len;
    int rc = inflateInit2(&stream, WINDOW_BITS + (format == INFLATE_GZIP ? GZIP : 0));
    struct status *st = rc == Z_OK ? NULL : status_internal("zlib cannot start: %d", rc);
    while (!st && rc != Z_STREAM_END) {
        stream.avail_in = (uInt)MIN(rest, 1u << 30);
        rest -= stream.avail_in;
        str_reserve(out, STEP_BYTES);
        stream.next_out = (Bytef *)out->data + out->len;
        stream.avail_out = STEP_BYTES;
        rc = inflate(&stream, Z_NO_FLUSH);
        out->len += STEP_BYTES - stream.avail_out;
        rest += stream.avail_in;
        if (out->len - begin > max_bytes)
            st = status_exhausted("Compressed data of %zu bytes holds more than %zu bytes",
                                  data.len, max_bytes);
        else if (rc != Z_OK && rc != Z_STREAM_END)
            st = status_new(STATUS_DATA_LOSS, "inflate() failed with error %d: %s", rc,
                            stream.msg ? stream.msg : "the data are cut short");
        else if (unlikely(pool_is_unwanted()))
            st = status_new(STATUS_CANCELLED, "The decompression was cancelled");
    }
    inflateEnd(&stream);
    return st;
}
