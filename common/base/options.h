/* A daemon's options: one table of rows, from which flags, INI file, environment, --help and
 * --check-config come.
 *
 *   flags   --name VALUE, --name=VALUE; booleans: --name, --no-name, --name=yes|no
 *   file    name = VALUE, before any section or in the program's own; an indented line goes on with the value; # and ; begin comments.
 *           Sections of other programs that share the file are passed over
 *   env     what the program's hook reads (TF_CONFIG)
 *
 * Flags win over the file, the file over the environment, the environment over defaults. A name
 * that is in no row, a value that does not fit its row and a doubled name are errors that say
 * where: the flag, file:line, or the variable. Every program also has --help, --version,
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
    /* const char *: items with ':' between them; given again, a flag adds to the list */
    OPTION_LIST,
};

struct option_row {
    const char *name; /* "memory-limit" */
    enum option_kind kind;
    size_t offset;            /* of the field in the program's struct */
    const char *value_name;   /* "BYTES", for --help */
    const char *default_text; /* parsed like a value; NULL: the field stays as it is */
    const char *help;
    /* OPTION_INT, OPTION_BYTES, OPTION_DURATION; both 0: any that is not negative */
    int64_t min, max;
    const char *const *choices; /* OPTION_CHOICE; ends with NULL */
};

struct options;

struct options_spec {
    const char *program; /* "tf-worker" */
    const char *section; /* of a file that several programs share: "worker" */
    /* of all programs that share it, ends with NULL; may be NULL. Other sections are refused */
    const char *const *shared_sections;
    const char *summary; /* one line */
    const char *epilog;  /* after the options in --help; may be NULL */
    const struct option_row *rows;
    size_t n_rows;
    /* Reads the environment with options_set; may be NULL. */
    struct status *(*read_environment)(struct options *options);
    /* Looks at what came out of it all; may be NULL. */
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

/* Sets one option unless a stronger source has. Errors: INVALID_ARGUMENT. */
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

/* All sources. OPTIONS_EXIT: the program has to exit with *ret_code; what is to be said has been
 * said: help, version and the effective configuration on `out`, one line of error on `err` (64
 * for a flag, 78 for file, environment or what check says). */
enum options_outcome options_load(struct options *options, int argc, char *const *argv, FILE *out,
                                  FILE *err, int *ret_code) MUST_USE;
/* One file's text, as options_load reads it: for tests and fuzzing. */
struct status *options_read_ini(struct options *options, const char *path,
                                struct span text) MUST_USE;
/* name = value   # where it comes from */
void options_print(const struct options *options, struct str *out);
void options_print_help(const struct options_spec *spec, struct str *out);

#endif
