/* Writes and reads checkpoints in TensorFlow's V2 format ("bundle"), that of SaveV2 and RestoreV2.
 *
 *   PREFIX.index                  a table (common/io/table.h): "" → BundleHeaderProto,
 *                                 tensor name → BundleEntryProto
 *   PREFIX.data-00000-of-00001    a shard: the elements of the tensors, one tensor after the other
 *
 *   plain types    the elements in memory order, little-endian
 *   strings        a varint length for each; the masked CRC-32C of the lengths (each as 32 bits, as
 *                  64 above 4 GiB); the bytes of all
 *   slices         a partitioned tensor has an entry with its shape and a list of its slices; each
 *                  slice has an entry of its own, under its key
 *
 * Every entry has the masked CRC-32C of its bytes.
 *
 * Durable: bundle_writer_finish returns once the checkpoint survives a power cut. Until the index
 * is renamed, an older checkpoint of the prefix stays valid, because a new one gives its data files
 * names that the old one does not use ("-of-00002", …). Old data files are removed at the end.
 * After any failure there are only whole checkpoints under final names. A crash may leave files
 * with ".tmp-" in their names, which the next save in the directory removes (temporary.h), and data
 * files that no index names, which the next save of the prefix removes.
 *
 * Clients choose names and may have written the files: sizes are checked against the sizes of the
 * files before memory is allocated. */
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
    uint32_t crc; /* masked */
    /* the slices of a partitioned tensor, which has no bytes of its own */
    struct tensor_slice *slices;
    int n_slices, slices_capacity;
};

/* ---- names and protos (bundle_proto.c) ---- */

void bundle_index_path(const char *prefix, struct str *out);
void bundle_data_path(const char *prefix, int shard, int n_shards, struct str *out);
/* Is `name` the name of a data file of `base` (the "model" of "dir/model")? */
bool bundle_data_name(const char *base, const char *name, int *ret_shard, int *ret_n_shards);
struct status *bundle_entry_parse(struct span proto, struct arena *arena,
                                  struct bundle_entry *ret) MUST_USE;
void bundle_entry_print(const struct bundle_entry *entry, struct str *out); /* as a proto */
struct status *bundle_header_parse(struct span proto, int *ret_n_shards) MUST_USE;
void bundle_header_print(int n_shards, struct str *out);

/* ---- writing ---- Threads: one at a time. */

struct bundle_writer;
/* Begins a checkpoint and makes the directory of the prefix. Errors: of the file system. */
struct status *bundle_writer_new(const struct file_system *fs, const char *prefix,
                                 struct bundle_writer **ret) MUST_USE;
/* Writes the elements of a tensor directly from its buffer. Errors: INVALID_ARGUMENT (repeated or
 * empty name), UNIMPLEMENTED (variants, resources), and those of the file system. After an error
 * the writer can only be freed. */
struct status *bundle_writer_add(struct bundle_writer *writer, struct span name,
                                 const struct tensor *value) MUST_USE;
/* Writes a part of a tensor of shape `whole`. The slice must fit `whole` and the shape of the
 * value. Errors also: INVALID_ARGUMENT when dtype or shape differ from those of the other
 * slices. */
struct status *bundle_writer_add_slice(struct bundle_writer *writer, struct span name,
                                       struct shape whole, const struct tensor_slice *slice,
                                       const struct tensor *value) MUST_USE;
/* Makes the checkpoint durable and visible. */
struct status *bundle_writer_finish(struct bundle_writer *writer) MUST_USE;
/* Without bundle_writer_finish no file remains. Accepts NULL. */
void bundle_writer_free(struct bundle_writer *writer);

/* Makes one checkpoint of several by renaming their data files. With `allow_missing`, checkpoints
 * that do not exist are skipped, but one must exist. Removes the indices of the parts. Errors:
 * NOT_FOUND; INVALID_ARGUMENT (a name in two parts, other dtype or shape); those of the file
 * system, after which the parts are unchanged. */
struct status *bundle_merge(const struct file_system *fs, const char *const *prefixes, int n,
                            const char *merged_prefix, bool allow_missing) MUST_USE;

/* ---- reading ---- */

struct bundle_reader;
/* Opens a checkpoint. Errors: NOT_FOUND and others of the file system; DATA_LOSS; UNIMPLEMENTED
 * (big-endian, a later version). */
struct status *bundle_reader_open(const struct file_system *fs, const char *prefix,
                                  struct bundle_reader **ret) MUST_USE;
