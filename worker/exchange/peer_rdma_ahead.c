/* Places ahead: granted for values that are not there yet, and prepared for those of the next
 * step (peer_rdma.h). */
#include <stdlib.h>

#include "common/base/clock.h"
#include "worker/exchange/peer_rdma_internal.h"

/* ---- granting ---- */

static void tell(struct peer_landing *landing) {
    struct peer_rdma *rdma = landing->rdma;
    struct str meta = STR_INIT;
    landing->is_told = true;
    rdma->n_granted_ahead++;
    str_add_bytes(&meta, landing->grant.announcement->data,
                  landing->grant.announcement->size_bytes);
    edge_message_add_place(&meta, &landing->landing.place);
    rdma->host->send(rdma->peer, TRANSPORT_CONTROL,
                     &(struct wire_out){.type = WIRE_GRANT,
                                        .id = landing->grant.step,
                                        .meta = {meta.data, meta.len}});
    str_fini(&meta);
}

void peer_rdma_ahead_granted(struct peer_landing *landing) {
    if (!landing->is_prepared)
        tell(landing);
}

/* It is for what `asked` is for, and counts for its allocator. */
static void use_prepared(struct peer_landing *prepared, struct peer_landing *asked) {
    struct peer_rdma *rdma = prepared->rdma;
    struct buffer *buffer = prepared->grant.buffer;
    prepared->grant = asked->grant;
    prepared->grant.buffer = buffer;
    asked->grant.announcement = NULL;
    prepared->is_prepared = false;
    atomic_fetch_add(&rdma->n_ahead, 1);
    peer_landing_free(asked);
    rdma->setup->prepared_bytes -= (int64_t)prepared->grant.size_bytes;
    list_remove(&prepared->link);
    list_push_back(&rdma->landings, &prepared->link);
    rdma->n_from_prepared++;
    if (prepared->landing.state == RDMA_GRANTED)
        tell(prepared);
}

/* One that is being withdrawn comes to nothing. */
static struct peer_landing *find_prepared(const struct peer_rdma *rdma,
                                          const struct peer_grant *grant) {
    LIST_FOR_EACH (link, &rdma->prepared) {
        struct peer_landing *landing = LIST_ENTRY(link, struct peer_landing, link);
        if (landing->landing.state != RDMA_WITHDRAWING &&
            landing->grant.size_bytes == grant->size_bytes &&
            landing->grant.allocator == grant->allocator)
            return landing;
    }
    return NULL;
}

/* In memory of its own, from there; it joins the list. */
static bool land(struct peer_landing *landing, struct allocator *allocator, struct list *list) {
    struct peer_rdma *rdma = landing->rdma;
    struct peer_grant *grant = &landing->grant;
    landing->generation = rdma->generation;
    if (!rdma_in_has_room_ahead(&rdma->in, grant->size_bytes))
        return false;
    grant->buffer = buffer_alloc(allocator, grant->size_bytes);
    if (!grant->buffer ||
        !rdma_in_land_ahead(&rdma->in, &landing->landing, grant->buffer, grant->size_bytes))
        return false;
    list_push_back(list, &landing->link);
    return true;
}

static void on_asked(struct loop_task *task) {
    struct peer_landing *landing = CONTAINER_OF(task, struct peer_landing, task);
    struct peer_rdma *rdma = landing->rdma;
    pthread_mutex_lock(&rdma->lock);
    list_remove(&landing->link);
    pthread_mutex_unlock(&rdma->lock);
    landing->generation = rdma->generation;
    struct allocator *allocator = landing->grant.allocator;
    bool may_land =
        rdma->in_state == IN_READY && !peer_ahead_is_scarce(allocator, landing->grant.size_bytes);
    struct peer_landing *prepared = may_land ? find_prepared(rdma, &landing->grant) : NULL;
    if (prepared && buffer_recount(prepared->grant.buffer, allocator))
        use_prepared(prepared, landing);
    else if (!rdma->is_on) /* the peer is lost, and with it the step */
        peer_landing_free(landing);
    else if (!may_land || !land(landing, allocator, &rdma->landings))
        peer_rdma_ahead_gone(landing);
}

