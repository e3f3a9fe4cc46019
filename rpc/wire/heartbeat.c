/* Counts the silence of another process, and measures its round trip and clock. */
#include "rpc/wire/heartbeat.h"

#include <string.h>

#include "common/tensor/tensor_proto.h"
#include "rpc/wire/link_report.h"

enum { TICKS_PER_INTERVAL = 2, MAX_INTERVAL_MS = 24 * 3600 * 1000, MAX_PING_BYTES = 256 };

/* Field numbers of Ping. */
enum {
    PING_SENT_US = 1,
    PING_INTERVAL_MS = 2,
    PING_ANSWERED_US = 3,
    PING_IS_DRAINING = 5,
    PING_IS_LEAVING = 6
};

int64_t heartbeat_tick_ms(int64_t interval_ms) {
    return MAX(interval_ms / TICKS_PER_INTERVAL, (int64_t)1);
}

void heartbeat_start(struct heartbeat *heartbeat, int64_t interval_ms, bool is_passive,
                     int64_t now_ns) {
    *heartbeat = (struct heartbeat){.is_on = true,
                                    .is_passive = is_passive,
                                    .interval_ns = interval_ms * 1000000,
                                    .tick_ns = now_ns,
                                    .heard_ns = now_ns,
                                    /* so the first tick asks for a ping */
                                    .ping_ns = now_ns - interval_ms * 1000000,
                                    .ping_id = heartbeat->ping_id,
                                    .is_answered = true,
                                    .n_missed = heartbeat->n_missed};
}

void heartbeat_stop(struct heartbeat *heartbeat) { heartbeat->is_on = false; }

unsigned heartbeat_tick(struct heartbeat *heartbeat, int64_t now_ns) {
    if (!heartbeat->is_on)
        return HEARTBEAT_NOTHING;
    int64_t period_ns = heartbeat->interval_ns / TICKS_PER_INTERVAL;
    int64_t passed_ns = now_ns - MAX(heartbeat->tick_ns, heartbeat->heard_ns);
    heartbeat->silent_ns += MIN(passed_ns, period_ns * 3 / 2);
    heartbeat->tick_ns = now_ns;
    /* Replies arrive just after a tick. Without this slack every silence would be noticed one tick
     * late. */
    if (heartbeat->silent_ns >= HEARTBEAT_MISSES * heartbeat->interval_ns - period_ns / 4) {
        heartbeat->is_on = false;
        return HEARTBEAT_LOST;
    }
    if (heartbeat->is_passive ||
        now_ns - heartbeat->ping_ns < heartbeat->interval_ns - period_ns / 2)
        return HEARTBEAT_NOTHING;
    heartbeat->n_missed += !heartbeat->is_answered;
    return HEARTBEAT_PING;
}

struct status *heartbeat_silence(const struct heartbeat *heartbeat, int64_t now_ns) {
    return status_unavailable("no sign of life for %.1f s",
                              (double)(now_ns - heartbeat->heard_ns) / 1e9);
}

/* ---- measuring ---- */

static void add_sample(struct heartbeat *heartbeat, int64_t rtt_ns, int64_t offset_us) {
    heartbeat->samples[heartbeat->n_samples++ % HEARTBEAT_SAMPLES] =
        (struct heartbeat_sample){rtt_ns, offset_us};
    heartbeat->rtt_ns = heartbeat->rtt_ns == 0
                            ? rtt_ns
                            : heartbeat->rtt_ns + (rtt_ns - heartbeat->rtt_ns) / HEARTBEAT_SAMPLES;
}

static const struct heartbeat_sample *shortest(const struct heartbeat *heartbeat) {
    const struct heartbeat_sample *best = &heartbeat->samples[0];
    unsigned n = MIN(heartbeat->n_samples, (unsigned)HEARTBEAT_SAMPLES);
    for (unsigned i = 1; i < n; i++)
        if (heartbeat->samples[i].rtt_ns < best->rtt_ns)
            best = &heartbeat->samples[i];
    return n > 0 ? best : NULL;
}

int64_t heartbeat_offset_us(const struct heartbeat *heartbeat) {
    const struct heartbeat_sample *best = shortest(heartbeat);
    return best ? best->offset_us : 0;
}

int64_t heartbeat_shortest_rtt_ns(const struct heartbeat *heartbeat) {
    const struct heartbeat_sample *best = shortest(heartbeat);
    return best ? best->rtt_ns : 0;
}

/* ---- messages ---- */

void heartbeat_ping(struct heartbeat *heartbeat, int64_t now_ns, int64_t wall_us,
                    struct str *ret_meta) {
    heartbeat->ping_id++;
    heartbeat->ping_ns = now_ns;
    heartbeat->is_answered = false;
    proto_add_fixed64(ret_meta, PING_SENT_US, (uint64_t)wall_us);
    proto_add_int(ret_meta, PING_INTERVAL_MS, (uint64_t)(heartbeat->interval_ns / 1000000));
}

void heartbeat_answer(struct span ping_meta, int64_t wall_us, struct str *ret_meta) {
    str_add_bytes(ret_meta, ping_meta.data, MIN(ping_meta.len, (size_t)MAX_PING_BYTES));
    proto_add_fixed64(ret_meta, PING_ANSWERED_US, (uint64_t)wall_us);
}

static bool read_field(struct span meta, uint32_t number, uint32_t wire_type,
                       struct proto_field *ret) {
    bool found = false;
    struct proto_field field;
    while (proto_next(&meta, &field) > 0)
        if (field.number == number && field.wire_type == wire_type) {
            *ret = field;
            found = true;
        }
    return found;
}

int64_t heartbeat_ping_interval_ms(struct span ping_meta) {
    struct proto_field field;
    if (ping_meta.len > MAX_PING_BYTES || !read_field(ping_meta, PING_INTERVAL_MS, 0, &field))
        return 0;
    return field.value <= MAX_INTERVAL_MS ? (int64_t)field.value : MAX_INTERVAL_MS;
}

void heartbeat_add_draining(struct str *ret_meta) { proto_add_int(ret_meta, PING_IS_DRAINING, 1); }
void heartbeat_add_leaving(struct str *ret_meta) { proto_add_int(ret_meta, PING_IS_LEAVING, 1); }

static bool is_set(struct span pong_meta, uint32_t number) {
    struct proto_field field;
    return pong_meta.len <= LINK_REPLY_MAX_BYTES && read_field(pong_meta, number, 0, &field) &&
           field.value == 1;
}

bool heartbeat_is_draining(struct span pong_meta) { return is_set(pong_meta, PING_IS_DRAINING); }
bool heartbeat_is_leaving(struct span pong_meta) { return is_set(pong_meta, PING_IS_LEAVING); }

void heartbeat_pong(struct heartbeat *heartbeat, int64_t now_ns, uint64_t id, struct span meta) {
    struct proto_field sent, answered;
    heartbeat_heard(heartbeat, now_ns);
    if (!heartbeat->is_on || id != heartbeat->ping_id || heartbeat->is_answered)
        return;
    heartbeat->is_answered = true;
    int64_t rtt_ns = MAX(now_ns - heartbeat->ping_ns, (int64_t)1);
    if (meta.len > LINK_REPLY_MAX_BYTES || !read_field(meta, PING_SENT_US, 1, &sent) ||
        !read_field(meta, PING_ANSWERED_US, 1, &answered))
        return;
    /* Unsigned, because a stranger's numbers may overflow. */
    add_sample(heartbeat, rtt_ns,
               (int64_t)(answered.value - sent.value - (uint64_t)(rtt_ns / 2000)));
}
