/* Is the other end alive? A pure machine for one task at the other end of some connections: ticks
 * and messages in, what to do out. No I/O and no clock: the caller brings the time, sends the pings
 * and ends what is lost.
 *
 *          heartbeat_start      n_misses silent intervals
 *   OFF ───────────────────► WATCHING ─────────────────────────────► OFF, HEARTBEAT_LOST once
 *    ▲                        │  ▲ │ a tick, once an interval: HEARTBEAT_PING
 *    └─────heartbeat_stop─────┘  └─┘ any message: the silence begins again
 *
 * Silence is counted tick by tick, and a tick adds at most one and a half of its periods: a process
 * that was stopped itself, or a host that slept, hears what has come meanwhile before it takes
 * everybody else for dead.
 *
 * Round trip and clock offset are measured as NTP does it: of the last 8 answers, the one with
 * the shortest round trip tells the offset (its error is at most half of that); the round trip
 * is smoothed over them. */
#ifndef MILLRACE_RPC_WIRE_HEARTBEAT_H
#define MILLRACE_RPC_WIRE_HEARTBEAT_H

#include "common/base/status.h"
#include "common/base/str.h"

enum { HEARTBEAT_DEFAULT_MS = 2000, HEARTBEAT_MISSES = 3, HEARTBEAT_SAMPLES = 8 };

/* What the caller must do after a tick; flags. */
enum heartbeat_action { HEARTBEAT_NOTHING = 0, HEARTBEAT_PING = 1, HEARTBEAT_LOST = 2 };

struct heartbeat_sample {
    int64_t rtt_ns, offset_us;
};

struct heartbeat {
    bool is_on, is_passive;
    int64_t interval_ns;
    int64_t tick_ns, heard_ns; /* the last ones */
    int64_t silent_ns;         /* counted so far */
    int64_t ping_ns;           /* when the last ping went out */
    uint64_t ping_id;          /* 0: none has */
    bool is_answered;
    int64_t rtt_ns; /* smoothed; 0: not measured yet */
    struct heartbeat_sample samples[HEARTBEAT_SAMPLES];
    unsigned n_samples;
    uint64_t n_missed; /* pings whose answer had not come when the next was due; over all starts */
};

/* How often the owner has to tick, in milliseconds, for pings every interval_ms. */
int64_t heartbeat_tick_ms(int64_t interval_ms);

/* All-zero is OFF. Passive: never asks for a ping, only watches that somebody else's come. */
void heartbeat_start(struct heartbeat *heartbeat, int64_t interval_ms, bool is_passive,
                     int64_t now_ns);
void heartbeat_stop(struct heartbeat *heartbeat);
unsigned heartbeat_tick(struct heartbeat *heartbeat, int64_t now_ns) MUST_USE;
/* Anything at all has come from the other end. */
static inline void heartbeat_heard(struct heartbeat *heartbeat, int64_t now_ns) {
    heartbeat->heard_ns = now_ns;
    heartbeat->silent_ns = 0;
}
/* The other end's clock is so much ahead of ours, in microseconds; 0 while nothing is known. */
int64_t heartbeat_offset_us(const struct heartbeat *heartbeat);
/* UNAVAILABLE "no sign of life for 6.0 s". */
struct status *heartbeat_silence(const struct heartbeat *heartbeat, int64_t now_ns) MUST_USE;

/* ---- the messages: metas of WIRE_PING and WIRE_PONG (proto/worker.proto, Ping) ---- */

/* The ping that a tick asked for: its meta; its id is heartbeat->ping_id. */
void heartbeat_ping(struct heartbeat *heartbeat, int64_t now_ns, int64_t wall_us,
                    struct str *ret_meta);
/* The answer to anybody's ping: its own meta, and our time. */
void heartbeat_answer(struct span ping_meta, int64_t wall_us, struct str *ret_meta);
/* An answer has come. One to an older ping, or a malformed one, is a sign of life and no more. */
void heartbeat_pong(struct heartbeat *heartbeat, int64_t now_ns, uint64_t id, struct span meta);
/* What a ping says of its sender's interval; 0 where it says nothing. */
int64_t heartbeat_ping_interval_ms(struct span ping_meta);

#endif
