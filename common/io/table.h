/* Writes and reads LevelDB's tables: files of sorted keys and values, such as the index of a
 * checkpoint.
 *
 *   data block … │ metaindex block (empty) │ index block │ footer
 *
 *   block    entries, restart offsets (32 bits each), their number (32 bits); then a type byte
 *            (0 plain, 1 Snappy) and the masked CRC-32C of block and type
 *   entry    three varints: the number of bytes shared with the key before, of further key bytes,
 *            and of value bytes; then those key bytes and the value. An entry at a restart shares
 *            nothing
 *   index    a key not below a block's last one → the block's offset and size, two varints
 *   footer   offset and size of metaindex and index, zeros up to 40 bytes, 8 bytes of magic
 *
 * Keys compare as bytes. Threads may share a reader, but not an iterator. */
#ifndef MILLRACE_COMMON_IO_TABLE_H
#define MILLRACE_COMMON_IO_TABLE_H

#include "common/io/file_system.h"

enum { TABLE_BLOCK_TRAILER_BYTES = 5, TABLE_FOOTER_BYTES = 48, TABLE_RESTART_INTERVAL = 16 };
#define TABLE_MAGIC 0xdb4775248b80fb57ull

/* ---- writing ---- */

struct table_block_builder {
    struct str data, last_key;
    uint32_t *restarts;
    size_t n_restarts, capacity, n_since_restart, interval;
};

struct table_writer {
    struct file_sink *sink; /* borrowed */
    size_t block_bytes;
    struct table_block_builder block, index;
    bool has_keys;
};
/* The sink must be at the beginning of the file. Nobody else may write to it before
 * table_writer_finish. */
void table_writer_init(struct table_writer *writer, struct file_sink *sink);
void table_writer_fini(struct table_writer *writer);
/* Keys must come in ascending order, each once: a CHECK. Errors: of the file. */
struct status *table_writer_add(struct table_writer *writer, struct span key,
                                struct span value) MUST_USE;
struct status *table_writer_finish(struct table_writer *writer) MUST_USE; /* the sink stays open */

/* ---- reading ---- */

struct table_range {
    int64_t offset, size; /* without the trailer */
};

struct table_reader {
    const struct file_system *fs; /* borrowed */
    char *path;
    int fd;
    int64_t size_bytes;
    struct str index; /* the index block's entries */
    size_t index_end; /* where its restarts begin */
};
/* Errors: of the file; DATA_LOSS with path and offset (too short, no table, bad checksum). */
struct status *table_reader_open(struct table_reader *reader, const struct file_system *fs,
                                 const char *path) MUST_USE;
void table_reader_close(struct table_reader *reader);

/* A position in a block; visits entry after entry. */
struct table_block_iter {
    struct span entries; /* the block without its restarts */
    size_t next;         /* offset of the entry after the current one */
    struct str key;
    struct span value;
};

struct table_iter {
    const struct table_reader *reader;
    struct table_block_iter index, block;
    struct str data; /* the current block */
    bool is_valid;   /* is the iterator at an entry? */
};
void table_iter_init(struct table_iter *iter, const struct table_reader *reader);
void table_iter_fini(struct table_iter *iter);
/* Moves to the first entry whose key is not below `key`; an empty key gives the first entry of all.
 * is_valid is false where there is none. Errors: DATA_LOSS, and of the file. */
struct status *table_iter_seek(struct table_iter *iter, struct span key) MUST_USE;
struct status *table_iter_next(struct table_iter *iter) MUST_USE;
static inline struct span table_iter_key(const struct table_iter *iter) {
    return (struct span){str_text(&iter->block.key), iter->block.key.len};
}
static inline struct span table_iter_value(const struct table_iter *iter) {
    return iter->block.value;
}

/* ---- blocks (table_block.c) ---- */

void table_block_add(struct table_block_builder *block, struct span key, struct span value);
/* Ends the block and returns its bytes, which are valid until table_block_clear. */
struct span table_block_end(struct table_block_builder *block);
void table_block_clear(struct table_block_builder *block);
void table_block_fini(struct table_block_builder *block);
/* The offset where the entries of a block end. False when the restarts are malformed. */
bool table_block_entries(struct span block, size_t *ret_end);
void table_block_iter_init(struct table_block_iter *iter, struct span entries);
void table_block_iter_fini(struct table_block_iter *iter);
/* 1: an entry, 0: the end, -1: malformed. */
int table_block_next(struct table_block_iter *iter);
void table_range_add(struct str *out, struct table_range range);
bool table_range_read(struct span *in, struct table_range *ret);
int table_compare(struct span a, struct span b);

#endif
