/* Reads a master's pages. */
#include "tfctl/cluster_view.h"

#include <stdlib.h>

#include "common/base/units.h"
#include "tfctl/plain_text.h"

enum { PAGE_INDEX, PAGE_READY, PAGE_STATUS, PAGE_SESSIONS, PAGE_STEPS, N_PAGES };
static const char *const paths[N_PAGES] = {[PAGE_INDEX] = "/",
                                           [PAGE_READY] = "/readyz",
                                           [PAGE_STATUS] = "/statusz",
                                           [PAGE_SESSIONS] = "/sessionz",
                                           [PAGE_STEPS] = "/stepz?format=json"};

/* ---- fetching ---- */

static struct status *parse(const struct fetched_page *page, struct page_value **ret) {
    TRY(fetched_page_check(page));
    return page_parse((struct span){page->body.data, page->body.len}, ret);
}

static struct status *take(const struct fetched_page *pages, struct cluster_view *view) {
    TRY(parse(&pages[PAGE_INDEX], &view->index));
    if (strcmp(page_get_text(view->index, "program"), "tf-master") != 0)
        return status_failed_precondition("the pages are those of %s, not of a tf-master",
                                          page_get_text(view->index, "program"));
    TRY(parse(&pages[PAGE_STATUS], &view->status));
    TRY(parse(&pages[PAGE_SESSIONS], &view->sessions));
    TRY(parse(&pages[PAGE_STEPS], &view->steps));
    const struct fetched_page *ready = &pages[PAGE_READY];
    view->is_ready = !ready->status && ready->http_code == 200;
    str_add(&view->ready, str_text(&ready->body));
    while (view->ready.len > 0 && view->ready.data[view->ready.len - 1] == '\n')
        view->ready.data[--view->ready.len] = '\0';
    return NULL;
}

struct status *cluster_view_fetch(const struct page_source *source, const char *admin,
                                  struct cluster_view *ret) {
    struct fetched_page pages[N_PAGES];
    struct cluster_view view = {.ready = STR_INIT};
    struct status *st = page_source_fetch(source, admin, paths, N_PAGES, pages);
    if (!st)
        st = take(pages, &view);
    for (int i = 0; i < N_PAGES; i++)
        fetched_page_fini(&pages[i]);
    if (st)
        cluster_view_fini(&view);
    else
        *ret = view;
    return st;
}

void cluster_view_fini(struct cluster_view *view) {
    page_value_free(view->index);
    page_value_free(view->status);
    page_value_free(view->sessions);
    page_value_free(view->steps);
    str_fini(&view->ready);
}

/* ---- counting ---- */

const struct page_value *cluster_view_service(const struct cluster_view *view, const char *key) {
    return page_get(page_get(view->status, "service"), key);
}

bool cluster_view_is_drained(const struct page_value *task) {
    const char *state = page_get_text(task, "state");
    return strcmp(state, "draining") == 0 || strcmp(state, "drained") == 0 ||
           strcmp(state, "lost") == 0;
}

struct cluster_counts cluster_view_count(const struct cluster_view *view) {
    const struct page_value *service = page_get(view->status, "service"),
                            *tasks = page_get(service, "tasks"),
                            *sessions = page_get(view->sessions, "sessions");
    struct cluster_counts counts = {.n_sessions = page_get_int(service, "sessions"),
                                    .n_running = page_get_int(service, "steps")};
    for (size_t i = 0; i < page_count(tasks); i++) {
        counts.n_tasks += !cluster_view_is_drained(page_at(tasks, i));
        counts.n_ready += strcmp(page_get_text(page_at(tasks, i), "state"), "ready") == 0;
    }
    for (size_t i = 0; i < page_count(sessions); i++) {
        counts.n_steps += page_get_int(page_at(sessions, i), "steps");
        counts.n_failed += page_get_int(page_at(sessions, i), "steps_failed");
    }
    return counts;
}

/* ---- what is not well ---- */

struct problems {
    void (*add)(void *arg, const char *problem);
    void *arg;
};

