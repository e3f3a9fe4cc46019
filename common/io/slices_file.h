/* Writes and reads checkpoints in TensorFlow's V1 format, which Save and SaveSlices write and
 * Restore, RestoreSlice and RestoreV2 read.
 *
 * A checkpoint is one file, a table (common/io/table.h). Its key "" has a SavedTensorSlices that
 * lists the tensors; the key of each slice (common/io/tensor_slice.h) has a SavedTensorSlices with
 * the elements as a TensorProto of typed lists. A sharded save is several such files, which a
 * pattern finds.
 *
 * Durable like a bundle: the file is written under a temporary name, synced, then renamed. */
#ifndef MILLRACE_COMMON_IO_SLICES_FILE_H
#define MILLRACE_COMMON_IO_SLICES_FILE_H

#include "common/io/file_system.h"
#include "common/io/tensor_slice.h"

/* The types that the format allows, as in TensorFlow. */
#define DTYPES_SLICES_FILE                                                                    \
    (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPE_BIT(DT_INT32) | DTYPE_BIT(DT_UINT8) | \
     DTYPE_BIT(DT_INT16) | DTYPE_BIT(DT_INT8) | DTYPE_BIT(DT_STRING) | DTYPES_COMPLEX |       \
     DTYPE_BIT(DT_INT64) | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_QINT8) | DTYPE_BIT(DT_QUINT8) |  \
     DTYPE_BIT(DT_QINT32) | DTYPE_BIT(DT_UINT16) | DTYPE_BIT(DT_HALF))

/* ---- writing ---- Threads: one at a time. */

struct slices_writer;
struct slices_writer *slices_writer_new(const struct file_system *fs, const char *path);
/* Adds a slice, sharing the value until slices_writer_free. The slice must fit `whole` and the
 * shape of the value. Errors: INVALID_ARGUMENT (repeated slice, other dtype or shape than before,
 * above 2 GiB), UNIMPLEMENTED (dtype). */
struct status *slices_writer_add(struct slices_writer *writer, struct span name, struct shape whole,
                                 const struct tensor_slice *slice,
                                 const struct tensor *value) MUST_USE;
struct status *slices_writer_finish(struct slices_writer *writer) MUST_USE;
void slices_writer_free(struct slices_writer *writer); /* accepts NULL */

/* ---- reading ---- */

struct slices_reader;
struct slices_tensor; /* the slices of one tensor in all files */

/* Opens the files of one checkpoint. Errors: those of the file system; DATA_LOSS. */
struct status *slices_reader_open(const struct file_system *fs, char *const *paths, size_t n,
                                  struct slices_reader **ret) MUST_USE;
void slices_reader_close(struct slices_reader *reader); /* accepts NULL */
/* NULL: no such tensor. Any thread. */
const struct slices_tensor *slices_reader_find(const struct slices_reader *reader,
                                               struct span name);
enum dtype slices_tensor_dtype(const struct slices_tensor *tensor);
struct shape slices_tensor_shape(const struct slices_tensor *tensor);
struct span slices_tensor_name(const struct slices_tensor *tensor);
/* The tensor of index i, in no particular order; NULL at the end. */
const struct slices_tensor *slices_reader_at(const struct slices_reader *reader, size_t i);
/* Reads a part of a tensor; the slice must fit its shape. Errors: INVALID_ARGUMENT "Error copying
 * slice data" where slices are missing; DATA_LOSS; RESOURCE_EXHAUSTED. Any thread. */
struct status *slices_reader_read(const struct slices_reader *reader,
                                  const struct slices_tensor *tensor,
                                  const struct tensor_slice *slice, struct allocator *allocator,
                                  struct tensor *ret) MUST_USE;

#endif
