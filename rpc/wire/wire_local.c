/* Connections within one process, for a master and a worker that share it, and the names that they
 * are dialled by: "local:NAME". There is no socket. A message is put into the other end's inbox,
 * and the other end's loop delivers it. Large tensors are handed over by reference.
 *
 *   wire_connect ──► arrival, waits at the listener ──on_accept, wire_conn_set_owner──► delivers
 *
 * Nobody outside this process can dial such a name, and no port or file is taken. */
#include "rpc/wire/wire_internal.h"

#include <stdlib.h>

/* A message on its way, or with type 0 the end of the connection: what was sent before is delivered
 * first. */
struct parcel {
    struct list link; /* of wire_conn.inbox */
    struct wire_header header;
    struct buffer *payload; /* NULL: none */
    char meta[];
};

/* ---- parcels ---- */

static void release_buffer(void *arg) { buffer_unref(arg); }

/* The only piece of a payload, if it may be handed over without a copy: the bytes of a tensor, for
 * reading only, since the sender may keep it. NULL: no. */
static struct buffer *share(const struct wire_out *out) {
    const struct tensor *only = out->n_tensors == 1 ? out->tensors[0] : NULL;
    if (!only || out->extra.len > 0 || only->storage != TENSOR_BUFFER ||
        tensor_size_bytes(only) <= WIRE_LARGE_MIN_BYTES ||
        (uintptr_t)tensor_cdata(only) % WIRE_ALIGN != 0)
        return NULL;
    struct buffer *view =
        buffer_wrap((void *)(uintptr_t)tensor_cdata(only), tensor_size_bytes(only), release_buffer,
                    buffer_ref(only->buffer));
    view->flags |= BUFFER_IS_READ_ONLY;
    return view;
}

static char *copy_piece(char *begin, char *to, const void *bytes, size_t n) {
    static const char zeros[WIRE_ALIGN];
    if (n == 0)
        return to;
    size_t padding = (size_t)(begin - to) & (WIRE_ALIGN - 1);
    memcpy(to, zeros, padding);
    memcpy(to + padding, bytes, n);
    return to + padding + n;
}

/* NULL: no memory. */
static struct buffer *copy_payload(const struct wire_out *out, size_t size_bytes) {
    struct buffer *payload = buffer_alloc(allocator_host(), size_bytes);
    if (!payload)
        return NULL;
    char *to = payload->data;
    for (size_t i = 0; i < out->n_tensors; i++)
        to = copy_piece(payload->data, to, tensor_cdata(out->tensors[i]),
                        tensor_size_bytes(out->tensors[i]));
    copy_piece(payload->data, to, out->extra.data, out->extra.len);
    return payload;
}

static struct status *parcel_new(const struct wire_out *out, struct parcel **ret) {
    size_t payload_len = wire_payload_size(out);
    struct buffer *payload = payload_len > 0 ? share(out) : NULL;
    if (payload_len > 0 && !payload)
        payload = copy_payload(out, payload_len);
    if (payload_len > 0 && !payload)
        return status_exhausted("no memory for %zu bytes of payload of a message of type %u",
                                payload_len, out->type);
    struct parcel *parcel = xmalloc(sizeof(*parcel) + out->meta.len);
    parcel->header = (struct wire_header){.type = (uint16_t)out->type,
                                          .meta_len = (uint32_t)out->meta.len,
                                          .payload_len = payload_len,
                                          .id = out->id};
    parcel->payload = payload;
    if (out->meta.len > 0)
        memcpy(parcel->meta, out->meta.data, out->meta.len);
    list_init(&parcel->link);
    *ret = parcel;
    return NULL;
}

static void parcel_free(struct parcel *parcel) {
    buffer_unref(parcel->payload);
    free(parcel);
}

/* What waits in an inbox, as far as it is nobody else's memory. */
static size_t own_bytes(const struct parcel *parcel) {
    bool is_shared = parcel->payload && (parcel->payload->flags & BUFFER_IS_READ_ONLY);
    return WIRE_HEADER_BYTES + parcel->header.meta_len +
           (is_shared ? 0 : (size_t)parcel->header.payload_len);
}

static uint64_t all_bytes(const struct parcel *parcel) {
    return WIRE_HEADER_BYTES + parcel->header.meta_len + parcel->header.payload_len;
}

/* ---- sending; any thread ---- */

/* The other end with a reference; NULL: the connection has ended. */
static struct wire_conn *take_other(struct wire_conn *conn) {
    pthread_mutex_lock(&conn->lock);
    struct wire_conn *other =
        conn->other && wire_conn_is_live(conn) ? wire_conn_ref(conn->other) : NULL;
    pthread_mutex_unlock(&conn->lock);
    return other;
}

