/* tfctl top: shows what a cluster is doing, again and again: tasks, and the sessions that run most
 * steps. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/units.h"
#include "rpc/daemon/page.h"
#include "tfctl/cli.h"
#include "tfctl/cluster_view.h"
#include "tfctl/plain_text.h"
#include "tfctl/tfctl.h"

enum {
    MAX_ROWS = 1000,
    HEAD_ROWS = 6, /* of the screen: the lines that are no tasks or sessions */
    TASK_BYTES = 36,
};

struct top_flags {
    struct page_source source;
    int64_t interval_ms;
};

#define ROW(...) CLI_ROW(struct top_flags, __VA_ARGS__)

// clang-format off
static const struct option_row rows[] = {
    {ROW("interval", OPTION_DURATION, interval_ms, "2s", "TIME",
        "between two looks"), .min = 100, .max = 3600000},
#include "tfctl/page_source_rows.inc"
};
// clang-format on

static const struct cli_spec spec = {
    .options = {.program = "tfctl top",
                .summary = "Shows what a cluster is doing: steps per second, tasks, and the "
                           "sessions that run most steps. On a terminal it goes on until it is "
                           "interrupted; otherwise it looks twice, and prints once.",
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "[OPTION]...",
};

/* ---- rates: what has changed between two looks ---- */

struct session_row {
    const struct page_value *page;
    double steps_per_s, failed_per_s;
};

struct look {
    struct cluster_view view;
    int64_t at_ns;
    struct session_row *sessions; /* those with most steps a second first */
    int n_sessions;
    double steps_per_s, failed_per_s;
};

static const struct page_value *find_session(const struct cluster_view *view, const char *handle) {
    const struct page_value *sessions = page_get(view->sessions, "sessions");
    for (size_t i = 0; i < page_count(sessions); i++)
        if (strcmp(page_get_text(page_at(sessions, i), "session"), handle) == 0)
            return page_at(sessions, i);
    return NULL;
}

static int by_rate(const void *a, const void *b) {
    const struct session_row *x = a, *y = b;
    return (x->steps_per_s < y->steps_per_s) - (x->steps_per_s > y->steps_per_s);
}

/* A session that is new since the earlier look has run all its steps since then. */
static void compute_rates(struct look *look, const struct look *before) {
    const struct page_value *sessions = page_get(look->view.sessions, "sessions");
    double seconds = (double)(look->at_ns - before->at_ns) / 1e9;
    look->sessions = xcalloc(page_count(sessions) + 1, sizeof(look->sessions[0]));
    for (size_t i = 0; i < page_count(sessions) && look->n_sessions < MAX_ROWS; i++) {
        const struct page_value *now = page_at(sessions, i),
                                *then = find_session(&before->view, page_get_text(now, "session"));
        if (!page_has(now, "session"))
            continue;
        struct session_row *row = &look->sessions[look->n_sessions++];
        row->page = now;
        row->steps_per_s =
            (double)(page_get_int(now, "steps") - page_get_int(then, "steps")) / seconds;
        row->failed_per_s =
            (double)(page_get_int(now, "steps_failed") - page_get_int(then, "steps_failed")) /
            seconds;
        look->steps_per_s += row->steps_per_s;
        look->failed_per_s += row->failed_per_s;
    }
    qsort(look->sessions, (size_t)look->n_sessions, sizeof(look->sessions[0]), by_rate);
}

static void look_fini(struct look *look) {
    cluster_view_fini(&look->view);
    free(look->sessions);
    *look = (struct look){.n_sessions = 0};
}

static struct status *look_take(const struct top_flags *flags, const char *admin,
                                struct look *ret) {
    *ret = (struct look){.n_sessions = 0};
    struct status *st = cluster_view_fetch(&flags->source, admin, &ret->view);
    ret->at_ns = clock_now_ns();
    return st;
}

/* ---- text ---- */

/* How many columns the bytes take on a terminal. */
static size_t columns(const char *text, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

/* Appends the text, and blanks up to a width. */
static void add_cell(struct str *out, const char *text, size_t width) {
    size_t begin = out->len;
    plain_text_add(out, text, width);
    while (columns(out->data + begin, out->len - begin) < width + 1)
        str_add_char(out, ' ');
}

static void add_duration_cell(struct str *out, double seconds) {
    enum { WIDTH = 12 };
    struct str text = STR_INIT;
    units_add_duration(&text, seconds);
    for (size_t n = columns(text.data, text.len); n < WIDTH; n++)
        str_add_char(out, ' ');
    str_addf(out, "%s ", str_text(&text));
    str_fini(&text);
}

static void add_task(const struct page_value *task, struct str *out) {
    add_cell(out, page_get_text(task, "task"), TASK_BYTES);
    add_cell(out, page_get_text(task, "state"), 8);
    add_duration_cell(out, page_get_real(task, "rtt_us") / 1e6);
    add_duration_cell(out, page_get_real(task, "clock_offset_us") / 1e6);
    str_addf(out, "%6lld %7lld\n", (long long)page_get_int(task, "calls"),
             (long long)page_get_int(task, "losses"));
}

static void add_session(const struct session_row *row, struct str *out) {
    add_cell(out, page_get_text(row->page, "session"), TASK_BYTES);
    add_cell(out, page_get_text(row->page, "client"), 21);
    str_addf(out, "%10.1f %8.1f %8lld %10lld\n", row->steps_per_s, row->failed_per_s,
             (long long)page_get_int(row->page, "steps_running"),
             (long long)page_get_int(row->page, "steps"));
}

/* `n_rows` is how many tasks and sessions fit. */
static void print_text(const struct look *look, int n_rows, struct str *out) {
    const struct page_value *tasks = cluster_view_service(&look->view, "tasks");
    struct cluster_counts counts = cluster_view_count(&look->view);
    int n_tasks = (int)MIN(page_count(tasks), (size_t)MAX(n_rows / 2, n_rows - look->n_sessions)),
        n_sessions = MIN(look->n_sessions, MAX(n_rows - n_tasks, 0));
    str_addf(out, "tf-master %s, %s, up ", page_get_text(look->view.index, "version"),
             look->view.is_ready ? "ready" : "not ready");
    units_add_duration(out, page_get_real(look->view.index, "uptime_seconds"));
    str_addf(out,
             "\n%.1f steps/s, %.1f failed/s, %lld running, %lld sessions, %lld of %lld tasks\n\n",
             look->steps_per_s, look->failed_per_s, (long long)counts.n_running,
             (long long)counts.n_sessions, (long long)counts.n_ready, (long long)counts.n_tasks);
    str_addf(out, "%-36s %-8s %12s %12s %6s %7s\n", "TASK", "STATE", "RTT", "CLOCK", "CALLS",
             "LOSSES");
    for (int i = 0; i < n_tasks; i++)
        add_task(page_at(tasks, (size_t)i), out);
    str_addf(out, "\n%-36s %-21s %10s %8s %8s %10s\n", "SESSION", "CLIENT", "STEPS/S", "FAILED/S",
             "RUNNING", "STEPS");
    for (int i = 0; i < n_sessions; i++)
        add_session(&look->sessions[i], out);
}

/* ---- JSON ---- */

static void print_json(const struct look *look, struct str *out) {
    struct cluster_counts counts = cluster_view_count(&look->view);
    page_open(out, NULL, '{');
    page_real(out, "steps_per_second", look->steps_per_s);
    page_real(out, "failed_per_second", look->failed_per_s);
    page_int(out, "steps_running", counts.n_running);
    page_int(out, "tasks", counts.n_tasks);
    page_int(out, "tasks_ready", counts.n_ready);
    page_open(out, "sessions", '[');
    for (int i = 0; i < look->n_sessions; i++) {
        const struct session_row *row = &look->sessions[i];
        page_open(out, NULL, '{');
        page_text(out, "session", page_get_text(row->page, "session"));
        page_text(out, "client", page_get_text(row->page, "client"));
        page_real(out, "steps_per_second", row->steps_per_s);
        page_real(out, "failed_per_second", row->failed_per_s);
        page_int(out, "steps_running", page_get_int(row->page, "steps_running"));
        page_int(out, "steps", page_get_int(row->page, "steps"));
        page_close(out, '}');
    }
    page_close(out, ']');
    page_close(out, '}');
    str_add_char(out, '\n');
}

/* ---- looking ---- */

static void wait_ms(int64_t ms) {
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&wait, NULL);
}

static int screen_rows(void) {
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > HEAD_ROWS + 2
               ? size.ws_row - HEAD_ROWS
               : 24 - HEAD_ROWS;
}

/* Writes over what the screen shows, line by line, so that nothing flickers. */
static void draw(const struct str *text) {
    struct str out = STR_INIT;
    str_add(&out, "\033[H");
    for (size_t i = 0; i < text->len; i++) {
        if (text->data[i] == '\n')
            str_add(&out, "\033[K");
        str_add_char(&out, text->data[i]);
    }
    str_add(&out, "\033[J");
    fwrite(out.data, 1, out.len, stdout);
    fflush(stdout);
    str_fini(&out);
}

static int run_once(const struct cli *cli, const struct top_flags *flags, const char *admin) {
    struct look before, now;
    struct str out = STR_INIT;
    struct status *st = look_take(flags, admin, &before);
    if (st)
        return cli_fail_call(cli, st);
    wait_ms(flags->interval_ms);
    st = look_take(flags, admin, &now);
    if (!st) {
        compute_rates(&now, &before);
        if (cli_is_json(cli))
            print_json(&now, &out);
        else
            print_text(&now, 2 * MAX_ROWS, &out);
        fwrite(out.data, 1, out.len, stdout);
        look_fini(&now);
    }
    look_fini(&before);
    str_fini(&out);
    return st ? cli_fail_call(cli, st) : EXIT_OK;
}

/* A master that does not answer may come back. The first look shows whether there is one at all. */
static int run_live(const struct cli *cli, const struct top_flags *flags, const char *admin) {
    struct look before, now;
    struct status *st = look_take(flags, admin, &before);
    if (st)
        return cli_fail_call(cli, st);
    printf("\033[H\033[2J");
    for (;;) {
        struct str out = STR_INIT;
        wait_ms(flags->interval_ms);
        st = look_take(flags, admin, &now);
        if (st) {
            str_addf(&out, "the master does not answer: %s\n", status_message(st));
            status_unref(st);
        } else {
            compute_rates(&now, &before);
            print_text(&now, screen_rows(), &out);
            look_fini(&before);
            before = now;
        }
        draw(&out);
        str_fini(&out);
    }
}

static int run(struct cli *cli, void *arg) {
    const struct top_flags *flags = arg;
    struct str admin = STR_INIT;
    int code = page_source_open(&flags->source, cli, &admin);
    if (code == EXIT_OK)
        code = !cli_is_json(cli) && isatty(STDOUT_FILENO) ? run_live(cli, flags, str_text(&admin))
                                                          : run_once(cli, flags, str_text(&admin));
    str_fini(&admin);
    return code;
}

int tfctl_top(int argc, char **argv) {
    struct top_flags flags = {.interval_ms = 0};
    return cli_main(&spec, &flags, argc, argv, run);
}
