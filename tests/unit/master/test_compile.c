/* The driver: the table of passes, options, results, the invariants' check; and how long a large
 * graph takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "common/graph/graph_proto.h"
#include "common/graph/graph_text.h"
#include "tests/unit/master/pass_file.h"

static const char program[] = "x = Placeholder() {dtype=float}\n"
                              "v = VariableV2() {dtype=float, shape=[]} @/job:ps/task:0\n"
                              "one = Const() {dtype=float, value=float[]{1}}\n"
                              "two = AddV2(one, one) {T=float}\n"
                              "read = Identity(v) {T=float, _class=[\"loc:@v\"]}\n"
                              "a = Mul(read, x) {T=float}\n"
                              "b = Mul(x, read) {T=float}\n"
                              "c = Sub(a, b) {T=float}\n"
                              "y = Mul(c, two) {T=float}\n"
                              "assign = AssignAdd(v, y) {T=float}\n"
                              "near = Exp(x) {T=float} @/job:worker\n"
                              "elsewhere = Exp(near) {T=float, _class=[\"loc:@near\"]} @/job:ps\n";

struct world {
    struct graph graph;
    struct device_table *devices;
    struct compile_options options;
};

static void world_init(struct world *world, const char *text, const char *tasks) {
    graph_init(&world->graph);
    world->devices = devices_from_text(tasks);
    compile_options_default(&world->options);
    world->options.verify = true;
    assert_null(graph_parse(text, &world->graph));
    assert_null(place_session(&world->graph, world->devices, &world->options));
}

static void world_fini(struct world *world) {
    graph_fini(&world->graph);
    device_table_unref(world->devices);
}

static struct compiled *compile(struct world *world, const struct signature *signature) {
    struct compiled *compiled = NULL;
    struct status *st =
        compile_step(&world->graph, signature, world->devices, &world->options, NULL, &compiled);
    if (st)
        fail_msg("%s", status_message(st));
    return compiled;
}

static int n_live(const struct compiled *compiled) {
    int n = 0;
    for (int i = 0; i < compiled->n_partitions; i++)
        n += compiled->partitions[i].graph.n_live;
    return n;
}

/* Tasks report every save that holds its values, also one that did not ask for a consistent
 * checkpoint. */
static void all_saves_count_once_one_asks_for_a_barrier(void **state) {
    static const char saves[] =
        "v = VariableV2() {dtype=float, shape=[]} @/job:ps/task:0\n"
        "prefix = Const() {dtype=string, value=string[]{\"m\"}}\n"
        "names = Const() {dtype=string, value=string[1]{\"v\"}}\n"
        "specs = Const() {dtype=string, value=string[1]{\"\"}}\n"
        "asks = SaveV2(prefix, names, specs, v) {dtypes=[float], _consistent_save=true} "
        "@/job:ps/task:0\n"
        "other = SaveV2(prefix, names, specs, v) {dtypes=[float]} @/job:ps/task:0\n"
        "third = SaveV2(prefix, names, specs, v) {dtypes=[float]} @/job:ps/task:0\n";
    const char *both[] = {"asks", "other"}, *silent[] = {"other", "third"};
    struct signature with_one = {NULL, NULL, both, 0, 0, 2},
                     without = {NULL, NULL, silent, 0, 0, 2};
    struct world world;
    world_init(&world, saves, "worker:0 ps:0");
    struct compiled *compiled = compile(&world, &with_one);
    assert_int_equal(compiled->n_barrier_saves, 2); /* the pruned one is none */
    assert_int_equal(compiled->n_saved_tasks, 1);
    compiled_free(compiled);
    compiled = compile(&world, &without);
    assert_int_equal(compiled->n_barrier_saves, 0);
    compiled_free(compiled);
    world_fini(&world);
}

static void passes_have_names_of_their_own(void **state) {
    for (size_t i = 0; i < n_compile_passes; i++) {
        assert_ptr_equal(pass_find(compile_passes[i].name), &compile_passes[i]);
        assert_non_null(compile_passes[i].run);
        assert_true(strlen(compile_passes[i].source) > 0);
    }
    assert_null(pass_find("no such pass"));
}

