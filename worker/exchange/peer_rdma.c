/* Begins, proves and ends the RDMA connections of a pair of tasks. */
#include "worker/exchange/peer_rdma.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "proto/worker.pb-c.h"
#include "worker/exchange/peer_internal.h"
#include "worker/exchange/peer_rdma_internal.h"

static bool is_required(const struct peer_rdma *rdma) { return rdma->setup->mode == RDMA_REQUIRE; }

static void set_why(struct str *why, const char *text) {
    str_clear(why);
    str_add(why, text);
}

/* Updates the flags that other threads read. */
static void update_takes_grants(struct peer_rdma *rdma) {
    bool is_promising =
        rdma->in_state == IN_READY || (rdma->in_state == IN_PROVING && !rdma->has_failed_from);
    bool takes = rdma->is_on && (is_required(rdma) || is_promising);
    atomic_store_explicit(&rdma->takes_grants, takes, memory_order_release);
    atomic_store_explicit(&rdma->takes_pregrants, rdma->is_on && rdma->in_state == IN_READY,
                          memory_order_release);
    bool may_come =
        rdma->setup->device && rdma->is_on && !rdma->has_failed_from && !rdma->is_refused;
    atomic_store_explicit(&rdma->awaits_connection, takes || may_come, memory_order_release);
}

/* ---- the states of a pair's two connections: drawn in peer_rdma_internal.h ---- */

static const struct state_row out_rows[] = {
    [OUT_NONE] = {"OUT_NONE", STATE_SET(OUT_OFFERED), .is_first = true},
    [OUT_OFFERED] = {"OUT_OFFERED",
                     STATE_SET(OUT_NONE) | STATE_SET(OUT_PROVING) | STATE_SET(OUT_ENDING)},
    [OUT_PROVING] = {"OUT_PROVING",
                     STATE_SET(OUT_NONE) | STATE_SET(OUT_READY) | STATE_SET(OUT_ENDING)},
    [OUT_READY] = {"OUT_READY", STATE_SET(OUT_NONE) | STATE_SET(OUT_ENDING)},
    [OUT_ENDING] = {"OUT_ENDING", STATE_SET(OUT_NONE)},
};
const struct state_machine peer_out_machine = {"RDMA connection to a peer", out_rows,
                                               ARRAY_LEN(out_rows)};

static const struct state_row in_rows[] = {
    [IN_NONE] = {"IN_NONE", STATE_SET(IN_PROVING) | STATE_SET(IN_ENDING), .is_first = true},
    [IN_PROVING] = {"IN_PROVING", STATE_SET(IN_NONE) | STATE_SET(IN_READY) | STATE_SET(IN_BROKEN) |
                                      STATE_SET(IN_ENDING)},
    [IN_READY] = {"IN_READY", STATE_SET(IN_NONE) | STATE_SET(IN_BROKEN) | STATE_SET(IN_ENDING)},
    [IN_BROKEN] = {"IN_BROKEN", STATE_SET(IN_NONE) | STATE_SET(IN_ENDING)},
    [IN_ENDING] = {"IN_ENDING", STATE_SET(IN_NONE)},
};
const struct state_machine peer_in_machine = {"RDMA connection from a peer", in_rows,
                                              ARRAY_LEN(in_rows)};

static void set_out_state(struct peer_rdma *rdma, enum peer_out_state state) {
    if (rdma->out_state != state)
        state_machine_move(&peer_out_machine, &rdma->out_state, state, rdma);
}

static void set_in_state(struct peer_rdma *rdma, enum peer_in_state state) {
    if (rdma->in_state != state)
        state_machine_move(&peer_in_machine, &rdma->in_state, state, rdma);
    update_takes_grants(rdma);
}

