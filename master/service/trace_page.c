/* Writes /tracez: the last steps, or a file with all that the tasks have kept of them.
 *
 * The master remembers which steps ended last. It asks all tasks what they have kept of these, and
 * finishes the page when all have replied, or after REPLY_WAIT_MS: a task that does not reply is
 * left out. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/tensor/tensor_proto.h"
#include "master/service/service_internal.h"
#include "master/service/trace_events.h"
#include "rpc/daemon/page.h"

enum {
    REPLY_WAIT_MS = 1000,
    STEPS_SHOWN = 20, /* on the page */
    NODES_SHOWN = 5,  /* of a step: the slowest ones */
    TRACE_STEPS = 5,  /* of the file that the page links */
};

struct trace_call {
    struct task_call call;
    struct trace_page *page;
    char *task;
    Millrace__Traces *traces; /* NULL: none yet, or malformed */
};

struct trace_page {
    struct list link; /* of the service's pages that are not finished */
    struct admin_reply *reply;
    struct loop_timer timer;
    bool is_file;
    int n_steps, n_waiting, n_calls;
    struct step_log_entry *steps; /* the newest first */
    struct str request;
    struct trace_call calls[];
};

static void page_freed(struct loop_timer *timer) {
    struct trace_page *page = CONTAINER_OF(timer, struct trace_page, timer);
    for (int i = 0; i < page->n_calls; i++) {
        free(page->calls[i].task);
        if (page->calls[i].traces)
            millrace__traces__free_unpacked(page->calls[i].traces, NULL);
    }
    str_fini(&page->request);
    free(page->steps);
    free(page);
}

/* ---- the page ---- */

static const Millrace__StepTrace *find_trace(const struct trace_call *call, uint64_t step_id) {
    for (size_t i = 0; call->traces && i < call->traces->n_trace; i++)
        if (call->traces->trace[i]->step_id == step_id)
            return call->traces->trace[i];
    return NULL;
}

static double receives_us(const Millrace__StepTrace *trace) {
    double sum_ns = 0;
    for (size_t i = 0; i < trace->n_row; i++)
        if (trace->row[i]->kind == MILLRACE__TRACE_ROW__KIND__RECV)
            sum_ns += (double)trace->row[i]->duration_ns;
    return sum_ns / 1e3;
}

static void add_task(const struct trace_call *call, const Millrace__StepTrace *trace,
                     struct str *out) {
    page_open(out, NULL, '{');
    page_text(out, "task", call->task);
    page_real(out, "prepare_us", (double)trace->prepare_ns / 1e3);
    page_real(out, "run_us", (double)trace->run_ns / 1e3);
    page_real(out, "receives_us", receives_us(trace));
    page_text(out, "recorded", trace->has_nodes ? "every node" : "what it waited for");
    page_close(out, '}');
}

struct slow_node {
    const Millrace__TraceRow *row;
    const char *task;
};

/* Puts a task's rows among the slowest ones, the slowest first. Returns how many there are. */
static int add_slowest(const struct trace_call *call, const Millrace__StepTrace *trace,
                       struct slow_node *slowest, int n) {
    for (size_t i = 0; i < trace->n_row; i++) {
        const Millrace__TraceRow *row = trace->row[i];
        int at = n;
        while (at > 0 && slowest[at - 1].row->duration_ns < row->duration_ns)
            at--;
        if (at == NODES_SHOWN)
            continue;
        n = MIN(n + 1, (int)NODES_SHOWN);
        memmove(&slowest[at + 1], &slowest[at], (size_t)(n - 1 - at) * sizeof *slowest);
        slowest[at] = (struct slow_node){row, call->task};
    }
    return n;
}

static void add_slow_node(const struct slow_node *node, struct str *out) {
    bool is_send = node->row->kind == MILLRACE__TRACE_ROW__KIND__SEND,
         is_recv = node->row->kind == MILLRACE__TRACE_ROW__KIND__RECV;
    page_open(out, NULL, '{');
    page_name(out, "node", node->row->name);
    page_text(out, "op", is_send ? "Send" : is_recv ? "Recv" : node->row->op);
    page_text(out, "task", node->task);
    page_real(out, "took_us", (double)node->row->duration_ns / 1e3);
    page_close(out, '}');
}

static void add_step(const struct trace_page *page, const struct step_log_entry *step,
                     int64_t now_us, struct str *out) {
    struct slow_node slowest[NODES_SHOWN];
    struct str what = STR_INIT;
    int n = 0;
    str_add(&what, step->what);
    if (step->n_more > 0)
        str_addf(&what, " and %d more", step->n_more);
    page_open(out, NULL, '{');
    page_id(out, "step", step->id);
    page_text(out, "session", step->session);
    page_name(out, "runs", str_text(&what));
    page_real(out, "age_seconds", (double)(now_us - step->start_us) / 1e6);
    page_text(out, "code", status_code_name((enum status_code)step->code));
    page_real(out, "until_sent_us", (double)step->start_ns / 1e3);
    page_real(out, "on_tasks_us", (double)step->run_ns / 1e3);
    page_open(out, "tasks", '[');
    for (int i = 0; i < page->n_calls; i++) {
        const Millrace__StepTrace *trace = find_trace(&page->calls[i], step->id);
        if (!trace)
            continue;
        add_task(&page->calls[i], trace, out);
        n = add_slowest(&page->calls[i], trace, slowest, n);
    }
    page_close(out, ']');
    page_open(out, "slowest", '[');
    for (int i = 0; i < n; i++)
        add_slow_node(&slowest[i], out);
    page_close(out, ']');
    page_close(out, '}');
    str_fini(&what);
}

