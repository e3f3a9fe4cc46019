/* A sorted list of address ranges: what is reserved, mapped, pinned. */
#include "tests/cuda/sim/driver.h"
#include <stdlib.h>
#include <string.h>

/* The index of the first range that ends behind the address. */
static size_t position(const struct ranges *ranges, uint64_t address) {
    size_t low = 0, high = ranges->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct range *range = &ranges->list[middle];
        if (range->start + range->size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct range *ranges_find(const struct ranges *ranges, uint64_t address) {
    size_t at = position(ranges, address);
    return at < ranges->n && ranges->list[at].start <= address ? &ranges->list[at] : NULL;
}

bool ranges_add(struct ranges *ranges, struct range range) {
    size_t at = position(ranges, range.start);
    if (at < ranges->n && ranges->list[at].start < range.start + range.size)
        return false;
    if (ranges->n == ranges->max) {
        size_t max = ranges->max == 0 ? 16 : 2 * ranges->max;
        struct range *list = realloc(ranges->list, max * sizeof *list);
        if (list == NULL)
            return false;
        ranges->list = list;
        ranges->max = max;
    }
    memmove(&ranges->list[at + 1], &ranges->list[at], (ranges->n - at) * sizeof range);
    ranges->list[at] = range;
    ranges->n++;
    return true;
}

void ranges_remove(struct ranges *ranges, uint64_t start) {
    size_t at = position(ranges, start);
    if (at == ranges->n || ranges->list[at].start != start)
        return;
    ranges->n--;
    memmove(&ranges->list[at], &ranges->list[at + 1], (ranges->n - at) * sizeof *ranges->list);
}

bool ranges_find_gap(const struct ranges *ranges, uint64_t from, uint64_t to, uint64_t size,
                     uint64_t alignment, uint64_t *ret_start) {
    uint64_t start = (from + alignment - 1) / alignment * alignment;
    for (size_t i = position(ranges, start); i < ranges->n; i++) {
        const struct range *range = &ranges->list[i];
        if (start + size <= range->start)
            break;
        start = (range->start + range->size + alignment - 1) / alignment * alignment;
    }
    if (start + size > to)
        return false;
    *ret_start = start;
    return true;
}

void ranges_clear(struct ranges *ranges) {
    free(ranges->list);
    *ranges = (struct ranges){0};
}