void peer_rdma_init(struct peer_rdma *rdma, struct peer *peer, const char *task, struct loop *loop,
                    struct peer_rdma_setup *setup, const struct peer_rdma_host *host) {
    *rdma =
        (struct peer_rdma){.peer = peer, .task = task, .loop = loop, .setup = setup, .host = host};
    state_machine_start(&peer_out_machine, &rdma->out_state, OUT_NONE, rdma);
    state_machine_start(&peer_in_machine, &rdma->in_state, IN_NONE, rdma);
    list_init(&rdma->writes);
    CHECK(pthread_mutex_init(&rdma->lock, NULL) == 0);
    list_init(&rdma->requested);
    list_init(&rdma->waiting);
    list_init(&rdma->pending_writes);
    list_init(&rdma->prepared);
    set_why(&rdma->why_not_to, "not tried yet");
    set_why(&rdma->why_not_from, "it has not offered a connection");
}

void peer_rdma_fini(struct peer_rdma *rdma) {
    CHECK(list_is_empty(&rdma->writes) && list_is_empty(&rdma->waiting) &&
          list_is_empty(&rdma->pending_writes));
    CHECK(list_is_empty(&rdma->prepared) && list_is_empty(&rdma->requested));
    CHECK(atomic_load(&rdma->n_pending_writes) == 0 && atomic_load(&rdma->n_pregrants) == 0);
    pthread_mutex_destroy(&rdma->lock);
    str_fini(&rdma->why_not_to);
    str_fini(&rdma->why_not_from);
}

/* ---- messages ---- */

static void fill_address(const struct rdma_queue *queue, struct rdma_address *address,
                         Millrace__RdmaAddress *ret) {
    rdma_queue_address(queue, address);
    millrace__rdma_address__init(ret);
    ret->qpn = address->qpn;
    ret->psn = address->psn;
    ret->gid = (ProtobufCBinaryData){sizeof(address->gid), address->gid};
    ret->lid = address->lid;
    ret->mtu = address->mtu;
    ret->is_ethernet = address->is_ethernet;
    ret->max_message_bytes = address->max_message_bytes;
}

static bool read_address(const Millrace__RdmaAddress *message, struct rdma_address *ret) {
    if (!message || message->gid.len != sizeof(ret->gid))
        return false;
    *ret = (struct rdma_address){.qpn = message->qpn,
                                 .psn = message->psn,
                                 .lid = message->lid,
                                 .mtu = message->mtu,
                                 .is_ethernet = message->is_ethernet,
                                 .max_message_bytes = message->max_message_bytes};
    memcpy(ret->gid, message->gid.data, sizeof(ret->gid));
    return true;
}

static void send_packed(struct peer_rdma *rdma, enum wire_type type,
                        const ProtobufCMessage *message) {
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = xmalloc(len + 1);
    protobuf_c_message_pack(message, bytes);
    rdma->host->send(rdma->peer, CHANNEL_CONTROL,
                     &(struct wire_out){.type = type, .meta = {(const char *)bytes, len}});
    free(bytes);
}

void peer_rdma_send_notice(struct peer_rdma *rdma, enum wire_type type, uint64_t connection,
                           uint32_t number, const char *why) {
    Millrace__RdmaNotice message = MILLRACE__RDMA_NOTICE__INIT;
    message.connection = connection;
    message.number = number;
    message.why = (char *)(uintptr_t)why;
    send_packed(rdma, type, &message.base);
}

void peer_rdma_send_decline(struct peer_rdma *rdma, uint32_t number, bool is_pushed) {
    Millrace__RdmaNotice message = MILLRACE__RDMA_NOTICE__INIT;
    message.connection = rdma->out_connection;
    message.number = number;
    message.is_pushed = is_pushed;
    send_packed(rdma, WIRE_RDMA_DECLINE, &message.base);
}

static void send_offer(struct peer_rdma *rdma) {
    Millrace__RdmaOffer message = MILLRACE__RDMA_OFFER__INIT;
    Millrace__RdmaAddress address_message;
    struct rdma_address address;
    fill_address(&rdma->out.queue, &address, &address_message);
    message.connection = rdma->out_connection;
    message.address = &address_message;
    send_packed(rdma, WIRE_RDMA_OFFER, &message.base);
}

