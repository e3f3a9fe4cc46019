/* Reads a table. The index is kept in memory; an iterator reads the blocks as it reaches them.
 * Sizes in the file are checked against the size of the file before memory is allocated. */
#include <stdlib.h>

#include "common/io/crc32c.h"
#include "common/io/snappy.h"
#include "common/io/table.h"

static COLD struct status *damaged(const struct table_reader *reader, int64_t offset,
                                   const char *what) {
    return status_new(STATUS_DATA_LOSS, "%s: %s at offset %lld", reader->path, what,
                      (long long)offset);
}

static struct status *check_block(const struct table_reader *reader, struct table_range range,
                                  const struct str *raw) {
    uint32_t stored;
    size_t n = (size_t)range.size + 1; /* with the type byte */
    memcpy(&stored, raw->data + n, sizeof(stored));
    return crc32c_unmask(stored) == crc32c(raw->data, n)
               ? NULL
               : damaged(reader, range.offset, "block checksum mismatch");
}

/* Reads the bytes of a block into `out`, which is cleared first; *ret_end is the end of its
 * entries. */
static struct status *read_block(const struct table_reader *reader, struct table_range range,
                                 struct str *out, size_t *ret_end) {
    if (range.size > reader->size_bytes - TABLE_FOOTER_BYTES - TABLE_BLOCK_TRAILER_BYTES ||
        range.offset >
            reader->size_bytes - TABLE_FOOTER_BYTES - TABLE_BLOCK_TRAILER_BYTES - range.size)
        return damaged(reader, range.offset,
                       "truncated block read: a block beyond the end of the file");
    size_t n = (size_t)range.size + TABLE_BLOCK_TRAILER_BYTES;
    str_clear(out);
    str_reserve(out, n + 1);
    TRY(file_read_all(reader->fs, reader->fd, reader->path, out->data, n, range.offset));
    TRY(check_block(reader, range, out));
    char type = out->data[range.size];
    out->len = (size_t)range.size;
    if (type == 1) {
        struct str expanded = STR_INIT;
        bool is_good = snappy_expand((struct span){out->data, out->len}, &expanded);
        str_fini(out);
        *out = expanded;
        if (!is_good)
            return damaged(reader, range.offset, "corrupted compressed block contents");
    } else if (type != 0) {
        return damaged(reader, range.offset, "bad block type");
    }
    if (!table_block_entries((struct span){str_text(out), out->len}, ret_end))
        return damaged(reader, range.offset, "bad block contents");
    return NULL;
}

static struct status *read_footer(struct table_reader *reader) {
    char footer[TABLE_FOOTER_BYTES];
    struct span in = {footer, sizeof(footer) - 8};
    struct table_range metaindex, index;
    uint64_t magic;
    if (reader->size_bytes < TABLE_FOOTER_BYTES)
        return damaged(reader, reader->size_bytes, "file is too short to be an sstable");
    TRY(file_read_all(reader->fs, reader->fd, reader->path, footer, sizeof(footer),
                      reader->size_bytes - TABLE_FOOTER_BYTES));
    memcpy(&magic, footer + sizeof(footer) - 8, sizeof(magic));
    if (magic != TABLE_MAGIC)
        return damaged(reader, reader->size_bytes - 8, "not an sstable (bad magic number)");
    if (!table_range_read(&in, &metaindex) || !table_range_read(&in, &index))
        return damaged(reader, reader->size_bytes - TABLE_FOOTER_BYTES, "bad block handle");
    return read_block(reader, index, &reader->index, &reader->index_end);
}

struct status *table_reader_open(struct table_reader *reader, const struct file_system *fs,
                                 const char *path) {
    *reader = (struct table_reader){.fs = fs, .path = xstrdup(path)};
    reader->fd = fs->open(fs, path, FILE_READ);
    reader->size_bytes = reader->fd < 0 ? reader->fd : fs->size(fs, reader->fd);
    struct status *st =
        reader->size_bytes < 0 ? file_failed(path, (int)reader->size_bytes) : read_footer(reader);
    if (st)
        table_reader_close(reader);
    return st;
}

void table_reader_close(struct table_reader *reader) {
    if (reader->fd >= 0)
        reader->fs->close(reader->fs, reader->fd);
    reader->fd = -1;
    free(reader->path);
    reader->path = NULL;
    str_fini(&reader->index);
}

/* ---- iterators ---- */

void table_iter_init(struct table_iter *iter, const struct table_reader *reader) {
    *iter = (struct table_iter){.reader = reader};
    table_block_iter_init(&iter->index, (struct span){str_text(&reader->index), reader->index_end});
}

void table_iter_fini(struct table_iter *iter) {
    table_block_iter_fini(&iter->index);
    table_block_iter_fini(&iter->block);
    str_fini(&iter->data);
}

/* Reads the block that the index iterator is at. */
static struct status *open_block(struct table_iter *iter) {
    struct span value = iter->index.value;
    struct table_range range;
    size_t end;
    if (!table_range_read(&value, &range))
        return damaged(iter->reader, iter->reader->size_bytes, "bad block handle in the index");
    TRY(read_block(iter->reader, range, &iter->data, &end));
    table_block_iter_init(&iter->block, (struct span){str_text(&iter->data), end});
    return NULL;
}

static struct status *next_block(struct table_iter *iter, bool *ret_has_block) {
    int more = table_block_next(&iter->index);
    *ret_has_block = more > 0;
    if (more < 0)
        return damaged(iter->reader, iter->reader->size_bytes, "bad entry in the index block");
    return more > 0 ? open_block(iter) : NULL;
}

struct status *table_iter_next(struct table_iter *iter) {
    int more = table_block_next(&iter->block);
    while (more == 0) {
        bool has_block;
        iter->is_valid = false;
        TRY(next_block(iter, &has_block));
        if (!has_block)
            return NULL;
        more = table_block_next(&iter->block);
    }
    iter->is_valid = more > 0;
    return more > 0 ? NULL : damaged(iter->reader, iter->reader->size_bytes, "bad entry in block");
}

/* A key further on in the same block needs no read: a caller that seeks in ascending order reads
 * the table once. */
static bool is_just_ahead(const struct table_iter *iter, struct span key) {
    return iter->is_valid && table_compare(table_iter_key(iter), key) <= 0 &&
           table_compare(key, (struct span){str_text(&iter->index.key), iter->index.key.len}) <= 0;
}

static struct status *step_to(struct table_iter *iter, struct span key) {
    while (iter->is_valid && table_compare(table_iter_key(iter), key) < 0)
        TRY(table_iter_next(iter));
    return NULL;
}

struct status *table_iter_seek(struct table_iter *iter, struct span key) {
    bool has_block;
    if (is_just_ahead(iter, key))
        return step_to(iter, key);
    iter->is_valid = false;
    table_block_iter_init(&iter->index,
                          (struct span){str_text(&iter->reader->index), iter->reader->index_end});
    do {
        int more = table_block_next(&iter->index);
        if (more < 0)
            return damaged(iter->reader, iter->reader->size_bytes, "bad entry in the index block");
        has_block = more > 0;
    } while (has_block &&
             table_compare((struct span){str_text(&iter->index.key), iter->index.key.len}, key) <
                 0);
    if (!has_block)
        return NULL;
    TRY(open_block(iter));
    TRY(table_iter_next(iter));
    return step_to(iter, key);
}
