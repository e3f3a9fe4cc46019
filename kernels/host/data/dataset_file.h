/* Datasets of files' records, for who makes others of them. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_FILE_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_FILE_H

#include "common/io/record_source.h"
#include "kernels/host/data/dataset.h"

/* The records of the files that input 0 names, a string each. With one reference. Errors:
 * INVALID_ARGUMENT. */
struct status *file_dataset_new(struct kernel_ctx *ctx, const struct record_options *options,
                                struct dataset **ret) MUST_USE;
/* "", ZLIB or GZIP. `complaint` is for other ones. */
struct status *file_take_compression(struct kernel_ctx *ctx, int input,
                                     struct record_options *options) MUST_USE;

#endif
