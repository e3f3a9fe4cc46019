/* tfctl drain: makes a task leave its cluster on purpose. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "rpc/daemon/page_read.h"
#include "tfctl/cli.h"
#include "tfctl/page_source.h"
#include "tfctl/tfctl.h"

enum { LOOK_MS = 200 };

struct drain_flags {
    struct page_source source;
    int64_t wait_ms;
    int output;
};

#define ROW(...) CLI_ROW(struct drain_flags, __VA_ARGS__)

// clang-format off
static const struct option_row rows[] = {
    {ROW("wait", OPTION_DURATION, wait_ms, "60s", "TIME",
        "how long to wait until the task has left; 0s: only ask it to"), .min = 0, .max = 86400000},
#include "tfctl/output_rows.inc"
#include "tfctl/page_source_rows.inc"
};
// clang-format on

static const struct cli_spec spec = {
    .options = {.program = "tfctl drain",
                .summary = "Drains a task: new sessions do not use it, its running steps end, then "
                           "it exits with 0. Sessions that have used it get the error of a lost "
                           "task with their next step. With TLS this needs an operator's "
                           "certificate. TASK is JOB/INDEX, or /job:JOB/task:INDEX.",
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

/* "draining", "drained", "ready", …; "" if the master does not know the task. */
static struct status *look(const struct drain_flags *flags, const char *admin, const char *task,
                           struct str *ret_state) {
    static const char *const path[] = {"/statusz"};
    struct fetched_page fetched;
    struct page_value *page = NULL;
    str_clear(ret_state);
    struct status *st = page_source_fetch(&flags->source, admin, path, 1, &fetched);
    if (!st)
        st = fetched_page_check(&fetched);
    if (!st)
        st = page_parse((struct span){fetched.body.data, fetched.body.len}, &page);
    const struct page_value *tasks = page_get(page_get(page, "service"), "tasks");
    for (size_t i = 0; i < page_count(tasks); i++)
        if (strcmp(page_get_text(page_at(tasks, i), "task"), task) == 0)
            str_add(ret_state, page_get_text(page_at(tasks, i), "state"));
    page_value_free(page);
    fetched_page_fini(&fetched);
    return st;
}

static struct status *wait_until_left(const struct drain_flags *flags, const char *admin,
                                      const char *task) {
    int64_t until_ns = clock_now_ns() + flags->wait_ms * 1000000;
    struct str state = STR_INIT;
    struct status *st = look(flags, admin, task, &state);
    while (!st && strcmp(str_text(&state), "draining") == 0) {
        if (clock_now_ns() >= until_ns) {
            st = status_new(STATUS_DEADLINE_EXCEEDED,
                            "%s is still draining after %.1f s: its steps have not ended", task,
                            (double)flags->wait_ms / 1e3);
            break;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
        st = look(flags, admin, task, &state);
    }
    str_fini(&state);
    return st;
}

static int run_drain(const struct drain_flags *flags, const char *admin, const char *task) {
    struct status *st = ask(flags, admin, task);
    if (!st && flags->wait_ms > 0) {
        fprintf(stderr, "%s is draining\n", task);
        st = wait_until_left(flags, admin, task);
    }
    int code = page_source_exit_code(st);
    if (st)
        fprintf(stderr, "tfctl drain: %s: %s\n", status_code_name(status_code(st)),
                status_message(st));
    else if (flags->output == CLI_OUTPUT_JSON)
        printf("{\"task\":\"%s\",\"state\":\"%s\"}\n", task,
               flags->wait_ms > 0 ? "drained" : "draining");
    else
        printf("%s %s\n", task, flags->wait_ms > 0 ? "has left" : "is draining");
    status_unref(st);
    return code;
}

int tfctl_drain(int argc, char **argv) {
    struct drain_flags flags = {.wait_ms = 0};
    struct cli cli;
    struct str admin = STR_INIT, task = STR_INIT;
    int code = EXIT_OK;
    cli_init(&cli, &spec, &flags);
    if (cli_load(&cli, &spec, argc, argv, &code) == OPTIONS_GO_ON) {
        struct status *st = name_task(cli.args[0], &task);
        if (!st)
            st = page_source_find(&flags.source, &admin);
        code =
            st ? cli_usage_error(&spec, st) : run_drain(&flags, str_text(&admin), str_text(&task));
    }
    cli_fini(&cli);
    str_fini(&admin);
    str_fini(&task);
    return code;
}
