/* Remembers the steps that have pushed values which the peer has not acknowledged, and tells the
 * peer of them when their connection has been lost (peer.h). */
#include <stdlib.h>

#include "proto/worker.pb-c.h"
#include "worker/exchange/peer_internal.h"

enum { STEPS_PER_MESSAGE = 1 << 16 };
static void *const STEP_RUNS_ON = (void *)UINTPTR_MAX;

/* ---- noting ---- */

bool peer_queue_first(struct peer *peer, uint64_t step, const struct wire_out *message) {
    pthread_mutex_lock(&peer->lock);
    struct transport_channel *channel = peer->channels[CHANNEL_CONTROL];
    if (channel) {
        u64map_put(&peer->unacknowledged, step, STEP_RUNS_ON);
        transport_channel_ref(channel);
    }
    pthread_mutex_unlock(&peer->lock);
    if (!channel)
        return false;
    channel->transport->queue(channel, message);
    transport_channel_unref(channel);
    return true;
}

void peer_step_ended(struct peer *peer, uint64_t step) {
    pthread_mutex_lock(&peer->lock);
    if (u64map_get(&peer->unacknowledged, step))
        u64map_put(&peer->unacknowledged, step, (void *)(uintptr_t)(peer->last_ping_id + 1));
    pthread_mutex_unlock(&peer->lock);
}

void peer_steps_pinged(struct peer *peer, uint64_t ping_id) {
    pthread_mutex_lock(&peer->lock);
    peer->last_ping_id = ping_id;
    pthread_mutex_unlock(&peer->lock);
}

void peer_steps_ponged(struct peer *peer, uint64_t ping_id) {
    size_t cursor = 0;
    uint64_t step;
    void *value;
    pthread_mutex_lock(&peer->lock);
    while (ping_id <= peer->last_ping_id &&
           u64map_next(&peer->unacknowledged, &cursor, &step, &value))
        if ((uintptr_t)value <= ping_id)
            u64map_remove(&peer->unacknowledged, step);
    pthread_mutex_unlock(&peer->lock);
}

/* ---- telling ---- */

static void tell(struct transport_channel *channel, uint64_t *steps, size_t n_steps) {
    Millrace__LostSteps message = MILLRACE__LOST_STEPS__INIT;
    message.step = steps;
    message.n_step = n_steps;
    size_t len = millrace__lost_steps__get_packed_size(&message);
    uint8_t *bytes = xmalloc(len + 1);
    millrace__lost_steps__pack(&message, bytes);
    channel->transport->queue(
        channel, &(struct wire_out){.type = WIRE_LOST_STEPS, .meta = {(const char *)bytes, len}});
    free(bytes);
}

/* A step that is noted after the channel was published pushes over that channel, so it must not be
 * among the named ones. Therefore both happen under one hold of the lock. */
void peer_steps_publish(struct peer *peer, struct transport_channel *channel_take) {
    size_t n = 0, cursor = 0;
    uint64_t step;
    void *value;
    pthread_mutex_lock(&peer->lock);
    uint64_t *steps = xcalloc(peer->unacknowledged.n_entries + 1, sizeof(uint64_t));
    while (u64map_next(&peer->unacknowledged, &cursor, &step, &value))
        steps[n++] = step;
    peer->channels[CHANNEL_CONTROL] = channel_take;
    pthread_mutex_unlock(&peer->lock);
    for (size_t i = 0; i < n; i += STEPS_PER_MESSAGE)
        tell(channel_take, steps + i, MIN(n - i, (size_t)STEPS_PER_MESSAGE));
    if (n > 0)
        channel_take->transport->flush(channel_take);
    free(steps);
}

struct status *peer_steps_on_lost(struct peer *peer, struct span meta) {
    struct peer_table *table = peer->table;
    Millrace__LostSteps *message =
        millrace__lost_steps__unpack(NULL, meta.len, (const uint8_t *)meta.data);
    if (!message)
        return status_invalid("task %s sent malformed LostSteps", peer->task);
    if (table->receiver && table->receiver->on_steps_lost) {
        struct status *why = status_unavailable(
            "Lost the connection to task %s: values that it had sent in this step may have been "
            "lost with it",
            peer->task);
        table->receiver->on_steps_lost(table->receiver_arg, peer, message->step, message->n_step,
                                       why);
        status_unref(why);
    }
    millrace__lost_steps__free_unpacked(message, NULL);
    return NULL;
}