void bundle_reader_close(struct bundle_reader *reader); /* accepts NULL */
int bundle_reader_n_shards(const struct bundle_reader *reader);
const char *bundle_reader_prefix(const struct bundle_reader *reader);

/* Finds the entry of a tensor. Errors: NOT_FOUND "Key %s not found in checkpoint"; DATA_LOSS. Any
 * thread. */
struct status *bundle_find(struct bundle_reader *reader, struct span name, struct arena *arena,
                           struct bundle_entry *ret) MUST_USE;
/* Reads a whole tensor, checks its checksums and joins the slices of a partitioned one. *ret must
 * hold nothing. Any thread. Errors: DATA_LOSS with name and offset; INVALID_ARGUMENT where slices
 * are missing; UNIMPLEMENTED for resources; RESOURCE_EXHAUSTED. */
struct status *bundle_read(struct bundle_reader *reader, struct span name,
                           const struct bundle_entry *entry, struct allocator *allocator,
                           struct tensor *ret) MUST_USE;
/* Reads a part of a tensor; the slice must fit the shape of the entry. */
struct status *bundle_read_slice(struct bundle_reader *reader, struct span name,
                                 const struct bundle_entry *entry, const struct tensor_slice *slice,
                                 struct allocator *allocator, struct tensor *ret) MUST_USE;

/* Visits the entries whose bytes are needed to read a tensor (`slice` NULL) or a part of it, for
 * readers that must fetch the data files first. Errors: those of bundle_read that the index alone
 * shows, and those of the visitor. */
typedef struct status *bundle_visit_fn(void *arg, const struct bundle_entry *piece);
struct status *bundle_visit_pieces(struct bundle_reader *reader, struct span name,
                                   const struct bundle_entry *entry,
                                   const struct tensor_slice *slice, bundle_visit_fn *visit,
                                   void *arg) MUST_USE;
/* Checks elements of a plain dtype, which the caller has fetched, against the checksum in the
 * index. The entry must have no slices. */
struct status *bundle_check_plain(struct bundle_reader *reader, struct span name,
                                  const struct bundle_entry *entry, const void *bytes) MUST_USE;
/* Checks that the entry fits its data file and its dtype, so that memory for it may be allocated.
 * The entry must have no slices. */
struct status *bundle_check_claim(struct bundle_reader *reader, struct span name,
                                  const struct bundle_entry *entry) MUST_USE;
/* Reads all bytes that the index names, a megabyte at a time (strings: a tensor at a time), and
 * checks their checksums. */
struct status *bundle_check(struct bundle_reader *reader) MUST_USE;

/* Visits all entries in the order of their names, also those of slices, whose names begin with a
 * NUL. Threads: one at a time. */
struct bundle_iter {
    struct bundle_reader *reader;
    struct table_iter table;
    struct arena arena; /* memory of the current entry */
    struct span name;
    struct bundle_entry entry;
    bool is_valid;
};
/* Starts at the first entry. bundle_iter_fini must be called even after an error. */
struct status *bundle_iter_init(struct bundle_iter *iter, struct bundle_reader *reader) MUST_USE;
struct status *bundle_iter_next(struct bundle_iter *iter) MUST_USE;
void bundle_iter_fini(struct bundle_iter *iter);

/* ---- strings (bundle_string.c) ---- */

/* Writes a string tensor; *ret_crc is not masked. */
struct status *bundle_write_strings(struct file_sink *sink, const struct tensor *value,
                                    uint32_t *ret_crc) MUST_USE;
/* Reads the strings of an entry from its bytes, whose checksum has been checked. *ret has the right
 * number of elements, none of them set. False when malformed. */
bool bundle_parse_strings(struct span bytes, struct tensor *ret);
/* The checksum of an entry of n strings. False when malformed. */
bool bundle_strings_crc(struct span bytes, int64_t n, uint32_t *ret);

/* ---- bundle_variant.c: variants, each as length, VariantTensorDataProto and checksum ---- */

enum { BUNDLE_VARIANT_MIN_BYTES = 5 }; /* of an empty one */
struct status *bundle_write_variants(struct file_sink *sink, const struct tensor *value,
                                     uint32_t *ret_crc) MUST_USE;
/* Sets the elements of *ret, which is all empty, and *ret_crc to the checksum of all. Elements stay
 * serialized until a kernel needs their kind. False when malformed; *ret is then set in part. */
bool bundle_parse_variants(struct span bytes, struct tensor *ret, uint32_t *ret_crc);

#endif
