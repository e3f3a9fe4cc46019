/* tfctl drain: makes a task leave its cluster on purpose. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "rpc/daemon/page_read.h"
#include "tfctl/cli.h"
#include "tfctl/page_source.h"
#include "tfctl/tfctl.h"

enum {
    LOOK_MS = 200,
    LOST_MS = 2000, /* the master may have lost only its connection, and make another one */
};

struct drain_flags {
    struct page_source source;
    int64_t wait_ms;
};

#define ROW(...) CLI_ROW(struct drain_flags, __VA_ARGS__)

// clang-format off
static const struct option_row rows[] = {
    {ROW("wait", OPTION_DURATION, wait_ms, "60s", "TIME",
        "how long to wait until the task has left; 0s: only ask it to"), .min = 0, .max = 86400000},
#include "tfctl/page_source_rows.inc"
};
// clang-format on

static const struct cli_spec spec = {
    .options = {.program = "tfctl drain",
                .summary = "Drains a task: new sessions do not use it, its running steps end, then "
                           "it exits with 0. Sessions that have used it get the error of a lost "
                           "task with their next step. With TLS this needs an operator's "
                           "certificate. TASK is JOB/INDEX, or /job:JOB/task:INDEX. Exits with 0 "
                           "when the task has left, with 70 if it crashed instead or is still "
                           "draining, and with 74 if the master does not answer.",
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "TASK [OPTION]...",
    .min_args = 1,
    .max_args = 1,
};

/* "worker/1" and "/job:worker/task:1" are "/job:worker/replica:0/task:1". */
static struct status *name_task(const char *text, struct str *out) {
    char job[64];
    int index, end = 0;
    bool is_known =
        (sscanf(text, "/job:%63[A-Za-z0-9_]/replica:0/task:%d%n", job, &index, &end) == 2 ||
         sscanf(text, "/job:%63[A-Za-z0-9_]/task:%d%n", job, &index, &end) == 2 ||
         sscanf(text, "%63[A-Za-z0-9_]/%d%n", job, &index, &end) == 2) &&
        text[end] == '\0' && index >= 0;
    if (!is_known)
        return status_invalid("'%s' is no task: write JOB/INDEX, or /job:JOB/task:INDEX", text);
    str_addf(out, "/job:%s/replica:0/task:%d", job, index);
    return NULL;
}

static struct status *ask(const struct drain_flags *flags, const char *admin, const char *task) {
    struct fetched_page page;
    struct str path = STR_INIT;
    str_addf(&path, "/task/drain?task=%s", task);
    struct status *st = page_source_post(&flags->source, admin, str_text(&path), &page);
    if (!st)
        st = fetched_page_check(&page);
    fetched_page_fini(&page);
    str_fini(&path);
    return st;
}

/* What the master says of a task; empty if the master does not know it. */
struct task_view {
    struct str state, incarnation, last_end, why;
};

static void task_view_fini(struct task_view *view) {
    str_fini(&view->state);
    str_fini(&view->incarnation);
    str_fini(&view->last_end);
    str_fini(&view->why);
}

static void take(const struct page_value *row, const char *key, struct str *ret) {
    str_clear(ret);
    str_add(ret, page_get_text(row, key));
}

static struct status *look(const struct drain_flags *flags, const char *admin, const char *task,
                           struct task_view *ret) {
    static const char *const path[] = {"/statusz"};
    struct fetched_page fetched;
    struct page_value *page = NULL;
    const struct page_value *row = NULL;
    struct status *st = page_source_fetch(&flags->source, admin, path, 1, &fetched);
    if (!st)
        st = fetched_page_check(&fetched);
    if (!st)
        st = page_parse((struct span){fetched.body.data, fetched.body.len}, &page);
    const struct page_value *tasks = page_get(page_get(page, "service"), "tasks");
    for (size_t i = 0; i < page_count(tasks); i++)
        if (strcmp(page_get_text(page_at(tasks, i), "task"), task) == 0)
            row = page_at(tasks, i);
    take(row, "state", &ret->state);
    take(row, "incarnation", &ret->incarnation);
    take(row, "last_end", &ret->last_end);
    take(row, "why", &ret->why);
    page_value_free(page);
    fetched_page_fini(&fetched);
    return st;
}

static bool is(const struct str *text, const char *word) {
    return strcmp(str_text(text), word) == 0;
}

/* Has the process that was drained ended? Another one may have taken its place. */
static bool has_ended(const struct task_view *view, const char *incarnation) {
    return is(&view->state, "drained") || is(&view->state, "lost") ||
           !is(&view->incarnation, incarnation);
}

/* Of a process that has ended. */
static struct status *how_it_ended(const struct task_view *view, const char *task) {
    if (!is(&view->last_end, "lost"))
        return NULL;
    return status_new(STATUS_ABORTED, "%s was lost while it was draining%s%s", task,
                      view->why.len > 0 ? ": " : "", str_text(&view->why));
}

static struct status *wait_until_ended(const struct drain_flags *flags, const char *admin,
                                       const char *task, const char *incarnation) {
    int64_t until_ns = clock_now_ns() + flags->wait_ms * 1000000, lost_ns = 0;
    struct task_view view = {.state = STR_INIT};
    struct status *st = look(flags, admin, task, &view);
    for (; !st; st = look(flags, admin, task, &view)) {
        bool is_lost = is(&view.state, "lost") && is(&view.incarnation, incarnation);
        int64_t now_ns = clock_now_ns();
        lost_ns = !is_lost ? 0 : lost_ns ? lost_ns : now_ns;
        if (has_ended(&view, incarnation) && (!is_lost || now_ns - lost_ns > LOST_MS * 1000000ll)) {
            st = how_it_ended(&view, task);
            break;
        }
        if (!is_lost && !is(&view.state, "draining")) {
            st = status_failed_precondition(
                "%s is %s again: the master no longer knows that it drains", task,
                str_text(&view.state));
        } else if (now_ns >= until_ns) {
            st = status_new(STATUS_DEADLINE_EXCEEDED,
                            "%s is still draining after %.1f s: its steps have not ended", task,
                            (double)flags->wait_ms / 1e3);
        }
        if (st)
            break;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
    }
    task_view_fini(&view);
    return st;
}

static struct status *drain(const struct drain_flags *flags, const char *admin, const char *task) {
    struct task_view before = {.state = STR_INIT};
    struct status *st = look(flags, admin, task, &before);
    if (!st)
        st = ask(flags, admin, task);
    if (!st && flags->wait_ms > 0) {
        fprintf(stderr, "%s is draining\n", task);
        st = wait_until_ended(flags, admin, task, str_text(&before.incarnation));
    }
    task_view_fini(&before);
    return st;
}

static int run_drain(const struct cli *cli, const struct drain_flags *flags, const char *admin,
                     const char *task) {
    struct status *st = drain(flags, admin, task);
    struct str out = STR_INIT;
    if (st)
        return cli_fail_call(cli, st);
    if (cli_is_json(cli))
        str_addf(&out, "{\"task\":\"%s\",\"state\":\"%s\"}", task,
                 flags->wait_ms > 0 ? "drained" : "draining");
    else
        str_addf(&out, "%s %s", task, flags->wait_ms > 0 ? "has left" : "is draining");
    cli_print(&out);
    str_fini(&out);
    return EXIT_OK;
}

static int run(struct cli *cli, void *arg) {
    const struct drain_flags *flags = arg;
    struct str admin = STR_INIT, task = STR_INIT;
    struct status *st = name_task(cli->args[0], &task);
    if (!st)
        st = page_source_find(&flags->source, &admin);
    int code =
        st ? cli_fail_usage(cli, st) : run_drain(cli, flags, str_text(&admin), str_text(&task));
    str_fini(&admin);
    str_fini(&task);
    return code;
}

int tfctl_drain(int argc, char **argv) {
    struct drain_flags flags = {.wait_ms = 0};
    return cli_main(&spec, &flags, argc, argv, run);
}
