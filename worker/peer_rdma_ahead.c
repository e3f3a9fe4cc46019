/* Places ahead: granted for values that are not there yet, and prepared for those of the next step (peer_rdma.h). */
#include <stdlib.h>

#include "common/base/clock.h"
#include "worker/peer_rdma_internal.h"

/* ---- granting ---- */

static void tell(struct peer_landing *landing) {
    struct peer_rdma *rdma = landing->rdma;
    struct str meta = STR_INIT;
    landing->is_told = true;
    rdma->n_granted_ahead++;
    str_add_bytes(&meta, landing->grant.announcement->data, landing->grant.announcement->size_bytes);
    edge_message_add_place(&meta, &landing->landing.place);
    rdma->host->send(rdma->peer, TRANSPORT_CONTROL,
                     &(struct wire_out){.type = WIRE_GRANT, .id = landing->grant.step, .meta = {meta.data, meta.len}});
    str_fini(&meta);
}

void peer_rdma_ahead_granted(struct peer_landing *landing) {
    if (!landing->is_prepared)
        tell(landing);
}

/* It is for what `asked` is for. */
static void use_prepared(struct peer_landing *prepared, struct peer_landing *asked) {
    struct peer_rdma *rdma = prepared->rdma;
    struct buffer *buffer = prepared->grant.buffer;
    prepared->grant = asked->grant;
    prepared->grant.buffer = buffer;
    asked->grant.announcement = NULL;
    peer_landing_free(asked);
    prepared->is_prepared = false;
    rdma->setup->prepared_bytes -= (int64_t)prepared->grant.size_bytes;
    list_remove(&prepared->link);
    list_push_back(&rdma->landings, &prepared->link);
    rdma->n_from_prepared++;
    if (prepared->landing.state == RDMA_GRANTED)
        tell(prepared);
}

static struct peer_landing *find_prepared(const struct peer_rdma *rdma, const struct peer_grant *grant) {
    LIST_FOR_EACH (link, &rdma->prepared) {
        struct peer_landing *landing = LIST_ENTRY(link, struct peer_landing, link);
        if (landing->grant.size_bytes == grant->size_bytes && landing->grant.allocator == grant->allocator)
            return landing;
    }
    return NULL;
}

/* In memory of its own; it joins the list. */
static bool land(struct peer_landing *landing, struct list *list) {
    struct peer_rdma *rdma = landing->rdma;
    struct peer_grant *grant = &landing->grant;
    grant->buffer = buffer_alloc(grant->allocator, grant->size_bytes);
    landing->generation = rdma->generation;
    if (!grant->buffer || !rdma_in_land_ahead(&rdma->in, &landing->landing, grant->buffer, grant->size_bytes))
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
    struct peer_landing *prepared = rdma->in_state == IN_READY ? find_prepared(rdma, &landing->grant) : NULL;
    if (prepared)
        use_prepared(prepared, landing);
    else if (!rdma->is_on) /* the peer is lost, and with it the step */
        peer_landing_free(landing);
    else if (rdma->in_state != IN_READY || !land(landing, &rdma->landings))
        peer_rdma_ahead_gone(landing);
}

void peer_rdma_grant_ahead(struct peer_rdma *rdma, const struct peer_grant *grant) {
    struct peer_landing *landing = peer_landing_new(rdma, grant, true);
    buffer_ref(grant->announcement);
    landing->task.run = on_asked;
    pthread_mutex_lock(&rdma->lock);
    list_push_back(&rdma->asked, &landing->link);
    pthread_mutex_unlock(&rdma->lock);
    loop_post(rdma->loop, &landing->task);
}

/* ---- what becomes of them ---- */

/* What lies ready must not keep the rest of the task from its memory. */
static bool is_scarce(struct allocator *allocator, size_t size_bytes) {
    int64_t in_use = atomic_load_explicit(&allocator->in_use_bytes, memory_order_relaxed);
    return allocator->limit_bytes > 0 && in_use + (int64_t)size_bytes > allocator->limit_bytes / 2;
}

/* One more of that size, for the next step. */
static void prepare(struct peer_rdma *rdma, size_t size_bytes, struct allocator *allocator) {
    size_t n = 0;
    LIST_FOR_EACH (link, &rdma->prepared)
        n++;
    if (rdma->in_state != IN_READY || n >= PEER_RDMA_MAX_PREPARED ||
        (int64_t)size_bytes > PEER_RDMA_PREPARED_BYTES - rdma->setup->prepared_bytes || is_scarce(allocator, size_bytes))
        return;
    struct peer_landing *landing = peer_landing_new(rdma, &(struct peer_grant){.allocator = allocator, .size_bytes = size_bytes}, true);
    if (!land(landing, &rdma->prepared)) {
        peer_landing_free(landing);
        return;
    }
    landing->is_prepared = true;
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

/* Declined, refused by the device, or the line has ended: also one that has no memory, and is in no list. */
void peer_rdma_ahead_gone(struct peer_landing *landing) {
    struct peer_rdma *rdma = landing->rdma;
    bool is_of_line = peer_landing_is_current(landing);
    if (landing->is_prepared) {
        prepared_free(landing);
        return;
    }
    rdma->n_gone_ahead++;
    if (is_of_line && landing->is_told)
        peer_rdma_send_notice(rdma, WIRE_RDMA_WITHDRAWN, rdma->in_line, landing->landing.place.number, "");
    if (is_of_line)
        rdma->host->place_gone(rdma->peer, &landing->grant, landing->is_told ? landing->grant.buffer : NULL);
    peer_landing_free(landing);
    if (is_of_line)
        peer_rdma_landing_gone(rdma);
}

void peer_rdma_expire_prepared(struct peer_rdma *rdma, int64_t now_ns) {
    LIST_FOR_EACH_SAFE (link, next, &rdma->prepared) {
        struct peer_landing *landing = LIST_ENTRY(link, struct peer_landing, link);
        if (landing->landing.state != RDMA_GRANTED || now_ns - landing->since_ns < PEER_RDMA_PREPARED_MS * 1000000ll)
            continue;
        list_remove(&landing->link);
        struct status *st = rdma_in_decline(&rdma->in, landing->landing.place.number);
        CHECK(!st);
    }
}
