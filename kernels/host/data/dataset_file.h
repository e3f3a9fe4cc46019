/* Makes datasets of files' records, also for kinds that build on them. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_FILE_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_FILE_H

#include "common/io/record_source.h"
#include "kernels/host/data/dataset.h"

/* A dataset of the records of the files that input 0 names, a string each. With one reference.
 * Errors: INVALID_ARGUMENT. */
struct status *file_dataset_new(struct kernel_ctx *ctx, const struct record_options *options,
                                struct dataset **ret) MUST_USE;
/* Reads the compression, "", ZLIB or GZIP, from an input into the options. Errors:
 * INVALID_ARGUMENT. */
struct status *file_take_compression(struct kernel_ctx *ctx, int input,
                                     struct record_options *options) MUST_USE;

#endif
