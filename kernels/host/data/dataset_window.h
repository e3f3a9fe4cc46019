/* Makes datasets of elements that another iterator has collected. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_WINDOW_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_WINDOW_H

#include "kernels/host/data/dataset_buffer.h"

/* A dataset with the types and shapes of `of`. Takes the elements and leaves an empty buffer. */
struct dataset *window_dataset_new(const struct dataset *of, struct element_buffer *elements_take);

#endif
