/* One client of bench/null_steps.py, of Millrace and of TensorFlow's own servers alike: a
 * session, and steps of one target as fast as they go.
 *
 *   bench/null_client --target URL --graph FILE --step NODE [--options FILE]
 *
 *   stdin                    stdout
 *   once NODE                ok                                       a step of that target
 *   for SECONDS              STEPS SECONDS MEDIAN_US                  steps until so much time has
 *                            passed, one at least
 *
 * FILE is a serialized GraphDef, and a serialized ConfigProto. */
#define PROGRAM "null_client"
#include <stdio.h>
#include <stdlib.h>

#include "bench/client_step.h"

enum { MAX_SAMPLES = 1 << 20 };

struct flags {
    const char *target, *graph, *step, *options;
};

#define FLAG(field, text, what)                                                         \
    {                                                                                   \
        .name = #field, .kind = OPTION_STRING, .offset = offsetof(struct flags, field), \
        .value_name = text, .help = what                                                \
    }
static const struct option_row rows[] = {
    FLAG(target, "URL", "the master"),
    FLAG(graph, "FILE", "a serialized GraphDef"),
    FLAG(step, "NODE", "the target of the steps"),
    FLAG(options, "FILE", "a serialized ConfigProto"),
};
static const struct options_spec spec = {.program = "null_client",
                                         .section = "null_client",
                                         .summary = "Steps of one target, as fast as they go.",
                                         .rows = rows,
                                         .n_rows = ARRAY_LEN(rows)};

static TF_DeprecatedSession *open_with_graph(const struct flags *flags, TF_Status *status) {
    struct str graph = STR_INIT, config = STR_INIT;
    read_file(flags->graph, &graph);
    if (flags->options)
        read_file(flags->options, &config);
    TF_DeprecatedSession *session =
        open_session(flags->target, flags->options ? &config : NULL, status);
    extend(session, &graph, status);
    str_fini(&graph);
    str_fini(&config);
    return session;
}

static void run_for(TF_DeprecatedSession *session, const char *node, double seconds,
                    TF_Status *status) {
    static int64_t took_ns[MAX_SAMPLES];
    int64_t begin_ns = clock_now_ns(), until_ns = begin_ns + (int64_t)(seconds * 1e9);
    size_t n = 0;
    do
        took_ns[n++] = timed_step(session, node, status);
    while (n < MAX_SAMPLES && clock_now_ns() < until_ns);
    double took_s = (double)(clock_now_ns() - begin_ns) / 1e9;
    sort_times(took_ns, n);
    printf("%zu %.6f %.1f\n", n, took_s, (double)took_ns[n / 2] / 1e3);
}

static void serve(TF_DeprecatedSession *session, const struct flags *flags, TF_Status *status) {
    char line[256], node[200];
    while (fgets(line, sizeof(line), stdin)) {
        double seconds;
        if (sscanf(line, "for %lf", &seconds) == 1) {
            run_for(session, flags->step, seconds, status);
        } else if (sscanf(line, "once %199s", node) == 1) {
            timed_step(session, node, status);
            printf("ok\n");
        } else {
            fprintf(stderr, "null_client: what is '%s'?\n", line);
            exit(EXIT_USAGE);
        }
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    struct flags flags = {0};
    struct options options;
    load_flags(&options, &spec, &flags, argc, argv);
    if (!flags.target || !flags.graph || !flags.step) {
        fprintf(stderr, "null_client: --target, --graph and --step are needed\n");
        options_fini(&options);
        return EXIT_USAGE;
    }
    TF_Status *status = TF_NewStatus();
    TF_DeprecatedSession *session = open_with_graph(&flags, status);
    serve(session, &flags, status);
    TF_DeleteDeprecatedSession(session, status);
    TF_DeleteStatus(status);
    options_fini(&options);
    return 0;
}
