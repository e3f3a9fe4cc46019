/* Opens the CUDA driver and says its errors in words. Nobody links libcuda: a machine without it
 * runs the same programs, and is told why it has no GPU. */
#ifndef MILLRACE_KERNELS_CUDA_DRIVER_H
#define MILLRACE_KERNELS_CUDA_DRIVER_H

#include "common/base/status.h"
#include "kernels/cuda/driver_api.h"

struct driver_range {
    CUdeviceptr start;
    size_t size;
};
/* What a simulated driver offers beyond the driver API (tests/cuda/sim/sim.h). A real driver has
 * none of these calls. */
struct driver_checker {
    bool is_null;  /* its calls return at once and check nothing */
    void *library; /* dlopen's handle of it; it has those of cuBLASLt and cuDNN, too */
    /* An allocator that divides its memory itself tells where blocks begin and end, in the order of
     * a stream, so that the use of a freed block is found. */
    CUresult (*block_allocated)(CUdeviceptr start, size_t size, CUstream stream);
    CUresult (*block_freed)(CUdeviceptr start, size_t size, CUstream stream);
    /* The same for the next launch of a graph, before its node with the number `at`. */
    CUresult (*graph_block)(CUgraphExec exec, int at, CUdeviceptr start, size_t size, int is_new);
    /* Enqueues a function of the simulation's kernels that runs on the host's processor, which
     * reads and writes only the given ranges of device memory: what a library computes on a real
     * device. */
    CUresult (*enqueue_host)(CUstream stream, const char *name, const void *args, size_t size,
                             const struct driver_range *reads, size_t n_reads,
                             const struct driver_range *writes, size_t n_writes);
};

/* Loads `library` ("libcuda.so.1"), finds every call of the table, and initializes the driver. It
 * is never unloaded. *ret_checker is NULL for a real driver. Errors: UNAVAILABLE with what is
 * missing (the library, a call, a device), in words for /statusz. Once a process. */
struct status *driver_open(const char *library, struct driver_api *ret,
                           const struct driver_checker **ret_checker) MUST_USE;

/* NULL for CUDA_SUCCESS. Otherwise what failed, the error's name and number, and its text:
 * RESOURCE_EXHAUSTED for memory, UNAVAILABLE for a device that is lost, INTERNAL for the others.
 * Any thread. */
struct status *driver_status(CUresult error, const char *what) MUST_USE;
/* Logs a failure of a call that gives something back. Nobody can do anything about it. */
void driver_note(CUresult error, const char *call);
/* Is the error one after which the device's context can do nothing more? */
bool driver_error_is_sticky(CUresult error);

#endif
