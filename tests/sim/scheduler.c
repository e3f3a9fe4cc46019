/* Virtual time: a heap of events, and the one source of randomness. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/splitmix.h"
#include "tests/sim/sim.h"

struct event {
    int64_t when_ns;
    /* random in its upper half: events of one moment come in any order; then the count, so that
     * none are alike */
    uint64_t order;
    void (*run)(void *arg, uint64_t number);
    void *arg;
    uint64_t number;
};

static struct {
    struct event *events;
    size_t n, capacity;
    int64_t now_ns;
    uint64_t state[2]; /* xorshift128+ */
    uint64_t n_events, hash;
    bool is_traced;
} sim;

void (*sim_on_fail)(const char *message);

/* ---- randomness ---- */

uint64_t sim_random(void) {
    uint64_t a = sim.state[0], b = sim.state[1];
    sim.state[0] = b;
    a ^= a << 23;
    sim.state[1] = a ^ b ^ (a >> 18) ^ (b >> 5);
    return sim.state[1] + b;
}

uint64_t sim_below(uint64_t n) { return (uint64_t)(((unsigned __int128)sim_random() * n) >> 64); }
int64_t sim_between(int64_t low, int64_t high) {
    return low + (int64_t)sim_below((uint64_t)(high - low) + 1);
}
bool sim_chance(int per_thousand) { return sim_below(1000) < (uint64_t)per_thousand; }

/* ---- the heap ---- */

static bool is_before(const struct event *a, const struct event *b) {
    return a->when_ns != b->when_ns ? a->when_ns < b->when_ns : a->order < b->order;
}

void sim_at(int64_t when_ns, void (*run)(void *arg, uint64_t number), void *arg, uint64_t number) {
    if (sim.n == sim.capacity) {
        sim.capacity = MAX(2 * sim.capacity, (size_t)1024);
        sim.events = xrealloc(sim.events, sim.capacity * sizeof(*sim.events));
    }
    struct event event = {.when_ns = MAX(when_ns, sim.now_ns),
                          .order = (sim_random() & 0xffffffff00000000u) | (uint32_t)sim.n_events++,
                          .run = run,
                          .arg = arg,
                          .number = number};
    size_t i = sim.n++;
    for (; i > 0 && is_before(&event, &sim.events[(i - 1) / 2]); i = (i - 1) / 2)
        sim.events[i] = sim.events[(i - 1) / 2];
    sim.events[i] = event;
}

static struct event take_first(void) {
    struct event first = sim.events[0], last = sim.events[--sim.n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= sim.n)
            break;
        if (child + 1 < sim.n && is_before(&sim.events[child + 1], &sim.events[child]))
            child++;
        if (!is_before(&sim.events[child], &last))
            break;
        sim.events[i] = sim.events[child];
        i = child;
    }
    sim.events[i] = last;
    return first;
}

/* ---- time ---- */

int64_t sim_now_ns(void) { return sim.now_ns; }
void sim_pass(int64_t ns) { sim.now_ns += ns; }

void sim_begin(uint64_t seed, bool is_traced) {
    enum { START_SECONDS = 1000 };
    free(sim.events);
    memset(&sim, 0, sizeof(sim));
    sim.state[0] = splitmix64(&seed);
    sim.state[1] = splitmix64(&seed);
    sim.now_ns = START_SECONDS * SIM_SECOND;
    sim.is_traced = is_traced;
}

bool sim_run_until(bool (*is_over)(void), int64_t end_ns) {
    while (!is_over()) {
        if (sim.n == 0 || sim.events[0].when_ns > end_ns)
            return false;
        struct event event = take_first();
        sim.now_ns = MAX(sim.now_ns, event.when_ns);
        event.run(event.arg, event.number);
    }
    return true;
}

/* ---- the trace ---- */

uint64_t sim_trace_hash(void) { return sim.hash; }
bool sim_is_traced(void) { return sim.is_traced; }

void sim_trace(const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    sim.hash = hash_bytes(line, (size_t)MIN(n, (int)sizeof(line) - 1),
                          hash_mix(sim.hash, (uint64_t)sim.now_ns));
    if (sim.is_traced)
        printf("%12.6f %-14s %s\n", (double)sim.now_ns / 1e9, sim_current ? sim_current->name : "-",
               line);
}

void sim_fail(const char *format, ...) {
    char message[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    sim_trace("FAILED: %s", message);
    sim_on_fail(message);
    abort();
}
