/* What benchmarks that are clients share: reading flags, opening a session; an error ends the
 * program, a step is timed, times are sorted. PROGRAM is defined before: the name in messages. */
#ifndef MILLRACE_BENCH_CLIENT_STEP_H
#define MILLRACE_BENCH_CLIENT_STEP_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/c_api.h"
#include "common/base/clock.h"
#include "common/base/options.h"
#include "common/base/str.h"

static inline void die_on_error(const TF_Status *status) {
    if (TF_GetCode(status) == TF_OK)
        return;
    fprintf(stderr, PROGRAM ": %s\n", TF_Message(status));
    exit(EXIT_INTERNAL);
}

/* Reads the command line into `flags`. What is not to run the benchmark (--help, a wrong flag) ends
 * the program. To be ended by options_fini. */
static inline void load_flags(struct options *options, const struct options_spec *spec, void *flags,
                              int argc, char **argv) {
    int code;
    options_init(options, spec, flags);
    if (options_load(options, argc, argv, stdout, stderr, &code) == OPTIONS_EXIT) {
        options_fini(options);
        exit(code);
    }
}

/* `target` NULL: that of $MILLRACE_TARGET. `config`: a serialized ConfigProto, or NULL. */
static inline TF_DeprecatedSession *open_session(const char *target, const struct str *config,
                                                 TF_Status *status) {
    TF_SessionOptions *options = TF_NewSessionOptions();
    if (config)
        TF_SetConfig(options, config->data, config->len, status);
    die_on_error(status);
    if (!target)
        target = getenv("MILLRACE_TARGET");
    TF_SetTarget(options, target ? target : "");
    TF_DeprecatedSession *session = TF_NewDeprecatedSession(options, status);
    die_on_error(status);
    TF_DeleteSessionOptions(options);
    return session;
}

/* Appends a file's bytes. A file that cannot be read ends the program. */
static inline void read_file(const char *path, struct str *out) {
    char chunk[65536];
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, PROGRAM ": %s: %s\n", path, strerror(errno));
        exit(EXIT_IO);
    }
    for (size_t n; (n = fread(chunk, 1, sizeof(chunk), file)) > 0;)
        str_add_bytes(out, chunk, n);
    fclose(file);
}

static inline void extend(TF_DeprecatedSession *session, const struct str *graph,
                          TF_Status *status) {
    TF_ExtendGraph(session, graph->data, graph->len, status);
    die_on_error(status);
}

/* A step of one target; how long it took, in ns. */
static inline int64_t timed_step(TF_DeprecatedSession *session, const char *node,
                                 TF_Status *status) {
    int64_t begin_ns = clock_now_ns();
    TF_Run(session, NULL, NULL, NULL, 0, NULL, NULL, 0, &node, 1, NULL, status);
    int64_t took_ns = clock_now_ns() - begin_ns;
    die_on_error(status);
    return took_ns;
}

static inline int compare_i64(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static inline void sort_times(int64_t *took_ns, size_t n) {
    qsort(took_ns, n, sizeof(*took_ns), compare_i64);
}

#endif
