/* gpu_steps: times the steps of one graph for a C client. A part of tools/gpu_run, which runs it
 * where there is no TensorFlow.
 *
 *   gpu_steps --graph FILE [--init NODE] [--step NODE] [--fetch NAME] [--warm N] [--steps N]
 *             [--trace FILE] [--pause]
 *
 * A step runs the node, or fetches the endpoint, or both. Prints JSON: how long each measured step
 * took, in ns, and the fetched values of all steps as floats (the first element). --trace runs one
 * more step, and writes its RunMetadata, which says when the GPU did what. --pause prints the line
 * "warm" after the steps that are not measured, and waits for a line of standard input, so that
 * somebody can read the worker's counts in between. */
#define PROGRAM "gpu_steps"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/client_step.h"

struct flags {
    const char *target, *graph, *init, *step, *fetch, *trace;
    int64_t warm, steps;
    bool pause;
};

#define TEXT(field, shown, explained)                                                   \
    {                                                                                   \
        .name = #field, .kind = OPTION_STRING, .offset = offsetof(struct flags, field), \
        .value_name = shown, .help = explained                                          \
    }
#define COUNT(field, preset, explained)                                                          \
    {                                                                                            \
        .name = #field, .kind = OPTION_INT, .offset = offsetof(struct flags, field),             \
        .value_name = "N", .default_text = preset, .help = explained, .min = 0, .max = 100000000 \
    }
static const struct option_row rows[] = {
    TEXT(target, "URL", "default $MILLRACE_TARGET"),
    TEXT(graph, "FILE", "a GraphDef"),
    TEXT(init, "NODE", "run once, first"),
    TEXT(step, "NODE", "run in each step"),
    TEXT(fetch, "NAME", "fetched in each step"),
    TEXT(trace, "FILE", "gets the RunMetadata of one more step"),
    {.name = "pause",
     .kind = OPTION_BOOL,
     .offset = offsetof(struct flags, pause),
     .help = "wait for a line of standard input before the measured steps"},
    COUNT(warm, "3", "steps before those that are measured"),
    COUNT(steps, "20", "measured steps"),
};

static const struct options_spec spec = {.program = PROGRAM,
                                         .section = PROGRAM,
                                         .summary = "Times the steps of one graph.",
                                         .rows = rows,
                                         .n_rows = ARRAY_LEN(rows)};

/* The first element of a float or int32 tensor. */
static double first_value(const TF_Tensor *tensor) {
    if (TF_TensorByteSize(tensor) < sizeof(float))
        return 0;
    const void *data = TF_TensorData(tensor);
    return TF_TensorType(tensor) == 1 ? *(const float *)data : *(const int32_t *)data;
}

/* `options` and `metadata` may be NULL. */
static int64_t run_step(TF_DeprecatedSession *session, const struct flags *flags,
                        const TF_Buffer *options, TF_Buffer *metadata, double *ret_value,
                        TF_Status *status) {
    TF_Tensor *fetched = NULL;
    const char *fetch = flags->fetch, *step = flags->step;
    int64_t began = clock_now_ns();
    TF_Run(session, options, NULL, NULL, 0, &fetch, &fetched, fetch != NULL, &step, step != NULL,
           metadata, status);
    int64_t took = clock_now_ns() - began;
    die_on_error(status);
    *ret_value = fetched ? first_value(fetched) : 0;
    TF_DeleteTensor(fetched);
    return took;
}

static void pause_until_told(void) {
    char line[16];
    printf("warm\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) {
        fprintf(stderr, PROGRAM ": standard input has ended\n");
        exit(EXIT_IO);
    }
}

static void measure(TF_DeprecatedSession *session, const struct flags *flags, TF_Status *status) {
    int64_t n = flags->warm + flags->steps;
    double *values = xcalloc((size_t)n + 1, sizeof *values);
    for (int64_t i = 0; i < flags->warm; i++)
        run_step(session, flags, NULL, NULL, &values[i], status);
    if (flags->pause)
        pause_until_told();
    printf("{\"step_ns\": [");
    for (int64_t i = flags->warm; i < n; i++) {
        int64_t took = run_step(session, flags, NULL, NULL, &values[i], status);
        printf("%s%lld", i > flags->warm ? ", " : "", (long long)took);
    }
    printf("], \"values\": [");
    for (int64_t i = 0; flags->fetch && i < n; i++) {
        const char *comma = i ? ", " : "";
        if (isfinite(values[i]))
            printf("%s%.9g", comma, values[i]);
        else
            printf("%snull", comma);
    }
    printf("]}\n");
    free(values);
}

static void write_trace(TF_DeprecatedSession *session, const struct flags *flags,
                        TF_Status *status) {
    static const char full_trace[] = {8, 3}; /* RunOptions: trace_level FULL_TRACE */
    TF_Buffer *options = TF_NewBufferFromString(full_trace, sizeof full_trace),
              *metadata = TF_NewBuffer();
    double value;
    run_step(session, flags, options, metadata, &value, status);
    FILE *file = fopen(flags->trace, "wb");
    if (!file || fwrite(metadata->data, 1, metadata->length, file) != metadata->length ||
        fclose(file) != 0) {
        fprintf(stderr, PROGRAM ": cannot write %s\n", flags->trace);
        exit(EXIT_IO);
    }
    TF_DeleteBuffer(options);
    TF_DeleteBuffer(metadata);
}

int main(int argc, char **argv) {
    struct flags flags = {0};
    struct options options;
    struct str graph = STR_INIT;
    load_flags(&options, &spec, &flags, argc, argv);
    if (!flags.graph) {
        fprintf(stderr, PROGRAM ": --graph is needed\n");
        options_fini(&options);
        return EXIT_USAGE;
    }
    TF_Status *status = TF_NewStatus();
    TF_DeprecatedSession *session = open_session(flags.target, NULL, status);
    read_file(flags.graph, &graph);
    extend(session, &graph, status);
    str_fini(&graph);
    if (flags.init)
        timed_step(session, flags.init, status);
    measure(session, &flags, status);
    if (flags.trace)
        write_trace(session, &flags, status);
    TF_DeleteDeprecatedSession(session, status);
    TF_DeleteStatus(status);
    options_fini(&options);
    return 0;
}
