/* tfctl graph: shows the placed graph of a signature, as text, SVG or for Graphviz. */
#include <stdio.h>
#include <string.h>

#include "common/base/units.h"
#include "rpc/daemon/page_read.h"
#include "rpc/daemon/page_svg.h"
#include "tfctl/cli.h"
#include "tfctl/page_source.h"
#include "tfctl/plain_text.h"
#include "tfctl/tfctl.h"

enum { OUTPUT_DOT = CLI_OUTPUT_JSON + 1, OUTPUT_SVG };
static const char *const outputs[] = {[CLI_OUTPUT_TEXT] = "text",
                                      [CLI_OUTPUT_JSON] = "json",
                                      [OUTPUT_DOT] = "dot",
                                      [OUTPUT_SVG] = "svg",
                                      NULL};

enum { MAX_TEXT_BYTES = 300, MAX_SVG_BYTES = 4 << 20 };

struct graph_flags {
    struct page_source source;
    const char *session, *out;
    int64_t signature;
    bool list;
};

#define ROW(...) CLI_ROW(struct graph_flags, __VA_ARGS__)

// clang-format off
static const struct option_row rows[] = {
    {ROW("list", OPTION_BOOL, list, NULL, NULL,
        "list the signatures instead")},
    {ROW("session", OPTION_STRING, session, NULL, "HANDLE",
        "the session (its handle on /sessionz); needed if several sessions have signatures")},
    {ROW("signature", OPTION_INT, signature, "0", "N",
        "the signature's number in that session; 0: the one that ran last"),
        .min = 0, .max = INT64_MAX},
    {ROW("out", OPTION_STRING, out, "-", "PATH",
        "the file to write; - is the standard output")},
#include "tfctl/page_source_rows.inc"
};
// clang-format on

static const struct cli_spec spec = {
    .options = {.program = "tfctl graph",
                .summary = "Shows where the nodes of a signature are, and why; what they may take "
                           "by estimate, and what they took in the last steps. Large graphs are "
                           "drawn by name scopes.",
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "[OPTION]...",
    .outputs = outputs,
    .output_help = "text: a line for each node, the slowest first; json: the page; dot: for "
                   "Graphviz; svg: drawn",
};

/* ---- text ---- */

static void add_name(const struct page_value *of, const char *key, struct str *out) {
    plain_text_add(out, page_get_text(of, key), MAX_TEXT_BYTES);
}

static void add_node(const struct page_value *node, struct str *out) {
    if (page_has(node, "more")) {
        str_addf(out, "and %lld more\n", (long long)page_get_int(node, "more"));
        return;
    }
    add_name(node, "node", out);
    str_add(out, " (");
    add_name(node, "op", out);
    str_add(out, ") on ");
    add_name(node, "device", out);
    str_add(out, ", because ");
    add_name(node, "why_here", out);
    str_add(out, "; estimate ");
    units_add_duration(out, page_get_real(node, "estimate_us") / 1e6);
    if (page_has(node, "took_us")) {
        str_add(out, ", took ");
        units_add_duration(out, page_get_real(node, "took_us") / 1e6);
    }
    str_add_char(out, '\n');
}

static void add_text(const struct page_value *page, struct str *out) {
    const struct page_value *nodes = page_get(page, "nodes");
    str_addf(out, "session %s, signature %lld: ", page_get_text(page, "session"),
             (long long)page_get_int(page, "signature"));
    add_name(page, "runs", out);
    str_addf(out, ", %lld nodes\n", (long long)page_get_int(page, "nodes_in_all"));
    for (size_t i = 0; i < page_count(nodes); i++)
        add_node(page_at(nodes, i), out);
}

static void add_list(const struct page_value *page, struct str *out) {
    const struct page_value *signatures = page_get(page, "signatures");
    for (size_t i = 0; i < page_count(signatures); i++) {
        const struct page_value *row = page_at(signatures, i);
        const char *link = strchr(page_get_text(row, "page"), '?');
        if (page_has(row, "more")) {
            str_addf(out, "and %lld more\n", (long long)page_get_int(row, "more"));
            continue;
        }
        plain_text_add(out, link ? link + 1 : "", MAX_TEXT_BYTES);
        str_add(out, ": ");
        add_name(row, "runs", out);
        str_addf(out, ", %lld steps on %lld tasks\n", (long long)page_get_int(row, "steps"),
                 (long long)page_get_int(row, "tasks"));
    }
}

/* ---- dot ---- */

static void add_quoted(const char *text, struct str *out) {
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            str_add_char(out, '\\');
        if ((unsigned char)*text >= ' ')
            str_add_char(out, *text);
    }
}

