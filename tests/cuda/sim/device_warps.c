/* Operations of a warp: lanes meet, and the last to come computes what each gets. */
#include "tests/cuda/sim/device.h"
#include "tests/cuda/sim/device_grid.h"
#include <string.h>

enum warp_operation { WARP_BARRIER, WARP_SHUFFLE, WARP_BALLOT, WARP_MATCH };

static uint16_t warp_epochs[MAX_THREADS / WARP];
static uint8_t n_waiting[MAX_THREADS / WARP];

void warps_init(void) {
    memset(warp_epochs, 0, sizeof warp_epochs);
    memset(n_waiting, 0, sizeof n_waiting);
}

static struct thread *lane_of(uint32_t warp, uint32_t lane) {
    return grid_thread(warp * WARP + lane);
}

unsigned sim_lane(void) { return sim_thread->number % WARP; }

unsigned sim_active_mask(void) {
    uint32_t warp = sim_thread->number / WARP, mask = 0;
    for (uint32_t lane = 0; lane < WARP; lane++) {
        const struct thread *thread = lane_of(warp, lane);
        if (thread != NULL && thread->state != THREAD_ENDED)
            mask |= 1u << lane;
    }
    return mask;
}

/* Have all lanes of the mask that have not ended come to the same operation? */
static bool is_complete(uint32_t warp, const struct thread *first) {
    for (uint32_t lane = 0; lane < WARP; lane++) {
        const struct thread *thread = lane_of(warp, lane);
        if (!(first->mask >> lane & 1) || thread == NULL || thread->state == THREAD_ENDED)
            continue;
        if (thread->state != THREAD_IN_WARP || thread->mask != first->mask ||
            thread->kind != first->kind || thread->line != first->line)
            return false;
    }
    return true;
}

static unsigned long result_of(uint32_t warp, const struct thread *own) {
    unsigned long result = own->kind == WARP_SHUFFLE ? ~0ul : 0; /* of a lane that gives nothing */
    for (uint32_t lane = 0; lane < WARP; lane++) {
        const struct thread *thread = lane_of(warp, lane);
        if (!(own->mask >> lane & 1) || thread == NULL || thread->state != THREAD_IN_WARP)
            continue;
        if (own->kind == WARP_SHUFFLE && own->source == (int)lane)
            result = thread->value;
        else if (own->kind == WARP_BALLOT && thread->value != 0)
            result |= 1u << lane;
        else if (own->kind == WARP_MATCH && thread->value == own->value)
            result |= 1u << lane;
    }
    return result;
}

static void complete(uint32_t warp, const struct thread *first) {
    uint32_t mask = first->mask;
    bool is_barrier = first->kind == WARP_BARRIER;
    for (uint32_t lane = 0; lane < WARP; lane++) {
        struct thread *thread = lane_of(warp, lane);
        if ((mask >> lane & 1) && thread != NULL && thread->state == THREAD_IN_WARP)
            thread->result = result_of(warp, thread);
    }
    warp_epochs[warp] += is_barrier;
    for (uint32_t lane = 0; lane < WARP; lane++) {
        struct thread *thread = lane_of(warp, lane);
        if (!(mask >> lane & 1) || thread == NULL || thread->state != THREAD_IN_WARP)
            continue;
        n_waiting[warp]--;
        if (is_barrier)
            thread->warp_epoch = warp_epochs[warp];
        grid_make_ready(thread);
    }
}

void warp_thread_ended(const struct thread *ended) {
    uint32_t warp = ended->number / WARP;
    for (uint32_t lane = 0; n_waiting[warp] > 0 && lane < WARP; lane++) {
        const struct thread *thread = lane_of(warp, lane);
        if (thread != NULL && thread->state == THREAD_IN_WARP && is_complete(warp, thread))
            complete(warp, thread);
    }
}

static unsigned long warp_meet(enum warp_operation kind, unsigned mask, unsigned long value,
                               int source, const char *file, int line) {
    struct thread *thread = sim_thread;
    uint32_t warp = thread->number / WARP;
    thread->kind = kind;
    thread->mask = mask;
    thread->value = value;
    thread->source = source;
    thread->file = file;
    thread->line = line;
    thread->state = THREAD_IN_WARP;
    if (!(mask >> sim_lane() & 1)) {
        report("a warp operation at %s:%d: lane %u calls it and is not in its mask 0x%x", file,
               line, sim_lane(), mask);
        operation_abandon(CUDA_ERROR_LAUNCH_FAILED);
    }
    n_waiting[warp]++;
    if (is_complete(warp, thread)) {
        complete(warp, thread);
        grid_wait(THREAD_READY);
    } else {
        grid_wait(THREAD_IN_WARP);
    }
    return thread->result;
}

void sim_warp_barrier(unsigned mask, const char *file, int line) {
    warp_meet(WARP_BARRIER, mask, 0, 0, file, line);
}

unsigned long sim_shuffle(unsigned mask, unsigned long value, int source, const char *file,
                          int line) {
    return warp_meet(WARP_SHUFFLE, mask, value, source, file, line);
}

unsigned sim_match(unsigned mask, unsigned long value, const char *file, int line) {
    return (unsigned)warp_meet(WARP_MATCH, mask, value, 0, file, line);
}

unsigned sim_ballot(unsigned mask, int predicate, const char *file, int line) {
    return (unsigned)warp_meet(WARP_BALLOT, mask, (unsigned long)predicate, 0, file, line);
}