static void add_list(const struct trace_page *page, struct str *out) {
    int64_t now_us = clock_wall_us();
    struct str link = STR_INIT;
    str_addf(&link, "/tracez?steps=%d", TRACE_STEPS);
    page_open(out, NULL, '{');
    page_text(out, "download", str_text(&link));
    page_open(out, "steps", '[');
    for (int i = 0; i < page->n_steps; i++)
        add_step(page, &page->steps[i], now_us, out);
    page_close(out, ']');
    page_close(out, '}');
    str_add_char(out, '\n');
    str_fini(&link);
}

/* ---- the file ---- */

static void add_file(const struct trace_page *page, struct str *out) {
    struct trace_source *sources = xcalloc((size_t)page->n_calls + 1, sizeof *sources);
    const struct step_log_entry **steps = xcalloc((size_t)page->n_steps + 1, sizeof *steps);
    for (int i = 0; i < page->n_calls; i++)
        sources[i] = (struct trace_source){page->calls[i].task, page->calls[i].traces};
    for (int i = 0; i < page->n_steps; i++)
        steps[i] = &page->steps[i];
    trace_events_write(steps, page->n_steps, sources, page->n_calls, out);
    free(sources);
    free(steps);
}

/* ---- asking ---- */

static void finish(struct trace_page *page) {
    struct str body = STR_INIT;
    for (int i = 0; i < page->n_calls; i++)
        task_call_forget(&page->calls[i].call);
    if (page->is_file)
        add_file(page, &body);
    else
        add_list(page, &body);
    admin_reply_finish(page->reply, 200, &body);
    str_fini(&body);
    list_remove(&page->link);
    loop_timer_close(&page->timer, page_freed);
}

static void on_timeout(struct loop_timer *timer) {
    finish(CONTAINER_OF(timer, struct trace_page, timer));
}

static void on_traces(struct task_call *call, struct status *status_take,
                      struct wire_message *message) {
    struct trace_call *trace_call = CONTAINER_OF(call, struct trace_call, call);
    struct trace_page *page = trace_call->page;
    if (message)
        trace_call->traces =
            millrace__traces__unpack(NULL, message->meta.len, (const uint8_t *)message->meta.data);
    status_unref(status_take);
    if (--page->n_waiting == 0)
        finish(page);
}

static void ask(void *arg, struct task *task, int index) {
    struct trace_page *page = arg;
    struct trace_call *trace_call = &page->calls[index];
    size_t len = page->request.len;
    trace_call->page = page;
    trace_call->task = xstrdup(task_name(task));
    trace_call->call.on_reply = on_traces;
    if (page->n_steps == 0 || task_state(task) != TASK_READY)
        return;
    proto_add_int(&page->request, 2, (uint64_t)task_clock_ahead_us(task));
    page->n_waiting++;
    task_call_start(task, &trace_call->call,
                    &(struct wire_out){.type = WIRE_GET_TRACES,
                                       .meta = {page->request.data, page->request.len}});
    page->request.len = len;
}

/* Chooses the steps, and writes the request for their traces. */
static void choose_steps(struct trace_page *page, const struct step_log *log, const char *query) {
    int max_steps = (int)page_query_int(query, "steps", 1, STEP_LOG_STEPS,
                                        page->is_file ? TRACE_STEPS : STEPS_SHOWN);
    page->steps = xcalloc((size_t)max_steps, sizeof *page->steps);
    for (int i = 0; i < step_log_count(log) && page->n_steps < max_steps; i++) {
        const struct step_log_entry *entry = step_log_at(log, i);
        if (page_query_has(query, "session") && !page_query_is(query, "session", entry->session))
            continue;
        page->steps[page->n_steps++] = *entry;
        proto_add_tag(&page->request, 1, 1);
        str_add_bytes(&page->request, &entry->id, sizeof entry->id);
    }
}

void service_page_traces(struct service *service, const char *query, struct admin_reply *reply) {
    int n_tasks = service_for_each_task(service, NULL, NULL);
    struct trace_page *page = xcalloc(1, sizeof *page + (size_t)n_tasks * sizeof page->calls[0]);
    page->reply = reply;
    page->is_file = page_query_has(query, "steps");
    page->n_calls = n_tasks;
    choose_steps(page, service->log, query);
    list_push_back(&service->trace_pages, &page->link);
    page->n_waiting = 1; /* the reference of this function */
    loop_timer_init(service->env.loop, &page->timer, on_timeout);
    loop_timer_start(&page->timer, REPLY_WAIT_MS, 0);
    service_for_each_task(service, ask, page);
    if (--page->n_waiting == 0)
        finish(page);
}

void service_end_trace_pages(struct service *service) {
    while (!list_is_empty(&service->trace_pages))
        finish(LIST_ENTRY(service->trace_pages.next, struct trace_page, link));
}
