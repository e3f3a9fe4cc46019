/* Parses a subcommand's command line, calls the subcommand and reports its errors. */
#include "tfctl/cli.h"

#include <errno.h>
#include <stdio.h>

#include "common/base/did_you_mean.h"

static const struct option_row help_row = {.name = "help", .help = "print this help and exit"};

static const char *const plain_outputs[] = {
    [CLI_OUTPUT_TEXT] = "text", [CLI_OUTPUT_JSON] = "json", NULL};

static void cli_init(struct cli *cli, const struct cli_spec *spec, void *values) {
    *cli = (struct cli){.spec = spec};
    options_init(&cli->options, &spec->options, values);
    cli->common_rows[0] = (struct option_row){
        .name = "output",
        .kind = OPTION_CHOICE,
        .offset = offsetof(struct cli, output),
        .default_text = spec->output_default ? spec->output_default : "text",
        .help = spec->output_help ? spec->output_help : "for people or for programs",
        .choices = spec->outputs ? spec->outputs : plain_outputs};
    cli->common_spec = (struct options_spec){.program = spec->options.program,
                                             .rows = cli->common_rows,
                                             .n_rows = ARRAY_LEN(cli->common_rows)};
    options_init(&cli->common, &cli->common_spec, cli);
}

static void cli_fini(struct cli *cli) {
    options_fini(&cli->options);
    options_fini(&cli->common);
}

/* ---- errors ---- */

bool cli_wants_json(int argc, char *const *argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--output=json") == 0 ||
            (strcmp(argv[i], "--output") == 0 && i + 1 < argc && strcmp(argv[i + 1], "json") == 0))
            return true;
    return false;
}

void cli_print_error(const struct status *st, int exit_code) {
    const char *message = status_message(st);
    struct str out = STR_INIT;
    str_addf(&out, "{\"error\":{\"code\":\"%s\",\"message\":\"", status_code_name(status_code(st)));
    str_add_json_escaped(&out, message, strlen(message));
    str_addf(&out, "\"},\"exit_code\":%d}", exit_code);
    cli_print(&out);
    str_fini(&out);
}

static int fail(const struct cli *cli, int exit_code, struct status *st_take, const char *before,
                const char *after) {
    fprintf(stderr, "%s: %s%s%s\n", cli->spec->options.program, before, status_message(st_take),
            after);
    if (cli_is_json(cli))
        cli_print_error(st_take, exit_code);
    status_unref(st_take);
    return exit_code;
}

int cli_fail(const struct cli *cli, int exit_code, struct status *st_take) {
    return fail(cli, exit_code, st_take, "", "");
}

int cli_fail_usage(const struct cli *cli, struct status *st_take) {
    return fail(cli, EXIT_USAGE, st_take, "", " (see --help)");
}

int cli_fail_call(const struct cli *cli, struct status *st_take) {
    struct str code = STR_INIT;
    str_addf(&code, "%s: ", status_code_name(status_code(st_take)));
    int exit_code = fail(cli, status_code(st_take) == STATUS_UNAVAILABLE ? EXIT_IO : EXIT_INTERNAL,
                         st_take, str_text(&code), "");
    str_fini(&code);
    return exit_code;
}

/* ---- help ---- */

static void add_help(struct str *out, const char *name, const char *value_name, const char *help,
                     const char *default_text, const char *const *choices) {
    size_t begin = out->len;
    str_addf(out, "  --%s%s%s", name, value_name ? " " : "", value_name ? value_name : "");
    for (int i = 0; choices && choices[i]; i++)
        str_addf(out, "%s%s", i > 0 ? "|" : " ", choices[i]);
    do
        str_add_char(out, ' ');
    while (out->len - begin < 28);
    str_add(out, help);
    if (default_text && *default_text)
        str_addf(out, " (default %s)", default_text);
    str_add_char(out, '\n');
}

static void add_rows(struct str *out, const struct option_row *rows, size_t n) {
    for (size_t i = 0; i < n; i++)
        add_help(out, rows[i].name, rows[i].value_name, rows[i].help, rows[i].default_text,
                 rows[i].choices);
}

static void print_help(const struct cli *cli) {
    const struct cli_spec *spec = cli->spec;
    const struct options_spec *options = &spec->options;
    struct str out = STR_INIT;
    str_addf(&out, "Usage: %s %s\n%s\n\nOptions:\n", options->program, spec->usage,
             options->summary);
    for (size_t i = 0; i < spec->n_lists; i++)
        add_help(&out, spec->lists[i].name, spec->lists[i].value_name, spec->lists[i].help, NULL,
                 NULL);
    add_rows(&out, options->rows, options->n_rows);
    add_rows(&out, cli->common_rows, ARRAY_LEN(cli->common_rows));
    add_rows(&out, &help_row, 1);
    if (options->epilog)
        str_add(&out, options->epilog);
    fputs(str_text(&out), stdout);
    str_fini(&out);
}

/* ---- parsing ---- */

