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

/* Iterates over the datasets that a function makes of elements. Flat map and interleave use it. */
struct nested_iter {
    struct dataset_iter_one one;
    struct dataset_call call;
    bool has_input_ended;
};
struct status *nested_begin(struct dataset_iter *iter) MUST_USE;
void nested_end(struct dataset_iter *iter);
/* Opens an iterator of the next element's dataset. DATA_ELEMENT: *ret is set. */
enum data_poll nested_open(struct nested_iter *self, struct data_task *task,
                           struct dataset_iter **ret);

#endif
