/* Runs a crowd of clients: threads open sessions, run steps of many kinds, check each result, and
 * close the sessions. Unlike bench/load, it measures nothing.
 *
 *   crowd --target URL [--threads N] [--sessions N]
 *
 * The cluster has /job:ps/task:0 and /job:worker/task:0 and 1. Sessions share two variables, whose
 * values must be the sum of all additions at the end. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/c_api.h"
#include "common/base/clock.h"
#include "common/base/options.h"
#include "common/graph/graph_proto.h"
#include "common/graph/graph_text.h"
#include "common/tensor/tensor_proto.h"

#define PS " @/job:ps/task:0\n"
#define W0 " @/job:worker/task:0\n"
#define W1 " @/job:worker/task:1\n"

enum { N_LARGE = 50000, LOOP_END = 20, CLIENT_TIMEOUT_MS = 120000, SHORT_MS = 20 };

struct flags {
    const char *target;
    int64_t threads, sessions;
};

#define ROW(field, kind_, text, what, value)                                      \
    {                                                                             \
        .name = #field, .kind = kind_, .offset = offsetof(struct flags, field),   \
        .value_name = value, .default_text = text, .help = what, .max = 100000000 \
    }
static const struct option_row rows[] = {
    ROW(target, OPTION_STRING, NULL, "default $MILLRACE_TARGET", "URL"),
    ROW(threads, OPTION_INT, "64", "client threads", "N"),
    ROW(sessions, OPTION_INT, "1000", "opened, used and closed, by all threads together", "N"),
};
static const struct options_spec spec = {.program = "crowd",
                                         .section = "crowd",
                                         .summary = "Many clients at once, each result checked.",
                                         .rows = rows,
                                         .n_rows = ARRAY_LEN(rows)};

static struct flags flags;
static _Atomic int64_t n_begun, n_added, n_failures;

/* ---- graphs ---- */

static const char shared_text[] =
    "total = VariableV2() {dtype=int64, shape=[], shared_name=\"crowd_total\"}" PS
    "one = Const() {dtype=int64, value=int64[]{1}}" W0
    "zero = Const() {dtype=int64, value=int64[]{0}}" PS "init = Assign(total, zero) {T=int64}" PS
    "add = AssignAdd(total, one) {T=int64, use_locking=true}" PS
    "handle = VarHandleOp() {dtype=int64, shape=[], shared_name=\"crowd_resource\"}" PS
    "init_resource = AssignVariableOp(handle, zero) {dtype=int64}" PS
    "add_resource = AssignAddVariableOp(handle, one) {dtype=int64}" PS
    "read = Identity(total) {T=int64}" PS "read_resource = ReadVariableOp(handle) {dtype=int64}" PS;

static const char sum_text[] =
    "x = Placeholder() {dtype=float}" W1 "y = AddV2(x, x) {T=float}" W0 "z = Neg(y) {T=float}" PS;

static const char own_text[] =
    "h = VarHandleOp() {dtype=float, shape=[], shared_name=\"own\"}" PS
    "three = Const() {dtype=float, value=float[]{3}}" W0
    "set = AssignVariableOp(h, three) {dtype=float}" PS
    "grow = AssignAddVariableOp(h, three) {dtype=float}" PS
    "read = ReadVariableOp(h) {dtype=float}" PS "out = Neg(read) {T=float}" W1;

static const char loop_text[] =
    "zero = Const() {dtype=int32, value=int32[]{0}}" W0
    "one = Const() {dtype=int32, value=int32[]{1}}" W0 "x = Placeholder() {dtype=int32}" W0
    "i0 = Enter(zero) {T=int32, frame_name=\"f\", is_constant=false, parallel_iterations=10}" W0
    "by = Enter(one) {T=int32, frame_name=\"f\", is_constant=true, parallel_iterations=10}" W1
    "end = Enter(x) {T=int32, frame_name=\"f\", is_constant=true, parallel_iterations=10}" W0
    "i = Merge(i0, next) {T=int32, N=2}" W0 "less = Less(i, end) {T=int32}" W0
    "go = LoopCond(less)" W0 "sw = Switch(i, go) {T=int32}" W0 "body = Identity(sw:1) {T=int32}" W0
    "more = AddV2(body, by) {T=int32}" W1 "next = NextIteration(more) {T=int32}" W0
    "out = Exit(sw) {T=int32}" W0;

