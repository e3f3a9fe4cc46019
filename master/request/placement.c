/* The names of the ways to place. */
#include "master/request/placement.h"

const char *const placement_names[] = {
    [PLACEMENT_SIMPLE] = "simple", [PLACEMENT_SPREAD] = "spread", [PLACEMENT_COST] = "cost", NULL};

bool placement_find(struct span name, enum placement *ret) {
    for (int i = 0; placement_names[i]; i++) {
        *ret = (enum placement)i;
        if (span_is(name, placement_names[i]))
            return true;
    }
    return false;
}
