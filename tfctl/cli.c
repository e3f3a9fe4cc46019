/* Parses a subcommand's command line: options, lists, arguments, and a command after --. */
#include "tfctl/cli.h"

#include <errno.h>
#include <stdio.h>

#include "common/base/did_you_mean.h"

static const struct option_row help_row = {.name = "help", .help = "print this help and exit"};

const char *const cli_outputs[] = {[CLI_OUTPUT_TEXT] = "text", [CLI_OUTPUT_JSON] = "json", NULL};

void cli_init(struct cli *cli, const struct cli_spec *spec, void *values) {
    *cli = (struct cli){.args = NULL};
    options_init(&cli->options, &spec->options, values);
}

void cli_fini(struct cli *cli) { options_fini(&cli->options); }

/* ---- help ---- */

static void add_help(struct str *out, const char *name, const char *value_name, const char *help,
                     const char *default_text) {
    size_t begin = out->len;
    str_addf(out, "  --%s%s%s", name, value_name ? " " : "", value_name ? value_name : "");
    do
        str_add_char(out, ' ');
    while (out->len - begin < 28);
    str_add(out, help);
    if (default_text && *default_text)
        str_addf(out, " (default %s)", default_text);
    str_add_char(out, '\n');
}

static void print_help(const struct cli_spec *spec) {
    const struct options_spec *options = &spec->options;
    struct str out = STR_INIT;
    str_addf(&out, "Usage: %s %s\n%s\n\nOptions:\n", options->program, spec->usage,
             options->summary);
    for (size_t i = 0; i < spec->n_lists; i++)
        add_help(&out, spec->lists[i].name, spec->lists[i].value_name, spec->lists[i].help, NULL);
    for (size_t i = 0; i < options->n_rows; i++)
        add_help(&out, options->rows[i].name, options->rows[i].value_name, options->rows[i].help,
                 options->rows[i].default_text);
    add_help(&out, help_row.name, NULL, help_row.help, NULL);
    if (options->epilog)
        str_add(&out, options->epilog);
    fputs(str_text(&out), stdout);
    str_fini(&out);
}

int cli_usage_error(const struct cli_spec *spec, struct status *st_take) {
    fprintf(stderr, "%s: %s (see --help)\n", spec->options.program, status_message(st_take));
    status_unref(st_take);
    return EXIT_USAGE;
}

/* ---- parsing ---- */

static const struct option_row *find_row(const struct cli_spec *spec, struct span name) {
    for (size_t i = 0; i < spec->options.n_rows; i++)
        if (span_is(name, spec->options.rows[i].name))
            return &spec->options.rows[i];
    return NULL;
}

static const struct cli_list_row *find_list(const struct cli_spec *spec, struct span name) {
    for (size_t i = 0; i < spec->n_lists; i++)
        if (span_is(name, spec->lists[i].name))
            return &spec->lists[i];
    return NULL;
}

static void list_add(struct cli *cli, const struct cli_list_row *row, const char *value, int argc) {
    struct cli_list *list = (struct cli_list *)(void *)((char *)cli->options.values + row->offset);
    if (!list->items)
        list->items = arena_alloc(&cli->options.arena, (size_t)argc * sizeof(*list->items));
    list->items[list->n++] = value;
}

static struct status *unknown_option(const struct cli_spec *spec, struct span name) {
    struct did_you_mean guess = {.typed = name};
    for (size_t i = 0; i < spec->n_lists; i++)
        did_you_mean_try(&guess, spec->lists[i].name);
    did_you_mean_try(&guess, help_row.name);
    return options_unknown(&spec->options, name, &guess);
}

/* Handles argv[*i], which begins with "--". Also takes the next word if it is the value. */
static struct status *read_option(struct cli *cli, const struct cli_spec *spec, int argc,
                                  char *const *argv, int *i) {
    const char *text = argv[*i] + 2, *equals = strchr(text, '='),
               *value = equals ? equals + 1 : NULL;
    struct span name = {text, equals ? (size_t)(equals - text) : strlen(text)};
    const struct cli_list_row *list = find_list(spec, name);
    const struct option_row *row = list ? NULL : find_row(spec, name);
    if (!list && !row && name.len > 3 && memcmp(name.data, "no-", 3) == 0 && !value) {
        row = find_row(spec, (struct span){name.data + 3, name.len - 3});
        if (row && row->kind == OPTION_BOOL)
            return options_set(&cli->options, row->name, "no", OPTION_FROM_FLAG, NULL);
        row = NULL;
    }
    if (!list && !row)
        return unknown_option(spec, name);
    if (!value && row && row->kind == OPTION_BOOL)
        value = "yes";
    if (!value && *i + 1 >= argc)
        return status_invalid("--%.*s needs a value", (int)name.len, name.data);
    if (!value)
        value = argv[++*i];
    if (!list)
        return status_prefix_take(
            options_set(&cli->options, row->name, value, OPTION_FROM_FLAG, NULL), "--");
    list_add(cli, list, value, argc);
    return NULL;
}

static struct status *read_all(struct cli *cli, const struct cli_spec *spec, int argc,
                               char *const *argv, bool *ret_wants_help) {
    cli->args = arena_alloc(&cli->options.arena, (size_t)argc * sizeof(*cli->args) + 1);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *ret_wants_help = true;
            return NULL;
        }
        if (strcmp(argv[i], "--") == 0 && spec->takes_command) {
            cli->command = argv + i + 1;
            return *cli->command ? NULL : status_invalid("no command follows --");
        }
        if (strncmp(argv[i], "--", 2) == 0)
            TRY(read_option(cli, spec, argc, argv, &i));
        else if (argv[i][0] == '-')
            return status_invalid("unknown option %s", argv[i]);
        else if (cli->n_args >= spec->max_args)
            return status_invalid("unexpected argument \"%s\"%s", argv[i],
                                  spec->takes_command ? " (a command is given after --)" : "");
        else
            cli->args[cli->n_args++] = argv[i];
    }
    return cli->n_args < spec->min_args
               ? status_invalid("an argument is missing: %s %s", spec->options.program, spec->usage)
               : NULL;
}

enum options_outcome cli_load(struct cli *cli, const struct cli_spec *spec, int argc,
                              char *const *argv, int *ret_code) {
    const struct options_spec *options = &spec->options;
    bool wants_help = false;
    struct status *st = NULL;
    for (size_t i = 0; i < options->n_rows && !st; i++)
        if (options->rows[i].default_text)
            st = options_set(&cli->options, options->rows[i].name, options->rows[i].default_text,
                             OPTION_FROM_DEFAULT, NULL);
    CHECK(!st);
    st = read_all(cli, spec, argc, argv, &wants_help);
    if (st) {
        *ret_code = cli_usage_error(spec, st);
        return OPTIONS_EXIT;
    }
    if (!wants_help)
        return OPTIONS_GO_ON;
    print_help(spec);
    *ret_code = EXIT_OK;
    return OPTIONS_EXIT;
}

struct status *cli_write_file(const char *path, const struct str *text) {
    bool is_stdout = strcmp(path, "-") == 0;
    FILE *file = is_stdout ? stdout : fopen(path, "w");
    bool is_written = file && fwrite(text->data, 1, text->len, file) == text->len;
    bool is_closed = file && (is_stdout ? fflush(file) : fclose(file)) == 0;
    if (is_written && is_closed)
        return NULL;
    return status_unavailable("%s cannot be written: %s", path, strerror(errno));
}
