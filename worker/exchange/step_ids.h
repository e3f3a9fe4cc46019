/* The memory of ended steps. A step id is (24 bits that tell masters apart, 40 bits of
 * sequence); per master, a window of bits from the oldest step that may still be alive: what
 * lies below has ended, what is marked has ended, all else is alive or yet to come. Not locked:
 * its owner's lock guards it. */
#ifndef MILLRACE_WORKER_EXCHANGE_STEP_IDS_H
#define MILLRACE_WORKER_EXCHANGE_STEP_IDS_H

#include "common/base/map.h"

enum {
    STEP_SEQUENCE_BITS = 40,
    /* ids a window spans at most (2 MiB of bits): beyond, the oldest count as ended */
    STEP_WINDOW_MAX = 1 << 24,
    /* windows: beyond, one is forgotten, as only ids that no master of ours gave out make so
     * many */
    STEP_MASTERS_MAX = 2048,
};

struct step_ids {
    struct u64map masters; /* step id >> STEP_SEQUENCE_BITS, plus one → struct step_window */
};

static inline uint64_t step_id_master(uint64_t step_id) { return step_id >> STEP_SEQUENCE_BITS; }

void step_ids_init(struct step_ids *ids);
void step_ids_fini(struct step_ids *ids);
bool step_ids_is_ended(const struct step_ids *ids, uint64_t step_id);
void step_ids_end(struct step_ids *ids, uint64_t step_id);
/* All ids of its master below `oldest_live` have ended. */
void step_ids_prune(struct step_ids *ids, uint64_t oldest_live);
/* The master is gone for good: what is known of its steps goes. */
void step_ids_forget(struct step_ids *ids, uint64_t master);

#endif
