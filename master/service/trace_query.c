/* Asks tasks for their traces (service_internal.h). */
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "master/service/service_internal.h"
#include "proto/worker.pb-c.h"

enum {
    REPLY_WAIT_MS = 1000,
    TRACE_QUERY_MAX_BYTES = 64 << 20, /* of all replies; a task's that is beyond is left out */
};

struct trace_call {
    struct task_call call;
    struct trace_query *query;
    char *task;
    Millrace__Traces *traces; /* NULL: none yet, or malformed */
};

struct trace_query {
    struct service *service;
    struct loop_timer timer; /* ends the wait, and calls `done` where nobody is asked */
    void (*done)(struct trace_query *query, void *arg);
    void *arg;
    int n_waiting, n_calls, n_left_out;
    size_t n_bytes; /* of the replies that were unpacked */
    struct str request;
    struct trace_call calls[];
};

int trace_query_n_tasks(const struct trace_query *query) { return query->n_calls; }
const Millrace__Traces *trace_query_traces(const struct trace_query *query, int task) {
    return query->calls[task].traces;
}
const char *trace_query_task(const struct trace_query *query, int task) {
    return query->calls[task].task;
}

int trace_query_n_left_out(const struct trace_query *query) { return query->n_left_out; }

static void timer_closed(struct loop_timer *timer) {
    struct trace_query *query = CONTAINER_OF(timer, struct trace_query, timer);
    for (int i = 0; i < query->n_calls; i++) {
        free(query->calls[i].task);
        if (query->calls[i].traces)
            millrace__traces__free_unpacked(query->calls[i].traces, NULL);
    }
    str_fini(&query->request);
    free(query);
}

static void forget_calls(struct trace_query *query) {
    for (int i = 0; i < query->n_calls; i++)
        task_call_forget(&query->calls[i].call);
}

void trace_query_free(struct trace_query *query) {
    if (!query)
        return;
    forget_calls(query);
    query->service->trace_query = NULL;
    loop_timer_close(&query->timer, timer_closed);
}

static void finish(struct trace_query *query) {
    loop_timer_stop(&query->timer);
    forget_calls(query);
    query->done(query, query->arg);
}

static void on_timeout(struct loop_timer *timer) {
    finish(CONTAINER_OF(timer, struct trace_query, timer));
}

static void take_traces(struct trace_call *call, struct span reply) {
    struct trace_query *query = call->query;
    if (reply.len > TRACE_QUERY_MAX_BYTES - query->n_bytes) {
        query->n_left_out++;
        return;
    }
    query->n_bytes += reply.len;
    call->traces = millrace__traces__unpack(NULL, reply.len, (const uint8_t *)reply.data);
}

static void on_traces(struct task_call *call, struct status *status_take,
                      struct wire_message *message) {
    struct trace_call *trace_call = CONTAINER_OF(call, struct trace_call, call);
    struct trace_query *query = trace_call->query;
    if (message)
        take_traces(trace_call, message->meta);
    status_unref(status_take);
    if (--query->n_waiting == 0)
        finish(query);
}

static void ask(void *arg, struct task *task, int index) {
    struct trace_query *query = arg;
    struct trace_call *trace_call = &query->calls[index];
    size_t len = query->request.len;
    trace_call->query = query;
    trace_call->task = xstrdup(task_name(task));
    trace_call->call.on_reply = on_traces;
    if (len == 0 || task_state(task) != TASK_READY || task_revision(task) < 1)
        return;
    proto_add_int(&query->request, 2, (uint64_t)task_clock_ahead_us(task));
    query->n_waiting++;
    task_call_start(task, &trace_call->call,
                    &(struct wire_out){.type = WIRE_GET_TRACES,
                                       .meta = {query->request.data, query->request.len}});
    query->request.len = len;
}

struct trace_query *trace_query_start(struct service *service, const uint64_t *step_ids, int n,
                                      void (*done)(struct trace_query *query, void *arg),
                                      void *arg) {
    int n_tasks = service_for_each_task(service, NULL, NULL);
    struct trace_query *query =
        xcalloc(1, sizeof *query + (size_t)n_tasks * sizeof query->calls[0]);
    CHECK(!service->trace_query);
    service->trace_query = query;
    query->service = service;
    query->done = done;
    query->arg = arg;
    query->n_calls = n_tasks;
    for (int i = 0; i < n; i++) {
        proto_add_tag(&query->request, 1, 1);
        str_add_bytes(&query->request, &step_ids[i], sizeof step_ids[i]);
    }
    loop_timer_init(service->env.loop, &query->timer, on_timeout);
    service_for_each_task(service, ask, query);
    loop_timer_start(&query->timer, query->n_waiting > 0 ? REPLY_WAIT_MS : 0, 0);
    return query;
}