static void a_step_becomes_partitions_and_leaves_the_session_alone(void **state) {
    const char *feeds[] = {"x:0"}, *fetches[] = {"y:0", "v:0"}, *targets[] = {"assign"};
    struct signature signature = {feeds, fetches, targets, 1, 2, 1};
    struct world world;
    struct str before = STR_INIT, after = STR_INIT;
    world_init(&world, program, "worker:0 ps:0");
    graph_print(&world.graph, &before);
    struct compiled *compiled = compile(&world, &signature);
    graph_print(&world.graph, &after);
    assert_string_equal(str_text(&before), str_text(&after));
    assert_int_equal(compiled->n_partitions, 2);
    assert_int_equal(compiled->n_edges, 2); /* read to the worker, y to the ps */
    assert_int_equal(compiled->feed_types[0], DT_FLOAT);
    assert_int_equal(compiled->fetch_types[1], DT_FLOAT);
    const struct partition *worker = &compiled->partitions[0], *ps = &compiled->partitions[1];
    assert_true(worker->n_feeds == 1 && worker->feeds[0] == 0 && ps->n_feeds == 0);
    assert_true(worker->n_fetches == 1 && worker->fetches[0] == 0);
    assert_true(ps->n_fetches == 1 && ps->fetches[0] == 1);
    assert_true(worker->n_peers == 1 && worker->peers[0] == ps->task &&
                ps->peers[0] == worker->task);
    assert_null(graph_find(&worker->graph, "b"));                             /* a's twin */
    assert_string_equal(graph_find(&worker->graph, "two")->op_name, "Const"); /* folded */
    /* the result holds its own reference on the device table */
    world_fini(&world);
    assert_int_equal(compiled->devices->n_tasks, 2);
    compiled_free(compiled);
    compiled_free(NULL);
    str_fini(&before);
    str_fini(&after);
}

static void partitions_survive_the_wire(void **state) {
    const char *feeds[] = {"x:0"}, *fetches[] = {"y:0", "v:0"}, *targets[] = {"assign"};
    struct signature signature = {feeds, fetches, targets, 1, 2, 1};
    struct graph_limits limits;
    struct world world;
    graph_limits_default(&limits);
    limits.is_internal = true;
    world_init(&world, program, "worker:0 ps:0");
    struct compiled *compiled = compile(&world, &signature);
    for (int i = 0; i < compiled->n_partitions; i++) {
        struct str wire = STR_INIT, before = STR_INIT, after = STR_INIT;
        struct graph *graph = &compiled->partitions[i].graph, read;
        graph_to_graphdef(graph, NULL, &wire);
        graph_init(&read);
        assert_null(graph_add_graphdef(&read, (struct span){wire.data, wire.len}, &limits));
        for (int id = 0; id < graph->n_nodes; id++)
            graph->nodes[id]->placed = -1; /* the device's name says it */
        graph_print_short(graph, &before);
        graph_print_short(&read, &after);
        assert_string_equal(str_text(&before), str_text(&after));
        graph_fini(&read);
        str_fini(&wire);
        str_fini(&before);
        str_fini(&after);
    }
    compiled_free(compiled);
    world_fini(&world);
}

static void optional_passes_can_be_switched_off(void **state) {
    const char *feeds[] = {"x:0"}, *fetches[] = {"y:0"};
    struct signature signature = {feeds, fetches, NULL, 1, 1, 0};
    const char *const disabled[] = {"prune",    "fold",  "cse",   "waits",
                                    "controls", "sweep", "place", NULL};
    struct world world;
    world_init(&world, program, "worker:0 ps:0");
    struct compiled *all = compile(&world, &signature);
    world.options.no_optimizations = true;
    struct compiled *few = compile(&world, &signature);
    world.options.disabled_passes = disabled; /* prune, sweep and place are not optional */
    struct compiled *none = compile(&world, &signature);
    assert_int_equal(n_live(few), n_live(all) + 2); /* one, b */
    assert_int_equal(n_live(none), n_live(few));
    compiled_free(all);
    compiled_free(few);
    compiled_free(none);
    world_fini(&world);
}

