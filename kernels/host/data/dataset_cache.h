/* A cache in a file: the part of CacheDataset that has a name. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_CACHE_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_CACHE_H

#include "kernels/host/data/dataset.h"

/* The kernel's answer: input 0's elements, kept in a checkpoint of that name. */
enum kernel_result dataset_cache_file(struct kernel_ctx *ctx, struct span prefix);

#endif
