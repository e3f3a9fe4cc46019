/* Parses the command line of one subcommand: options.h's rows for single values, options that may
 * be repeated, arguments, and a command after "--". It reads no file and no environment.
 *
 *   tfctl SUBCOMMAND --name VALUE --name=VALUE --[no-]bool --list A --list B ARG... -- COMMAND
 *   ARG...
 *
 * Called by one thread, at the start. */
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
};

struct cli {
    struct options options; /* its arena holds all lists */
    const char **args;
    int n_args;
    char *const *command; /* the words after "--", ends with NULL; NULL: there were none */
};

/* What --output takes: the names of enum cli_output; ends with NULL. */
enum cli_output { CLI_OUTPUT_TEXT, CLI_OUTPUT_JSON };
extern const char *const cli_outputs[];

void cli_init(struct cli *cli, const struct cli_spec *spec, void *values);
void cli_fini(struct cli *cli);
/* argv[0] is the subcommand. OPTIONS_EXIT: --help was shown (*ret_code 0), or an error (64). */
enum options_outcome cli_load(struct cli *cli, const struct cli_spec *spec, int argc,
                              char *const *argv, int *ret_code) MUST_USE;
/* Writes a file, or with "-" to stdout. Errors: UNAVAILABLE, with the path. */
struct status *cli_write_file(const char *path, const struct str *text) MUST_USE;
/* Prints "tfctl local: MESSAGE (see --help)" to stderr and returns 64. Takes the status. */
int cli_usage_error(const struct cli_spec *spec, struct status *st_take);

#endif
