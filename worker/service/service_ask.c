/* What other tasks' kernels ask of this task's (worker/exchange/ask.h): answered on an I/O
 * thread, sent by the loop. */
#include <stdlib.h>

#include "proto/worker.pb-c.h"
#include "worker/service/service_internal.h"

/* of answers that the asker does not read */
enum { MAX_UNREAD_BYTES = 2 * PEER_MAX_CALLS * PEER_MAX_PAYLOAD_BYTES };

struct answering {
    struct pool_task io_task;
    struct loop_task home_task;
    struct list link; /* connection->answerings */
    struct worker_service *service;
    struct service_connection *connection; /* loop thread; NULL: it has gone */
    uint64_t id;
    struct status *status;
    struct peer_reply answer;
    size_t request_len;
    char request[];
};

static void send_answer(struct answering *answering) {
    Millrace__Answer reply = MILLRACE__ANSWER__INIT;
    reply.code = (int32_t)status_code(answering->status);
    reply.message = (char *)(uintptr_t)status_message(answering->status);
    if (!answering->status) {
        reply.answer.data = (uint8_t *)answering->answer.bytes.data;
        reply.answer.len = answering->answer.bytes.len;
    }
    size_t len = millrace__answer__get_packed_size(&reply);
    uint8_t *bytes = xmalloc(len + 1);
    millrace__answer__pack(&reply, bytes);
    struct wire_out out = {.type = WIRE_ANSWER, .id = answering->id, .meta = {(char *)bytes, len}};
    if (!answering->status && answering->answer.payload_bytes > 0) {
        out.extra_buffer = answering->answer.payload;
        out.extra = (struct span){answering->answer.payload->data, answering->answer.payload_bytes};
    }
    wire_send(answering->connection->wire, &out);
    free(bytes);
}

static void on_home(struct loop_task *task) {
    struct answering *answering = CONTAINER_OF(task, struct answering, home_task);
    struct worker_service *service = answering->service;
    if (answering->connection) {
        send_answer(answering);
        answering->connection->n_answering--;
        list_remove(&answering->link);
    }
    status_unref(answering->status);
    str_fini(&answering->answer.bytes);
    buffer_unref(answering->answer.payload);
    free(answering);
    service->n_answering--;
    service_maybe_free(service);
}

static void run_answer(struct pool_task *task) {
    struct answering *answering = CONTAINER_OF(task, struct answering, io_task);
    answering->status = answering->service->options.answer(
        (struct span){answering->request, answering->request_len}, &answering->answer);
    loop_post(answering->service->loop, &answering->home_task);
}

struct status *service_answer(struct service_connection *connection,
                              const struct wire_message *message) {
    struct worker_service *service = connection->service;
    struct pool *pool = service->options.io_pool ? service->options.io_pool : service->options.pool;
    if (!connection->is_asker)
        return status_new(STATUS_PERMISSION_DENIED,
                          "a question from a connection that was not opened for questions");
    if (!service->options.answer || !pool)
        return status_unimplemented("this task answers no questions");
    if (message->meta.len > PEER_MAX_REQUEST_BYTES)
        return status_exhausted("a question of %zu bytes", message->meta.len);
    if (connection->n_answering >= PEER_MAX_CALLS ||
        wire_conn_queued_bytes(connection->wire) > MAX_UNREAD_BYTES)
        return status_exhausted("task %s asks faster than it takes the answers",
                                str_text(&connection->hello_task));
    struct answering *answering = xcalloc(1, sizeof(*answering) + message->meta.len + 1);
    answering->io_task.run = run_answer;
    answering->home_task.run = on_home;
    answering->service = service;
    answering->connection = connection;
    answering->id = message->id;
    answering->answer.bytes = STR_INIT;
    answering->request_len = message->meta.len;
    memcpy(answering->request, message->meta.data, message->meta.len);
    list_push_back(&connection->answerings, &answering->link);
    connection->n_answering++;
    service->n_answering++;
    pool_submit(pool, &answering->io_task);
    return NULL;
}

void service_forget_asker(struct service_connection *connection) {
    for (struct list *link; (link = list_pop_front(&connection->answerings));)
        LIST_ENTRY(link, struct answering, link)->connection = NULL;
}
