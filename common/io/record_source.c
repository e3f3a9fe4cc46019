/* Reads records of files: whole files, lines, blocks of equal size, TFRecords and CSV records; the
 * last three may be compressed. */
#include "common/io/record_source.h"

#include <stdlib.h>
#include <zlib.h>

#include "common/io/crc32c.h"
#include "common/io/file_root.h"
#include "common/io/file_system.h"
#include "common/io/snappy.h"

/* SNAPPY_MAX_BYTES: of a compressed block; TensorFlow's writer has at most 256 KiB of plain bytes
 * in one */
enum { CHUNK_BYTES = 1 << 16, SNAPPY_MAX_BYTES = 1 << 24 };

struct record_source {
    struct record_options options;
    char *name, *path;
    int fd; /* -1: none */
    int64_t file_at;
    struct str raw; /* compressed bytes */
    z_stream inflater;
    bool has_inflater, is_raw_end, is_end;
    struct str buffer; /* plain bytes, of which the first n_used have been used */
    size_t n_used;
    int64_t offset;   /* offset of the next plain byte in the plain file */
    int64_t n_passed; /* records, or lines */
    bool is_started;
};

static const struct file_system *fs(void) { return &file_system_posix; }

enum record_coding record_coding_named(struct span name) {
    return span_is(name, "GZIP")     ? CODING_GZIP
           : span_is(name, "ZLIB")   ? CODING_ZLIB
           : span_is(name, "SNAPPY") ? CODING_SNAPPY
                                     : CODING_NONE;
}

void record_source_free(struct record_source *source) {
    if (!source)
        return;
    if (source->fd >= 0)
        fs()->close(fs(), source->fd);
    if (source->has_inflater)
        inflateEnd(&source->inflater);
    str_fini(&source->raw);
    str_fini(&source->buffer);
    free(source->name);
    free(source->path);
    free(source);
}

static struct status *skip_header(struct record_source *source);
static struct status *skip_to_start(struct record_source *source);
static struct status *check_body(struct record_source *source);

struct status *record_source_open(const struct record_options *options, struct span name,
                                  struct record_source **ret) {
    struct record_source *source = xcalloc(1, sizeof(*source));
    struct str path = STR_INIT;
    struct status *st = NULL;
    source->options = *options;
    source->name = xstrndup(name.data, name.len);
    source->fd = -1;
    if (options->format == RECORD_IDENTITY) {
        *ret = source;
        return NULL;
    }
    TRY_OUT(file_root_resolve(name, &path));
    source->path = xstrdup(str_text(&path));
    source->fd = fs()->open(fs(), source->path, FILE_READ);
    if (source->fd < 0) {
        st = file_failed(source->path, source->fd);
        goto out;
    }
    if (options->coding == CODING_ZLIB || options->coding == CODING_GZIP) {
        source->has_inflater =
            inflateInit2(&source->inflater,
                         options->coding == CODING_GZIP ? 16 + MAX_WBITS : MAX_WBITS) == Z_OK;
        if (!source->has_inflater)
            st = status_exhausted("No memory to decompress %s", source->path);
    }
    if (!st && options->format == RECORD_FIXED)
        st = skip_header(source);
    if (!st && options->must_divide && options->coding == CODING_NONE)
        st = check_body(source);
    if (!st && options->start_offset > 0)
        st = skip_to_start(source);
out:
    str_fini(&path);
    if (st)
        record_source_free(source);
    else
        *ret = source;
    return st;
}

/* ---- bytes ---- */

static struct status *read_chunk(struct record_source *source, struct str *to, bool *is_end) {
    str_reserve(to, CHUNK_BYTES);
    int64_t n = fs()->read(fs(), source->fd, to->data + to->len, CHUNK_BYTES, source->file_at);
    if (n < 0)
        return file_failed(source->path, (int)n);
    to->len += (size_t)n;
    source->file_at += n;
    *is_end = n == 0;
    return NULL;
}