/* `why` says why there is no connection, or none any more. */
void peer_rdma_send_reply(struct peer_rdma *rdma, const struct rdma_remote_slot *probe,
                          const char *why) {
    Millrace__RdmaReply message = MILLRACE__RDMA_REPLY__INIT;
    Millrace__RdmaAddress address_message;
    Millrace__RemoteSlot remote_slot = MILLRACE__REMOTE_SLOT__INIT;
    struct rdma_address address;
    message.connection = rdma->in_connection;
    message.why = (char *)(uintptr_t)(why ? why : "");
    if (!why) {
        fill_address(&rdma->in.queue, &address, &address_message);
        remote_slot.number = probe->number;
        remote_slot.address = probe->address;
        remote_slot.key = probe->key;
        message.address = &address_message;
        message.probe = &remote_slot;
    }
    send_packed(rdma, WIRE_RDMA_REPLY, &message.base);
}

/* ---- the connection to the peer ---- */

/* A refusal lasts until somebody changes a flag. A failure may pass. */
static void lose_peer(struct peer_rdma *rdma, const char *way, const char *why) {
    struct status *st =
        status_new(rdma->is_refused ? STATUS_FAILED_PRECONDITION : STATUS_UNAVAILABLE,
                   "RDMA is required here (--rdma=require), but there is none %s task %s: %s", way,
                   rdma->task, why);
    rdma->host->fail(rdma->peer, st);
    status_unref(st);
}

/* Notes that there will be no connection for now. */
static void no_connection_to(struct peer_rdma *rdma, const char *why) {
    set_why(&rdma->why_not_to, why);
    if (is_required(rdma))
        lose_peer(rdma, "to", why);
}

static void offer(struct peer_rdma *rdma) {
    struct status *st = rdma_out_open(&rdma->out, rdma->setup->device, &peer_out_handlers, rdma);
    if (st) {
        rdma->failed_ns = clock_now_ns();
        no_connection_to(rdma, status_message(st));
        status_unref(st);
        return;
    }
    rdma->out_connection = random_u64() | 1;
    set_out_state(rdma, OUT_OFFERED);
    set_why(&rdma->why_not_to, "offered, and not answered yet");
    send_offer(rdma);
}

static bool may_try(const struct peer_rdma *rdma, int64_t now_ns) {
    return rdma->setup->device && rdma->is_on && rdma->out_state == OUT_NONE && !rdma->is_refused &&
           (rdma->failed_ns == 0 || is_required(rdma) ||
            now_ns - rdma->failed_ns >= rdma->setup->retry_ms * 1000000);
}

void peer_rdma_begin(struct peer_rdma *rdma) {
    if (rdma->setup->mode == RDMA_OFF || rdma->is_on)
        return;
    rdma->is_on = true;
    update_takes_grants(rdma);
    if (may_try(rdma, clock_now_ns()))
        offer(rdma);
}

void peer_rdma_tick(struct peer_rdma *rdma, int64_t now_ns) {
    if (rdma->is_on && rdma->out_state == OUT_NONE && rdma->failed_ns != 0 && may_try(rdma, now_ns))
        offer(rdma);
    peer_rdma_expire_prepared(rdma, now_ns);
}

uint64_t peer_rdma_connection_to(const struct peer_rdma *rdma) {
    return rdma->out_state == OUT_NONE ? 0 : rdma->out_connection;
}

void peer_rdma_out_ready(struct peer_rdma *rdma) {
    set_out_state(rdma, OUT_READY);
    rdma->failed_ns = 0;
    set_why(&rdma->why_not_to, "");
    log_event(EVENT_RDMA_READY, "RDMA writes to task %s are ready", rdma->task);
}