/* The lock is held. A reference goes with the task. */
static void post_delivery(struct wire_conn *conn) {
    if (!conn->is_accepted || conn->is_delivery_due || list_is_empty(&conn->inbox))
        return;
    conn->is_delivery_due = true;
    loop_post(conn->loop, &wire_conn_ref(conn)->deliver_task);
}

/* Returns how many bytes wait there now. */
static size_t put(struct wire_conn *to, struct parcel *parcel_take, bool flush) {
    pthread_mutex_lock(&to->lock);
    if (parcel_take && wire_conn_is_live(to)) {
        list_push_back(&to->inbox, &parcel_take->link);
        to->inbox_bytes += own_bytes(parcel_take);
        parcel_take = NULL;
    }
    if (flush)
        post_delivery(to);
    size_t waiting = to->inbox_bytes;
    pthread_mutex_unlock(&to->lock);
    if (parcel_take)
        parcel_free(parcel_take);
    return waiting;
}

void wire_local_send(struct wire_conn *conn, const struct wire_out *out, bool flush) {
    struct wire_conn *other = take_other(conn);
    struct parcel *parcel = NULL;
    if (!other)
        return;
    struct status *why = out ? parcel_new(out, &parcel) : NULL;
    if (parcel) {
        pthread_mutex_lock(&conn->lock);
        conn->sent_bytes += all_bytes(parcel);
        pthread_mutex_unlock(&conn->lock);
    }
    size_t waiting = put(other, parcel, flush);
    if (!why && waiting > WIRE_MAX_UNREAD_BYTES)
        why = status_exhausted("%s does not read: %zu bytes wait for it", conn->peer, waiting);
    if (why)
        wire_conn_close(conn, why);
    wire_conn_unref(other);
}

size_t wire_local_queued_bytes(struct wire_conn *conn) {
    struct wire_conn *other = take_other(conn);
    size_t waiting = other ? put(other, NULL, false) : 0;
    wire_conn_unref(other);
    return waiting;
}

/* ---- delivering; loop thread ---- */

static struct status *deliver(struct wire_conn *conn, struct parcel *parcel) {
    const struct wire_header *header = &parcel->header;
    struct wire_message message = wire_message_of(header, parcel->meta);
    struct buffer *payload = parcel->payload;
    if (header->type == 0)
        return status_unavailable("%s closed the connection", conn->peer);
    TRY(wire_payload_check(message.type, header->payload_len, conn->handlers->max_payload_bytes));
    conn->input.frame_begin += all_bytes(parcel);
    if (payload && conn->handlers->alloc) { /* which may refuse it or not want it */
        struct buffer *allocated = NULL;
        TRY(wire_payload_alloc(conn, &message, &allocated));
        if (!allocated)
            return NULL;
        buffer_unref(allocated);
    }
    parcel->payload = NULL;
    wire_deliver(conn, &message, payload);
    return NULL;
}

static void take_inbox(struct wire_conn *conn, struct list *ret) {
    list_init(ret);
    pthread_mutex_lock(&conn->lock);
    list_splice_back(ret, &conn->inbox);
    conn->inbox_bytes = 0;
    conn->is_delivery_due = false;
    pthread_mutex_unlock(&conn->lock);
}

static void on_delivery(struct loop_task *task) {
    struct wire_conn *conn = CONTAINER_OF(task, struct wire_conn, deliver_task);
    struct list batch, *link;
    take_inbox(conn, &batch);
    while ((link = list_pop_front(&batch))) {
        struct parcel *parcel = LIST_ENTRY(link, struct parcel, link);
        struct status *why = wire_conn_is_live(conn) ? deliver(conn, parcel) : NULL;
        if (why)
            wire_conn_end(conn, why);
        parcel_free(parcel);
    }
    wire_conn_unref(conn);
}

void wire_local_accepted(struct wire_conn *conn) {
    pthread_mutex_lock(&conn->lock);
    conn->is_accepted = true;
    post_delivery(conn);
    pthread_mutex_unlock(&conn->lock);
}

bool wire_local_is_hung_up(struct wire_conn *conn) {
    struct wire_conn *other = take_other(conn);
    bool is_hung_up = !other || !wire_conn_is_live(other);
    wire_conn_unref(other);
    return is_hung_up;
}