/* Decompresses some more bytes. */
static struct status *inflate_chunk(struct record_source *source) {
    z_stream *z = &source->inflater;
    if (z->avail_in == 0 && !source->is_raw_end) {
        source->raw.len = 0;
        TRY(read_chunk(source, &source->raw, &source->is_raw_end));
        z->next_in = (unsigned char *)source->raw.data;
        z->avail_in = (unsigned)source->raw.len;
    }
    str_reserve(&source->buffer, CHUNK_BYTES);
    z->next_out = (unsigned char *)source->buffer.data + source->buffer.len;
    z->avail_out = CHUNK_BYTES;
    int code = inflate(z, Z_NO_FLUSH);
    source->buffer.len += CHUNK_BYTES - z->avail_out;
    if (code == Z_STREAM_END) { /* another gzip member may follow */
        code = z->avail_in > 0 || !source->is_raw_end ? inflateReset(z) : Z_OK;
        return NULL;
    }
    if (code != Z_OK && code != Z_BUF_ERROR)
        return status_new(STATUS_DATA_LOSS, "inflate() failed on %s with error %d: %s",
                          source->path, code, z->msg ? z->msg : "damaged data");
    source->is_end = source->is_raw_end && z->avail_in == 0 && z->avail_out > 0;
    return NULL;
}

static struct status *damaged_snappy(const struct record_source *source) {
    return status_new(STATUS_DATA_LOSS, "%s has a damaged Snappy block before byte %lld",
                      source->path, (long long)source->file_at);
}

enum { SNAPPY_HEAD = 4 }; /* the length of a compressed block, big-endian, before it */

static size_t block_length(const struct record_source *source) {
    size_t len = 0;
    for (size_t i = 0; i < SNAPPY_HEAD && source->raw.len >= SNAPPY_HEAD; i++)
        len = len << 8 | (uint8_t)source->raw.data[i];
    return len;
}

/* Decompresses the next block. */
static struct status *expand_block(struct record_source *source) {
    struct str *raw = &source->raw;
    while (!source->is_raw_end && raw->len < SNAPPY_HEAD + block_length(source)) {
        if (block_length(source) > SNAPPY_MAX_BYTES)
            return damaged_snappy(source);
        TRY(read_chunk(source, raw, &source->is_raw_end));
    }
    source->is_end = source->is_raw_end && raw->len == 0;
    if (source->is_end)
        return NULL;
    size_t len = block_length(source);
    if (raw->len < SNAPPY_HEAD + len ||
        !snappy_expand((struct span){raw->data + SNAPPY_HEAD, len}, &source->buffer))
        return damaged_snappy(source);
    raw->len -= SNAPPY_HEAD + len;
    memmove(raw->data, raw->data + SNAPPY_HEAD + len, raw->len);
    return NULL;
}

static struct status *more_bytes(struct record_source *source) {
    if (source->options.coding == CODING_SNAPPY)
        return expand_block(source);
    return source->has_inflater ? inflate_chunk(source)
                                : read_chunk(source, &source->buffer, &source->is_end);
}

/* Fills the buffer with at least n unread bytes, unless the file ends before. */
static struct status *fill(struct record_source *source, size_t n) {
    if (source->n_used > 0 && source->buffer.len - source->n_used < n) {
        source->buffer.len -= source->n_used;
        memmove(source->buffer.data, source->buffer.data + source->n_used, source->buffer.len);
        source->n_used = 0;
    }
    while (source->buffer.len - source->n_used < n && !source->is_end)
        TRY(more_bytes(source));
    return NULL;
}

static struct span unread(const struct record_source *source) {
    return (struct span){source->buffer.data + source->n_used, source->buffer.len - source->n_used};
}

static void pass(struct record_source *source, size_t n) {
    source->n_used += n;
    source->offset += (int64_t)n;
}

/* Skips n bytes. False where the file ends before. */
static struct status *skip(struct record_source *source, int64_t n, bool *ret_is_there) {
    while (n > 0) {
        size_t step = (size_t)MIN(n, (int64_t)CHUNK_BYTES);
        TRY(fill(source, step));
        if (unread(source).len < step) {
            *ret_is_there = false;
            return NULL;
        }
        pass(source, step);
        n -= (int64_t)step;
    }
    *ret_is_there = true;
    return NULL;
}

static struct status *skip_header(struct record_source *source) {
    bool is_there = true;
    TRY(skip(source, source->options.header_bytes, &is_there));
    return is_there ? NULL
                    : status_out_of_range("reached end of file before the end of the header: %s",
                                          source->path);
}

