/* Xids: the numbers by which NVIDIA's kernel module says what is wrong with a GPU, as its log does.
 * They come from NVML, which is opened by dlopen; without it there are none. */
#ifndef MILLRACE_KERNELS_CUDA_GPU_XID_H
#define MILLRACE_KERNELS_CUDA_GPU_XID_H

#include <stdint.h>

struct gpu_xid;

/* Starts to listen for Xids of the GPU at a PCI bus id. `simulated` is the handle of a library that
 * has NVML's calls, or NULL. Returns NULL if NVML cannot be used. */
struct gpu_xid *gpu_xid_new(const char *bus_id, void *simulated);
void gpu_xid_free(struct gpu_xid *xid); /* accepts NULL */
/* Returns the next Xid, which may still be on its way, or 0. Accepts NULL. Waits for at most
 * 100 ms, so it is only called after a failure. Any thread. */
uint64_t gpu_xid_next(struct gpu_xid *xid);

#endif