void wire_local_end(struct wire_conn *conn) {
    struct list dropped, *link;
    take_inbox(conn, &dropped);
    while ((link = list_pop_front(&dropped)))
        parcel_free(LIST_ENTRY(link, struct parcel, link));
    pthread_mutex_lock(&conn->lock);
    struct wire_conn *other = conn->other;
    conn->other = NULL;
    pthread_mutex_unlock(&conn->lock);
    if (!other)
        return;
    struct parcel *end = xcalloc(1, sizeof(*end));
    list_init(&end->link);
    put(other, end, true);
    wire_conn_unref(other);
}

/* ---- names ---- */

/* The lock guards the list of listeners and what waits at them. A listener leaves the list before
 * it is closed, so that nobody dials it any more. Its memory is freed by its own task, which may be
 * in the loop's queue at that time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list listeners = {&listeners, &listeners};

struct wire_local_listener {
    struct list link; /* of `listeners` */
    char *name;
    struct loop *loop;
    void (*on_accept)(void *arg, struct wire_conn *conn_take);
    void *arg;
    struct loop_task task; /* accepts what waits, or frees a closed listener */
    bool is_posted, is_closed;
    struct list waiting; /* struct arrival.link */
};

/* A connection that waits at its listener. */
struct arrival {
    struct list link;
    struct wire_conn *conn; /* a reference */
};

static struct wire_local_listener *find(const char *name) {
    LIST_FOR_EACH (link, &listeners) {
        struct wire_local_listener *listener = LIST_ENTRY(link, struct wire_local_listener, link);
        if (strcmp(listener->name, name) == 0)
            return listener;
    }
    return NULL;
}

/* The lock is held. */
static void post(struct wire_local_listener *listener) {
    if (listener->is_posted)
        return;
    listener->is_posted = true;
    loop_post(listener->loop, &listener->task);
}

static void accept_waiting(struct loop_task *task) {
    struct wire_local_listener *listener = CONTAINER_OF(task, struct wire_local_listener, task);
    struct list batch, *link;
    list_init(&batch);
    pthread_mutex_lock(&lock);
    list_splice_back(&batch, &listener->waiting);
    listener->is_posted = false;
    pthread_mutex_unlock(&lock);
    while ((link = list_pop_front(&batch))) {
        struct arrival *arrival = LIST_ENTRY(link, struct arrival, link);
        if (listener->is_closed) {
            wire_conn_close(arrival->conn, NULL);
            wire_conn_unref(arrival->conn);
        } else {
            listener->on_accept(listener->arg, arrival->conn);
        }
        free(arrival);
    }
    if (!listener->is_closed || listener->is_posted)
        return;
    free(listener->name);
    free(listener);
}

struct status *wire_local_listen(struct loop *loop, const char *name,
                                 void (*on_accept)(void *arg, struct wire_conn *conn_take),
                                 void *arg, struct wire_local_listener **ret) {
    struct status *st = NULL;
    pthread_mutex_lock(&lock);
    if (find(name)) {
        st = status_unavailable("listen on local:%s: the name is taken", name);
    } else {
        struct wire_local_listener *listener = xcalloc(1, sizeof *listener);
        listener->name = xstrdup(name);
        listener->loop = loop;
        listener->on_accept = on_accept;
        listener->arg = arg;
        listener->task.run = accept_waiting;
        list_init(&listener->waiting);
        list_push_back(&listeners, &listener->link);
        *ret = listener;
    }
    pthread_mutex_unlock(&lock);
    return st;
}

void wire_local_listener_close(struct wire_local_listener *listener) {
    pthread_mutex_lock(&lock);
    list_remove(&listener->link);
    listener->is_closed = true;
    post(listener);
    pthread_mutex_unlock(&lock);
}

static void open_end(struct wire_conn *conn, struct wire_conn *other) {
    conn->is_local = true;
    conn->other = wire_conn_ref(other);
    conn->deliver_task.run = on_delivery;
    atomic_store(&conn->state, WIRE_OPEN);
}

struct status *wire_local_dial(struct wire_conn *conn, const char *name) {
    struct status *st = NULL;
    pthread_mutex_lock(&lock);
    struct wire_local_listener *listener = find(name);
    if (listener) {
        struct arrival *arrival = xcalloc(1, sizeof *arrival);
        arrival->conn = wire_conn_new(listener->loop, "this process", true);
        wire_conn_ref(arrival->conn); /* the loop's */
        open_end(conn, arrival->conn);
        open_end(arrival->conn, conn);
        conn->is_accepted = true;
        list_push_back(&listener->waiting, &arrival->link);
        post(listener);
    } else {
        st = status_unavailable("connect to local:%s: nothing in this process listens there", name);
    }
    pthread_mutex_unlock(&lock);
    return st;
}