void peer_rdma_out_failed(struct peer_rdma *rdma, struct status *why) {
    log_event(EVENT_RDMA_FAILED, "no RDMA to task %s: %s", rdma->task, status_message(why));
    rdma_out_close(&rdma->out);
    peer_rdma_park_writes(rdma);
    set_out_state(rdma, OUT_ENDING);
    rdma->failed_ns = clock_now_ns();
    peer_rdma_send_notice(rdma, WIRE_RDMA_END, rdma->out_connection, 0, status_message(why));
    no_connection_to(rdma, status_message(why));
}

static struct status *on_answer(struct peer_rdma *rdma, const Millrace__RdmaReply *message) {
    struct rdma_address address;
    if (message->connection != rdma->out_connection || rdma->out_state == OUT_NONE ||
        rdma->out_state == OUT_ENDING)
        return NULL; /* it is about a connection that has ended */
    if (*message->why) {
        struct status *why = status_unavailable("it says: %.500s", message->why);
        rdma->is_refused = rdma->out_state == OUT_OFFERED;
        update_takes_grants(rdma);
        peer_rdma_out_failed(rdma, why);
        status_unref(why);
        return NULL;
    }
    if (rdma->out_state != OUT_OFFERED || !message->probe ||
        !read_address(message->address, &address))
        return status_invalid("task %s sent a second or malformed RdmaReply", rdma->task);
    struct status *st = rdma_queue_connect(&rdma->out.queue, &address);
    if (st) {
        peer_rdma_out_failed(rdma, st);
        status_unref(st);
        return NULL;
    }
    set_out_state(rdma, OUT_PROVING);
    set_why(&rdma->why_not_to, "being proved");
    peer_rdma_write_probe(rdma,
                          &(struct rdma_remote_slot){message->probe->number, message->probe->key,
                                                     message->probe->address});
    return NULL;
}

static void on_ended(struct peer_rdma *rdma, uint64_t connection) {
    if (connection != rdma->out_connection || rdma->out_state != OUT_ENDING)
        return;
    peer_rdma_push_unstarted(rdma);
    peer_rdma_drop_writes(rdma); /* the values that have reached the peer after all */
    set_out_state(rdma, OUT_NONE);
}

/* ---- the connection from the peer ---- */

void peer_rdma_in_ready(struct peer_rdma *rdma) {
    set_in_state(rdma, IN_READY);
    set_why(&rdma->why_not_from, "");
    log_event(EVENT_RDMA_READY, "RDMA writes from task %s are ready", rdma->task);
    peer_rdma_start_waiting(rdma);
}

/* This half ends at once. Its remote slots are withdrawn when the peer says that its half has
 * ended, too. */
void peer_rdma_in_failed(struct peer_rdma *rdma, struct status *why) {
    if (rdma->in_state != IN_PROVING && rdma->in_state != IN_READY)
        return; /* it is ending already: the peer waits for the message that says so */
    log_event(EVENT_RDMA_FAILED, "no RDMA from task %s: %s", rdma->task, status_message(why));
    set_why(&rdma->why_not_from, status_message(why));
    rdma->has_failed_from = true;
    set_in_state(rdma, IN_BROKEN);
    peer_rdma_send_reply(rdma, NULL, status_message(why));
    rdma_in_close(&rdma->in);
    if (is_required(rdma))
        lose_peer(rdma, "from", status_message(why));
    peer_rdma_start_waiting(rdma);
}

static void refuse_offer(struct peer_rdma *rdma, const char *why) {
    set_why(&rdma->why_not_from, why);
    peer_rdma_send_reply(rdma, NULL, why);
}

/* The pending writes end by themselves. They belong to no connection any more. */
static void forget_connection_from(struct peer_rdma *rdma) {
    rdma_in_close(&rdma->in);
    rdma->generation++;
    set_in_state(rdma, IN_NONE);
    while (list_pop_front(&rdma->pending_writes) || list_pop_front(&rdma->prepared))
        ;
}

