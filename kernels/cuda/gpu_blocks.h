/* Blocks of a GPU's memory, and the index of those that are free (gpu_memory.h).
 *
 * A free block is found by its size, through bins, and by its address, through a tree. The tree is
 * a treap: ordered by address, and a heap by a hash of the address, so that its shape depends on
 * nothing but which blocks are in it. Both are linked through the blocks, so that no call
 * allocates.
 *
 * Threads: the caller's lock. */
#ifndef MILLRACE_KERNELS_CUDA_GPU_BLOCKS_H
#define MILLRACE_KERNELS_CUDA_GPU_BLOCKS_H

#include "common/tensor/buffer.h"
#include "kernels/cuda/driver_api.h"

enum {
    GPU_BLOCK_BINS = 512, /* free blocks by size: 8 for each power of two */
    GPU_HOLDER_BYTES = 48,
};

/* A used or free run of bytes. The record of a used block serves as its buffer, so that a value
 * costs one record. */
struct gpu_block {
    struct buffer buffer;          /* first; the user's, while the block is used */
    char holder[GPU_HOLDER_BYTES]; /* the user's */
    /* the memory's */
    struct gpu_block *before, *after;      /* by address */
    struct gpu_block *bin_next, *bin_prev; /* a free one's bin */
    struct gpu_block *lower, *higher;      /* a free one's subtrees, by address */
    uint64_t rank;                         /* in the tree: above all that is below it */
    CUdeviceptr address;
    size_t size_bytes;    /* usable */
    uint64_t free_number; /* of the latest free of a part of it */
    uint64_t site;        /* of a used one (gpu_places.h) */
    bool is_free;
};

struct gpu_free_blocks {
    struct gpu_block *bins[GPU_BLOCK_BINS];
    uint64_t bin_bits[GPU_BLOCK_BINS / 64]; /* which bins hold blocks */
    struct gpu_block *root;
};

/* Adds a block, whose address and size stay until it is removed. */
void gpu_free_blocks_add(struct gpu_free_blocks *blocks, struct gpu_block *block);
void gpu_free_blocks_remove(struct gpu_free_blocks *blocks, struct gpu_block *block);
/* The smallest block of at least size_bytes; of those of one size the first by address. NULL: there
 * is none. */
struct gpu_block *gpu_free_blocks_best_fit(const struct gpu_free_blocks *blocks, size_t size_bytes);
/* The block that has all of [address, address + size_bytes), or NULL. */
struct gpu_block *gpu_free_blocks_around(const struct gpu_free_blocks *blocks, CUdeviceptr address,
                                         size_t size_bytes);
/* For tests: CHECKs the invariants. Returns how many blocks are free. */
size_t gpu_free_blocks_check(const struct gpu_free_blocks *blocks);

#endif
