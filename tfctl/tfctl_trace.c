/* tfctl trace: writes the events of the last steps on all tasks to a file for Perfetto. */
#include <stdio.h>
#include <string.h>

#include "rpc/daemon/page.h"
#include "rpc/daemon/page_read.h"
#include "tfctl/cli.h"
#include "tfctl/page_source.h"
#include "tfctl/tfctl.h"

struct trace_flags {
    struct page_source source;
    const char *out, *session;
    int64_t n_steps;
};

#define ROW(...) CLI_ROW(struct trace_flags, __VA_ARGS__)

// clang-format off
static const struct option_row rows[] = {
    {ROW("steps", OPTION_INT, n_steps, "5", "N",
        "how many of the last steps"), .min = 1, .max = 256},
    {ROW("session", OPTION_STRING, session, NULL, "HANDLE",
        "only steps of this session (its handle on /sessionz)")},
    {ROW("out", OPTION_STRING, out, "trace.json", "PATH",
        "the file to write; - is the standard output")},
#include "tfctl/page_source_rows.inc"
};
// clang-format on

static const struct cli_spec spec = {
    .options = {.program = "tfctl trace",
                .summary = "Writes what the master and all tasks did in the last steps to one file "
                           "of JSON, for https://ui.perfetto.dev or chrome://tracing: a row for "
                           "each thread, and an arrow from each Send to its Recv. All times are in "
                           "the master's clock. The daemons record all the time, so nothing has to "
                           "be switched on before.",
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "[OPTION]...",
};

/* What is in the file. */
struct contents {
    int64_t n_steps, n_left_out;
    int n_slices, n_arrows;
};

static struct contents count(const struct page_value *trace) {
    const struct page_value *events = page_get(trace, "traceEvents"),
                            *other = page_get(trace, "otherData");
    struct contents contents = {.n_steps = page_get_int(other, "steps"),
                                .n_left_out = page_get_int(other, "left_out")};
    for (size_t i = 0; i < page_count(events); i++) {
        const char *phase = page_get_text(page_at(events, i), "ph");
        contents.n_slices += strcmp(phase, "X") == 0;
        contents.n_arrows += strcmp(phase, "s") == 0;
    }
    return contents;
}

static void describe(const char *path, const struct contents *contents) {
    fprintf(stderr, "%s: %lld steps, %d slices, %d arrows between tasks", path,
            (long long)contents->n_steps, contents->n_slices, contents->n_arrows);
    if (contents->n_left_out > 0)
        fprintf(stderr, "; %lld events did not fit, ask for fewer steps",
                (long long)contents->n_left_out);
    fprintf(stderr, "\nopen it in https://ui.perfetto.dev or chrome://tracing\n");
}

static void describe_as_json(const char *path, const struct contents *contents) {
    struct str out = STR_INIT;
    page_open(&out, NULL, '{');
    page_text(&out, "file", path);
    page_int(&out, "steps", contents->n_steps);
    page_int(&out, "slices", contents->n_slices);
    page_int(&out, "arrows", contents->n_arrows);
    page_int(&out, "events_left_out", contents->n_left_out);
    page_close(&out, '}');
    cli_print(&out);
    str_fini(&out);
}

static int write_trace(const struct cli *cli, const char *path, const struct str *body) {
    struct page_value *trace = NULL;
    struct status *st = page_parse((struct span){body->data, body->len}, &trace);
    if (st)
        return cli_fail(cli, EXIT_INTERNAL, st);
    struct contents contents = count(trace);
    page_value_free(trace);
    st = cli_write_file(path, body);
    if (st)
        return cli_fail(cli, EXIT_IO, st);
    if (strcmp(path, "-") != 0)
        (cli_is_json(cli) ? describe_as_json : describe)(path, &contents);
    return EXIT_OK;
}

static int run(struct cli *cli, void *arg) {
    const struct trace_flags *flags = arg;
    struct str path = STR_INIT, body = STR_INIT;
    str_addf(&path, "/tracez?steps=%lld", (long long)flags->n_steps);
    if (flags->session)
        str_addf(&path, "&session=%s", flags->session);
    int code = page_source_get(&flags->source, cli, str_text(&path), &body);
    if (code == EXIT_OK)
        code = write_trace(cli, flags->out, &body);
    str_fini(&path);
    str_fini(&body);
    return code;
}

int tfctl_trace(int argc, char **argv) {
    struct trace_flags flags = {.out = NULL};
    return cli_main(&spec, &flags, argc, argv, run);
}
