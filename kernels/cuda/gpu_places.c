/* Keeps where allocations were put (gpu_places.h). */
#include "kernels/cuda/gpu_places.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/base.h"

static struct gpu_place *set_of(const struct gpu_places *places, uint64_t site) {
    return places->sets ? places->sets[site % GPU_PLACE_SETS] : NULL;
}

struct gpu_place *gpu_places_find(const struct gpu_places *places, uint64_t site) {
    struct gpu_place *set = set_of(places, site);
    for (int i = 0; set && i < GPU_PLACE_WAYS; i++)
        if (set[i].site == site)
            return &set[i];
    return NULL;
}

void gpu_places_note(struct gpu_places *places, uint64_t site, uint32_t at,
                     const struct gpu_block *block) {
    if (!places->sets)
        places->sets = xcalloc(GPU_PLACE_SETS, sizeof *places->sets);
    struct gpu_place *set = set_of(places, site);
    int i = 0;
    while (i < GPU_PLACE_WAYS - 1 && set[i].site != site)
        i++;
    struct gpu_place place = {.site = site, .at = {at}, .block = block};
    if (set[i].site == site) {
        place.at[1] = set[i].at[0] == at ? set[i].at[1] : set[i].at[0];
        place.n_moves = set[i].n_moves;
    }
    memmove(&set[1], &set[0], (size_t)i * sizeof *set); /* the latest first */
    set[0] = place;
}

void gpu_places_clear(struct gpu_places *places) {
    free(places->sets);
    *places = (struct gpu_places){0};
}
