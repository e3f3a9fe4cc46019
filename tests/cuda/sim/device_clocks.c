/* Vector clocks: which operations happen before which, by streams, events and the host's waits. */
#include "tests/cuda/sim/device.h"

/* The host is taken for one thread: what any of its threads has waited for is known to all. So an
 * order may be assumed that the host's threads do not have, and no order is missed that they do. */
struct clocks host_clocks;

void clocks_join(struct clocks *clocks, const struct clocks *other) {
    for (int s = 0; s < SIM_MAX_STREAMS; s++)
        if (clocks->of[s] < other->of[s])
            clocks->of[s] = other->of[s];
}
