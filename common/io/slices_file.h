/* A checkpoint in TensorFlow's V1 format: what Save and SaveSlices write, Restore and
 * RestoreSlice read (RestoreV2 too, as in TensorFlow).
 *
 * One file, a table (common/io/table.h): "" → SavedTensorSlices with what there is; each slice's
 * key (common/io/tensor_slice.h) → SavedTensorSlices with its elements as a TensorProto of typed
 * lists. A sharded save is several such files, found by a pattern.
 *
 * Durable like a bundle: a temporary file, synced, takes its name when it is whole. */
#ifndef MILLRACE_COMMON_IO_SLICES_FILE_H
#define MILLRACE_COMMON_IO_SLICES_FILE_H

#include "common/io/file_system.h"
#include "common/io/tensor_slice.h"

/* Types that the format has (in TensorFlow, too). */
#define DTYPES_SLICES_FILE                                                                    \
    (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPE_BIT(DT_INT32) | DTYPE_BIT(DT_UINT8) | \
     DTYPE_BIT(DT_INT16) | DTYPE_BIT(DT_INT8) | DTYPE_BIT(DT_STRING) | DTYPES_COMPLEX |       \
     DTYPE_BIT(DT_INT64) | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_QINT8) | DTYPE_BIT(DT_QUINT8) |  \
     DTYPE_BIT(DT_QINT32) | DTYPE_BIT(DT_UINT16) | DTYPE_BIT(DT_HALF))

/* ---- writing ---- Threads: one at a time. */

struct slices_writer;
struct slices_writer *slices_writer_new(const struct file_system *fs, const char *path);
/* Keeps a share of the value until the end. The slice fits `whole` and the value's shape.
 * Errors: INVALID_ARGUMENT (doubled, other type or shape than before, above 2 GiB),
 * UNIMPLEMENTED (type). */
struct status *slices_writer_add(struct slices_writer *writer, struct span name, struct shape whole,
                                 const struct tensor_slice *slice,
                                 const struct tensor *value) MUST_USE;
struct status *slices_writer_finish(struct slices_writer *writer) MUST_USE;
void slices_writer_free(struct slices_writer *writer); /* accepts NULL */

/* ---- reading ---- */

struct slices_reader;
struct slices_tensor; /* what the files have of one tensor */

/* The files of one checkpoint. Errors: of the file system; DATA_LOSS. */
struct status *slices_reader_open(const struct file_system *fs, char *const *paths, size_t n,
                                  struct slices_reader **ret) MUST_USE;
void slices_reader_close(struct slices_reader *reader); /* accepts NULL */
/* NULL: no such tensor. Any thread. */
const struct slices_tensor *slices_reader_find(const struct slices_reader *reader,
                                               struct span name);
enum dtype slices_tensor_dtype(const struct slices_tensor *tensor);
struct shape slices_tensor_shape(const struct slices_tensor *tensor);
struct span slices_tensor_name(const struct slices_tensor *tensor);
/* Tensor i of all, in no order; NULL at the end. */
const struct slices_tensor *slices_reader_at(const struct slices_reader *reader, size_t i);
/* A part; the slice fits the shape. Errors: INVALID_ARGUMENT "Error copying slice data" where
 * slices are missing; DATA_LOSS; RESOURCE_EXHAUSTED. Any thread. */
struct status *slices_reader_read(const struct slices_reader *reader,
                                  const struct slices_tensor *tensor,
                                  const struct tensor_slice *slice, struct allocator *allocator,
                                  struct tensor *ret) MUST_USE;

#endif