static struct status *check_body(struct record_source *source) {
    const struct record_options *options = &source->options;
    int64_t size = fs()->size(fs(), source->fd);
    if (size < 0)
        return file_failed(source->path, (int)size);
    int64_t body = size - options->header_bytes - options->footer_bytes;
    if (body % options->record_bytes == 0)
        return NULL;
    return status_invalid("Excluding the header (%lld bytes) and footer (%lld bytes), input file "
                          "\"%s\" has body length %lld bytes, which is "
                          "not an exact multiple of the record length (%lld bytes).",
                          (long long)options->header_bytes, (long long)options->footer_bytes,
                          source->path, (long long)body, (long long)options->record_bytes);
}

static struct status *skip_to_start(struct record_source *source) {
    bool is_there = true;
    TRY(skip(source, source->options.start_offset, &is_there));
    return is_there ? NULL
                    : status_out_of_range("reached end of file before offset %lld: %s",
                                          (long long)source->options.start_offset, source->path);
}

static struct status *too_long(const struct record_source *source) {
    return status_exhausted("%s has a record of more than %d bytes", source->path,
                            RECORD_MAX_BYTES);
}

/* ---- formats: each sets key and value, or the end ---- */

/* Reads a line without its end; carriage returns are dropped. */
static struct status *take_line(struct record_source *source, struct str *value, bool *ret_is_end) {
    size_t n_seen = 0;
    const char *end = NULL;
    for (;;) {
        struct span rest = unread(source);
        end = rest.len > n_seen ? memchr(rest.data + n_seen, '\n', rest.len - n_seen) : NULL;
        if (end || source->is_end)
            break;
        n_seen = rest.len;
        if (n_seen > RECORD_MAX_BYTES)
            return too_long(source);
        TRY(fill(source, n_seen + 1));
    }
    struct span rest = unread(source);
    size_t len = end ? (size_t)(end - rest.data) : rest.len;
    for (size_t i = 0; i < len; i++)
        if (rest.data[i] != '\r')
            str_add_char(value, rest.data[i]);
    pass(source, len + (end != NULL));
    *ret_is_end = !end && value->len == 0;
    return NULL;
}

static struct status *next_line(struct record_source *source, struct str *key, struct str *value,
                                bool *ret_is_end) {
    for (; source->n_passed < source->options.skip_lines && !*ret_is_end; source->n_passed++) {
        TRY(take_line(source, value, ret_is_end));
        str_clear(value);
    }
    if (*ret_is_end)
        return NULL;
    TRY(take_line(source, value, ret_is_end));
    str_addf(key, "%s:%lld", source->name, (long long)++source->n_passed);
    return NULL;
}

static struct status *next_whole(struct record_source *source, struct str *key, struct str *value,
                                 bool *ret_is_end) {
    bool is_end = false;
    *ret_is_end = source->n_passed++ > 0;
    if (*ret_is_end)
        return NULL;
    while (!is_end) {
        TRY(read_chunk(source, value, &is_end));
        if (value->len > RECORD_MAX_BYTES)
            return too_long(source);
    }
    str_add(key, source->name);
    return NULL;
}

static struct status *next_fixed(struct record_source *source, struct str *key, struct str *value,
                                 bool *ret_is_end) {
    const struct record_options *options = &source->options;
    bool is_there = true;
    if (!source->is_started)
        source->is_started = true;
    else if (options->hop_bytes > 0 && options->hop_bytes != options->record_bytes)
        TRY(skip(source, options->hop_bytes, &is_there));
    else
        TRY(skip(source, options->record_bytes, &is_there));
    if (is_there)
        TRY(fill(source, (size_t)(options->record_bytes + options->footer_bytes)));
    *ret_is_end =
        !is_there || unread(source).len < (size_t)(options->record_bytes + options->footer_bytes);
    if (*ret_is_end)
        return NULL;
    str_add_bytes(value, unread(source).data, (size_t)options->record_bytes);
    str_addf(key, "%s:%lld", source->name, (long long)source->n_passed++);
    return NULL;
}

