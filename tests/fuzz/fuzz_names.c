/* Names from strangers: what a step feeds, fetches and runs, as any bytes, against a graph on
 * two tasks. A signature compiles, whatever passes run, or is refused with a client's error.
 *
 *   input   a byte that switches passes off (bit 0 fold, 1 cse) and makes a partial run (bit 3);
 *           then lines:
 *           "<name" feed, ">name" fetch, "!name" target, "=from to" connection; others are
 *           targets as they are */
#include "common/graph/graph_text.h"
#include "master/compile/compile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_LINES = 64 };

static const char text[] = "x = Placeholder() {dtype=float}\n"
                           "n = Placeholder() {dtype=int32} @/job:ps/task:0\n"
                           "v = VariableV2() {dtype=float, shape=[2]} @/job:ps/task:0\n"
                           "h = VarHandleOp() {dtype=float, shape=[2]} @/job:ps/task:0\n"
                           "r = ReadVariableOp(h) {dtype=float}\n"
                           "one = Const() {dtype=float, value=float[2]{1, 2}}\n"
                           "two = AddV2(one, one) {T=float}\n"
                           "a = AddV2(x, two) {T=float} @/job:worker/task:0\n"
                           "b = AddV2(x, two) {T=float} @/job:ps/task:0\n"
                           "s = Assign(v, a) {T=float}\n"
                           "u = Unpack(two) {T=float, num=2}\n"
                           "c = Sub(u:1, b, ^s) {T=float}\n"
                           "scope/deep/name = Identity(c, ^n) {T=float}\n"
                           "p = Const() {dtype=bool, value=bool[]{true}}\n"
                           "sw = Switch(a, p) {T=float}\n"
                           "t = Exp(sw:1) {T=float}\n"
                           "f = Neg(sw) {T=float} @/job:ps/task:0\n"
                           "m = Merge(t, f) {T=float, N=2}\n"
                           "q = FIFOQueueV2() {component_types=[float]} @/job:ps/task:0\n"
                           "g = NoOp(^s, ^m)\n";

static struct graph *graph;
static struct device_table *devices;

static void start(void) {
    static struct graph parsed;
    struct compile_options options;
    compile_options_default(&options);
    graph_init(&parsed);
    devices = device_table_new();
    device_table_add(devices, "/job:worker/replica:0/task:0", "127.0.0.1:1", "", 1);
    device_table_add_device(devices, "/job:worker/replica:0/task:0/device:CPU:0", "CPU", 1 << 30, 1,
                            "");
    device_table_add(devices, "/job:ps/replica:0/task:0", "127.0.0.1:2", "", 2);
    device_table_add_device(devices, "/job:ps/replica:0/task:0/device:CPU:0", "CPU", 1 << 30, 2,
                            "");
    device_table_finish(devices);
    struct status *st = graph_parse(text, &parsed);
    CHECK(!st);
    st = place_session(&parsed, devices, &options);
    CHECK(!st);
    graph = &parsed;
}

static const char *take_line(struct span *in, struct arena *arena) {
    const char *end = memchr(in->data, '\n', in->len);
    size_t len = end ? (size_t)(end - in->data) : in->len;
    const char *line = arena_strndup(arena, in->data, len);
    in->data += len + (end ? 1 : 0);
    in->len -= len + (end ? 1 : 0);
    return line;
}

static void add_line(struct signature *s, const char *line, struct arena *arena) {
    const char *blank;
    if (line[0] == '<') {
        s->feeds[s->n_feeds++] = line + 1;
    } else if (line[0] == '>') {
        s->fetches[s->n_fetches++] = line + 1;
    } else if (line[0] == '=' && (blank = strchr(line, ' '))) {
        s->connect_from[s->n_connections] =
            arena_strndup(arena, line + 1, (size_t)(blank - line - 1));
        s->connect_to[s->n_connections++] = blank + 1;
    } else {
        s->targets[s->n_targets++] = line[0] == '!' ? line + 1 : line;
    }
}

static void check_endpoint(const char *line) {
    struct span name;
    int index;
    if (endpoint_parse(span_of(line), &name, &index))
        CHECK(name.len > 0 && index >= CONTROL_EDGE && name.data >= line &&
              name.data + name.len <= line + strlen(line));
}

static void check_compiled(const struct compiled *compiled, const struct signature *s) {
    int n_fetches = 0;
    for (int i = 0; i < compiled->n_partitions; i++) {
        const struct partition *partition = &compiled->partitions[i];
        struct status *st = graph_verify(&partition->graph);
        CHECK(!st && partition->task >= 0 && partition->task < 2);
        for (int k = 0; k < partition->n_feeds; k++)
            CHECK(partition->feeds[k] >= 0 && partition->feeds[k] < s->n_feeds);
        for (int k = 0; k < partition->n_fetches; k++)
            CHECK(partition->fetches[k] >= 0 && partition->fetches[k] < s->n_fetches);
        n_fetches += partition->n_fetches;
    }
    CHECK(n_fetches <= s->n_fetches);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *disabled[5];
    const char *lists[5][MAX_LINES];
    struct signature s = {.feeds = lists[0],
                          .fetches = lists[1],
                          .targets = lists[2],
                          .connect_from = lists[3],
                          .connect_to = lists[4]};
    struct compile_options options;
    struct compiled *compiled = NULL;
    struct arena arena;
    int n = 0;
    if (size == 0)
        return 0;
    if (!graph)
        start();
    static const struct {
        int bit;
        const char *name;
    } passes[] = {{0, "fold"}, {1, "cse"}, {4, "waits"}, {5, "controls"}};
    for (size_t i = 0; i < ARRAY_LEN(passes); i++)
        if (data[0] >> passes[i].bit & 1)
            disabled[n++] = passes[i].name;
    disabled[n] = NULL;
    compile_options_default(&options);
    options.verify = true;
    options.disabled_passes = disabled;
    s.is_partial = data[0] >> 3 & 1;
    arena_init(&arena);
    struct span in = {(const char *)data + 1, size - 1};
    for (int i = 0; i < MAX_LINES && in.len > 0; i++) {
        const char *line = take_line(&in, &arena);
        check_endpoint(line);
        add_line(&s, line, &arena);
    }
    struct status *st = compile_step(graph, &s, devices, &options, NULL, &compiled);
    CHECK((st != NULL) == (compiled == NULL) && status_code(st) != STATUS_INTERNAL);
    if (compiled)
        check_compiled(compiled, &s);
    status_unref(st);
    compiled_free(compiled);
    arena_fini(&arena);
    return 0;
}
