/* Writes /tracez: the last steps, or a file with all that the tasks have kept of them.
 *
 * The master remembers which steps ended last. It asks all tasks what they have kept of these, and
 * finishes the page when all have replied, or after a second: a task that does not reply is left
 * out. One query runs at a time, because the replies are held in memory. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "master/service/service_internal.h"
#include "master/service/trace_events.h"
#include "rpc/daemon/page.h"

enum {
    STEPS_SHOWN = 20, /* on the page */
    NODES_SHOWN = 5,  /* of a step: the slowest ones */
    TRACE_STEPS = 5,  /* of the file that the page links */
};

struct trace_page {
    struct list link; /* of the service's pages that are not finished */
    struct admin_reply *reply;
    bool is_file;
    struct trace_query *query;
    int n_steps;
    struct step_log_entry *steps; /* the newest first */
};

/* ---- the page ---- */

static const Millrace__StepTrace *find_trace(const Millrace__Traces *traces, uint64_t step_id) {
    for (size_t i = 0; traces && i < traces->n_trace; i++)
        if (traces->trace[i]->step_id == step_id)
            return traces->trace[i];
    return NULL;
}

static double receives_us(const Millrace__StepTrace *trace) {
    double sum_ns = 0;
    for (size_t i = 0; i < trace->n_row; i++)
        if (trace->row[i]->kind == MILLRACE__TRACE_ROW__KIND__RECV)
            sum_ns += (double)trace->row[i]->duration_ns;
    return sum_ns / 1e3;
}

static void add_task(const char *task, const Millrace__StepTrace *trace, struct str *out) {
    page_open(out, NULL, '{');
    page_id(out, "step", trace->step_id);
    page_text(out, "task", task);
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
static int add_slowest(const char *task, const Millrace__StepTrace *trace,
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
        slowest[at] = (struct slow_node){row, task};
    }
    return n;
}

static void add_slow_node(const struct slow_node *node, uint64_t step_id, struct str *out) {
    bool is_send = node->row->kind == MILLRACE__TRACE_ROW__KIND__SEND,
         is_recv = node->row->kind == MILLRACE__TRACE_ROW__KIND__RECV;
    page_open(out, NULL, '{');
    page_id(out, "step", step_id);
    page_real(out, "took_us", (double)node->row->duration_ns / 1e3);
    page_text(out, "op", is_send ? "Send" : is_recv ? "Recv" : node->row->op);
    page_name(out, "node", node->row->name);
    page_text(out, "task", node->task);
    page_close(out, '}');
}

static void add_step(const struct step_log_entry *step, int64_t now_us, struct str *out) {
    struct str what = STR_INIT;
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
    page_close(out, '}');
    str_fini(&what);
}

static void add_step_tasks(const struct trace_page *page, uint64_t step_id, struct str *out) {
    for (int i = 0; i < trace_query_n_tasks(page->query); i++) {
        const Millrace__StepTrace *trace = find_trace(trace_query_traces(page->query, i), step_id);
        if (trace)
            add_task(trace_query_task(page->query, i), trace, out);
    }
}

static void add_step_nodes(const struct trace_page *page, uint64_t step_id, struct str *out) {
    struct slow_node slowest[NODES_SHOWN];
    int n = 0;
    for (int i = 0; i < trace_query_n_tasks(page->query); i++) {
        const Millrace__StepTrace *trace = find_trace(trace_query_traces(page->query, i), step_id);
        if (trace)
            n = add_slowest(trace_query_task(page->query, i), trace, slowest, n);
    }
    for (int i = 0; i < n; i++)
        add_slow_node(&slowest[i], step_id, out);
}