/* Layout: uint64 length, its masked CRC-32C, data, their masked CRC-32C; little-endian. */
static struct status *next_tfrecord(struct record_source *source, struct str *key,
                                    struct str *value, bool *ret_is_end) {
    enum { HEAD = 12, FOOT = 4 };
    uint64_t len = 0;
    uint32_t crc = 0;
    TRY(fill(source, HEAD));
    struct span rest = unread(source);
    /* an incomplete header is the end of the file, as in TensorFlow */
    *ret_is_end = rest.len < HEAD;
    if (*ret_is_end)
        return NULL;
    memcpy(&len, rest.data, sizeof(len));
    memcpy(&crc, rest.data + sizeof(len), sizeof(crc));
    if (crc32c_unmask(crc) != crc32c(rest.data, sizeof(len)))
        return status_new(STATUS_DATA_LOSS, "corrupted record at %lld", (long long)source->offset);
    if (len > RECORD_MAX_BYTES)
        return too_long(source);
    TRY(fill(source, (size_t)len + HEAD + FOOT));
    rest = unread(source);
    if (rest.len < len + HEAD + FOOT)
        return status_new(STATUS_DATA_LOSS, "truncated record at %lld", (long long)source->offset);
    memcpy(&crc, rest.data + HEAD + len, sizeof(crc));
    if (crc32c_unmask(crc) != crc32c(rest.data + HEAD, (size_t)len))
        return status_new(STATUS_DATA_LOSS, "corrupted record at %lld", (long long)source->offset);
    str_add_bytes(value, rest.data + HEAD, (size_t)len);
    str_addf(key, "%s:%lld", source->name, (long long)source->offset);
    pass(source, (size_t)len + HEAD + FOOT);
    return NULL;
}

/* ---- CSV ---- */

enum csv_state { CSV_FIELD_START, CSV_PLAIN, CSV_QUOTED, CSV_QUOTE_SEEN, CSV_END };

static enum csv_state csv_step(const struct record_options *options, enum csv_state state, char c) {
    if (state == CSV_QUOTED)
        return c == '"' ? CSV_QUOTE_SEEN : CSV_QUOTED;
    if (c == options->delimiter)
        return CSV_FIELD_START;
    if (c == '\n' || c == '\r')
        return CSV_END;
    if (state == CSV_QUOTE_SEEN || (state == CSV_FIELD_START && c == '"' && options->has_quotes))
        return CSV_QUOTED;
    return CSV_PLAIN;
}

/* Reads a record as it is written, without its end: a newline, a carriage return, or both. */
static struct status *take_csv(struct record_source *source, struct str *value, bool *ret_is_end) {
    enum csv_state state = CSV_FIELD_START;
    size_t n = 0;
    for (; state != CSV_END; n++) {
        if (n >= unread(source).len)
            TRY(fill(source, n + 1));
        if (n >= unread(source).len)
            break;
        if (n > RECORD_MAX_BYTES)
            return too_long(source);
        state = csv_step(&source->options, state, unread(source).data[n]);
    }
    *ret_is_end = n == 0;
    size_t len = n - (state == CSV_END);
    str_add_bytes(value, unread(source).data, len);
    if (state == CSV_END && unread(source).data[len] == '\r') {
        TRY(fill(source, n + 1));
        n += unread(source).len > n && unread(source).data[n] == '\n';
    }
    pass(source, n);
    return NULL;
}

static struct status *next_csv(struct record_source *source, struct str *value, bool *ret_is_end) {
    for (; source->n_passed < source->options.skip_lines && !*ret_is_end; source->n_passed++) {
        TRY(take_csv(source, value, ret_is_end));
        if (*ret_is_end)
            return status_invalid("Can't read header of file %s", source->path);
        str_clear(value);
    }
    return *ret_is_end ? NULL : take_csv(source, value, ret_is_end);
}

struct status *record_source_next(struct record_source *source, struct str *key, struct str *value,
                                  bool *ret_is_end) {
    str_clear(key);
    str_clear(value);
    *ret_is_end = false;
    switch (source->options.format) {
    case RECORD_IDENTITY:
        *ret_is_end = source->n_passed++ > 0;
        str_add(key, source->name);
        str_add(value, source->name);
        return NULL;
    case RECORD_WHOLE_FILE:
        return next_whole(source, key, value, ret_is_end);
    case RECORD_LINES:
        return next_line(source, key, value, ret_is_end);
    case RECORD_FIXED:
        return next_fixed(source, key, value, ret_is_end);
    case RECORD_CSV:
        return next_csv(source, value, ret_is_end);
    default:
        return next_tfrecord(source, key, value, ret_is_end);
    }
}
