/* Writes /graphz: the compiled signatures of all sessions, or the placed graph of one.
 *
 * For one it asks the tasks what its last steps took, and then compiles it again on the pool, which
 * says where its nodes are and why (master/session/placed_job.h). Jobs of that session wait
 * meanwhile, so the service makes one such page at a time. */
#include <math.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "common/graph/short_name.h"
#include "master/service/graph_drawing.h"
#include "master/service/service_internal.h"
#include "master/session/placed_job.h"
#include "master/session/replacement.h"
#include "master/session/step_log.h"
#include "proto/worker.pb-c.h"
#include "rpc/daemon/page.h"
#include "rpc/daemon/page_html.h"

enum {
    MAX_SIGNATURES = 200,
    MAX_NODES = 10000, /* rows of the JSON */
    STEPS_ASKED = 8,
};

struct graph_page {
    struct list link;              /* of the service's pages that are not finished */
    struct admin_reply *reply;     /* NULL: it is finished, because the service has ended */
    struct trace_query *query;     /* NULL: the tasks have replied */
    struct executable *executable; /* one reference until the job has its own */
    struct placed_job job;
    int max_rows;
    bool is_job;           /* it runs, and frees the page */
    struct strmap by_name; /* name of a node → struct node_times */
    struct arena arena;
    struct str placement; /* why it was placed again, or was not; empty: nobody tried to */
    struct str body;
};

static void page_free(struct graph_page *page) {
    list_remove(&page->link);
    strmap_fini(&page->by_name);
    arena_fini(&page->arena);
    str_fini(&page->placement);
    str_fini(&page->body);
    free(page);
}

/* ---- the list ---- */

static void add_signature(const struct session *session, const struct executable *executable,
                          struct str *out) {
    const struct signature *signature = &executable->signature;
    struct str link = STR_INIT;
    str_addf(&link, "/graphz?session=%s&signature=%lld", session->handle,
             (long long)executable->number);
    page_open(out, NULL, '{');
    page_name(out, "runs",
              signature->n_fetches > 0   ? signature->fetches[0]
              : signature->n_targets > 0 ? signature->targets[0]
                                         : "");
    page_text(out, "page", str_text(&link));
    page_int(out, "feeds", signature->n_feeds);
    page_int(out, "fetches", signature->n_fetches);
    page_int(out, "targets", signature->n_targets);
    page_int(out, "steps", executable->n_steps);
    page_int(out, "tasks", executable->n_tasks);
    page_close(out, '}');
    str_fini(&link);
}

static void add_list(const struct service *service, struct str *out) {
    size_t n = 0, n_more = 0;
    page_open(out, NULL, '{');
    page_open(out, "signatures", '[');
    LIST_FOR_EACH (link, &service->sessions) {
        const struct session *session = LIST_ENTRY(link, struct session, link);
        LIST_FOR_EACH (lru_link, &session->lru) {
            const struct executable *executable = LIST_ENTRY(lru_link, struct executable, lru_link);
            if (executable->state != EXECUTABLE_READY)
                continue;
            if (n++ < MAX_SIGNATURES)
                add_signature(session, executable, out);
            else
                n_more++;
        }
    }
    page_more(out, n_more);
    page_close(out, ']');
    page_close(out, '}');
    str_add_char(out, '\n');
}

/* ---- one graph ---- */

struct graph_row {
    const struct placed_node *node;
    const struct node_times *times;
};

static double took_ns(const struct graph_row *row) {
    return row->times->n > 0 ? (double)row->times->total_ns / (double)row->times->n : 0;
}