static void complain(const struct problems *problems, const char *format, ...) PRINTF_LIKE(2, 3);
static void complain(const struct problems *problems, const char *format, ...) {
    enum { MAX_LINE_BYTES = 1000, MAX_LINES = 30, INDENT = 6 };
    struct str text = STR_INIT, plain = STR_INIT;
    va_list args;
    va_start(args, format);
    str_addv(&text, format, args);
    va_end(args);
    plain_text_add_lines(&plain, str_text(&text), INDENT, MAX_LINE_BYTES, MAX_LINES);
    problems->add(problems->arg, str_text(&plain));
    str_fini(&text);
    str_fini(&plain);
}

static void check_ready(const struct cluster_view *view, const struct problems *problems) {
    const char *degraded = strstr(str_text(&view->ready), "degraded: ");
    if (!view->is_ready && strncmp(str_text(&view->ready), "missing tasks", 13) == 0)
        complain(problems, "the master is not ready: tasks are missing"); /* each has its line */
    else if (!view->is_ready)
        complain(problems, "the master is not ready: %s",
                 view->ready.len > 0 ? str_text(&view->ready) : "/readyz does not answer");
    else if (degraded)
        complain(problems, "the master has a problem: %s", degraded + strlen("degraded: "));
}

static void check_task(const struct page_value *task, const struct problems *problems) {
    enum { MAX_CLOCK_OFFSET_US = 100000 };
    const char *name = page_get_text(task, "task"), *state = page_get_text(task, "state"),
               *why = page_get_text(task, "why");
    int64_t offset_us = page_get_int(task, "clock_offset_us");
    if (cluster_view_is_drained(task))
        return;
    if (strcmp(state, "ready") != 0) {
        complain(problems, "%s at %s is %s%s%s", name, page_get_text(task, "address"), state,
                 *why ? ": " : "", why);
    } else if (llabs(offset_us) > MAX_CLOCK_OFFSET_US) {
        struct str by = STR_INIT;
        units_add_duration(&by, (double)llabs(offset_us) / 1e6);
        complain(problems, "the clock of %s is %s %s the master's: its log has other times", name,
                 str_text(&by), offset_us > 0 ? "ahead of" : "behind");
        str_fini(&by);
    }
}

static void check_devices(const struct page_value *task, const struct problems *problems) {
    const struct page_value *failed = page_get(task, "failed_devices");
    for (size_t i = 0; i < page_count(failed); i++)
        complain(problems, "%s is not used: %s", page_get_text(page_at(failed, i), "device"),
                 page_get_text(page_at(failed, i), "why"));
}

static void check_limits(const struct page_value *limits, const struct problems *problems) {
    enum { MAX_USE_PERCENT = 80 };
    for (size_t i = 0; i < page_count(limits); i++) {
        const char *name;
        const struct page_value *limit = page_member(limits, i, &name);
        double most = page_get_real(limit, "limit"), in_use = page_get_real(limit, "in_use");
        if (most > 0 && in_use * 100 > most * MAX_USE_PERCENT)
            complain(problems, "%.0f of %.0f %s are in use", in_use, most, name);
    }
}

static void check_certificate(const char *name, const struct page_value *tls,
                              const struct problems *problems) {
    enum { SOON_S = 7 * 86400 };
    int64_t left_s = page_get_int(tls, "expires_in_s");
    if (page_has(tls, "expires") && left_s < SOON_S)
        complain(problems, "the master's certificate for %s %s: %s", name,
                 left_s < 0 ? "has expired" : "expires soon", page_get_text(tls, "expires"));
    if (page_has(tls, "reload_error"))
        complain(problems, "the master could not read its TLS files for %s again: %s", name,
                 page_get_text(tls, "reload_error"));
}

void cluster_view_problems(const struct cluster_view *view,
                           void (*add)(void *arg, const char *problem), void *arg) {
    struct problems problems = {add, arg};
    const struct page_value *tasks = cluster_view_service(view, "tasks"),
                            *tls = page_get(view->status, "tls");
    check_ready(view, &problems);
    for (size_t i = 0; i < page_count(tasks); i++) {
        check_task(page_at(tasks, i), &problems);
        check_devices(page_at(tasks, i), &problems);
    }
    check_limits(cluster_view_service(view, "budgets"), &problems);
    check_limits(cluster_view_service(view, "grpc"), &problems);
    check_certificate("tasks", page_get(tls, "wire"), &problems);
    check_certificate("clients", page_get(tls, "clients"), &problems);
}
