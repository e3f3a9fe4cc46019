/* Reads a program's options from flags, an INI file and the environment, by one table of rows.
 * --help and --check-config are printed from the same table.
 *
 *   flags   --name VALUE, --name=VALUE; booleans: --name, --no-name, --name=yes|no
 *   file    name = VALUE, before the first section or in the program's own section. An indented
 *           line continues the value. # and ; begin comments. Sections of the other programs that
 *           share the file are skipped.
 *   env     what the program's read_environment reads (TF_CONFIG)
 *
 * Flags win over the file, the file over the environment, the environment over defaults. A name
 * without a row, a value that does not fit its row and a repeated name are errors. The message
 * names the place: the flag, file:line, or the variable. Every program also has --help, --version,
 * --config FILE and --check-config. Threads: one, at start. */
#ifndef MILLRACE_COMMON_BASE_OPTIONS_H
#define MILLRACE_COMMON_BASE_OPTIONS_H

#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/base/str.h"

enum option_kind {
    OPTION_STRING,   /* const char * */
    OPTION_BOOL,     /* bool */
    OPTION_INT,      /* int64_t; min and max of the row */
    OPTION_BYTES,    /* int64_t: a number with K, M, G or T (powers of 1024) */
    OPTION_DURATION, /* int64_t in ms: a number with ms, s, m or h */
    OPTION_CHOICE,   /* int: index in the row's choices */
    /* const char *: items with ':' between them; a repeated flag adds to the list */
    OPTION_LIST,
};

struct option_row {
    const char *name; /* "memory-limit" */
    enum option_kind kind;
    size_t offset;            /* of the field in the program's struct */
    const char *value_name;   /* "BYTES", for --help */
    const char *default_text; /* parsed like a value; NULL: the field stays as it is */
    const char *help;
    /* OPTION_INT, OPTION_BYTES, OPTION_DURATION; both 0: any value that is not negative */
    int64_t min, max;
    const char *const *choices; /* OPTION_CHOICE; ends with NULL */
    bool is_secret;             /* /flagz does not show the value */
};

struct options;

struct options_spec {
    const char *program; /* "tf-worker" */
    const char *section; /* the program's section in a shared file: "worker" */
    /* the sections of all programs that share the file, ends with NULL; may be NULL. Any other
     * section is an error. */
    const char *const *shared_sections;
    const char *summary; /* one line */
    const char *epilog;  /* after the options in --help; may be NULL */
    const struct option_row *rows;
    size_t n_rows;
    /* Reads the environment with options_set; may be NULL. */
    struct status *(*read_environment)(struct options *options);
    /* Checks the final values; may be NULL. */
    struct status *(*check)(void *values);
};

enum option_source {
    OPTION_FROM_DEFAULT,
    OPTION_FROM_ENVIRONMENT,
    OPTION_FROM_FILE,
    OPTION_FROM_FLAG
};

struct options {
    const struct options_spec *spec;
    void *values;
    struct arena arena; /* strings of values live here */
    struct option_origin {
        enum option_source source;
        const char *where; /* "file:line", a variable's name; or NULL */
    } * origins;           /* by row, in the arena */
};

void options_init(struct options *options, const struct options_spec *spec, void *values);
void options_fini(struct options *options);

/* Sets one option, unless a stronger source has set it already. Errors: INVALID_ARGUMENT. */
struct status *options_set(struct options *options, const char *name, const char *text,
                           enum option_source source, const char *where) MUST_USE;

enum options_outcome { OPTIONS_GO_ON, OPTIONS_EXIT };
enum {
    EXIT_OK = 0,
    EXIT_USAGE = 64,
    EXIT_INTERNAL = 70,
    EXIT_IO = 74,
    EXIT_CONFIG = 78,
    EXIT_RESTART_ME = 138
};

/* Reads all sources. OPTIONS_EXIT: the program must exit with *ret_code and print nothing more.
 * Help, version and the effective configuration have been written to `out` with code 0; one line of
 * error to `err`, with EXIT_USAGE for a flag, EXIT_CONFIG for the file, the environment or
 * `check`. */
enum options_outcome options_load(struct options *options, int argc, char *const *argv, FILE *out,
                                  FILE *err, int *ret_code) MUST_USE;
/* Reads the text of one file as options_load does. For tests and fuzzing. */
struct status *options_read_ini(struct options *options, const char *path,
                                struct span text) MUST_USE;
/* Appends the row's value as text. */
void options_value(const struct options *options, const struct option_row *row, struct str *out);
/* Where the row's value is from: "flag", "default", "FILE:LINE", a variable's name. */
const char *options_origin(const struct options *options, const struct option_row *row);
/* Writes one line for each option: "name = value   # source". */
void options_print(const struct options *options, struct str *out);
/* INVALID_ARGUMENT for a flag that is in no row, with the nearest one that is. `others` has looked
 * at further names; NULL: there are none. */
struct did_you_mean;
struct status *options_unknown(const struct options_spec *spec, struct span name,
                               const struct did_you_mean *others) MUST_USE;

#endif