static struct status *on_offer(struct peer_rdma *rdma, const Millrace__RdmaOffer *message) {
    struct rdma_address address;
    if (!read_address(message->address, &address))
        return status_invalid("task %s sent a malformed RdmaOffer", rdma->task);
    /* The peer has lost its connections, and RDMA with them, before this end has noticed. */
    if (rdma->in_state != IN_NONE)
        forget_connection_from(rdma);
    rdma->in_connection = message->connection;
    rdma->generation++;
    if (!rdma->setup->device || !rdma->is_on) {
        refuse_offer(rdma, rdma->setup->device ? "this pair uses another transport"
                                               : rdma->setup->why_not);
        return NULL;
    }
    struct status *st = rdma_in_open(&rdma->in, rdma->setup->device, &peer_in_handlers, rdma);
    if (st) {
        refuse_offer(rdma, status_message(st));
        status_unref(st);
        return NULL;
    }
    set_in_state(rdma, IN_PROVING);
    set_why(&rdma->why_not_from, "being proved");
    st = rdma_in_connect(&rdma->in, &address);
    if (!st && !peer_rdma_expect_probe(rdma))
        st = status_exhausted("no memory for the probe");
    if (st)
        peer_rdma_in_failed(rdma, st);
    status_unref(st);
    return NULL;
}

void peer_rdma_pending_write_ended(struct peer_rdma *rdma) {
    if (rdma->in_state == IN_READY)
        peer_rdma_start_waiting(rdma); /* there is credit for one more */
    if (rdma->in_state != IN_ENDING || !list_is_empty(&rdma->pending_writes))
        return;
    peer_rdma_send_notice(rdma, WIRE_RDMA_ENDED, rdma->in_connection, 0, "");
    set_in_state(rdma, IN_NONE);
}

static void on_end(struct peer_rdma *rdma, uint64_t connection, const char *why) {
    if (connection != rdma->in_connection)
        return;
    if (rdma->in_state == IN_PROVING || rdma->in_state == IN_READY) {
        set_why(&rdma->why_not_from, "it says: ");
        str_addf(&rdma->why_not_from, "%.500s", why);
        rdma->has_failed_from = true;
        if (is_required(rdma))
            lose_peer(rdma, "from", why);
    }
    set_in_state(rdma, IN_ENDING);
    rdma_in_close(&rdma->in);
    peer_rdma_start_waiting(rdma);
    peer_rdma_pending_write_ended(rdma);
}

static struct status *on_decline(struct peer_rdma *rdma, const Millrace__RdmaNotice *message) {
    if (message->connection != rdma->in_connection || rdma->in_state != IN_READY)
        return NULL; /* the connection has ended: all remote slots are withdrawn anyway */
    struct rdma_pending_write *pending = u64map_get(&rdma->in.pending_writes, message->number);
    TRY(status_prefix_take(rdma_in_decline(&rdma->in, message->number),
                           "from task %s: ", rdma->task));
    CONTAINER_OF(pending, struct peer_pending_write, write)->is_unused = !message->is_pushed;
    return NULL;
}

/* ---- what comes ---- */

bool peer_rdma_is_message(enum wire_type type) {
    return type >= WIRE_RDMA_OFFER && type <= WIRE_RDMA_WITHDRAWN;
}

static struct status *on_notice(struct peer_rdma *rdma, enum wire_type type,
                                const Millrace__RdmaNotice *message) {
    switch (type) {
    case WIRE_RDMA_END:
        on_end(rdma, message->connection, message->why);
        return NULL;
    case WIRE_RDMA_ENDED:
        on_ended(rdma, message->connection);
        return NULL;
    case WIRE_RDMA_DECLINE:
        return on_decline(rdma, message);
    default:
        return message->connection == rdma->out_connection
                   ? peer_rdma_on_withdrawn(rdma, message->number)
                   : NULL;
    }
}

