/* The calls of CUPTI's activity API that Millrace uses, in declarations of our own (libcupti.so.12
 * and .13). What they record: activity_records.h. */
#ifndef MILLRACE_KERNELS_CUDA_ACTIVITY_API_H
#define MILLRACE_KERNELS_CUDA_ACTIVITY_API_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/activity_records.h"
#include "kernels/cuda/driver_api.h"

/* CUPTI wants an empty buffer; it fills one, and hands it back. Any thread. */
typedef void cupti_wanted_fn(uint8_t **ret_buffer, size_t *ret_size, size_t *ret_max_records);
typedef void cupti_filled_fn(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                             size_t n_valid);
typedef uint64_t cupti_clock_fn(void);

struct activity_api {
#define ACTIVITY_CALL(name, arguments) int(*name) arguments;
#include "kernels/cuda/activity_calls.inc"
};

#endif
