/* Serves calls of other tasks' kernels (worker/exchange/peer_call.h): on an I/O thread, whose
 * replies the loop sends. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/worker.pb-c.h"
#include "worker/service/service_internal.h"

/* of replies that the caller does not read */
enum {
    MAX_UNREAD_BYTES = 2 * PEER_MAX_CALLS * PEER_MAX_PAYLOAD_BYTES,
    MAX_MESSAGE_BYTES = 16 << 10, /* of a failure's message; the rest is cut off */
};

struct served_call {
    struct pool_task io_task;
    struct loop_task home_task;
    struct list link; /* connection->served_calls */
    struct worker_service *service;
    struct service_connection *connection; /* loop thread; NULL: the connection has ended */
    uint64_t id;
    struct status *status;
    struct peer_reply reply;
    size_t request_len;
    char request[];
};

/* A handler's reply may be longer than the limits, and then the call fails. */
static void check_reply(struct served_call *call) {
    const struct peer_reply *reply = &call->reply;
    if (!call->status &&
        (reply->bytes.len > PEER_MAX_REPLY_BYTES || reply->payload_bytes > PEER_MAX_PAYLOAD_BYTES))
        call->status = status_exhausted(
            "a reply of %zu bytes with a payload of %zu; the limits are %d and %d",
            reply->bytes.len, reply->payload_bytes, PEER_MAX_REPLY_BYTES, PEER_MAX_PAYLOAD_BYTES);
}

static void send_reply(struct served_call *call) {
    Millrace__PeerReply reply = MILLRACE__PEER_REPLY__INIT;
    char message[MAX_MESSAGE_BYTES];
    check_reply(call);
    snprintf(message, sizeof(message), "%s", status_message(call->status));
    reply.code = (int32_t)status_code(call->status);
    reply.message = message;
    if (!call->status) {
        reply.reply.data = (uint8_t *)call->reply.bytes.data;
        reply.reply.len = call->reply.bytes.len;
    }
    size_t len = millrace__peer_reply__get_packed_size(&reply);
    uint8_t *bytes = xmalloc(len + 1);
    millrace__peer_reply__pack(&reply, bytes);
    struct wire_out out = {.type = WIRE_PEER_REPLY, .id = call->id, .meta = {(char *)bytes, len}};
    if (!call->status && call->reply.payload_bytes > 0) {
        out.extra_buffer = call->reply.payload;
        out.extra = (struct span){call->reply.payload->data, call->reply.payload_bytes};
    }
    wire_send(call->connection->wire, &out);
    free(bytes);
}

static void on_home(struct loop_task *task) {
    struct served_call *call = CONTAINER_OF(task, struct served_call, home_task);
    struct worker_service *service = call->service;
    if (call->connection) {
        send_reply(call);
        call->connection->n_served_calls--;
        list_remove(&call->link);
    }
    status_unref(call->status);
    str_fini(&call->reply.bytes);
    buffer_unref(call->reply.payload);
    free(call);
    service->n_served_calls--;
    service_maybe_free(service);
}

static void run_call(struct pool_task *task) {
    struct served_call *call = CONTAINER_OF(task, struct served_call, io_task);
    call->status = call->service->options.serve_peer_call(
        (struct span){call->request, call->request_len}, &call->reply);
    loop_post(call->service->loop, &call->home_task);
}

struct status *service_serve_call(struct service_connection *connection,
                                  const struct wire_message *message) {
    struct worker_service *service = connection->service;
    struct pool *pool = service->options.io_pool ? service->options.io_pool : service->options.pool;
    if (!connection->is_caller)
        return status_new(STATUS_PERMISSION_DENIED,
                          "a peer call over a connection that was not opened for peer calls");
    if (!service->options.serve_peer_call || !pool)
        return status_unimplemented("this task serves no peer calls");
    if (message->meta.len > PEER_MAX_REQUEST_BYTES)
        return status_exhausted("a peer call of %zu bytes", message->meta.len);
    if (connection->n_served_calls >= PEER_MAX_CALLS ||
        wire_conn_queued_bytes(connection->wire) > MAX_UNREAD_BYTES)
        return status_exhausted("task %s sends peer calls faster than it reads the replies",
                                str_text(&connection->hello_task));
    struct served_call *call = xcalloc(1, sizeof(*call) + message->meta.len + 1);
    call->io_task.run = run_call;
    call->home_task.run = on_home;
    call->service = service;
    call->connection = connection;
    call->id = message->id;
    call->reply.bytes = STR_INIT;
    call->request_len = message->meta.len;
    memcpy(call->request, message->meta.data, message->meta.len);
    list_push_back(&connection->served_calls, &call->link);
    connection->n_served_calls++;
    service->n_served_calls++;
    pool_submit(pool, &call->io_task);
    return NULL;
}

void service_forget_caller(struct service_connection *connection) {
    for (struct list *link; (link = list_pop_front(&connection->served_calls));)
        LIST_ENTRY(link, struct served_call, link)->connection = NULL;
}
