/* Declares what datasets with one function share. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_MAP_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_MAP_H

#include "kernels/host/data/dataset.h"

struct fn_dataset {
    struct dataset base;
    struct dataset_fn fn;
    bool keeps_cardinality;
};
void fn_dataset_fini(struct dataset *dataset);
/* Reads the function of the attr, whose captured tensors are the inputs after the first; and the
 * types and shapes that the node declares. */
struct status *fn_dataset_take(struct kernel_ctx *ctx, struct dataset *dataset,
                               const char *attr) MUST_USE;

/* Turns a function's failure into the pipeline's: an end of sequence inside the function is not the
 * end of the dataset. Takes and returns the status. */
struct status *map_failure(struct status *status) MUST_USE;

#endif