static const char queue_text[] =
    "q = FIFOQueueV2() {component_types=[float], shapes=[[]], capacity=3, "
    "shared_name=\"crowd_queue\"}" PS "empty = FIFOQueueV2() {component_types=[float], "
    "shapes=[[]], capacity=3, shared_name=\"crowd_empty\"}" PS
    "value = Const() {dtype=float, value=float[]{5}}" W1
    "put = QueueEnqueueV2(q, value) {Tcomponents=[float]}" PS
    "get = QueueDequeueV2(q) {component_types=[float]}" PS
    "never = QueueDequeueV2(empty) {component_types=[float]}" PS "out = Neg(get) {T=float}" W0
    "waits = Neg(never) {T=float}" W0;

static const char wrong_text[] =
    "x = Placeholder() {dtype=float}" W0 "shape = Const() {dtype=int32, value=int32[1]{7}}" W1
    "bad = Reshape(x, shape) {T=float}" W1 "y = Neg(bad) {T=float}" W0
    "other = Neg(x) {T=float}" PS;

static const char call_text[] =
    "function twice(x: T) -> (y: T) {T=type} {\n"
    "  d = AddV2(x, x) {T=$T}\n"
    "  return y=d:z:0\n"
    "}\n"
    "x = Placeholder() {dtype=float}" W0 "a = twice(x) {T=float}" W1 "b = twice(a) {T=float}" PS;

enum graph_kind {
    GRAPH_SHARED,
    GRAPH_SUM,
    GRAPH_OWN,
    GRAPH_LOOP,
    GRAPH_QUEUE,
    GRAPH_WRONG,
    GRAPH_CALL,
    N_GRAPHS
};
static const char *const texts[N_GRAPHS] = {shared_text, sum_text,   own_text, loop_text,
                                            queue_text,  wrong_text, call_text};
static struct str graphdefs[N_GRAPHS];

static void make_graphdefs(void) {
    for (int i = 0; i < N_GRAPHS; i++) {
        struct graph graph;
        graph_init(&graph);
        struct status *st = graph_parse(texts[i], &graph);
        if (st) {
            fprintf(stderr, "crowd: graph %d: %s\n", i, status_message(st));
            exit(EXIT_INTERNAL);
        }
        graph_to_graphdef(&graph, NULL, &graphdefs[i]);
        graph_fini(&graph);
    }
}

/* "again = Neg(z)", which names a node that is there already. */
static void make_extension(struct str *out) {
    struct str node = STR_INIT, entry = STR_INIT, attr = STR_INIT;
    const char *const words[] = {"again", "Neg", "z", "/job:worker/task:1"};
    for (uint32_t i = 0; i < ARRAY_LEN(words); i++)
        proto_add_bytes(&node, i + 1, words[i], strlen(words[i]));
    proto_add_int(&attr, 6, DT_FLOAT);
    proto_add_bytes(&entry, 1, "T", 1);
    proto_add_bytes(&entry, 2, attr.data, attr.len);
    proto_add_bytes(&node, 5, entry.data, entry.len);
    proto_add_bytes(out, 1, node.data, node.len);
    str_fini(&node);
    str_fini(&entry);
    str_fini(&attr);
}

/* ---- one client ---- */

struct client {
    TF_DeprecatedSession *session;
    TF_Status *status;
    const char *what;
    int64_t index;
};

COLD static void fail(const struct client *client, const char *why) {
    atomic_fetch_add(&n_failures, 1);
    fprintf(stderr, "crowd: session %lld, %s: %s\n", (long long)client->index, client->what, why);
}

static bool expect(const struct client *client, TF_Code code) {
    if (TF_GetCode(client->status) == code)
        return true;
    fail(client, TF_GetCode(client->status) == TF_OK ? "it should have failed"
                                                     : TF_Message(client->status));
    return false;
}

static void open_session(struct client *client, bool is_isolated, int64_t timeout_ms) {
    static const char isolate[] = {15 << 3, 1};
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_SetTarget(options, flags.target);
    MR_SetTimeout(options, timeout_ms);
    if (is_isolated)
        TF_SetConfig(options, isolate, sizeof(isolate), client->status);
    client->session = TF_NewDeprecatedSession(options, client->status);
    CHECK(client->session);
    TF_DeleteSessionOptions(options);
}

static bool extend(struct client *client, const struct str *graphdef) {
    TF_ExtendGraph(client->session, graphdef->data, graphdef->len, client->status);
    return expect(client, TF_OK);
}

static void close_session(struct client *client) {
    TF_DeleteDeprecatedSession(client->session, client->status);
    client->session = NULL;
}

/* One feed, one fetch, one target; each may be NULL. The result is the caller's. */
static TF_Tensor *run(struct client *client, const char *feed, TF_Tensor *value, const char *fetch,
                      const char *target, const TF_Buffer *options) {
    TF_Tensor *result = NULL;
    TF_Run(client->session, options, &feed, &value, feed != NULL, &fetch, &result, fetch != NULL,
           &target, target != NULL, NULL, client->status);
    return result;
}

