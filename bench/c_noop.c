/* What a step costs a C client that does nothing else: one NoOp on /job:worker/task:0, run again
 * and again through the master.
 *
 *   bench/c_noop [--target grpc://HOST:PORT] [--steps N]        (default: $MILLRACE_TARGET, 20000)
 *
 * Works against TensorFlow's own server too. Prints the median, the 10th and the 99th percentile
 * in µs. */
#define PROGRAM "c_noop"
#include <stdio.h>
#include <stdlib.h>

#include "bench/client_step.h"
#include "common/tensor/tensor_proto.h"

enum { PRODUCER = 2474 /* TensorFlow 2.21's graphs */, WARM_UP_STEPS = 200 };

struct flags {
    const char *target;
    int64_t steps;
};

static const struct option_row rows[] = {
    {.name = "target",
     .kind = OPTION_STRING,
     .offset = offsetof(struct flags, target),
     .value_name = "URL",
     .help = "default $MILLRACE_TARGET"},
    {.name = "steps",
     .kind = OPTION_INT,
     .offset = offsetof(struct flags, steps),
     .value_name = "N",
     .default_text = "20000",
     .help = "measured steps",
     .min = 1,
     .max = 100000000},
};

static const struct options_spec spec = {.program = PROGRAM,
                                         .section = PROGRAM,
                                         .summary = "What a no-op step costs a C client.",
                                         .rows = rows,
                                         .n_rows = ARRAY_LEN(rows)};

static void add_text(struct str *out, uint32_t field, const char *text) {
    proto_add_bytes(out, field, text, strlen(text));
}

/* GraphDef { node { name: "n" op: "NoOp" device: "…" } versions { producer } } */
static void build_graph(struct str *out) {
    struct str node = STR_INIT, versions = STR_INIT;
    add_text(&node, 1, "n");
    add_text(&node, 2, "NoOp");
    add_text(&node, 4, "/job:worker/task:0");
    proto_add_int(&versions, 1, PRODUCER);
    proto_add_bytes(out, 1, node.data, node.len);
    proto_add_bytes(out, 4, versions.data, versions.len);
    str_fini(&node);
    str_fini(&versions);
}

static void measure(TF_DeprecatedSession *session, int64_t n, TF_Status *status) {
    struct str graph = STR_INIT;
    int64_t *took_ns = xmalloc((size_t)n * sizeof(*took_ns));
    build_graph(&graph);
    extend(session, &graph, status);
    for (int i = 0; i < WARM_UP_STEPS; i++)
        timed_step(session, "n", status);
    for (int64_t i = 0; i < n; i++)
        took_ns[i] = timed_step(session, "n", status);
    sort_times(took_ns, (size_t)n);
    printf("no-op step: median %.1f µs, p10 %.1f µs, p99 %.1f µs (%lld steps)\n",
           (double)took_ns[n / 2] / 1e3, (double)took_ns[n / 10] / 1e3,
           (double)took_ns[n - 1 - n / 100] / 1e3, (long long)n);
    free(took_ns);
    str_fini(&graph);
}

int main(int argc, char **argv) {
    struct flags flags = {0};
    struct options options;
    load_flags(&options, &spec, &flags, argc, argv);
    TF_Status *status = TF_NewStatus();
    TF_DeprecatedSession *session = open_session(flags.target, NULL, status);
    measure(session, flags.steps, status);
    TF_DeleteDeprecatedSession(session, status);
    TF_DeleteStatus(status);
    options_fini(&options);
    return 0;
}