/* A pass that is off by default runs only if it is enabled, and not in a session without any. */
static void passes_are_off_until_they_are_enabled(void **state) {
    static const char padded[] =
        "x = Placeholder() {dtype=float}\n"
        "w = Placeholder() {dtype=float}\n"
        "s = Const() {dtype=int32, value=int32[4,2]{0, 0, 1, 1, 1, 1, 0, 0}}\n"
        "p = Pad(x, s) {T=float, Tpaddings=int32}\n"
        "y = Conv2D(p, w) {T=float, strides=[1, 1, 1, 1], padding=\"VALID\"}\n";
    const char *feeds[] = {"x:0", "w:0"}, *fetches[] = {"y:0"};
    const char *const enabled[] = {"pads", "transposes", NULL}, *const disabled[] = {"pads", NULL};
    struct signature signature = {feeds, fetches, NULL, 2, 1, 0};
    struct world world;
    world_init(&world, padded, "worker:0");
    struct compiled *without = compile(&world, &signature);
    world.options.enabled_passes = enabled;
    struct compiled *with = compile(&world, &signature);
    world.options.disabled_passes = disabled;
    struct compiled *both = compile(&world, &signature);
    world.options.disabled_passes = NULL;
    world.options.no_optimizations = true;
    struct compiled *none = compile(&world, &signature);
    assert_int_equal(n_live(with), n_live(without) - 2); /* s, p */
    assert_int_equal(n_live(both), n_live(without));
    assert_int_equal(n_live(none), n_live(without));
    compiled_free(without);
    compiled_free(with);
    compiled_free(both);
    compiled_free(none);
    world_fini(&world);
}

/* ---- static shapes ---- */

static const char shaped[] = "x = Placeholder() {dtype=float, shape=[2,3]}\n"
                             "unused = Exp(x) {T=float}\n"
                             "y = Exp(x) {T=float}\n"
                             "z = Neg(y) {T=float}\n";

static void run_pass(struct compilation *c, const char *name, bool changes) {
    bool changed;
    assert_null(compilation_run_pass(c, pass_find(name), &changed));
    assert_true(changed == changes);
}

static int64_t bytes_of(struct compilation *c, const char *node) {
    return graph_shapes_bytes(compilation_shapes(c), graph_find(&c->graph, node), 0);
}

/* `n_outputs` counts the outputs that were inferred, so it grows with each further inference. */
static void shapes_are_inferred_once_for_all_passes(void **state) {
    const char *fetches[] = {"z:0"};
    struct signature signature = {.fetches = fetches, .n_fetches = 1};
    struct world world;
    struct compilation c;
    world_init(&world, "", "worker:0 ps:0");
    compilation_init(&c, &signature, world.devices, &world.options, NULL);
    assert_null(graph_parse(shaped, &c.graph));
    run_pass(&c, "cut", true);
    assert_int_equal(c.shapes.n_outputs, 0); /* nobody asked yet */
    assert_int_equal(bytes_of(&c, "z"), 24);
    assert_int_equal(c.shapes.n_outputs, 4);
    run_pass(&c, "prune", true); /* keeps the shapes */
    run_pass(&c, "cse", false);  /* changes nothing here */
    run_pass(&c, "place", true); /* keeps the shapes */
    assert_int_equal(bytes_of(&c, "z"), 24);
    assert_int_equal(c.shapes.n_outputs, 4);
    struct node *added;
    assert_null(graph_add_node(&c.graph, "added", "Neg", "", &added));
    node_set_attr_type(&c.graph, added, "T", DT_FLOAT);
    node_add_input(&c.graph, added, graph_find(&c.graph, "z"), 0);
    assert_null(node_finish(&c.graph, added));
    assert_int_equal(bytes_of(&c, "added"), 24);
    assert_int_equal(c.shapes.n_outputs, 5); /* the others were not inferred again */
    compilation_fini(&c);
    world_fini(&world);
}

