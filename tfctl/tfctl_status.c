/* tfctl status: says on one screen whether a cluster is well, and what is not. */
#include <stdio.h>

#include "common/base/units.h"
#include "rpc/daemon/page.h"
#include "tfctl/cli.h"
#include "tfctl/cluster_view.h"
#include "tfctl/plain_text.h"
#include "tfctl/tfctl.h"

enum {
    MAX_STEPS_SHOWN = 3,
    MAX_ERRORS_SHOWN = 3,
    RECENT_S = 600,
    MAX_TEXT_BYTES = 300,
    ERROR_INDENT = 6,
    MAX_ERROR_LINE_BYTES = 1000,
    MAX_ERROR_LINES = 30,
};

struct status_flags {
    struct page_source source;
};

#define ROW(...) CLI_ROW(struct status_flags, __VA_ARGS__)

// clang-format off
static const struct option_row rows[] = {
#include "tfctl/page_source_rows.inc"
};
// clang-format on

static const struct cli_spec spec = {
    .options = {.program = "tfctl status",
                .summary = "Says whether a cluster is well: its master, tasks, sessions, running "
                           "steps and limits. Exits with 0 if all is well, with 70 if something "
                           "is not, and with 74 if the master does not answer.",
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "[OPTION]...",
};

/* Problems are collected as lines, and as the strings of a JSON list. */
struct problems {
    struct str lines, json;
    int n;
};

static void add_problem(void *arg, const char *problem) {
    struct problems *problems = arg;
    problems->n++;
    str_addf(&problems->lines, "  ! %s\n", problem);
    page_text(&problems->json, NULL, problem);
}

/* ---- text ---- */

static void print_steps(const struct cluster_view *view, struct str *out) {
    const struct page_value *steps = page_get(view->steps, "steps");
    for (size_t i = 0; i < page_count(steps) && i < MAX_STEPS_SHOWN; i++) {
        const struct page_value *step = page_at(steps, i);
        if (page_has(step, "more"))
            continue;
        str_addf(out, "  step %s has run for ", page_get_text(step, "step"));
        units_add_duration(out, page_get_real(step, "age_seconds"));
        str_add(out, ": ");
        plain_text_add(out, page_get_text(step, "state"), MAX_TEXT_BYTES);
        str_add_char(out, '\n');
    }
}

/* The master shows messages only to operators, and the node that failed to everybody. */
static void add_message(const struct page_value *session, struct str *out) {
    if (page_has(session, "last_error")) {
        str_add(out, ": ");
        plain_text_add_lines(out, page_get_text(session, "last_error"), ERROR_INDENT,
                             MAX_ERROR_LINE_BYTES, MAX_ERROR_LINES);
    } else if (page_has(session, "last_error_node")) {
        str_add(out, " in node ");
        plain_text_add(out, page_get_text(session, "last_error_node"), MAX_TEXT_BYTES);
    }
}

static bool has_recent_error(const struct page_value *session) {
    return page_has(session, "last_error_code") &&
           page_get_real(session, "last_error_age_seconds") <= RECENT_S;
}

static void print_errors(const struct cluster_view *view, struct str *out) {
    const struct page_value *sessions = page_get(view->sessions, "sessions");
    int n = 0;
    for (size_t i = 0; i < page_count(sessions); i++) {
        const struct page_value *session = page_at(sessions, i);
        if (!has_recent_error(session) || n++ >= MAX_ERRORS_SHOWN)
            continue;
        str_addf(out, "%s  ", n == 1 ? "last errors\n" : "");
        units_add_duration(out, page_get_real(session, "last_error_age_seconds"));
        str_addf(out, " ago: %s", page_get_text(session, "last_error_code"));
        add_message(session, out);
        str_add_char(out, '\n');
    }
    if (n > MAX_ERRORS_SHOWN)
        str_addf(out, "  and those of %d more sessions: see /sessionz\n", n - MAX_ERRORS_SHOWN);
}

static void print_drained(const struct cluster_view *view, struct str *out) {
    const struct page_value *tasks = cluster_view_service(view, "tasks");
    for (size_t i = 0; i < page_count(tasks); i++)
        if (cluster_view_is_drained(page_at(tasks, i)))
            str_addf(out, "  %s is %s%s\n", page_get_text(page_at(tasks, i), "task"),
                     page_get_text(page_at(tasks, i), "state"),
                     strcmp(page_get_text(page_at(tasks, i), "state"), "lost") == 0
                         ? ": it ended while it was draining"
                         : " on purpose");
}

static void print_text(const struct cluster_view *view, const char *admin,
                       const struct problems *problems) {
    struct cluster_counts counts = cluster_view_count(view);
    struct str out = STR_INIT;
    str_addf(&out, "master    tf-master %s, %s, pages at %s, up ",
             page_get_text(view->index, "version"), view->is_ready ? "ready" : "not ready", admin);
    units_add_duration(&out, page_get_real(view->index, "uptime_seconds"));
    str_addf(&out, "\ntasks     %lld of %lld ready\n", (long long)counts.n_ready,
             (long long)counts.n_tasks);
    print_drained(view, &out);
    str_addf(&out, "sessions  %lld; %lld steps, %lld failed\n", (long long)counts.n_sessions,
             (long long)counts.n_steps, (long long)counts.n_failed);
    str_addf(&out, "running   %lld steps\n", (long long)counts.n_running);
    print_steps(view, &out);
    print_errors(view, &out);
    if (problems->n == 0)
        str_add(&out, "\nall is well\n");
    else
        str_addf(&out, "\nnot well:\n%s", str_text(&problems->lines));
    fputs(str_text(&out), stdout);
    str_fini(&out);
}

/* ---- JSON ---- */

static void list_errors(const struct cluster_view *view, struct str *out) {
    const struct page_value *sessions = page_get(view->sessions, "sessions");
    page_open(out, "last_errors", '[');
    for (size_t i = 0; i < page_count(sessions); i++) {
        const struct page_value *session = page_at(sessions, i);
        if (!has_recent_error(session))
            continue;
        page_open(out, NULL, '{');
        page_text(out, "session", page_get_text(session, "session"));
        page_real(out, "age_seconds", page_get_real(session, "last_error_age_seconds"));
        page_text(out, "code", page_get_text(session, "last_error_code"));
        if (page_has(session, "last_error"))
            page_text(out, "message", page_get_text(session, "last_error"));
        page_close(out, '}');
    }
    page_close(out, ']');
}

static void print_json(const struct cluster_view *view, const char *admin,
                       const struct problems *problems) {
    struct cluster_counts counts = cluster_view_count(view);
    const struct page_value *tasks = cluster_view_service(view, "tasks");
    struct str out = STR_INIT;
    page_open(&out, NULL, '{');
    page_bool(&out, "ok", problems->n == 0);
    page_text(&out, "admin", admin);
    page_text(&out, "version", page_get_text(view->index, "version"));
    page_real(&out, "uptime_seconds", page_get_real(view->index, "uptime_seconds"));
    page_bool(&out, "ready", view->is_ready);
    page_int(&out, "tasks", counts.n_tasks);
    page_int(&out, "tasks_ready", counts.n_ready);
    page_int(&out, "sessions", counts.n_sessions);
    page_int(&out, "steps_running", counts.n_running);
    page_int(&out, "steps", counts.n_steps);
    page_int(&out, "steps_failed", counts.n_failed);
    page_open(&out, "drained", '[');
    for (size_t i = 0; i < page_count(tasks); i++)
        if (cluster_view_is_drained(page_at(tasks, i)))
            page_text(&out, NULL, page_get_text(page_at(tasks, i), "task"));
    page_close(&out, ']');
    list_errors(view, &out);
    page_key(&out, "problems");
    str_addf(&out, "[%s]", str_text(&problems->json));
    page_close(&out, '}');
    cli_print(&out);
    str_fini(&out);
}

static int show(const struct cli *cli, const struct page_source *source, const char *admin) {
    struct cluster_view view;
    struct problems problems = {.n = 0};
    struct status *st = cluster_view_fetch(source, admin, &view);
    if (st)
        return cli_fail_call(cli, st);
    cluster_view_problems(&view, add_problem, &problems);
    if (cli_is_json(cli))
        print_json(&view, admin, &problems);
    else
        print_text(&view, admin, &problems);
    cluster_view_fini(&view);
    str_fini(&problems.lines);
    str_fini(&problems.json);
    return problems.n == 0 ? EXIT_OK : EXIT_INTERNAL;
}

static int run(struct cli *cli, void *arg) {
    const struct status_flags *flags = arg;
    struct str admin = STR_INIT;
    int code = page_source_open(&flags->source, cli, &admin);
    if (code == EXIT_OK)
        code = show(cli, &flags->source, str_text(&admin));
    str_fini(&admin);
    return code;
}

int tfctl_status(int argc, char **argv) {
    struct status_flags flags = {.source = {.target = NULL}};
    return cli_main(&spec, &flags, argc, argv, run);
}
