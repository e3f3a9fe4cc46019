/* Finds uses of memory that nothing orders, by vector clocks. */
#include "tests/cuda/sim/device_access.h"

/* A pair of operations is reported once, however many pages they share. */
enum { MAX_REPORTED = 16 };
static uint32_t reporter_stream, reporter_clock;
static struct access reported[MAX_REPORTED];
static int n_reported;

static bool is_reported(const struct access *other) {
    if (reporter_stream != running->message.stream || reporter_clock != running->message.clock) {
        reporter_stream = running->message.stream;
        reporter_clock = running->message.clock;
        n_reported = 0;
    }
    for (int i = 0; i < n_reported; i++)
        if (reported[i].stream == other->stream && reported[i].clock == other->clock)
            return true;
    if (n_reported == MAX_REPORTED)
        return true;
    reported[n_reported++] = *other;
    return false;
}

static bool is_ordered(const struct access *other, const struct clocks *clocks) {
    return other->clock == 0 || clocks->of[other->stream] >= other->clock;
}

static void check(const struct access *other, uint64_t address, bool is_write, bool was_write) {
    if (is_ordered(other, &running->clocks) || is_reported(other))
        return;
    report(
        "a missing wait: \"%s\" (stream %u, operation %u) %s 0x%lx, \"%s\" (stream %u, operation "
        "%u) %s it, and nothing orders them",
        name_text(running->name), running->message.stream, running->message.clock,
        is_write ? "writes" : "reads", (unsigned long)address, name_text(other->name),
        other->stream, other->clock, was_write ? "wrote" : "read");
}

void access_note(struct access_history *history, uint64_t address, bool is_write) {
    struct access own = {.clock = running->message.clock,
                         .stream = running->message.stream & 0xff,
                         .name = running->name & 0xffffff};
    check(&history->write, address, is_write, true);
    if (is_write) {
        for (int i = 0; i < MAX_READS; i++)
            check(&history->reads[i], address, true, false);
        *history = (struct access_history){.write = own};
        return;
    }
    /* A read that is ordered before this one conflicts with nothing that this one does not. */
    int free_slot = 0;
    for (int i = 0; i < MAX_READS; i++)
        if (is_ordered(&history->reads[i], &running->clocks)) {
            history->reads[i].clock = 0;
            free_slot = i;
        }
    history->reads[free_slot] = own;
}

const struct access *access_unknown_to(const struct access_history *history,
                                       const struct clocks *clocks) {
    if (!is_ordered(&history->write, clocks))
        return &history->write;
    for (int i = 0; i < MAX_READS; i++)
        if (!is_ordered(&history->reads[i], clocks))
            return &history->reads[i];
    return NULL;
}
