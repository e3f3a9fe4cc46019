/* What all subcommands have in common: their command line, --output, and how they report errors.
 *
 * A command line has options.h's rows for single values, options that may be repeated, arguments,
 * and a command after "--". No file and no environment is read. Every subcommand takes --help and
 * --output.
 *
 *   tfctl SUBCOMMAND --name VALUE --name=VALUE --[no-]bool --list A --list B ARG... -- COMMAND
 *   ARG...
 *
 * With --output json, a subcommand prints one JSON document to stdout, or a line of JSON for each
 * event if it runs until it is stopped. An error is a document, too:
 *
 *   {"error":{"code":"UNAVAILABLE","message":"..."},"exit_code":74}
 *
 * It is also a line on stderr, as without --output json. One thread. */
#ifndef MILLRACE_TFCTL_CLI_H
#define MILLRACE_TFCTL_CLI_H

#include "common/base/options.h"

struct cli_list {
    const char **items;
    int n;
};

/* An option that may be given several times. */
struct cli_list_row {
    const char *name;
    size_t offset; /* of a struct cli_list in the subcommand's struct */
    const char *value_name, *help;
};

/* A row of options: #define ROW(...) CLI_ROW(struct NAME_flags, __VA_ARGS__). */
#define CLI_ROW(flags_, name_, kind_, field_, default_, value_, help_)    \
    .name = (name_), .kind = (kind_), .offset = offsetof(flags_, field_), \
    .default_text = (default_), .value_name = (value_), .help = (help_)

struct cli_spec {
    /* its program is "tfctl SUBCOMMAND"; section, read_environment and check are not used */
    struct options_spec options;
    const char *usage; /* "GRAPH.pb [OPTION]..." */
    const struct cli_list_row *lists;
    size_t n_lists;
    int min_args, max_args;
    bool takes_command;
    /* the first argument is one of these, which end with NULL; NULL: it is anything */
    const char *const *verbs;
    /* what --output takes, if it is more than enum cli_output; these come first; ends with NULL */
    const char *const *outputs;
    const char *output_help;    /* NULL: "for people or for programs" */
    const char *output_default; /* NULL: "text" */
};

enum cli_output { CLI_OUTPUT_TEXT, CLI_OUTPUT_JSON };

struct cli {
    const struct cli_spec *spec;
    struct options options; /* its arena holds all lists */
    const char **args;
    int n_args;
    int verb;             /* index of args[0] in the spec's verbs */
    char *const *command; /* the words after "--", ends with NULL; NULL: there were none */
    int output;           /* enum cli_output, or an index in the spec's outputs */
    /* the options that every subcommand has; private */
    struct options common;
    struct options_spec common_spec;
    struct option_row common_rows[1];
};

/* Reads the command line into `flags`, calls `run` and returns the exit code, which is 64 if the
 * command line is wrong. argv[0] is the subcommand. */
typedef int cli_run_fn(struct cli *cli, void *flags);
int cli_main(const struct cli_spec *spec, void *flags, int argc, char *const *argv,
             cli_run_fn *run);

static inline bool cli_is_json(const struct cli *cli) { return cli->output == CLI_OUTPUT_JSON; }
/* Prints the text and a newline to stdout, at once. */
void cli_print(const struct str *text);
/* Writes a file, or with "-" to stdout. Errors: UNAVAILABLE, with the path. */
struct status *cli_write_file(const char *path, const struct str *text) MUST_USE;

/* Each of these reports an error and returns the exit code. They take the status.
 * cli_fail prints "tfctl local: MESSAGE". */
int cli_fail(const struct cli *cli, int exit_code, struct status *st_take);
/* Prints "tfctl local: MESSAGE (see --help)"; 64. */
int cli_fail_usage(const struct cli *cli, struct status *st_take);
/* Of a call to a daemon. Prints "tfctl local: CODE: MESSAGE"; 74 for UNAVAILABLE, else 70. */
int cli_fail_call(const struct cli *cli, struct status *st_take);
/* Does the command line ask for JSON? For errors that are found before it has been read. */
bool cli_wants_json(int argc, char *const *argv);
/* Prints only the JSON document of an error. */
void cli_print_error(const struct status *st, int exit_code);

#endif
