/* Reset: ends every session and drops the named containers on all tasks. */
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

/* Closes every session, then drops the named containers on all tasks. Without a name it drops the
 * default one. */
void service_reset(void *arg, struct grpc_call *call) {
    struct service *service = arg;
    struct span body = grpc_call_message(call)->body;
    struct proto_field field;
    struct str meta = STR_INIT;
    int more;
    while ((more = proto_next(&body, &field)) > 0)
        if (field.number == 1 && field.wire_type == 2)
            proto_add_bytes(&meta, 1, field.bytes.data, field.bytes.len);
    /* what no task could be told ends no session */
    struct status *refused = more < 0 ? status_invalid("Malformed ResetRequest")
                                      : wire_check_meta(WIRE_RESET, meta.len + 1);
    if (refused) {
        grpc_call_fail(call, refused);
        str_fini(&meta);
        return;
    }
    if (meta.len == 0)
        proto_add_bytes(&meta, 1, "", 0); /* the name of a worker's default container */
    struct status *why =
        status_new(STATUS_CANCELLED, "The session was closed by a Reset of the cluster");
    while (!list_is_empty(&service->sessions))
        service_end_session(LIST_ENTRY(service->sessions.next, struct session, link), why);
    status_unref(why);
    metric_set(&service_sessions_gauge, service->n_sessions);
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
}