/* Three flat tables: a table within a cell cannot be read. */
static void add_list(const struct trace_page *page, struct str *out) {
    int64_t now_us = clock_wall_us();
    struct str link = STR_INIT;
    str_addf(&link, "/tracez?steps=%d", TRACE_STEPS);
    page_open(out, NULL, '{');
    page_text(out, "download", str_text(&link));
    page_int(out, "tasks_left_out", trace_query_n_left_out(page->query));
    page_open(out, "steps", '[');
    for (int i = 0; i < page->n_steps; i++)
        add_step(&page->steps[i], now_us, out);
    page_close(out, ']');
    page_open(out, "tasks", '[');
    for (int i = 0; i < page->n_steps; i++)
        add_step_tasks(page, page->steps[i].id, out);
    page_close(out, ']');
    page_open(out, "slowest", '[');
    for (int i = 0; i < page->n_steps; i++)
        add_step_nodes(page, page->steps[i].id, out);
    page_close(out, ']');
    page_close(out, '}');
    str_add_char(out, '\n');
    str_fini(&link);
}

/* ---- the file ---- */

static void add_file(const struct trace_page *page, struct str *out) {
    int n_tasks = trace_query_n_tasks(page->query);
    struct trace_source *sources = xcalloc((size_t)n_tasks + 1, sizeof *sources);
    const struct step_log_entry **steps = xcalloc((size_t)page->n_steps + 1, sizeof *steps);
    for (int i = 0; i < n_tasks; i++)
        sources[i] = (struct trace_source){trace_query_task(page->query, i),
                                           trace_query_traces(page->query, i)};
    for (int i = 0; i < page->n_steps; i++)
        steps[i] = &page->steps[i];
    trace_events_write(steps, page->n_steps, sources, n_tasks, trace_query_n_left_out(page->query),
                       out);
    free(sources);
    free(steps);
}

/* ---- asking ---- */

static void finish(struct trace_page *page) {
    struct str body = STR_INIT;
    if (page->is_file)
        add_file(page, &body);
    else
        add_list(page, &body);
    admin_reply_finish(page->reply, 200, &body);
    str_fini(&body);
    list_remove(&page->link);
    trace_query_free(page->query);
    free(page->steps);
    free(page);
}

static void on_traces(struct trace_query *query, void *arg) { finish(arg); }

static void choose_steps(struct trace_page *page, const struct step_log *log, const char *query) {
    int max_steps = (int)page_query_int(query, "steps", 1, STEP_LOG_STEPS,
                                        page->is_file ? TRACE_STEPS : STEPS_SHOWN);
    page->steps = xcalloc((size_t)max_steps, sizeof *page->steps);
    for (int i = 0; i < step_log_count(log) && page->n_steps < max_steps; i++) {
        const struct step_log_entry *entry = step_log_at(log, i);
        if (!page_query_has(query, "session") || page_query_is(query, "session", entry->session))
            page->steps[page->n_steps++] = *entry;
    }
}

static void refuse(struct admin_reply *reply) {
    struct str body = STR_INIT;
    page_open(&body, NULL, '{');
    page_text(&body, "error", "the master makes another such page: try again in a second");
    page_close(&body, '}');
    str_add_char(&body, '\n');
    admin_reply_finish(reply, 503, &body);
    str_fini(&body);
}

void service_page_traces(struct service *service, const char *query, struct admin_reply *reply) {
    if (service->trace_query) {
        refuse(reply);
        return;
    }
    struct trace_page *page = xcalloc(1, sizeof *page);
    uint64_t ids[STEP_LOG_STEPS];
    page->reply = reply;
    page->is_file = page_query_has(query, "steps");
    choose_steps(page, service->log, query);
    for (int i = 0; i < page->n_steps; i++)
        ids[i] = page->steps[i].id;
    list_push_back(&service->trace_pages, &page->link);
    page->query = trace_query_start(service, ids, page->n_steps, on_traces, page);
}

void service_end_trace_pages(struct service *service) {
    while (!list_is_empty(&service->trace_pages))
        finish(LIST_ENTRY(service->trace_pages.next, struct trace_page, link));
}
