/* tfctl costs: prints what executions of nodes have taken, as the master has measured it. */
#include <stdio.h>

#include "tfctl/cli.h"
#include "tfctl/page_source.h"
#include "tfctl/tfctl.h"

struct costs_flags {
    struct page_source source;
};

#define ROW(name_, kind_, field, default_, value_, help_)                            \
    .name = (name_), .kind = (kind_), .offset = offsetof(struct costs_flags, field), \
    .default_text = (default_), .value_name = (value_), .help = (help_)

// clang-format off
static const struct option_row rows[] = {
#include "tfctl/page_source_rows.inc"
};
// clang-format on

static const struct cli_spec spec = {
    .options = {.program = "tfctl costs",
                .summary =
                    "Prints the measured costs of nodes as a JSON list: op, type, shapes and "
                    "device, the time of an execution, and how many were measured.",
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "[OPTION]...",
};

static int run_costs(const struct costs_flags *flags, const char *admin) {
    static const char *const paths[] = {"/costz"};
    struct fetched_page page;
    struct status *st = page_source_fetch(&flags->source, admin, paths, 1, &page);
    if (!st)
        st = fetched_page_check(&page);
    int code = page_source_exit_code(st);
    if (st)
        fprintf(stderr, "tfctl costs: %s: %s\n", status_code_name(status_code(st)),
                status_message(st));
    else
        fwrite(page.body.data, 1, page.body.len, stdout);
    status_unref(st);
    fetched_page_fini(&page);
    return code;
}

int tfctl_costs(int argc, char **argv) {
    struct costs_flags flags = {.source = {.target = NULL}};
    struct cli cli;
    struct str admin = STR_INIT;
    int code = EXIT_OK;
    cli_init(&cli, &spec, &flags);
    if (cli_load(&cli, &spec, argc, argv, &code) == OPTIONS_GO_ON) {
        struct status *st = page_source_find(&flags.source, &admin);
        code = st ? cli_usage_error(&spec, st) : run_costs(&flags, str_text(&admin));
    }
    cli_fini(&cli);
    str_fini(&admin);
    return code;
}
