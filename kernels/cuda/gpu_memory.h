/* The memory of one GPU: blocks in one range of addresses that is reserved once and gets memory in
 * steps, as it is needed.
 *
 *   reserved   ├──────────────────────────────────────────────────────────────┤ limit
 *   mapped     ├───────────────────────────────┤
 *   blocks     │ used │ free │ used │   free    │
 *
 * Because the range is one, a free block at its end grows with the next step, and no memory is lost
 * between segments. A block is where the last one of its site was (gpu_places.h), or the best fit.
 * A free one joins its free neighbours at once. What is mapped stays mapped until gpu_memory_trim.
 *
 * A freed block may be used again at once by whatever is enqueued after the free on the compute
 * stream. Work on another stream must first wait for the compute stream as far as it was at the
 * free: each block carries that number.
 *
 * Threads: any; the memory has a lock of its own, under which the driver is called. */
#ifndef MILLRACE_KERNELS_CUDA_GPU_MEMORY_H
#define MILLRACE_KERNELS_CUDA_GPU_MEMORY_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/status.h"
#include "kernels/cuda/gpu_blocks.h"
#include "kernels/cuda/gpu_places.h"

enum { GPU_MEMORY_MAX_USERS = 16 }; /* devices that may use the memory */

struct gpu_memory {
    const struct driver_api *api;
    CUdevice device;
    CUdevice users[GPU_MEMORY_MAX_USERS]; /* the device itself, and its peers; constant in use */
    size_t n_users;
    /* A bit for each of `users` that the driver did not let use some step, and which gets no more:
     * it has probably failed. Written with the lock. */
    _Atomic uint32_t left_out;
    size_t alignment;     /* of blocks; a power of two */
    size_t step_bytes;    /* what is mapped at a time, a multiple of the driver's granularity */
    size_t limit_bytes;   /* what is reserved */
    bool is_exportable;   /* an RDMA device may read the memory, by dmabufs */
    bool has_descriptors; /* the driver can export it as file descriptors */
    CUdeviceptr base;
    /* The number of the last work that was enqueued on the compute stream. Set by the device. */
    _Atomic uint64_t enqueued;
    /* Calls of the driver for memory so far; the device adds its calls for pinned memory. */
    _Atomic uint64_t n_calls;
    /* Allocations that found none of their site's places free. Written with the lock. */
    _Atomic uint64_t n_moved;
    pthread_mutex_t lock; /* guards what follows */
    size_t mapped_bytes, used_bytes, peak_bytes;
    CUmemGenericAllocationHandle *steps; /* one for each step that is mapped */
    size_t n_steps;
    struct gpu_block *last;  /* by address */
    struct gpu_block *spare; /* records to use again, by bin_next */
    /* Counts frees; who waits for one. */
    uint64_t n_freed;
    int n_waiting;
    pthread_cond_t freed;
    struct gpu_free_blocks free;
    struct gpu_places places;
    /* Since the places were forgotten last: where the block with the highest address ended, and
     * how much was given to blocks behind it. */
    size_t placed_bytes, fresh_bytes;
};

/* Grows a range inside the mapped part to whole steps. */
void gpu_memory_widen(const struct gpu_memory *memory, CUdeviceptr *start, size_t *size_bytes);

/* Reserves addresses for limit_bytes, rounded down to whole steps, and for at least what the driver
 * maps at a time. Maps nothing. The device's context must be current, here and in every thread that
 * allocates. Errors: UNIMPLEMENTED for a device whose memory cannot be mapped; the driver's. */
struct status *gpu_memory_init(struct gpu_memory *memory, const struct driver_api *api,
                               CUdevice device, size_t limit_bytes) MUST_USE;
/* Another device may use the memory, too. Before the first block. */
void gpu_memory_let_use(struct gpu_memory *memory, CUdevice peer);
/* May the device use every block? Any thread. */
bool gpu_memory_is_usable_by(const struct gpu_memory *memory, CUdevice device);
/* Every block must have been freed. Accepts an all-zero memory. */
void gpu_memory_fini(struct gpu_memory *memory);

/* A block of at least size_bytes. Allocations of one site have one size. With GPU_PLACE_NONE, and
 * once more than half of the limit has been used, the block is the best fit. *ret_free_number gets
 * the compute stream's number at the latest free of a part of it, 0 for fresh memory. Errors:
 * RESOURCE_EXHAUSTED when the limit or the device's memory is reached; the driver's. */
struct status *gpu_memory_alloc(struct gpu_memory *memory, uint64_t site, size_t size_bytes,
                                struct gpu_block **ret, uint64_t *ret_free_number) MUST_USE;
void gpu_memory_free(struct gpu_memory *memory, struct gpu_block *block);
/* How often a block has been freed. */
uint64_t gpu_memory_n_freed(struct gpu_memory *memory);
/* Waits until that number has changed. False: it has not within 100 ms. */
bool gpu_memory_wait_freed(struct gpu_memory *memory, uint64_t n_freed);
/* Calls `visit` for each used block, in no order. It must not call the memory. */
void gpu_memory_each_used(struct gpu_memory *memory,
                          void (*visit)(void *arg, const struct gpu_block *block), void *arg);

/* Returns to the driver the whole steps at the end of the range that no used block touches, after
 * announcing it (common/tensor/release.h). Nothing that is enqueued may use them. */
void gpu_memory_trim(struct gpu_memory *memory);
/* For tests: CHECKs the invariants of blocks and bins. */
void gpu_memory_check(struct gpu_memory *memory);

#endif
