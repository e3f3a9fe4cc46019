/* Finds free blocks by size and by address (gpu_blocks.h).
 *
 * A bin holds sizes within an eighth of each other, so the best fit is the smallest of the first
 * bin with a block that fits. */
#include "kernels/cuda/gpu_blocks.h"

#include "common/base/base.h"
#include "common/base/map.h"

/* ---- bins ---- */

/* Grows with the size: three bits below the leading one. */
static size_t bin_of(size_t size_bytes) {
    size_t units = size_bytes >> 8; /* blocks are multiples of 256 at least */
    if (units < 8)
        return units;
    unsigned log2 = 63 - (unsigned)__builtin_clzll(units);
    return (size_t)(log2 - 2) * 8 + ((units >> (log2 - 3)) & 7);
}

static void bin_add(struct gpu_free_blocks *blocks, struct gpu_block *block) {
    size_t bin = bin_of(block->size_bytes);
    block->bin_prev = NULL;
    block->bin_next = blocks->bins[bin];
    if (block->bin_next)
        block->bin_next->bin_prev = block;
    blocks->bins[bin] = block;
    blocks->bin_bits[bin / 64] |= UINT64_C(1) << bin % 64;
}

static void bin_remove(struct gpu_free_blocks *blocks, struct gpu_block *block) {
    size_t bin = bin_of(block->size_bytes);
    if (block->bin_prev)
        block->bin_prev->bin_next = block->bin_next;
    else
        blocks->bins[bin] = block->bin_next;
    if (block->bin_next)
        block->bin_next->bin_prev = block->bin_prev;
    if (!blocks->bins[bin])
        blocks->bin_bits[bin / 64] &= ~(UINT64_C(1) << bin % 64);
}

static struct gpu_block *smallest_that_fits(struct gpu_block *block, size_t size_bytes) {
    struct gpu_block *best = NULL;
    for (; block; block = block->bin_next)
        if (block->size_bytes >= size_bytes &&
            (!best || block->size_bytes < best->size_bytes ||
             (block->size_bytes == best->size_bytes && block->address < best->address)))
            best = block;
    return best;
}

struct gpu_block *gpu_free_blocks_best_fit(const struct gpu_free_blocks *blocks,
                                           size_t size_bytes) {
    size_t first = bin_of(size_bytes);
    for (size_t word = first / 64; word < ARRAY_LEN(blocks->bin_bits); word++) {
        uint64_t bits = blocks->bin_bits[word];
        if (word == first / 64)
            bits &= ~UINT64_C(0) << first % 64;
        for (; bits; bits &= bits - 1) {
            size_t bin = word * 64 + (size_t)__builtin_ctzll(bits);
            struct gpu_block *block = smallest_that_fits(blocks->bins[bin], size_bytes);
            if (block)
                return block;
        }
    }
    return NULL;
}

/* ---- the tree ---- */

static void tree_add(struct gpu_free_blocks *blocks, struct gpu_block *block) {
    struct gpu_block **at = &blocks->root;
    block->rank = hash_mix(block->address, 0);
    while (*at && (*at)->rank > block->rank)
        at = block->address < (*at)->address ? &(*at)->lower : &(*at)->higher;
    /* What was there is parted by the block's address. */
    struct gpu_block *rest = *at, **lower = &block->lower, **higher = &block->higher;
    *at = block;
    while (rest) {
        if (rest->address < block->address) {
            *lower = rest;
            lower = &rest->higher;
            rest = *lower;
        } else {
            *higher = rest;
            higher = &rest->lower;
            rest = *higher;
        }
    }
    *lower = *higher = NULL;
}

static void tree_remove(struct gpu_free_blocks *blocks, struct gpu_block *block) {
    struct gpu_block **at = &blocks->root;
    while (*at != block)
        at = block->address < (*at)->address ? &(*at)->lower : &(*at)->higher;
    struct gpu_block *lower = block->lower, *higher = block->higher;
    while (lower && higher) {
        if (lower->rank > higher->rank) {
            *at = lower;
            at = &lower->higher;
            lower = *at;
        } else {
            *at = higher;
            at = &higher->lower;
            higher = *at;
        }
    }
    *at = lower ? lower : higher;
}

struct gpu_block *gpu_free_blocks_around(const struct gpu_free_blocks *blocks, CUdeviceptr address,
                                         size_t size_bytes) {
    struct gpu_block *found = NULL;
    for (struct gpu_block *at = blocks->root; at;) {
        if (at->address <= address) {
            found = at;
            at = at->higher;
        } else {
            at = at->lower;
        }
    }
    if (!found)
        return NULL;
    size_t offset = (size_t)(address - found->address);
    return offset < found->size_bytes && found->size_bytes - offset >= size_bytes ? found : NULL;
}

/* ---- both ---- */

void gpu_free_blocks_add(struct gpu_free_blocks *blocks, struct gpu_block *block) {
    block->is_free = true;
    bin_add(blocks, block);
    tree_add(blocks, block);
}

void gpu_free_blocks_remove(struct gpu_free_blocks *blocks, struct gpu_block *block) {
    bin_remove(blocks, block);
    tree_remove(blocks, block);
    block->is_free = false;
}

/* A hash of random ranks keeps the tree low, so it is walked by recursion. */
static size_t check_tree(const struct gpu_block *block, CUdeviceptr begin, CUdeviceptr end) {
    if (!block)
        return 0;
    CHECK(block->is_free && block->address >= begin && block->address + block->size_bytes <= end);
    CHECK(!block->lower || block->lower->rank <= block->rank);
    CHECK(!block->higher || block->higher->rank <= block->rank);
    return 1 + check_tree(block->lower, begin, block->address) +
           check_tree(block->higher, block->address + block->size_bytes, end);
}

size_t gpu_free_blocks_check(const struct gpu_free_blocks *blocks) {
    size_t n = 0;
    for (size_t bin = 0; bin < GPU_BLOCK_BINS; bin++) {
        CHECK(!blocks->bins[bin] == !(blocks->bin_bits[bin / 64] >> bin % 64 & 1));
        for (struct gpu_block *block = blocks->bins[bin]; block; block = block->bin_next) {
            CHECK(block->is_free && bin_of(block->size_bytes) == bin);
            n++;
        }
    }
    CHECK(check_tree(blocks->root, 0, UINT64_MAX) == n);
    return n;
}