bool peer_rdma_grant_ahead(struct peer_rdma *rdma, const struct peer_grant *grant) {
    if (atomic_fetch_add(&rdma->n_ahead, 1) >= RDMA_AHEAD_MAX) {
        atomic_fetch_sub(&rdma->n_ahead, 1);
        return false;
    }
    struct peer_landing *landing = peer_landing_new(rdma, grant, true);
    buffer_ref(grant->announcement);
    landing->task.run = on_asked;
    pthread_mutex_lock(&rdma->lock);
    list_push_back(&rdma->asked, &landing->link);
    pthread_mutex_unlock(&rdma->lock);
    loop_post(rdma->loop, &landing->task);
    return true;
}

/* ---- what becomes of them ---- */

/* Would it be too much besides the prepared ones, which count for nobody? */
static bool is_scarce(const struct peer_rdma *rdma, const struct allocator *allocator,
                      size_t size_bytes) {
    return peer_ahead_is_scarce(allocator, (size_t)rdma->setup->prepared_bytes + size_bytes);
}

/* One more of that size, for the next step. */
static void prepare(struct peer_rdma *rdma, size_t size_bytes, struct allocator *allocator) {
    size_t n = 0;
    LIST_FOR_EACH (link, &rdma->prepared)
        n++;
    if (rdma->in_state != IN_READY || n >= PEER_RDMA_MAX_PREPARED ||
        (int64_t)size_bytes > PEER_RDMA_PREPARED_BYTES - rdma->setup->prepared_bytes ||
        is_scarce(rdma, allocator, size_bytes))
        return;
    struct peer_landing *landing = peer_landing_new(
        rdma, &(struct peer_grant){.allocator = allocator, .size_bytes = size_bytes}, true);
    landing->is_prepared = true;
    if (!land(landing, allocator_host(), &rdma->prepared)) {
        peer_landing_free(landing);
        return;
    }
    landing->since_ns = clock_now_ns();
    rdma->setup->prepared_bytes += (int64_t)size_bytes;
}

static void prepared_free(struct peer_landing *landing) {
    landing->rdma->setup->prepared_bytes -= (int64_t)landing->grant.size_bytes;
    peer_landing_free(landing);
}

void peer_rdma_ahead_landed(struct peer_landing *landing) {
    struct peer_rdma *rdma = landing->rdma;
    bool is_of_line = peer_landing_is_current(landing), is_told = landing->is_told;
    size_t size_bytes = landing->grant.size_bytes;
    struct allocator *allocator = landing->grant.allocator;
    if (is_of_line && is_told) {
        rdma->n_landed_ahead++;
        peer_rdma_deliver(landing);
    } else if (is_of_line && !landing->is_prepared) {
        rdma->host->place_gone(rdma->peer, &landing->grant, NULL);
    }
    if (landing->is_prepared)
        prepared_free(landing);
    else
        peer_landing_free(landing);
    if (!is_of_line)
        return;
    if (!is_told) {
        struct status *why = status_invalid("a write to a place that it was not told of");
        peer_rdma_in_failed(rdma, why);
        status_unref(why);
    }
    prepare(rdma, size_bytes, allocator);
    peer_rdma_landing_gone(rdma);
}

/* Declined, refused by the device, or the line has ended: also one that has no memory, and is in
 * no list. */
void peer_rdma_ahead_gone(struct peer_landing *landing) {
    struct peer_rdma *rdma = landing->rdma;
    bool is_of_line = peer_landing_is_current(landing);
    if (landing->is_prepared) {
        prepared_free(landing);
        return;
    }
    rdma->n_gone_ahead++;
    if (is_of_line && landing->is_told)
        peer_rdma_send_notice(rdma, WIRE_RDMA_WITHDRAWN, rdma->in_line,
                              landing->landing.place.number, "");
    if (is_of_line)
        rdma->host->place_gone(rdma->peer, &landing->grant,
                               landing->is_told && !landing->is_unused ? landing->grant.buffer
                                                                       : NULL);
    peer_landing_free(landing);
    if (is_of_line)
        peer_rdma_landing_gone(rdma);
}

void peer_rdma_expire_prepared(struct peer_rdma *rdma, int64_t now_ns) {
    LIST_FOR_EACH_SAFE (link, next, &rdma->prepared) {
        struct peer_landing *landing = LIST_ENTRY(link, struct peer_landing, link);
        bool is_old = now_ns - landing->since_ns >= PEER_RDMA_PREPARED_MS * 1000000ll;
        if (landing->landing.state != RDMA_GRANTED ||
            (!is_old && !is_scarce(rdma, landing->grant.allocator, 0)))
            continue;
        list_remove(&landing->link);
        struct status *st = rdma_in_decline(&rdma->in, landing->landing.place.number);
        CHECK(!st);
    }
}
