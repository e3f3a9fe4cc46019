/* A checkpoint in TensorFlow's V2 format ("bundle"): what SaveV2 writes and RestoreV2 reads.
 *
 *   PREFIX.index                  a table (common/io/table.h): "" → BundleHeaderProto, tensor name → BundleEntryProto
 *   PREFIX.data-00000-of-00001    the tensors' elements, one after the other: a shard
 *
 *   plain types    the elements in memory order, little-endian
 *   strings        a varint length each; the masked CRC-32C of the lengths (each taken as 32 bits, as 64 above 4 GiB); all bytes
 *   slices         a partitioned tensor has an entry with its whole shape and its slices; each slice has one of its own, under its key
 *
 * Every entry keeps the masked CRC-32C of its bytes.
 *
 * Durable: bundle_writer_finish returns once the checkpoint survives a power cut, and until the
 * rename of the index an older checkpoint of that prefix is whole: a new one takes data file
 * names that the old one does not use ("-of-00002", …). What was under these names and is no
 * longer used goes at the end. Whatever fails, nothing stays under a final name but whole
 * checkpoints; a crash may leave files with ".tmp-" in their names, which the next save beside
 * them removes (temporary.h), and data files that no index names, which the next save of the
 * prefix removes.
 *
 * Names come from strangers, and so does every byte of a file: sizes are checked against the
 * files' before memory is taken. */
#ifndef MILLRACE_COMMON_IO_BUNDLE_H
#define MILLRACE_COMMON_IO_BUNDLE_H

#include "common/io/file_system.h"
#include "common/io/table.h"
#include "common/io/tensor_slice.h"
#include "common/tensor/tensor.h"

enum { BUNDLE_MAX_SHARDS = 99999, BUNDLE_VERSION = 1 };

struct bundle_entry {
    enum dtype dtype;
    struct shape shape;
    int shard;
    int64_t offset, size_bytes;
    uint32_t crc;                /* masked */
    struct tensor_slice *slices; /* of a partitioned tensor, which has no bytes of its own */
    int n_slices, slices_capacity;
};

/* ---- names and protos (bundle_proto.c) ---- */

void bundle_index_path(const char *prefix, struct str *out);
void bundle_data_path(const char *prefix, int shard, int n_shards, struct str *out);
/* Is `name` that of a data file of base ("model" of "dir/model")? */
bool bundle_data_name(const char *base, const char *name, int *ret_shard, int *ret_n_shards);
struct status *bundle_entry_parse(struct span proto, struct arena *arena,
                                  struct bundle_entry *ret) MUST_USE;
void bundle_entry_print(const struct bundle_entry *entry, struct str *out); /* as a proto */
struct status *bundle_header_parse(struct span proto, int *ret_n_shards) MUST_USE;
void bundle_header_print(int n_shards, struct str *out);

/* ---- writing ---- Threads: one at a time. */

struct bundle_writer;
/* Begins a checkpoint; makes the prefix's directory. Errors: of the file system. */
struct status *bundle_writer_new(const struct file_system *fs, const char *prefix,
                                 struct bundle_writer **ret) MUST_USE;
/* Writes a tensor's elements straight from its buffer. Errors: INVALID_ARGUMENT (name doubled or
 * empty), UNIMPLEMENTED (variants, resources), and of the file system. After an error the writer
 * can only be freed. */
struct status *bundle_writer_add(struct bundle_writer *writer, struct span name,
                                 const struct tensor *value) MUST_USE;
/* Part of a tensor of shape `whole`; the slice fits it and value's shape. Errors also:
 * INVALID_ARGUMENT when dtype or shape differ from those of the tensor's other slices. */
struct status *bundle_writer_add_slice(struct bundle_writer *writer, struct span name,
                                       struct shape whole, const struct tensor_slice *slice,
                                       const struct tensor *value) MUST_USE;
/* Makes the checkpoint durable and visible. */
struct status *bundle_writer_finish(struct bundle_writer *writer) MUST_USE;
/* Without finish: nothing remains. Accepts NULL. */
void bundle_writer_free(struct bundle_writer *writer);

/* Makes one checkpoint of several: their data files are renamed, not copied. A missing one is
 * passed over if `allow_missing`; one must be there. The parts' own indices go. Errors:
 * NOT_FOUND; INVALID_ARGUMENT (a name in two parts, other dtype or shape); of the file system,
 * after which the parts are as they were. */
