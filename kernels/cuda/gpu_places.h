/* Where allocations of a step were put in the step before (gpu_memory.h).
 *
 * A CUDA graph can be launched again only if its products, fills and copies find their operands at
 * the same addresses. Best fit alone gives each step the same addresses if all of memory is as it
 * was when the step before began, and each block is freed at the same moment. Neither holds: a
 * value that is assigned to a variable stays where it is until the next one is assigned, so it
 * moves in each step, and a fetched value is freed by the thread that has copied it. One block that
 * is elsewhere moves all that come after it.
 *
 * So each allocation has a *site*, a number that is equal in each step, and its latest two
 * addresses are kept by it. What is allocated next at the site is put at the latest one if that is
 * free. If another site's block is there, the allocation moves: it has a new place from then on, in
 * memory where no place is, and the others keep theirs. After two steps nobody is in the way of
 * anybody. If the site's own block is still there, a variable keeps the value until it is assigned
 * the next one; such values alternate between two places.
 *
 * Nothing is reserved: a place is an address, and its memory is anybody's.
 *
 * Threads: the caller's lock. */
#ifndef MILLRACE_KERNELS_CUDA_GPU_PLACES_H
#define MILLRACE_KERNELS_CUDA_GPU_PLACES_H

#include <stdint.h>

struct gpu_block;

enum {
    GPU_PLACE_NONE = 0,    /* a site of which nothing is kept */
    GPU_PLACE_SETS = 8192, /* sites are kept in sets, by hash */
    GPU_PLACE_WAYS = 4,    /* of a set; the one that was used least recently is replaced */
};

/* Offsets in the memory, in units of its alignment, and one more; 0: none. */
struct gpu_place {
    uint64_t site;
    uint32_t at[2];                /* the latest first */
    const struct gpu_block *block; /* the latest; its record may serve another block by now */
    uint32_t n_moves;              /* how often the latest address was taken */
};

/* All-zero: nothing is kept. */
struct gpu_places {
    struct gpu_place (*sets)[GPU_PLACE_WAYS]; /* NULL until something is kept */
};

/* The place of a site, or NULL. Valid until the next call. */
struct gpu_place *gpu_places_find(const struct gpu_places *places, uint64_t site);
/* Keeps where a block of a site was put. Records of blocks live as long as the places. */
void gpu_places_note(struct gpu_places *places, uint64_t site, uint32_t at,
                     const struct gpu_block *block);
/* Forgets all, and frees what was needed for it. */
void gpu_places_clear(struct gpu_places *places);

#endif
