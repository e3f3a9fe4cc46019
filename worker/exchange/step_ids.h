/* Remembers which steps have ended.
 *
 * A step id has 24 bits that tell masters apart and 40 bits of sequence number. For each master
 * there is a window of bits, which begins at the oldest step that may still run. Steps below the
 * window have ended, and so have those whose bit is set. All other steps run, or have not begun.
 *
 * The owner's lock guards it. */
#ifndef MILLRACE_WORKER_EXCHANGE_STEP_IDS_H
#define MILLRACE_WORKER_EXCHANGE_STEP_IDS_H

#include "common/base/map.h"

enum {
    STEP_SEQUENCE_BITS = 40,
    /* how many ids a window covers (2 MiB of bits); older ones count as ended */
    STEP_WINDOW_MAX = 1 << 24,
    /* How many windows there may be; a further one replaces another. Real masters never need so
     * many, only forged ids do. */
    STEP_MASTERS_MAX = 2048,
};

struct step_ids {
    struct u64map masters; /* step id >> STEP_SEQUENCE_BITS, plus one → struct step_window */
};

static inline uint64_t step_id_master(uint64_t step_id) { return step_id >> STEP_SEQUENCE_BITS; }

void step_ids_init(struct step_ids *ids);
void step_ids_fini(struct step_ids *ids);
bool step_ids_is_ended(const struct step_ids *ids, uint64_t step_id);
void step_ids_end(struct step_ids *ids, uint64_t step_id); /* marks the step as ended */
/* Marks all ids of the same master below `oldest_live` as ended. */
void step_ids_prune(struct step_ids *ids, uint64_t oldest_live);
/* Drops the window of a master that will not return. `master` is as from step_id_master. */
void step_ids_forget(struct step_ids *ids, uint64_t master);

#endif