static void add_dot(const struct page_value *page, struct str *out) {
    static const char *const colours[] = {"#cfe3fa", "#fbe0c2", "#d3eecf", "#ead9f7",
                                          "#f9d3d8", "#cdeeec", "#f3edb9", "#dfe3e8"};
    const struct page_value *drawing = page_get(page, "drawing"),
                            *boxes = page_get(drawing, "boxes"),
                            *arrows = page_get(drawing, "arrows");
    str_add(out, "digraph placed {\n  node [shape=box style=filled];\n");
    for (size_t i = 0; i < page_count(boxes); i++) {
        const struct page_value *lines = page_get(page_at(boxes, i), "lines");
        uint64_t colour = (uint64_t)page_get_int(page_at(boxes, i), "colour");
        str_addf(out, "  n%zu [fillcolor=\"%s\" label=\"", i, colours[colour % ARRAY_LEN(colours)]);
        for (size_t k = 0; k < page_count(lines); k++) {
            str_add(out, k > 0 ? "\\n" : "");
            add_quoted(page_text_at(lines, k), out);
        }
        str_add(out, "\"];\n");
    }
    for (size_t i = 0; i < page_count(arrows); i++)
        str_addf(out, "  n%lld -> n%lld%s;\n", (long long)page_get_int(page_at(arrows, i), "from"),
                 (long long)page_get_int(page_at(arrows, i), "to"),
                 page_get_bool(page_at(arrows, i), "is_control") ? " [style=dashed]" : "");
    str_add(out, "}\n");
}

/* ---- all ---- */

static int write_graph(const struct cli *cli, const struct graph_flags *flags,
                       const struct str *body) {
    struct str out = STR_INIT;
    struct page_value *page;
    struct status *st = page_parse((struct span){body->data, body->len}, &page);
    if (st)
        return cli_fail(cli, EXIT_INTERNAL, st);
    if (cli_is_json(cli))
        str_add_bytes(&out, body->data, body->len);
    else if (flags->list)
        add_list(page, &out);
    else if (cli->output == OUTPUT_SVG)
        page_svg_write(&out, page_get(page, "drawing"), true, MAX_SVG_BYTES);
    else if (cli->output == OUTPUT_DOT)
        add_dot(page, &out);
    else
        add_text(page, &out);
    page_value_free(page);
    st = cli_write_file(flags->out, &out);
    str_fini(&out);
    return st ? cli_fail(cli, EXIT_IO, st) : EXIT_OK;
}

/* The handle in the row's "/graphz?session=HANDLE&signature=N". */
static struct span session_of(const struct page_value *row) {
    const char *at = strstr(page_get_text(row, "page"), "session=");
    at = at ? at + strlen("session=") : "";
    return (struct span){at, strcspn(at, "&")};
}

/* Fails if the signatures are of several sessions, because nobody knows which one is meant, or if
 * there are none. */
static struct status *check_one_session(const struct str *list) {
    struct page_value *page;
    TRY(page_parse((struct span){list->data, list->len}, &page));
    const struct page_value *signatures = page_get(page, "signatures");
    struct status *st = page_count(signatures) > 0
                            ? NULL
                            : status_not_found("no session has run a step, so there is no graph");
    for (size_t i = 1; !st && i < page_count(signatures); i++)
        if (!page_has(page_at(signatures, i), "more") &&
            !span_equal(session_of(page_at(signatures, i)), session_of(page_at(signatures, 0)))) {
            struct str text = STR_INIT;
            add_list(page, &text);
            st = status_invalid("several sessions have signatures, so name one with --session "
                                "HANDLE:\n%.*s",
                                (int)text.len - 1, str_text(&text));
            str_fini(&text);
        }
    page_value_free(page);
    return st;
}

static int get_graph(const struct cli *cli, const struct graph_flags *flags, struct str *ret_body) {
    struct str path = STR_INIT;
    int code = EXIT_OK;
    if (!flags->session || flags->list)
        code = page_source_get(&flags->source, cli, "/graphz", ret_body);
    if (code == EXIT_OK && !flags->session && !flags->list) {
        struct status *st = check_one_session(ret_body);
        bool is_usage = status_code(st) == STATUS_INVALID_ARGUMENT;
        code = st ? cli_fail(cli, is_usage ? EXIT_USAGE : EXIT_INTERNAL, st) : EXIT_OK;
    }
    if (code == EXIT_OK && !flags->list) {
        str_clear(ret_body);
        str_addf(&path, "/graphz?signature=%lld", (long long)flags->signature);
        if (flags->session)
            str_addf(&path, "&session=%s", flags->session);
        code = page_source_get(&flags->source, cli, str_text(&path), ret_body);
    }
    str_fini(&path);
    return code;
}

static int run(struct cli *cli, void *arg) {
    const struct graph_flags *flags = arg;
    struct str body = STR_INIT;
    int code = get_graph(cli, flags, &body);
    if (code == EXIT_OK)
        code = write_graph(cli, flags, &body);
    str_fini(&body);
    return code;
}

int tfctl_graph(int argc, char **argv) {
    struct graph_flags flags = {.out = NULL};
    return cli_main(&spec, &flags, argc, argv, run);
}
