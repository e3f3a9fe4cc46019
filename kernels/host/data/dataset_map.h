/* What the files of datasets with one function share. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_MAP_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_MAP_H

#include "kernels/host/data/dataset.h"

struct fn_dataset {
    struct dataset base;
    struct dataset_fn fn;
    bool keeps_cardinality;
};
void fn_dataset_fini(struct dataset *dataset);
/* The function of the attr, with the inputs after the first; types and shapes as declared. */
struct status *fn_dataset_take(struct kernel_ctx *ctx, struct dataset *dataset,
                               const char *attr) MUST_USE;

/* What a function's failure is for who asked for an element: an end of sequence that it met
 * inside is not the end of this one. Takes and returns the status. */
struct status *map_failure(struct status *status) MUST_USE;

/* The datasets that a function makes of elements, one by one: what flat map and interleave go
 * through. */
struct nested_iter {
    struct dataset_iter_one one;
    struct dataset_call call;
    bool has_input_ended;
};
struct status *nested_begin(struct dataset_iter *iter) MUST_USE;
void nested_end(struct dataset_iter *iter);
/* The iterator of the next element's dataset: DATA_ELEMENT. */
enum data_poll nested_open(struct nested_iter *self, struct data_task *task,
                           struct dataset_iter **ret);

#endif
