/* Reset: ends every session at once, and drops the named containers on all tasks that can be
 * reached. Whether a task can be reached is known once the master has tried to connect, so a Reset
 * waits for the first attempt. */
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "master/service/service_internal.h"

struct reset_part {
    struct task_call call;
    struct reset *reset;
};

struct reset {
    struct grpc_call *call;
    int n_waiting;
    struct status *status;
    struct reset_part parts[];
};

static void reset_settle(struct reset *reset) {
    if (--reset->n_waiting > 0)
        return;
    if (reset->call && reset->status)
        grpc_call_fail(reset->call, status_ref(reset->status));
    else if (reset->call)
        service_reply(reset->call, NULL);
    status_unref(reset->status);
    free(reset);
}

static void on_reset_reply(struct task_call *call, struct status *status_take,
                           struct wire_message *message) {
    struct reset *reset = CONTAINER_OF(call, struct reset_part, call)->reset;
    if (status_take && !reset->status)
        reset->status = status_take;
    else
        status_unref(status_take);
    reset_settle(reset);
}

static void reset_cancelled(struct grpc_call *call, void *user) {
    struct reset *reset = user;
    reset->call = NULL;
    grpc_call_fail(call, status_new(STATUS_CANCELLED, "the client cancelled the call"));
}

/* Makes the meta of a WIRE_RESET: the containers, without a name the default one. Errors:
 * INVALID_ARGUMENT; RESOURCE_EXHAUSTED, it is larger than a meta may be. */
static struct status *read_request(struct grpc_call *call, struct str *meta) {
    struct span body = grpc_call_message(call)->body;
    struct proto_field field;
    int more;
    while ((more = proto_next(&body, &field)) > 0)
        if (field.number == 1 && field.wire_type == 2)
            proto_add_bytes(meta, 1, field.bytes.data, field.bytes.len);
    if (more < 0)
        return status_invalid("Malformed ResetRequest");
    if (meta->len == 0)
        proto_add_bytes(meta, 1, "", 0); /* the name of a worker's default container */
    return wire_check_meta(WIRE_RESET, meta->len);
}

static struct status *reset_tasks(struct service *service, struct grpc_call *call,
                                  const struct session_config *config,
                                  struct session_cluster *cluster_take) {
    struct str meta = STR_INIT;
    struct status *st = read_request(call, &meta);
    if (st) {
        str_fini(&meta);
        return st;
    }
    int n = tasks_count(service->env.tasks);
    struct reset *reset = xcalloc(1, sizeof *reset + (size_t)n * sizeof reset->parts[0]);
    reset->call = call;
    reset->n_waiting = 1;
    grpc_call_set_user(call, reset, reset_cancelled);
    for (int i = 0; i < n; i++) {
        if (task_is_gone(tasks_at(service->env.tasks, i)))
            continue;
        reset->n_waiting++;
        struct wire_out out = {.type = WIRE_RESET, .meta = {meta.data, meta.len}};
        reset->parts[i].reset = reset;
        reset->parts[i].call.on_reply = on_reset_reply;
        task_call_start(tasks_at(service->env.tasks, i), &reset->parts[i].call, &out);
    }
    str_fini(&meta);
    reset_settle(reset);
    return NULL;
}

void service_reset(void *arg, struct grpc_call *call) {
    struct service *service = arg;
    struct str meta = STR_INIT;
    struct status *refused = read_request(call, &meta);
    str_fini(&meta);
    if (refused) { /* what no task could be told ends no session */
        grpc_call_fail(call, refused);
        return;
    }
    struct status *why =
        status_new(STATUS_CANCELLED, "The session was closed by a Reset of the cluster");
    while (!list_is_empty(&service->sessions))
        service_end_session(LIST_ENTRY(service->sessions.next, struct session, link), why);
    status_unref(why);
    metric_set(&service_sessions_gauge, service->n_sessions);
    service_when_tasks_are_tried(service, call, reset_tasks);
}
