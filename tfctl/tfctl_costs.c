/* tfctl costs: prints what executions of nodes have taken, as the master has measured it. */
#include <stdio.h>

#include "common/base/units.h"
#include "rpc/daemon/page_read.h"
#include "tfctl/cli.h"
#include "tfctl/page_source.h"
#include "tfctl/plain_text.h"
#include "tfctl/tfctl.h"

enum { MAX_KEY_BYTES = 700 };

struct costs_flags {
    struct page_source source;
};

#define ROW(...) CLI_ROW(struct costs_flags, __VA_ARGS__)

// clang-format off
static const struct option_row rows[] = {
#include "tfctl/page_source_rows.inc"
};
// clang-format on

static const struct cli_spec spec = {
    .options = {.program = "tfctl costs",
                .summary =
                    "Prints the measured costs of nodes: op, type, shapes and device, the time of "
                    "an execution, and how many were measured. Also the sizes of values that the "
                    "graph does not tell: batches that clients feed, results that depend on "
                    "values.",
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "[OPTION]...",
    .output_default = "json",
};

static int print_table(const struct cli *cli, const struct str *body) {
    struct page_value *page;
    struct str out = STR_INIT;
    struct status *st = page_parse((struct span){body->data, body->len}, &page);
    if (st)
        return cli_fail(cli, EXIT_INTERNAL, st);
    for (size_t i = 0; i < page_count(page); i++) {
        const struct page_value *row = page_at(page, i);
        if (page_has(row, "more")) {
            str_addf(&out, "and %lld more\n", (long long)page_get_int(row, "more"));
            continue;
        }
        if (page_has(row, "note")) { /* the only row: there are no costs */
            plain_text_add(&out, page_get_text(row, "note"), MAX_KEY_BYTES);
            str_add_char(&out, '\n');
            continue;
        }
        if (page_has(row, "size"))
            str_addf(&out, "%lld", (long long)page_get_int(row, "size"));
        else
            units_add_duration(&out, page_get_real(row, "ns") / 1e9);
        str_addf(&out, " in %lld executions: ", (long long)page_get_int(row, "executions"));
        plain_text_add(&out, page_get_text(row, "key"), MAX_KEY_BYTES);
        str_add_char(&out, '\n');
    }
    fputs(str_text(&out), stdout);
    str_fini(&out);
    page_value_free(page);
    return EXIT_OK;
}

static int run(struct cli *cli, void *arg) {
    const struct costs_flags *flags = arg;
    struct str body = STR_INIT;
    int code = page_source_get(&flags->source, cli, "/costz", &body);
    if (code == EXIT_OK && cli_is_json(cli))
        fwrite(body.data, 1, body.len, stdout);
    else if (code == EXIT_OK)
        code = print_table(cli, &body);
    str_fini(&body);
    return code;
}

int tfctl_costs(int argc, char **argv) {
    struct costs_flags flags = {.source = {.target = NULL}};
    return cli_main(&spec, &flags, argc, argv, run);
}