static void a_pass_that_changes_the_graph_drops_the_shapes(void **state) {
    const char *feeds[] = {"y:0"}, *fetches[] = {"z:0"};
    struct signature signature = {feeds, fetches, NULL, 1, 1, 0};
    struct world world;
    struct compilation c;
    world_init(&world, "", "worker:0");
    compilation_init(&c, &signature, world.devices, &world.options, NULL);
    assert_null(graph_parse(shaped, &c.graph));
    assert_int_equal(bytes_of(&c, "z"), 24);
    run_pass(&c, "cut", true); /* a feed of y may have any shape */
    assert_int_equal(c.shapes.n_outputs, 0);
    assert_int_equal(bytes_of(&c, "z"), -1);
    compilation_drop_shapes(&c);
    compilation_drop_shapes(&c); /* again, with nothing to drop */
    assert_int_equal(bytes_of(&c, "x"), 24);
    compilation_fini(&c);
    world_fini(&world);
}

/* Each pass that needs an order reports the cycle, so asking for shapes does not. */
static void a_cycle_has_no_shapes(void **state) {
    struct signature signature = {0};
    struct world world;
    struct compilation c;
    world_init(&world, "", "worker:0");
    compilation_init(&c, &signature, world.devices, &world.options, NULL);
    assert_null(graph_parse(shaped, &c.graph));
    node_set_input(graph_find(&c.graph, "y"), 0, graph_find(&c.graph, "z"), 0);
    assert_int_equal(bytes_of(&c, "z"), -1);
    compilation_fini(&c);
    world_fini(&world);
}

static void a_failure_says_why_and_leaves_nothing(void **state) {
    const char *feeds[] = {"x:0"}, *fetches[] = {"elsewhere:0"}, *unknown[] = {"zz:0"};
    struct signature unplaceable = {feeds, fetches, NULL, 1, 1, 0},
                     not_found = {feeds, unknown, NULL, 1, 1, 0};
    struct world world;
    struct compiled *compiled = NULL;
    world_init(&world, program, "worker:0 ps:0");
    struct status *st =
        compile_step(&world.graph, &unplaceable, world.devices, &world.options, NULL, &compiled);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(status_message(st), "Cannot assign a device for operation elsewhere"));
    status_unref(st);
    st = compile_step(&world.graph, &not_found, world.devices, &world.options, NULL, &compiled);
    assert_int_equal(status_code(st), STATUS_NOT_FOUND);
    status_unref(st);
    assert_null(compiled);
    world_fini(&world);
}

static void sets_of_feeds_tell_the_first_that_is_missing(void **state) {
    enum { N = 200 };
    for (int feed = 0; feed < N; feed++) {
        uint64_t needs[FEED_SET_WORDS(N)] = {0}, fed[FEED_SET_WORDS(N)] = {0},
                 now[FEED_SET_WORDS(N)] = {0};
        for (int i = feed; i < N; i += 13)
            feed_set_add(needs, i);
        assert_int_equal(feed_set_missing(needs, fed, now, N), feed);
        feed_set_add(feed % 2 ? fed : now, feed);
        assert_int_equal(feed_set_missing(needs, fed, now, N), feed + 13 < N ? feed + 13 : -1);
        for (int i = 0; i < N; i++)
            feed_set_add(i % 3 ? fed : now, i);
        assert_int_equal(feed_set_missing(needs, fed, now, N), -1);
    }
}

static void no_devices_at_all(void **state) {
    struct graph graph;
    struct compile_options options;
    struct device_table *devices = devices_from_text("");
    graph_init(&graph);
    compile_options_default(&options);
    assert_null(graph_parse("v = VariableV2() {dtype=float, shape=[]}\n", &graph));
    struct status *st = place_session(&graph, devices, &options);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    status_unref(st);
    graph_fini(&graph);
    device_table_unref(devices);
}

static void a_place_from_another_table_is_refused(void **state) {
    const char *fetches[] = {"a:0"};
    struct signature signature = {.fetches = fetches, .n_fetches = 1};
    struct world world;
    struct compiled *compiled;
    world_init(&world, "a = Const() {dtype=float, value=float[]{1}} -> 5\n", "worker:0");
    struct status *st =
        compile_step(&world.graph, &signature, world.devices, &world.options, NULL, &compiled);
    assert_int_equal(status_code(st), STATUS_INTERNAL);
    status_unref(st);
    world_fini(&world);
}

/* ---- the check of invariants ---- */

static const char sound[] = "a = Const() {dtype=float, value=float[]{1}}\n"
                            "i = Const() {dtype=int32, value=int32[]{1}}\n"
                            "b = Exp(a) {T=float}\n"
                            "c = Neg(b, ^a) {T=float}\n";