static void run_target(struct client *client, const char *target) {
    (void)run(client, NULL, NULL, NULL, target, NULL);
    expect(client, TF_OK);
}

static TF_Tensor *float_tensor(int64_t n, float value) {
    TF_Tensor *t = TF_AllocateTensor(TF_FLOAT, &n, 1, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        ((float *)TF_TensorData(t))[i] = value;
    return t;
}

/* Takes the result. */
static void expect_floats(const struct client *client, TF_Tensor *result, int64_t n, float wanted) {
    if (expect(client, TF_OK)) {
        const float *values = TF_TensorData(result);
        int64_t n_wrong = TF_TensorElementCount(result) != n;
        for (int64_t i = 0; !n_wrong && i < n; i++)
            n_wrong = values[i] != wanted;
        if (n_wrong)
            fail(client, "another value");
    }
    TF_DeleteTensor(result);
}

/* ---- what a session does ---- */

static void do_sum(struct client *client, int64_t n) {
    open_session(client, false, CLIENT_TIMEOUT_MS);
    TF_Tensor *x = float_tensor(n, 2);
    if (extend(client, &graphdefs[GRAPH_SUM])) {
        expect_floats(client, run(client, "x:0", x, "y:0", NULL, NULL), n, 4);
        expect_floats(client, run(client, "x:0", x, "z:0", NULL, NULL), n, -4);
        expect_floats(client, run(client, "x:0", x, "y:0", "z", NULL), n, 4);
    }
    TF_DeleteTensor(x);
}

static void small(struct client *client) { do_sum(client, 2); }
static void large(struct client *client) { do_sum(client, N_LARGE); }

static void extended(struct client *client) {
    struct str extension = STR_INIT;
    small(client);
    make_extension(&extension);
    TF_Tensor *x = float_tensor(3, 1);
    if (extend(client, &extension))
        expect_floats(client, run(client, "x:0", x, "again:0", NULL, NULL), 3, 2);
    TF_DeleteTensor(x);
    str_fini(&extension);
}

static void shared(struct client *client) {
    open_session(client, false, CLIENT_TIMEOUT_MS);
    if (!extend(client, &graphdefs[GRAPH_SHARED]))
        return;
    run_target(client, "add");
    run_target(client, "add_resource");
    atomic_fetch_add(&n_added, 1);
}

static void own(struct client *client) {
    open_session(client, true, CLIENT_TIMEOUT_MS);
    if (!extend(client, &graphdefs[GRAPH_OWN]))
        return;
    run_target(client, "set");
    run_target(client, "grow");
    expect_floats(client, run(client, NULL, NULL, "out:0", NULL, NULL), 1, -6);
}

static void loop(struct client *client) {
    int32_t end = LOOP_END;
    open_session(client, false, CLIENT_TIMEOUT_MS);
    if (!extend(client, &graphdefs[GRAPH_LOOP]))
        return;
    TF_Tensor *x = TF_NewTensor(TF_INT32, NULL, 0, &end, sizeof(end), NULL, NULL);
    TF_Tensor *result = run(client, "x:0", x, "out:0", NULL, NULL);
    if (expect(client, TF_OK) && *(int32_t *)TF_TensorData(result) != LOOP_END)
        fail(client, "another value");
    TF_DeleteTensor(result);
    TF_DeleteTensor(x);
}

/* The queue holds three, so that puts wait for others' gets; each puts one and gets one. */
static void queue(struct client *client) {
    open_session(client, false, CLIENT_TIMEOUT_MS);
    if (!extend(client, &graphdefs[GRAPH_QUEUE]))
        return;
    run_target(client, "put");
    expect_floats(client, run(client, NULL, NULL, "out:0", NULL, NULL), 1, -5);
}

/* A step that the master ends, for its own time is up. */
static void times_out(struct client *client) {
    static const char timeout[] = {2 << 3, SHORT_MS};
    open_session(client, false, CLIENT_TIMEOUT_MS);
    TF_Buffer *options = TF_NewBufferFromString(timeout, sizeof(timeout));
    if (extend(client, &graphdefs[GRAPH_QUEUE])) {
        TF_DeleteTensor(run(client, NULL, NULL, "waits:0", NULL, options));
        expect(client, TF_DEADLINE_EXCEEDED);
    }
    TF_DeleteBuffer(options);
}

/* A client that gives up: its call is cancelled on the way, and its session closed while the
 * step ends. */
static void gives_up(struct client *client) {
    open_session(client, false, CLIENT_TIMEOUT_MS);
    if (!extend(client, &graphdefs[GRAPH_QUEUE]))
        return;
    close_session(client);
    open_session(client, false, SHORT_MS * 20);
    TF_ExtendGraph(client->session, graphdefs[GRAPH_QUEUE].data, graphdefs[GRAPH_QUEUE].len,
                   client->status);
    if (TF_GetCode(client->status) == TF_DEADLINE_EXCEEDED) /* a slow machine */
        return;
    TF_DeleteTensor(run(client, NULL, NULL, "waits:0", NULL, NULL));
    expect(client, TF_DEADLINE_EXCEEDED);
}

/* One task fails while others have work and values under way. */
static void wrong(struct client *client) {
    open_session(client, false, CLIENT_TIMEOUT_MS);
    TF_Tensor *x = float_tensor(4, 1);
    if (extend(client, &graphdefs[GRAPH_WRONG])) {
        TF_DeleteTensor(run(client, "x:0", x, "y:0", "other", NULL));
        expect(client, TF_INVALID_ARGUMENT);
        TF_DeleteTensor(run(client, "x:0", x, "nobody:0", NULL, NULL));
        expect(client, TF_NOT_FOUND);
    }
    TF_DeleteTensor(x);
}

static void calls(struct client *client) {
    open_session(client, false, CLIENT_TIMEOUT_MS);
    TF_Tensor *x = float_tensor(2, 1);
    if (extend(client, &graphdefs[GRAPH_CALL]))
        expect_floats(client, run(client, "x:0", x, "b:0", NULL, NULL), 2, 4);
    TF_DeleteTensor(x);
}

static const struct {
    const char *name;
    void (*go)(struct client *client);
} deeds[] = {
    {"small", small},       {"large", large}, {"extended", extended}, {"shared", shared},
    {"own", own},           {"loop", loop},   {"queue", queue},       {"times out", times_out},
    {"gives up", gives_up}, {"wrong", wrong}, {"calls", calls}};

static void *be_a_client(void *arg) {
    struct client client = {.status = TF_NewStatus()};
    while ((client.index = atomic_fetch_add(&n_begun, 1)) < flags.sessions) {
        size_t which = (size_t)client.index % ARRAY_LEN(deeds);
        client.what = deeds[which].name;
        deeds[which].go(&client);
        close_session(&client);
    }
    TF_DeleteStatus(client.status);
    return NULL;
}

/* ---- all of them ---- */

static void start_shared(struct client *client) {
    client->what = "start";
    open_session(client, false, CLIENT_TIMEOUT_MS);
    if (extend(client, &graphdefs[GRAPH_SHARED])) {
        run_target(client, "init");
        run_target(client, "init_resource");
    }
}

static void check_total(struct client *client, const char *fetch) {
    client->what = fetch;
    TF_Tensor *total = run(client, NULL, NULL, fetch, NULL, NULL);
    if (expect(client, TF_OK) && *(int64_t *)TF_TensorData(total) != atomic_load(&n_added))
        fail(client, "additions are lost or done twice");
    TF_DeleteTensor(total);
}

static void run_crowd(void) {
    pthread_t *threads = xcalloc((size_t)flags.threads, sizeof(*threads));
    struct client first = {.status = TF_NewStatus(), .index = -1};
    int64_t begin_ns = clock_now_ns();
    start_shared(&first);
    for (int64_t i = 0; i < flags.threads; i++)
        CHECK(pthread_create(&threads[i], NULL, be_a_client, NULL) == 0);
    for (int64_t i = 0; i < flags.threads; i++)
        pthread_join(threads[i], NULL);
    check_total(&first, "read:0");
    check_total(&first, "read_resource:0");
    close_session(&first);
    double seconds = (double)(clock_now_ns() - begin_ns) / 1e9;
    printf("%lld threads, %lld sessions in %.1f s (%.0f a second), %lld failures\n",
           (long long)flags.threads, (long long)flags.sessions, seconds,
           (double)flags.sessions / seconds, (long long)atomic_load(&n_failures));
    TF_DeleteStatus(first.status);
    free(threads);
}

int main(int argc, char **argv) {
    struct options options;
    int code;
    options_init(&options, &spec, &flags);
    if (options_load(&options, argc, argv, stdout, stderr, &code) == OPTIONS_GO_ON) {
        if (!flags.target)
            flags.target = getenv("MILLRACE_TARGET") ? getenv("MILLRACE_TARGET") : "";
        make_graphdefs();
        run_crowd();
        for (int i = 0; i < N_GRAPHS; i++)
            str_fini(&graphdefs[i]);
        code = atomic_load(&n_failures) ? 1 : EXIT_OK;
    }
    options_fini(&options);
    return code;
}
