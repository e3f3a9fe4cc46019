/* Decides whether another process is alive, from the messages that arrive from it. One heartbeat
 * watches one process, over any number of connections.
 *
 * A heartbeat does no I/O and reads no clock. Its owner calls it for each tick and each message,
 * and gets what has to be done: send a ping, or end the connections of a lost process.
 *
 *          heartbeat_start      n_misses silent intervals
 *   OFF ───────────────────► WATCHING ─────────────────────────────► OFF, HEARTBEAT_LOST once
 *    ▲                        │  ▲ │ a tick, once an interval: HEARTBEAT_PING
 *    └─────heartbeat_stop─────┘  └─┘ any message: the silence is 0 again
 *
 * Each tick adds the time since the last tick to the silence, but at most one and a half periods.
 * So a process that was stopped, or whose host slept, first reads what has arrived meanwhile. It
 * does not conclude that all others are dead.
 *
 * The round trip and the clock offset are measured as NTP does. Of the last 8 replies, the one with
 * the shortest round trip gives the offset, with an error of at most half that round trip. The
 * round trip that is shown is smoothed over the replies.
 *
 * Its owner's lock or thread guards a heartbeat. */
#ifndef MILLRACE_RPC_WIRE_HEARTBEAT_H
#define MILLRACE_RPC_WIRE_HEARTBEAT_H

#include "common/base/status.h"
#include "common/base/str.h"

enum { HEARTBEAT_DEFAULT_MS = 2000, HEARTBEAT_MISSES = 3, HEARTBEAT_SAMPLES = 8 };

/* What the owner must do after a tick. */
enum heartbeat_action { HEARTBEAT_NOTHING = 0, HEARTBEAT_PING = 1, HEARTBEAT_LOST = 2 };

struct heartbeat_sample {
    int64_t rtt_ns, offset_us;
};

struct heartbeat {
    bool is_on, is_passive;
    int64_t interval_ns;
    int64_t tick_ns, heard_ns; /* the times of the last tick and of the last message */
    int64_t silent_ns;         /* counted since the last message */
    int64_t ping_ns;           /* when the last ping was sent */
    uint64_t ping_id;          /* of the last ping; 0: none was sent */
    bool is_answered;          /* the last ping */
    int64_t rtt_ns;            /* smoothed; 0: not measured yet */
    struct heartbeat_sample samples[HEARTBEAT_SAMPLES];
    unsigned n_samples;
    /* how many pings were not answered when the next one was due, over all starts */
    uint64_t n_missed;
};

/* Returns how often the owner has to tick, in milliseconds, for a ping every interval_ms. */
int64_t heartbeat_tick_ms(int64_t interval_ms);

/* Starts to watch. All-zero is OFF. A passive heartbeat sends no pings; it expects those of the
 * other process. `now_ns` is the monotonic clock in all functions. */
void heartbeat_start(struct heartbeat *heartbeat, int64_t interval_ms, bool is_passive,
                     int64_t now_ns);
void heartbeat_stop(struct heartbeat *heartbeat);
/* Returns HEARTBEAT_NOTHING, HEARTBEAT_PING (the owner sends heartbeat_ping's message) or
 * HEARTBEAT_LOST. OFF does nothing. */
unsigned heartbeat_tick(struct heartbeat *heartbeat, int64_t now_ns) MUST_USE;
/* A message of any type has arrived. */
static inline void heartbeat_heard(struct heartbeat *heartbeat, int64_t now_ns) {
    heartbeat->heard_ns = now_ns;
    heartbeat->silent_ns = 0;
}
/* Returns how far the other process' clock is ahead of ours, in microseconds; 0 while nothing is
 * known. */
int64_t heartbeat_offset_us(const struct heartbeat *heartbeat);
/* Returns the shortest of the last round trips; 0 while none is known. */
int64_t heartbeat_shortest_rtt_ns(const struct heartbeat *heartbeat);
/* Makes the status UNAVAILABLE "no sign of life for 6.0 s". */
struct status *heartbeat_silence(const struct heartbeat *heartbeat, int64_t now_ns) MUST_USE;

/* ---- the metas of WIRE_PING and WIRE_PONG (proto/worker.proto, Ping) ---- */

/* Appends the meta of the ping that a tick asked for, and notes that it is sent now. The message's
 * id is heartbeat->ping_id afterwards. `wall_us` is the wall clock. */
void heartbeat_ping(struct heartbeat *heartbeat, int64_t now_ns, int64_t wall_us,
                    struct str *ret_meta);
/* Appends the meta of the reply to a ping: the ping's meta, and our wall clock. Needs no
 * heartbeat. */
void heartbeat_answer(struct span ping_meta, int64_t wall_us, struct str *ret_meta);
/* A reply has arrived. One to an older ping, or a malformed one, only ends the silence. */
void heartbeat_pong(struct heartbeat *heartbeat, int64_t now_ns, uint64_t id, struct span meta);
/* Returns the interval that a ping states; 0 when it states none. */
int64_t heartbeat_ping_interval_ms(struct span ping_meta);
/* Append the meta of a PONG with id 0, by which a task says unasked that it was told to stop, and
 * that it now ends its connections. */
void heartbeat_add_draining(struct str *ret_meta);
void heartbeat_add_leaving(struct str *ret_meta);
bool heartbeat_is_draining(struct span pong_meta);
bool heartbeat_is_leaving(struct span pong_meta);

#endif
