/* Declares the batch dataset for kinds that build on it. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_BATCH_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_BATCH_H

#include "kernels/host/data/dataset_buffer.h"

struct batch_dataset {
    struct dataset base;
    int64_t batch_size;
    bool drops_remainder;
    /* a batch of a map, which TensorFlow runs as one dataset: an element that fails is counted in
     * its batch, and the whole batch fails */
    bool is_fused;
};
extern const struct dataset_kind batch_kind;
struct status *batch_check_size(int64_t batch_size) MUST_USE;

/* `begin` and `end` for iterators that collect a batch. */
struct status *batch_begin(struct dataset_iter *iter) MUST_USE;
void batch_end(struct dataset_iter *iter);

#endif
