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

int tfctl_costs(int argc, char **argv) {
    struct costs_flags flags = {.source = {.target = NULL}};
    struct cli cli;
    struct str body = STR_INIT;
    int code = EXIT_OK;
    cli_init(&cli, &spec, &flags);
    if (cli_load(&cli, &spec, argc, argv, &code) == OPTIONS_GO_ON) {
        code = page_source_get(&flags.source, spec.options.program, "/costz", &body);
        if (code == EXIT_OK)
            fwrite(body.data, 1, body.len, stdout);
    }
    cli_fini(&cli);
    str_fini(&body);
    return code;
}
