/* Makes the cache in a file: a CacheDataset that has a filename. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_CACHE_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_CACHE_H

#include "kernels/host/data/dataset.h"

/* Sets output 0 to a dataset of input 0's elements that keeps them in a checkpoint of that name.
 * Returns what the kernel must return. */
enum kernel_result dataset_cache_file(struct kernel_ctx *ctx, struct span prefix);

#endif