static void break_edge(struct graph *graph) { graph_remove_node(graph, graph_find(graph, "a")); }
static void break_type(struct graph *graph) {
    node_set_input(graph_find(graph, "b"), 0, graph_find(graph, "i"), 0);
}
static void break_range(struct graph *graph) {
    node_set_input(graph_find(graph, "b"), 0, graph_find(graph, "a"), 7);
}
static void break_order(struct graph *graph) {
    node_set_input(graph_find(graph, "b"), 0, graph_find(graph, "c"), 0);
}
static void break_count(struct graph *graph) { graph->n_live++; }
static void break_name(struct graph *graph) { strmap_remove(&graph->by_name, "c"); }
static void break_control(struct graph *graph) {
    node_add_control(graph, graph_find(graph, "c"), graph_find(graph, "i"));
    node_set_input(graph_find(graph, "c"), 2, graph_find(graph, "a"), CONTROL_EDGE);
}

static void broken_invariants_are_found(void **state) {
    static const struct {
        void (*break_it)(struct graph *graph);
        const char *message;
    } rows[] = {
        {NULL, ""},
        {break_edge, "which has been removed"},
        {break_type, "is int32 from {{node i}}, but must be float"},
        {break_range, "is output 7 of {{node a}}"},
        {break_order, "cycle"},
        {break_count, "live nodes"},
        {break_name, "not found by its name"},
        {break_control, "two control edges from {{node a}}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct graph graph;
        graph_init(&graph);
        assert_null(graph_parse(sound, &graph));
        if (rows[i].break_it)
            rows[i].break_it(&graph);
        struct status *st = graph_verify(&graph);
        assert_true((st == NULL) == (rows[i].break_it == NULL));
        if (!strstr(status_message(st), rows[i].message))
            fail_msg("'%s' is not in '%s'", rows[i].message, status_message(st));
        status_unref(st);
        graph_fini(&graph);
    }
}

/* ---- many small graphs ---- */

struct dice {
    uint64_t state;
};

static int roll(struct dice *dice, int n) {
    dice->state = hash_mix(dice->state, 0x9E3779B97F4A7C15);
    return (int)(dice->state % (uint64_t)n);
}

static const char *some_device(struct dice *dice) {
    static const char *const devices[] = {"",
                                          "",
                                          "",
                                          "",
                                          " @/job:ps/task:0",
                                          " @/job:ps/task:1",
                                          " @/job:worker/task:1",
                                          " @/cpu:0",
                                          " @/task:1"};
    return devices[roll(dice, ARRAY_LEN(devices))];
}

/* n0, n1, …: every node reads earlier ones; all float but the predicate. n0 is a variable, n1
 * and n2 constants. */
static void random_graph(struct dice *dice, int n_nodes, struct str *out) {
    str_add(out, "p = Placeholder() {dtype=bool}\n");
    str_addf(out, "n0 = VariableV2() {dtype=float, shape=[]}%s\n", some_device(dice));
    str_add(out, "n1 = Const() {dtype=float, value=float[]{1}}\nn2 = Const() {dtype=float, "
                 "value=float[]{2}}\n");
    for (int i = 3; i < n_nodes; i++) {
        int a = roll(dice, i), b = 1 + roll(dice, i - 1), c = roll(dice, i);
        char control[32] = "";
        if (roll(dice, 3) == 0)
            snprintf(control, sizeof(control), ", ^n%d", c);
        const char *device = some_device(dice);
        switch (roll(dice, 8)) {
        case 0:
            str_addf(out, "n%d = Const(%s) {dtype=float, value=float[]{%d}}%s\n", i,
                     control[0] ? control + 2 : "", roll(dice, 3), device);
            break;
        case 1:
            str_addf(out, "n%d = Assign(n0, n%d%s) {T=float}%s\n", i, b, control, device);
            break;
        case 2:
            str_addf(out, "n%d = Switch(n%d, p%s) {T=float}%s\n", i, a, control, device);
            break;
        case 3:
            str_addf(out, "n%d = Merge(n%d, n%d%s) {N=2, T=float}%s\n", i, a, b, control, device);
            break;
        case 4:
            str_addf(out, "n%d = Identity(n%d%s) {T=float, _class=[\"loc:@n%d\"]}\n", i, a, control,
                     c);
            break;
        default:
            str_addf(out, "n%d = AddV2(n%d, n%d%s) {T=float}%s\n", i, a, b, control, device);
        }
    }
}

static int task_of_device(const struct device_table *table, const char *full_name) {
    for (int i = 0; i < table->n_devices; i++)
        if (strcmp(table->devices[i].full_name, full_name) == 0)
            return table->devices[i].task;
    fail_msg("no device '%s'", full_name);
    return -1;
}

/* Every edge has one Send and one Recv, on the tasks it names; every node is on a device of its
 * task. */
static void check_partitions(const struct compiled *compiled) {
    int *n_ends = xcalloc((size_t)compiled->n_edges * 2 + 1, sizeof(int));
    for (int i = 0; i < compiled->n_partitions; i++) {
        const struct partition *partition = &compiled->partitions[i];
        struct status *st = graph_verify(&partition->graph);
        assert_null(st);
        for (int id = 0; id < partition->graph.n_nodes; id++) {
            const struct node *node = partition->graph.nodes[id];
            if (node->is_removed)
                continue;
            assert_int_equal(task_of_device(compiled->devices, node->device), partition->task);
            bool is_send = node_is_op(node, "_MrSend");
            if (!is_send && !node_is_op(node, "_MrRecv"))
                continue;
            struct span device = node_attr(node, is_send ? "src_device" : "dst_device")->s;
            assert_true(span_is(device, node->device));
            int64_t edge = node_attr(node, "edge")->i;
            assert_in_range(edge, 0, compiled->n_edges - 1);
            n_ends[2 * edge + is_send]++;
        }
    }
    for (int i = 0; i < 2 * compiled->n_edges; i++)
        assert_int_equal(n_ends[i], 1);
    free(n_ends);
}

static void random_graphs_keep_their_invariants(void **state) {
    const char *feeds[] = {"p:0", "n1:0"}, *fetches[] = {"n19:0", "n12:0"},
               *targets[] = {"n18", "n2"};
    int n_compiled = 0;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct dice dice = {seed};
        struct signature signature = {
            feeds, fetches, targets, 1 + roll(&dice, 2), 1 + roll(&dice, 2), roll(&dice, 3)};
        struct str text = STR_INIT;
        struct world world = {.devices = devices_from_text("worker:0 worker:1 ps:0 ps:1")};
        struct compiled *compiled = NULL;
        random_graph(&dice, 20, &text);
        graph_init(&world.graph);
        compile_options_default(&world.options);
        world.options.verify = true;
        struct status *st = graph_parse(str_text(&text), &world.graph);
        if (!st)
            st = place_session(&world.graph, world.devices, &world.options);
        if (!st)
            st = compile_step(&world.graph, &signature, world.devices, &world.options, NULL,
                              &compiled);
        if (st &&
            (status_code(st) != STATUS_INVALID_ARGUMENT || !strstr(status_message(st), "coloc")))
            fail_msg("seed %d: %s\n%s", (int)seed, status_message(st), str_text(&text));
        if (compiled)
            check_partitions(compiled);
        n_compiled += compiled != NULL;
        status_unref(st);
        compiled_free(compiled);
        world_fini(&world);
        str_fini(&text);
    }
    assert_true(n_compiled > 100); /* the others ask for colocation that cannot be */
}

