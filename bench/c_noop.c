/* What a step costs a C client that does nothing else: one NoOp on /job:worker/task:0, run again and again through the master.
 *
 *   bench/c_noop [--target grpc://HOST:PORT] [--steps N]        (default: $MILLRACE_TARGET, 20000)
 *
 * Works against TensorFlow's own server too. Prints the median, the 10th and the 99th percentile in µs. */
#include <stdio.h>
#include <stdlib.h>

#include "client/c_api.h"
#include "common/base/clock.h"
#include "common/base/options.h"
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

static const struct options_spec spec = {
    .program = "c_noop", .section = "c_noop", .summary = "What a no-op step costs a C client.", .rows = rows, .n_rows = ARRAY_LEN(rows)};

static void die_on_error(const TF_Status *status) {
    if (TF_GetCode(status) == TF_OK)
        return;
    fprintf(stderr, "c_noop: %s\n", TF_Message(status));
    exit(EXIT_INTERNAL);
}

static void add_text(struct str *out, uint32_t field, const char *text) { proto_add_bytes(out, field, text, strlen(text)); }

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

static int compare_i64(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t step(TF_DeprecatedSession *session, TF_Status *status) {
    const char *target = "n";
    int64_t begin = clock_now_ns();
    TF_Run(session, NULL, NULL, NULL, 0, NULL, NULL, 0, &target, 1, NULL, status);
    int64_t took_ns = clock_now_ns() - begin;
    die_on_error(status);
    return took_ns;
}

static void measure(TF_DeprecatedSession *session, int64_t n, TF_Status *status) {
    struct str graph = STR_INIT;
    int64_t *took_ns = xmalloc((size_t)n * sizeof(*took_ns));
    build_graph(&graph);
    TF_ExtendGraph(session, graph.data, graph.len, status);
    die_on_error(status);
    for (int i = 0; i < WARM_UP_STEPS; i++)
        step(session, status);
    for (int64_t i = 0; i < n; i++)
        took_ns[i] = step(session, status);
    qsort(took_ns, (size_t)n, sizeof(*took_ns), compare_i64);
    printf("no-op step: median %.1f µs, p10 %.1f µs, p99 %.1f µs (%lld steps)\n", (double)took_ns[n / 2] / 1e3,
           (double)took_ns[n / 10] / 1e3, (double)took_ns[n - 1 - n / 100] / 1e3, (long long)n);
    free(took_ns);
    str_fini(&graph);
}

static const char *default_target(void) {
    const char *target = getenv("MILLRACE_TARGET");
    return target ? target : "";
}

int main(int argc, char **argv) {
    struct flags flags = {0};
    struct options options;
    int code;
    options_init(&options, &spec, &flags);
    if (options_load(&options, argc, argv, stdout, stderr, &code) == OPTIONS_EXIT) {
        options_fini(&options);
        return code;
    }
    TF_Status *status = TF_NewStatus();
    TF_SessionOptions *session_options = TF_NewSessionOptions();
    TF_SetTarget(session_options, flags.target ? flags.target : default_target());
    TF_DeprecatedSession *session = TF_NewDeprecatedSession(session_options, status);
    die_on_error(status);
    measure(session, flags.steps, status);
    TF_DeleteDeprecatedSession(session, status);
    TF_DeleteSessionOptions(session_options);
    TF_DeleteStatus(status);
    options_fini(&options);
    return 0;
}
