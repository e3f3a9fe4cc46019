/* CUDA_VISIBLE_DEVICES: which of the host's devices a process sees, and in which order.
 *
 * The list ends at the first entry that is neither the index of a device nor the beginning of one
 * UUID only ("GPU-6d696c6c"). A device that is listed twice leaves none. */
#include "tests/cuda/sim/driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UUID_TEXT_BYTES = 4 + 36 + 1 };

void device_uuid(int physical, CUuuid *ret_uuid) {
    memcpy(ret_uuid->bytes, "millrace-sim-gpu", sizeof ret_uuid->bytes);
    ret_uuid->bytes[15] = (char)physical;
}

/* "GPU-6d696c6c-7261-6365-2d73-696d2d677001" */
static void uuid_print(int physical, char *out) {
    CUuuid uuid;
    char *at = out + snprintf(out, UUID_TEXT_BYTES, "GPU-");
    device_uuid(physical, &uuid);
    for (int i = 0; i < 16; i++)
        at += snprintf(at, 4, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                       (unsigned char)uuid.bytes[i]);
}

/* -1: no device, or more than one. */
static int find_by_uuid(const char *item, int n_physical) {
    int found = -1;
    for (int d = 0; d < n_physical; d++) {
        char text[UUID_TEXT_BYTES];
        uuid_print(d, text);
        if (strncmp(text, item, strlen(item)) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = d;
    }
    return found;
}

static int find(const char *item, int n_physical) {
    char *end;
    if (strncmp(item, "GPU-", 4) == 0)
        return find_by_uuid(item, n_physical);
    long index = strtol(item, &end, 10);
    bool is_index = *item != '\0' && *end == '\0' && index >= 0 && index < n_physical;
    return is_index ? (int)index : -1;
}

int devices_visible(const char *list, int n_physical, int *ret_physical) {
    char *copy = strdup(list), *rest = copy, *item;
    bool is_seen[SIM_MAX_DEVICES] = {false};
    int n = 0, physical;
    while (copy != NULL && (item = strsep(&rest, ",")) != NULL &&
           (physical = find(item, n_physical)) >= 0) {
        if (is_seen[physical]) {
            n = 0;
            break;
        }
        is_seen[physical] = true;
        ret_physical[n++] = physical;
    }
    free(copy);
    return n;
}