/* ---- size ---- */

static struct node *add(struct graph *graph, const char *name, const char *op, const char *device,
                        struct node *a, struct node *b) {
    struct node *node;
    assert_null(graph_add_node(graph, name, op, device, &node));
    node_set_attr_type(graph, node, "T", DT_FLOAT);
    node_add_input(graph, node, a, 0);
    if (b)
        node_add_input(graph, node, b, 0);
    assert_null(node_finish(graph, node));
    return node;
}

/* Layers of 100 nodes, each of which reads two of the layer before and a constant of its own, on
 * two tasks by turns. */
static void build_large(struct graph *graph, int n_nodes) {
    enum { WIDTH = 100 };
    struct node *layer[WIDTH], *next[WIDTH];
    assert_null(graph_parse("x = Placeholder() {dtype=float}\n", graph));
    for (int i = 0; i < WIDTH; i++)
        layer[i] = graph_find(graph, "x");
    for (int l = 0; graph->n_nodes + 3 * WIDTH <= n_nodes; l++) {
        for (int i = 0; i < WIDTH; i++) {
            char name[64];
            struct node *constant;
            struct tensor value = TENSOR_INIT;
            tensor_init_scalar_f32(&value, (float)graph->n_nodes);
            snprintf(name, sizeof(name), "l%d/c%d", l, i);
            assert_null(graph_add_node(graph, name, "Const", "", &constant));
            node_set_attr_type(graph, constant, "dtype", DT_FLOAT);
            node_set_attr_tensor(graph, constant, "value", &value);
            assert_null(node_finish(graph, constant));
            snprintf(name, sizeof(name), "l%d/m%d", l, i);
            const char *device = l % 20 == 19 ? "/job:ps/task:0" : "/job:worker/task:0";
            struct node *product = add(graph, name, "Mul", device, layer[i], constant);
            snprintf(name, sizeof(name), "l%d/s%d", l, i);
            next[i] = add(graph, name, "Sub", device, product, layer[(i + 1) % WIDTH]);
        }
        memcpy(layer, next, sizeof(layer));
    }
    struct node *all;
    assert_null(graph_add_node(graph, "all", "NoOp", "", &all));
    for (int i = 0; i < WIDTH; i++)
        node_add_control(graph, all, layer[i]);
    assert_null(node_finish(graph, all));
}