static struct status *malformed(const struct peer_rdma *rdma) {
    return status_invalid("task %s sent a malformed message about RDMA", rdma->task);
}

struct status *peer_rdma_on_message(struct peer_rdma *rdma, const struct wire_message *message) {
    const uint8_t *data = (const uint8_t *)message->meta.data;
    size_t len = message->meta.len;
    struct status *st;
    if (message->type == WIRE_RDMA_OFFER) {
        Millrace__RdmaOffer *offer_message = millrace__rdma_offer__unpack(NULL, len, data);
        if (!offer_message)
            return malformed(rdma);
        st = on_offer(rdma, offer_message);
        millrace__rdma_offer__free_unpacked(offer_message, NULL);
    } else if (message->type == WIRE_RDMA_REPLY) {
        Millrace__RdmaReply *answer = millrace__rdma_reply__unpack(NULL, len, data);
        if (!answer)
            return malformed(rdma);
        st = on_answer(rdma, answer);
        millrace__rdma_reply__free_unpacked(answer, NULL);
    } else {
        Millrace__RdmaNotice *notice = millrace__rdma_notice__unpack(NULL, len, data);
        if (!notice)
            return malformed(rdma);
        st = on_notice(rdma, message->type, notice);
        millrace__rdma_notice__free_unpacked(notice, NULL);
    }
    return st;
}

/* ---- the end ---- */

/* The steps end with the peer, so granted values are not asked for again. */
void peer_rdma_reset(struct peer_rdma *rdma) {
    rdma->is_on = false;
    rdma_out_close(&rdma->out);
    peer_rdma_park_writes(rdma);
    peer_rdma_drop_writes(rdma);
    set_out_state(rdma, OUT_NONE);
    rdma->out_connection = 0;
    rdma->is_refused = rdma->has_failed_from = false;
    forget_connection_from(rdma);
    peer_rdma_drop_waiting(rdma);
}

/* ---- the status page ---- */

bool peer_rdma_is_used(const struct peer_rdma *rdma) {
    return rdma->out_state == OUT_READY || rdma->in_state == IN_READY;
}

static int count(const struct list *list) {
    int n = 0;
    LIST_FOR_EACH (link, list)
        n++;
    return n;
}

void peer_rdma_describe(const struct peer_rdma *rdma, struct str *out) {
    static const char *const modes[] = {
        [RDMA_OFF] = "off", [RDMA_PREFER] = "prefer", [RDMA_REQUIRE] = "require"};
    str_addf(out, "{\"mode\":\"%s\",", modes[rdma->setup->mode]);
    peer_describe_way(out, "to", rdma->out_state == OUT_READY, &rdma->why_not_to);
    str_add_char(out, ',');
    peer_describe_way(out, "from", rdma->in_state == IN_READY, &rdma->why_not_from);
    str_addf(
        out,
        ",\"written\":%llu,\"written_bytes\":%llu,\"received\":%llu,\"received_bytes\":%llu,\"tcp_"
        "instead\":%llu,"
        "\"writing\":%d,\"pending\":%d,\"pregrants\":{\"grants\":%llu,\"from_prepared\":%llu,"
        "\"received\":%llu,\"sent\":%llu,\"ended\":%llu,"
        "\"prepared\":%d}}",
        (unsigned long long)rdma->n_written, (unsigned long long)rdma->written_bytes,
        (unsigned long long)rdma->n_received, (unsigned long long)rdma->received_bytes,
        (unsigned long long)rdma->n_instead, count(&rdma->writes), count(&rdma->pending_writes),
        (unsigned long long)rdma->n_pregranted, (unsigned long long)rdma->n_from_prepared,
        (unsigned long long)rdma->n_received_pregranted,
        (unsigned long long)rdma->n_written_pregranted, (unsigned long long)rdma->n_pregrants_ended,
        count(&rdma->prepared));
}
