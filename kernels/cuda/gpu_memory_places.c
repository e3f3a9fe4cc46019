/* Puts blocks where their sites had them in the step before (gpu_memory_places.h). */
#include "kernels/cuda/gpu_memory_places.h"

#include "common/base/base.h"

enum {
    LOOSE_BYTES = 1 << 20, /* small: gets fresh memory, or a wide hole, at its first move */
    MAX_WIDENING = 12,
    MOVES_OF_LARGE = 3, /* until a larger one gets fresh memory */
    FRESH_SHARE = 16,   /* of the limit may be fresh memory for values that moved */
};

static struct gpu_block *take_at(struct gpu_memory *memory, uint32_t at, size_t size_bytes) {
    if (!at)
        return NULL;
    CUdeviceptr address = memory->base + (at - (uint64_t)1) * memory->alignment;
    struct gpu_block *block = gpu_free_blocks_around(&memory->free, address, size_bytes);
    return block ? gpu_memory_take(memory, block, address, size_bytes) : NULL;
}

/* A block in memory where no place is: behind all blocks that there have been. Sites with such
 * blocks are in nobody's way, so a step settles at once. NULL: there is no such memory, or this has
 * used its share of the limit; an error of the driver is that of whatever maps memory next. */
static struct gpu_block *take_fresh(struct gpu_memory *memory, size_t size_bytes) {
    size_t end = memory->placed_bytes + size_bytes;
    if (memory->fresh_bytes + size_bytes > memory->limit_bytes / FRESH_SHARE ||
        end > memory->limit_bytes)
        return NULL;
    struct status *st = gpu_memory_map_until(memory, end);
    if (st) {
        status_unref(st);
        return NULL;
    }
    struct gpu_block *block =
        gpu_free_blocks_around(&memory->free, memory->base + memory->placed_bytes, size_bytes);
    if (!block)
        return NULL;
    memory->fresh_bytes += size_bytes;
    return gpu_memory_take(memory, block, memory->base + memory->placed_bytes, size_bytes);
}

/* A block for a site whose place is taken. What just fits is mostly another site's place, so that
 * one would have to move next. Therefore a block gets fresh memory: a small one at once, a larger
 * one if it moves repeatedly. Without fresh memory a small one gets a hole that is the wider, the
 * more often the site had to move. NULL: the best fit serves. */
static struct gpu_block *move_place(struct gpu_memory *memory, struct gpu_place *place,
                                    size_t size_bytes) {
    bool is_small = size_bytes <= LOOSE_BYTES;
    place->n_moves = MIN(place->n_moves + 1, (uint32_t)MAX_WIDENING);
    struct gpu_block *block =
        is_small || place->n_moves >= MOVES_OF_LARGE ? take_fresh(memory, size_bytes) : NULL;
    if (block || !is_small)
        return block;
    struct gpu_block *wide = gpu_free_blocks_best_fit(&memory->free, size_bytes << place->n_moves);
    return wide ? gpu_memory_take(memory, wide, wide->address, size_bytes) : NULL;
}

struct gpu_block *gpu_memory_take_place(struct gpu_memory *memory, uint64_t site,
                                        size_t size_bytes) {
    struct gpu_place *place = gpu_places_find(&memory->places, site);
    if (!place)
        return NULL;
    bool is_own = place->block->site == site; /* the site's latest block is not freed yet */
    struct gpu_block *block = take_at(memory, place->at[is_own], size_bytes);
    if (block)
        return block;
    atomic_fetch_add_explicit(&memory->n_moved, 1, memory_order_relaxed);
    return move_place(memory, place, size_bytes);
}

void gpu_memory_forget_places(struct gpu_memory *memory) {
    gpu_places_clear(&memory->places);
    memory->placed_bytes = memory->fresh_bytes = 0;
}

void gpu_memory_note_place(struct gpu_memory *memory, uint64_t site,
                           const struct gpu_block *block) {
    size_t offset = (size_t)(block->address - memory->base);
    uint64_t at = offset / memory->alignment + 1;
    memory->placed_bytes = MAX(memory->placed_bytes, offset + block->size_bytes);
    if (at <= UINT32_MAX)
        gpu_places_note(&memory->places, site, (uint32_t)at, block);
}
