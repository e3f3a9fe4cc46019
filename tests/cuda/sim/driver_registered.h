/* Memory of the program that it registers with the driver. */
#ifndef MILLRACE_TESTS_CUDA_SIM_DRIVER_REGISTERED_H
#define MILLRACE_TESTS_CUDA_SIM_DRIVER_REGISTERED_H

#include "tests/cuda/sim/driver.h"

struct registered {
    unsigned char *start; /* its first page */
    size_t size;          /* of all its pages */
    /* A second mapping of the same pages, which the device's copies use while the program's own is
     * protected. NULL: the memory is private to the process, so there can be none. */
    unsigned char *alias;
    bool is_writable;         /* by the program */
    bool is_device_read_only; /* CU_MEMHOSTREGISTER_READ_ONLY: the device may not write it */
};

/* Finds out what the memory is, gives pages to all of it as a real driver does, and maps them a
 * second time. Errors: CUDA_ERROR_INVALID_VALUE if some of it is not mapped, or if it cannot be
 * written and is not registered as READ_ONLY; CUDA_ERROR_OUT_OF_MEMORY. */
CUresult registered_begin(void *pointer, size_t size, bool is_device_read_only,
                          struct registered *ret);
void registered_end(struct registered *memory);
/* Where the device's process finds the byte at `pointer`. */
uint64_t registered_address(const struct registered *memory, const void *pointer);
/* Has a shared mapping still all its pages? A page that was given back to the system (by a hole in
 * the file) is another one when it comes back, and a real device would go on with the old one. */
bool registered_is_there(const struct registered *memory);

#endif
