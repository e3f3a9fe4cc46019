/* tfctl trace: writes the events of the last steps on all tasks to a file for Perfetto. */
#include <stdio.h>
#include <string.h>

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

/* Says what is in the file, and how it is looked at. */
static void describe(const char *path, const struct page_value *trace) {
    const struct page_value *events = page_get(trace, "traceEvents"),
                            *other = page_get(trace, "otherData");
    int64_t n_left_out = page_get_int(other, "left_out");
    int n_slices = 0, n_arrows = 0;
    for (size_t i = 0; i < page_count(events); i++) {
        const char *phase = page_get_text(page_at(events, i), "ph");
        n_slices += strcmp(phase, "X") == 0;
        n_arrows += strcmp(phase, "s") == 0;
    }
    fprintf(stderr, "%s: %lld steps, %d slices, %d arrows between tasks", path,
            (long long)page_get_int(other, "steps"), n_slices, n_arrows);
    if (n_left_out > 0)
        fprintf(stderr, "; %lld events did not fit, ask for fewer steps", (long long)n_left_out);
    fprintf(stderr, "\nopen it in https://ui.perfetto.dev or chrome://tracing\n");
}

static int write_trace(const struct trace_flags *flags, const struct str *body) {
    struct page_value *trace = NULL;
    struct status *st = page_parse((struct span){body->data, body->len}, &trace);
    int code = st ? EXIT_INTERNAL : EXIT_OK;
    if (!st && (st = cli_write_file(flags->out, body)))
        code = EXIT_IO;
    else if (!st && strcmp(flags->out, "-") != 0)
        describe(flags->out, trace);
    if (st)
        fprintf(stderr, "%s: %s\n", spec.options.program, status_message(st));
    status_unref(st);
    page_value_free(trace);
    return code;
}

int tfctl_trace(int argc, char **argv) {
    struct trace_flags flags = {.out = NULL};
    struct cli cli;
    struct str path = STR_INIT, body = STR_INIT;
    int code = EXIT_OK;
    cli_init(&cli, &spec, &flags);
    if (cli_load(&cli, &spec, argc, argv, &code) == OPTIONS_GO_ON) {
        str_addf(&path, "/tracez?steps=%lld", (long long)flags.n_steps);
        if (flags.session)
            str_addf(&path, "&session=%s", flags.session);
        code = page_source_get(&flags.source, spec.options.program, str_text(&path), &body);
        if (code == EXIT_OK)
            code = write_trace(&flags, &body);
    }
    cli_fini(&cli);
    str_fini(&path);
    str_fini(&body);
    return code;
}