/* Those that took longest first, then by estimate. */
static int by_time(const void *a, const void *b) {
    const struct graph_row *x = a, *y = b;
    if (took_ns(x) != took_ns(y))
        return took_ns(x) > took_ns(y) ? -1 : 1;
    if (x->node->estimate_ns != y->node->estimate_ns)
        return x->node->estimate_ns > y->node->estimate_ns ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

static void add_rows(const struct placed_graph *graph, const struct node_times *times, int max_rows,
                     struct str *out) {
    struct graph_row *rows = xcalloc((size_t)graph->n_nodes + 1, sizeof *rows);
    for (int i = 0; i < graph->n_nodes; i++)
        rows[i] = (struct graph_row){&graph->nodes[i], &times[i]};
    qsort(rows, (size_t)graph->n_nodes, sizeof *rows, by_time);
    page_open(out, "nodes", '[');
    for (int i = 0; i < MIN(graph->n_nodes, max_rows); i++) {
        page_open(out, NULL, '{');
        page_name(out, "node", rows[i].node->name);
        page_text(out, "op", rows[i].node->op);
        page_text(out, "device", rows[i].node->device);
        page_real(out, "estimate_us", round(rows[i].node->estimate_ns) / 1e3);
        if (rows[i].times->n > 0) {
            page_real(out, "took_us", round(took_ns(&rows[i])) / 1e3);
            page_int(out, "executions", rows[i].times->n);
        }
        page_text(out, "why_here", rows[i].node->why);
        page_close(out, '}');
    }
    page_more(out, (size_t)MAX(graph->n_nodes - max_rows, 0));
    page_close(out, ']');
    free(rows);
}

/* By node, what the tasks' names say. */
static struct node_times *find_times(const struct graph_page *page,
                                     const struct placed_graph *graph) {
    struct node_times *times = xcalloc((size_t)graph->n_nodes + 1, sizeof *times);
    for (int i = 0; i < graph->n_nodes; i++) {
        const char *name = graph->nodes[i].name, *op = graph->nodes[i].op;
        bool is_end = strcmp(op, "feed") == 0 || strcmp(op, "fetch") == 0;
        char buffer[SHORT_NAME_BYTES + 1];
        const struct node_times *found =
            is_end ? NULL : strmap_get_span(&page->by_name, short_name(name, buffer));
        times[i] = found ? *found : (struct node_times){0, 0};
    }
    return times;
}

/* Pool thread. */
static void write_graph(struct placed_job *job) {
    struct graph_page *page = CONTAINER_OF(job, struct graph_page, job);
    const struct signature *signature = &job->executable->signature;
    struct str *out = &page->body;
    if (job->status)
        return;
    struct node_times *times = find_times(page, &job->graph);
    page_open(out, NULL, '{');
    page_text(out, "session", job->executable->session->handle);
    page_int(out, "signature", job->executable->number);
    page_name(out, "runs",
              signature->n_fetches > 0   ? signature->fetches[0]
              : signature->n_targets > 0 ? signature->targets[0]
                                         : "");
    if (page->placement.len > 0)
        page_text(out, "placement", str_text(&page->placement));
    page_int(out, "nodes_in_all", job->graph.n_nodes);
    graph_drawing_write(&job->graph, times, out);
    add_rows(&job->graph, times, page->max_rows, out);
    page_close(out, '}');
    str_add_char(out, '\n');
    free(times);
}

static void reply_error(struct graph_page *page, int http_status, const char *why) {
    page_open(&page->body, NULL, '{');
    page_text(&page->body, "error", why);
    page_close(&page->body, '}');
    str_add_char(&page->body, '\n');
    admin_reply_finish(page->reply, http_status, &page->body);
    page->reply = NULL;
}

static void on_placed(struct placed_job *job) {
    struct graph_page *page = CONTAINER_OF(job, struct graph_page, job);
    /* the message may carry values of constants, and this page is not for operators only */
    if (page->reply && job->status)
        reply_error(page, 500, status_code_name(status_code(job->status)));
    else if (page->reply)
        admin_reply_finish(page->reply, 200, &page->body);
    placed_job_fini(job);
    page_free(page);
}

/* ---- what its nodes took ---- */

/* A GPU's row is the time in which the host enqueued it, which says nothing. */
static void note_row(struct graph_page *page, const Millrace__TraceRow *row) {
    if (row->kind != MILLRACE__TRACE_ROW__KIND__NODE || strncmp(row->device, "GPU", 3) == 0)
        return;
    struct node_times *times = strmap_get(&page->by_name, row->name);
    if (!times) {
        times = arena_new(&page->arena, struct node_times);
        strmap_put(&page->by_name, arena_strdup(&page->arena, row->name), times);
    }
    /* a task may say anything; a row that does not fit is left out */
    if (row->duration_ns >= 0 &&
        !__builtin_add_overflow(times->total_ns, row->duration_ns, &times->total_ns))
        times->n++;
}

static void on_traces(struct trace_query *query, void *arg) {
    struct graph_page *page = arg;
    for (int i = 0; i < trace_query_n_tasks(query); i++) {
        const Millrace__Traces *traces = trace_query_traces(query, i);
        for (size_t k = 0; traces && k < traces->n_trace; k++)
            for (size_t r = 0; r < traces->trace[k]->n_row; r++)
                note_row(page, traces->trace[k]->row[r]);
    }
    trace_query_free(query);
    page->query = NULL;
    page->is_job = true;
    page->job.work = write_graph;
    page->job.done = on_placed;
    struct executable *executable = page->executable;
    page->executable = NULL;
    placed_job_start(&page->job, executable);
    executable_unref(executable); /* the job has its own reference */
}

static void ask_tasks(struct service *service, struct graph_page *page) {
    uint64_t ids[STEPS_ASKED];
    int n = 0;
    for (int i = 0; i < step_log_count(service->log) && n < STEPS_ASKED; i++) {
        const struct step_log_entry *entry = step_log_at(service->log, i);
        if (entry->signature == page->executable->number &&
            strcmp(entry->session, page->executable->session->handle) == 0)
            ids[n++] = entry->id;
    }
    page->query = trace_query_start(service, ids, n, on_traces, page);
}

/* ---- finding it ---- */

/* A link may have been made before the signature was placed again. */
static bool has_number(const struct executable *executable, int64_t number) {
    bool has = executable->number == number;
    for (int i = 0; i < TRIAL_MAX_TAKES; i++)
        has |= executable->earlier_numbers[i] == number;
    return has;
}

/* The signature that the query names, else the one that was used last. */
static struct executable *find_executable(const struct service *service, const char *query) {
    int64_t number = page_query_int(query, "signature", 1, INT64_MAX, 0);
    LIST_FOR_EACH (link, &service->sessions) {
        const struct session *session = LIST_ENTRY(link, struct session, link);
        if (page_query_has(query, "session") && !page_query_is(query, "session", session->handle))
            continue;
        LIST_FOR_EACH (lru_link, &session->lru) {
            struct executable *executable = LIST_ENTRY(lru_link, struct executable, lru_link);
            if (executable->state == EXECUTABLE_READY &&
                (number == 0 || has_number(executable, number)))
                return executable;
        }
    }
    return NULL;
}

void service_page_graph(struct service *service, const char *query, struct admin_reply *reply) {
    bool is_busy = !list_is_empty(&service->graph_pages) || service->trace_query;
    struct graph_page *page = xcalloc(1, sizeof *page);
    page->reply = reply;
    page->max_rows = page_html_rows(query, MAX_NODES);
    arena_init(&page->arena);
    strmap_init(&page->by_name);
    list_push_back(&service->graph_pages, &page->link);
    bool is_list = !page_query_has(query, "session") && !page_query_has(query, "signature");
    struct executable *executable = is_list ? NULL : find_executable(service, query);
    if (is_list) {
        add_list(service, &page->body);
        admin_reply_finish(reply, 200, &page->body);
        page_free(page);
    } else if (!executable) {
        reply_error(page, 404, "there is no such session, or it has no such signature");
        page_free(page);
    } else if (is_busy) {
        reply_error(page, 503, "the master makes another such page: try again in a second");
        page_free(page);
    } else if (service->is_stopping) {
        reply_error(page, 503, "the master is stopping");
        page_free(page);
    } else {
        const char *why = replacement_why(executable);
        page->executable = executable;
        executable->n_refs++;
        str_add(&page->placement, why ? why : "");
        ask_tasks(service, page);
    }
}

void service_end_graph_pages(struct service *service) {
    LIST_FOR_EACH_SAFE (link, next, &service->graph_pages) {
        struct graph_page *page = LIST_ENTRY(link, struct graph_page, link);
        if (page->reply)
            reply_error(page, 503, "the master is stopping");
        if (page->is_job) {
            placed_job_cancel(&page->job);
            continue;
        }
        trace_query_free(page->query);
        executable_unref(page->executable);
        page_free(page);
    }
}
