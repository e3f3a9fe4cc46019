/* Shortens names of nodes and tensors. */
#include "common/graph/short_name.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/map.h"

enum { DIGITS = 16, KEPT_BYTES = SHORT_NAME_BYTES - DIGITS - 1 };

struct span short_name(const char *name, char buffer[SHORT_NAME_BYTES + 1]) {
    size_t len = strlen(name);
    if (len <= SHORT_NAME_BYTES)
        return (struct span){name, len};
    /* the seed of a process's maps would tell tasks apart */
    snprintf(buffer, SHORT_NAME_BYTES + 1, "%.*s~%0*" PRIx64, KEPT_BYTES, name, DIGITS,
             hash_bytes(name, len, 0));
    return (struct span){buffer, SHORT_NAME_BYTES};
}
