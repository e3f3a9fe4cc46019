/* Copies between two GPUs of a task.
 *
 *   they reach each other    cuMemcpyPeerAsync on the compute stream of the destination
 *   they do not              through pinned memory, in pieces, by a copier of the source:
 *
 *     copier's stream (source)        copy piece 0 ── copy piece 1 ── copy piece 0 …
 *                                              └─event─┐      ▲event
 *     bridge's stream (destination)                   copy piece 0 ── copy piece 1 …
 *
 * The host waits at the end only. */
#ifndef MILLRACE_KERNELS_CUDA_GPU_PEERS_H
#define MILLRACE_KERNELS_CUDA_GPU_PEERS_H

#include "kernels/cuda/gpu_device.h"

/* Asks the driver which of the devices can use each other's memory, and lets them. They have no
 * memory yet. Failures are logged, and such a pair copies through the host. */
void gpu_peers_connect(struct gpu_device *const *gpus, int n);
/* Can `to` read the memory of `from` by itself? */
static inline bool gpu_reaches(const struct gpu_device *to, const struct gpu_device *from) {
    return (to->reachable >> from->ordinal & 1) != 0 &&
           gpu_memory_is_usable_by(&from->memory, to->cuda_device);
}

/* The stream on which `to` gets copies from `from`. Only the copier of `from` uses it. Makes the
 * context of `to` current. Errors: the driver's. */
struct status *gpu_peers_bridge(struct gpu_device *to, struct gpu_device *from,
                                struct gpu_bridge **ret) MUST_USE;
void gpu_peers_close(struct gpu_device *gpu); /* its bridges; its context is current */

struct gpu_peer_copy {
    struct gpu_copier *copier; /* of the source, whose stream may begin */
    struct gpu_device *to;
    struct gpu_bridge *bridge;
    const char *from_data;
    char *to_data;
    size_t size_bytes, piece_bytes; /* the copier has pieces of this size */
};
/* Copies, and waits for the end, after which the compute stream of `to` finds the bytes. After an
 * error nothing is under way. Makes the copier's context current. */
struct status *gpu_peers_copy(const struct gpu_peer_copy *copy) MUST_USE;

#endif