static const struct option_row *find_row(const struct options *options, struct span name) {
    for (size_t i = 0; i < options->spec->n_rows; i++)
        if (span_is(name, options->spec->rows[i].name))
            return &options->spec->rows[i];
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

static struct status *unknown_option(const struct cli *cli, struct span name) {
    struct did_you_mean guess = {.typed = name};
    for (size_t i = 0; i < cli->spec->n_lists; i++)
        did_you_mean_try(&guess, cli->spec->lists[i].name);
    for (size_t i = 0; i < ARRAY_LEN(cli->common_rows); i++)
        did_you_mean_try(&guess, cli->common_rows[i].name);
    did_you_mean_try(&guess, help_row.name);
    return options_unknown(&cli->spec->options, name, &guess);
}

static struct status *set_row(struct options *options, const struct option_row *row,
                              const char *value) {
    return status_prefix_take(options_set(options, row->name, value, OPTION_FROM_FLAG, NULL), "--");
}

/* Handles argv[*i], which begins with "--". Also takes the next word if it is the value. */
static struct status *read_option(struct cli *cli, int argc, char *const *argv, int *i) {
    const char *text = argv[*i] + 2, *equals = strchr(text, '='),
               *value = equals ? equals + 1 : NULL;
    struct span name = {text, equals ? (size_t)(equals - text) : strlen(text)};
    const struct cli_list_row *list = find_list(cli->spec, name);
    struct options *options = find_row(&cli->common, name) ? &cli->common : &cli->options;
    const struct option_row *row = list ? NULL : find_row(options, name);
    if (!list && !row && name.len > 3 && memcmp(name.data, "no-", 3) == 0 && !value) {
        row = find_row(&cli->options, (struct span){name.data + 3, name.len - 3});
        if (row && row->kind == OPTION_BOOL)
            return set_row(options, row, "no");
        row = NULL;
    }
    if (!list && !row)
        return unknown_option(cli, name);
    if (!value && row && row->kind == OPTION_BOOL)
        value = "yes";
    if (!value && *i + 1 >= argc)
        return status_invalid("--%.*s needs a value", (int)name.len, name.data);
    if (!value)
        value = argv[++*i];
    if (!list)
        return set_row(options, row, value);
    list_add(cli, list, value, argc);
    return NULL;
}

/* Finds the verb that the first argument is. */
static struct status *read_verb(struct cli *cli) {
    const char *const *verbs = cli->spec->verbs;
    struct did_you_mean guess = {.typed = span_of(cli->args[0])};
    struct str text = STR_INIT;
    for (int i = 0; verbs[i]; i++) {
        if (strcmp(cli->args[0], verbs[i]) == 0) {
            cli->verb = i;
            str_fini(&text);
            return NULL;
        }
        did_you_mean_try(&guess, verbs[i]);
        str_addf(&text, "%s%s", i == 0 ? "" : verbs[i + 1] ? ", " : " or ", verbs[i]);
    }
    did_you_mean_add(&guess, "", &text);
    struct status *st = status_invalid("'%s' is not %s", cli->args[0], str_text(&text));
    str_fini(&text);
    return st;
}

static struct status *read_all(struct cli *cli, int argc, char *const *argv, bool *ret_wants_help) {
    const struct cli_spec *spec = cli->spec;
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
            TRY(read_option(cli, argc, argv, &i));
        else if (argv[i][0] == '-')
            return status_invalid("unknown option %s", argv[i]);
        else if (cli->n_args >= spec->max_args)
            return status_invalid("unexpected argument \"%s\"%s", argv[i],
                                  spec->takes_command ? " (a command is given after --)" : "");
        else
            cli->args[cli->n_args++] = argv[i];
    }
    if (spec->verbs && cli->n_args > 0)
        TRY(read_verb(cli));
    return cli->n_args < spec->min_args
               ? status_invalid("an argument is missing: %s %s", spec->options.program, spec->usage)
               : NULL;
}

static void set_defaults(struct options *options) {
    for (size_t i = 0; i < options->spec->n_rows; i++) {
        const struct option_row *row = &options->spec->rows[i];
        struct status *st = row->default_text ? options_set(options, row->name, row->default_text,
                                                            OPTION_FROM_DEFAULT, NULL)
                                              : NULL;
        CHECK(!st);
    }
}

int cli_main(const struct cli_spec *spec, void *flags, int argc, char *const *argv,
             cli_run_fn *run) {
    struct cli cli;
    bool wants_help = false;
    int code = EXIT_OK;
    cli_init(&cli, spec, flags);
    set_defaults(&cli.options);
    set_defaults(&cli.common);
    struct status *st = read_all(&cli, argc, argv, &wants_help);
    if (st) {
        if (cli_wants_json(argc, argv))
            cli.output = CLI_OUTPUT_JSON; /* it may follow the error */
        code = cli_fail_usage(&cli, st);
    } else if (wants_help) {
        print_help(&cli);
    } else {
        code = run(&cli, flags);
    }
    cli_fini(&cli);
    return code;
}

/* ---- results ---- */

void cli_print(const struct str *text) {
    puts(str_text(text));
    fflush(stdout);
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
