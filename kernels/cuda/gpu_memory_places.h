/* Puts the blocks of a GPU's memory at the places of their sites (gpu_places.h). This is a part of
 * gpu_memory.c, which takes the best fit where these functions find nothing.
 *
 * Threads: all functions are called with the memory's lock. */
#ifndef MILLRACE_KERNELS_CUDA_GPU_MEMORY_PLACES_H
#define MILLRACE_KERNELS_CUDA_GPU_MEMORY_PLACES_H

#include "kernels/cuda/gpu_memory.h"

/* A block at the place of a site. NULL: it has none, or it moves to the best fit. */
struct gpu_block *gpu_memory_take_place(struct gpu_memory *memory, uint64_t site,
                                        size_t size_bytes);
/* Keeps where a block of a site was put. */
void gpu_memory_note_place(struct gpu_memory *memory, uint64_t site, const struct gpu_block *block);
/* No site has a place any more. */
void gpu_memory_forget_places(struct gpu_memory *memory);

/* ---- gpu_memory.c, for gpu_memory_places.c ---- */

/* Takes [address, address + size_bytes) out of a free block that has it. */
struct gpu_block *gpu_memory_take(struct gpu_memory *memory, struct gpu_block *block,
                                  CUdeviceptr address, size_t size_bytes);
/* Maps steps up to an end of the mapped part, as a free block or a part of one. If the driver
 * refuses one, which another process may hold, those before it are given back: that process may
 * need them. Errors: the driver's. */
struct status *gpu_memory_map_until(struct gpu_memory *memory, size_t end_bytes) MUST_USE;

#endif