/* Of the processor, so that what else runs on the machine counts less. */
static int64_t thread_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static double compile_ms(int n_nodes, bool is_shown) {
    const char *feeds[] = {"x:0"}, *targets[] = {"all"};
    struct signature signature = {feeds, NULL, targets, 1, 0, 1};
    struct world world;
    world_init(&world, "", "worker:0 ps:0");
    world.options.verify = false;
    build_large(&world.graph, n_nodes);
    int64_t start = thread_ns();
    assert_null(place_session(&world.graph, world.devices, &world.options));
    int64_t placed = thread_ns();
    struct compiled *compiled = compile(&world, &signature);
    int64_t end = thread_ns();
    if (is_shown)
        print_message(
            "%d nodes: place_session %.1f ms, compile_step %.1f ms, %d edges between tasks\n",
            world.graph.n_nodes, (double)(placed - start) * 1e-6, (double)(end - placed) * 1e-6,
            compiled->n_edges);
    compiled_free(compiled);
    world_fini(&world);
    return (double)(end - start) * 1e-6;
}

/* No bound on the time itself, which depends on the machine: ten times the nodes take about ten
 * times as long, not a hundred. A busy machine may disturb one measurement, or two. */
static void a_large_graph_takes_linear_time(void **state) {
    bool is_linear = false;
    for (int i = 0; i < 5 && !is_linear; i++) {
        double small = compile_ms(10000, true), large = compile_ms(100000, true);
        is_linear = large < 40 * (small + 5);
    }
    assert_true(is_linear);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_saves_count_once_one_asks_for_a_barrier),
        cmocka_unit_test(passes_have_names_of_their_own),
        cmocka_unit_test(a_step_becomes_partitions_and_leaves_the_session_alone),
        cmocka_unit_test(partitions_survive_the_wire),
        cmocka_unit_test(optional_passes_can_be_switched_off),
        cmocka_unit_test(passes_are_off_until_they_are_enabled),
        cmocka_unit_test(shapes_are_inferred_once_for_all_passes),
        cmocka_unit_test(a_pass_that_changes_the_graph_drops_the_shapes),
        cmocka_unit_test(a_cycle_has_no_shapes),
        cmocka_unit_test(a_failure_says_why_and_leaves_nothing),
        cmocka_unit_test(sets_of_feeds_tell_the_first_that_is_missing),
        cmocka_unit_test(no_devices_at_all),
        cmocka_unit_test(a_place_from_another_table_is_refused),
        cmocka_unit_test(broken_invariants_are_found),
        cmocka_unit_test(random_graphs_keep_their_invariants),
        cmocka_unit_test(a_large_graph_takes_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
