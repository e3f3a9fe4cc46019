/* Datasets of elements that somebody has collected. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_WINDOW_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_WINDOW_H

#include "kernels/host/data/dataset_buffer.h"

/* With the types and shapes of `of`; takes the elements, and leaves an empty buffer. */
struct dataset *window_dataset_new(const struct dataset *of, struct element_buffer *elements_take);

#endif
