/* Finds out what registered memory is, and maps it a second time. */
#include "tests/cuda/sim/driver_registered.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* What /proc/self/maps says of a range. False: some of it is not mapped, or not readable. */
static bool find_mapping(uint64_t start, uint64_t end, bool *ret_is_writable, bool *ret_is_shared) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4352];
    uint64_t first, last, covered = start;
    char mode[5];
    *ret_is_writable = *ret_is_shared = true;
    while (maps != NULL && covered < end && fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &first, &last, mode) != 3 ||
            last <= covered)
            continue;
        if (first > covered || mode[0] != 'r')
            break;
        *ret_is_writable &= mode[1] == 'w';
        *ret_is_shared &= mode[3] == 's';
        covered = last;
    }
    if (maps != NULL)
        fclose(maps);
    return covered >= end;
}

/* A mapping of no bytes that grows is a copy of a shared mapping. */
static bool map_again(struct registered *memory) {
    memory->alias = mremap(memory->start, 0, memory->size, MREMAP_MAYMOVE);
    for (size_t at = 0; memory->alias != MAP_FAILED && at < memory->size; at += SIM_PAGE)
        (void)*(volatile unsigned char *)(memory->alias + at); /* which gives it a page */
    return memory->alias != MAP_FAILED;
}

CUresult registered_begin(void *pointer, size_t size, bool is_device_read_only,
                          struct registered *ret) {
    bool is_shared;
    uint64_t start = (uint64_t)pointer & ~(uint64_t)(SIM_PAGE - 1),
             end = ((uint64_t)pointer + size + SIM_PAGE - 1) & ~(uint64_t)(SIM_PAGE - 1);
    *ret = (struct registered){.start = (unsigned char *)start,
                               .size = end - start,
                               .is_device_read_only = is_device_read_only};
    if (!find_mapping(start, end, &ret->is_writable, &is_shared) ||
        (!ret->is_writable && !is_device_read_only))
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_shared || sim.is_null)
        return CUDA_SUCCESS;
    return map_again(ret) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void registered_end(struct registered *memory) {
    if (memory->alias != NULL)
        munmap(memory->alias, memory->size);
    memory->alias = NULL;
}

uint64_t registered_address(const struct registered *memory, const void *pointer) {
    uint64_t start = (uint64_t)(memory->alias != NULL ? memory->alias : memory->start);
    return start + ((uint64_t)pointer - (uint64_t)memory->start);
}

bool registered_is_there(const struct registered *memory) {
    size_t n = memory->size / SIM_PAGE;
    unsigned char *states = memory->alias != NULL ? malloc(n) : NULL;
    bool is_there = true;
    if (states != NULL && mincore(memory->alias, memory->size, states) == 0)
        for (size_t i = 0; i < n; i++)
            is_there &= states[i] & 1;
    free(states);
    return is_there;
}