struct status *bundle_merge(const struct file_system *fs, const char *const *prefixes, int n,
                            const char *merged_prefix, bool allow_missing) MUST_USE;

/* ---- reading ---- */

struct bundle_reader;
/* Errors: NOT_FOUND and others of the file system; DATA_LOSS; UNIMPLEMENTED (big-endian, a later
 * version). */
struct status *bundle_reader_open(const struct file_system *fs, const char *prefix,
                                  struct bundle_reader **ret) MUST_USE;
void bundle_reader_close(struct bundle_reader *reader); /* accepts NULL */
int bundle_reader_n_shards(const struct bundle_reader *reader);
const char *bundle_reader_prefix(const struct bundle_reader *reader);

/* What there is of a tensor. Errors: NOT_FOUND "Key %s not found in checkpoint"; DATA_LOSS. Any
 * thread. */
struct status *bundle_find(struct bundle_reader *reader, struct span name, struct arena *arena,
                           struct bundle_entry *ret) MUST_USE;
/* The elements of a tensor, whole; partitioned ones are put together. Checksums are compared.
 * `ret` must hold nothing. Any thread. Errors: DATA_LOSS with name and offset; INVALID_ARGUMENT
 * where slices are missing; UNIMPLEMENTED for variants; RESOURCE_EXHAUSTED. */
struct status *bundle_read(struct bundle_reader *reader, struct span name,
                           const struct bundle_entry *entry, struct allocator *allocator,
                           struct tensor *ret) MUST_USE;
/* A part of it; the slice fits the entry's shape. */
struct status *bundle_read_slice(struct bundle_reader *reader, struct span name,
                                 const struct bundle_entry *entry, const struct tensor_slice *slice,
                                 struct allocator *allocator, struct tensor *ret) MUST_USE;

/* What reading a tensor (`slice` NULL), or a part of it, takes from the data files: visits the
 * entries that have bytes of their own. For readers whose data files have to be fetched. Errors
 * as of bundle_read for what the index alone tells, and the visitor's. */
typedef struct status *bundle_visit_fn(void *arg, const struct bundle_entry *piece);
struct status *bundle_visit_pieces(struct bundle_reader *reader, struct span name,
                                   const struct bundle_entry *entry,
                                   const struct tensor_slice *slice, bundle_visit_fn *visit,
                                   void *arg) MUST_USE;
/* The elements of a plain type that a caller has fetched himself: are they what the index says?
 * The entry has no slices. */
struct status *bundle_check_plain(struct bundle_reader *reader, struct span name,
                                  const struct bundle_entry *entry, const void *bytes) MUST_USE;
/* Does the entry fit its data file and its type, so that memory for it may be taken? It has no
 * slices. */
struct status *bundle_check_claim(struct bundle_reader *reader, struct span name,
                                  const struct bundle_entry *entry) MUST_USE;
/* Reads all bytes that the index names, a megabyte at a time (strings: a tensor at a time), and
 * compares their checksums. */
struct status *bundle_check(struct bundle_reader *reader) MUST_USE;

/* All entries in order of their names, those of slices (whose names begin with a NUL) too.
 * Threads: one. */
struct bundle_iter {
    struct bundle_reader *reader;
    struct table_iter table;
    struct arena arena; /* the current entry's */
    struct span name;
    struct bundle_entry entry;
    bool is_valid;
};
/* at the first entry; fini in any case */
struct status *bundle_iter_init(struct bundle_iter *iter, struct bundle_reader *reader) MUST_USE;
struct status *bundle_iter_next(struct bundle_iter *iter) MUST_USE;
void bundle_iter_fini(struct bundle_iter *iter);

/* ---- strings (bundle_string.c) ---- */

/* Writes a string tensor; *ret_crc is not masked. */
struct status *bundle_write_strings(struct file_sink *sink, const struct tensor *value,
                                    uint32_t *ret_crc) MUST_USE;
/* From an entry's bytes, the checksum over which has been compared. `ret` has its elements, none
 * of them set. False when malformed. */
bool bundle_parse_strings(struct span bytes, struct tensor *ret);
/* The checksum over an entry of strings. False when malformed. */
bool bundle_strings_crc(struct span bytes, int64_t n, uint32_t *ret);

#endif
