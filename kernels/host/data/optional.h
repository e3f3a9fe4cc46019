/* Makes optionals for other kernels: variants that hold some tensors, or none. */
#ifndef MILLRACE_KERNELS_HOST_DATA_OPTIONAL_H
#define MILLRACE_KERNELS_HOST_DATA_OPTIONAL_H

#include "kernels/kernel.h"

/* Sets *ret, which holds nothing, to a scalar variant with an optional: of n components, which are
 * moved out of `components`, or without a value. Errors: RESOURCE_EXHAUSTED; INVALID_ARGUMENT when
 * variants nest too deep. */
struct status *optional_make(bool has_value, struct tensor *components, int n,
                             struct tensor *ret) MUST_USE;

#endif
