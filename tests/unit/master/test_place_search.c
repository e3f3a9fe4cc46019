/* Placement by cost of small random graphs, beside the best of all placements: from the graph's
 * text to the choice, on workers of random speed and with random links. And graphs where there is
 * nothing to choose. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/splitmix.h"
#include "common/graph/graph_text.h"
#include "master/compile/cost/link_table.h"
#include "master/compile/place/place_cost_internal.h"
#include "tests/unit/master/pass_file.h"

enum { N_GRAPHS = 200, MAX_GROUPS = 16, MAX_TRIED_GROUPS = 8 };

static int below(uint64_t *seed, int n) { return (int)(splitmix64(seed) % (uint64_t)n); }

/* ---- one graph on one cluster ---- */

struct trial {
    struct compilation c;
    struct compile_options options;
    struct device_table *devices;
    struct placer placer;
    struct loop_frames frames;
    struct node **order;
    struct cost_placer cost;
    struct str text, tasks;
};

/* Up to nine nodes of a few milliseconds. Each takes any two nodes before, some are pinned, and
 * some must be together. */
static void write_graph(struct str *text, int n_tasks, bool is_all_pinned, uint64_t *seed) {
    int n = 3 + below(seed, 7), size = 128 << below(seed, 3), n_groups = n;
    str_addf(text, "x = Placeholder() {dtype=float, shape=[%d,%d]}\n", size, size);
    for (int i = 0; i < n; i++) {
        const char *op = below(seed, 4) == 0 ? "AddV2" : "MatMul";
        int left = below(seed, i + 1), right = below(seed, i + 1);
        str_addf(text, "n%d = %s(", i, op);
        str_add(text, left == 0 ? "x" : "n");
        if (left > 0)
            str_addf(text, "%d", left - 1);
        str_add(text, right == 0 ? ", x" : ", n");
        if (right > 0)
            str_addf(text, "%d", right - 1);
        bool joins =
            i > 0 && !is_all_pinned && (n_groups > MAX_TRIED_GROUPS - 1 || below(seed, 6) == 0);
        n_groups -= joins;
        if (joins)
            str_addf(text, ") {T=float, _class=[\"loc:@n%d\"]}\n", below(seed, i));
        else if (is_all_pinned || below(seed, 8) == 0)
            str_addf(text, ") {T=float} @/job:worker/task:%d\n", below(seed, n_tasks));
        else
            str_add(text, ") {T=float}\n");
    }
}

static struct link_table *random_links(int n_tasks, uint64_t *seed) {
    struct link_table *links = link_table_new();
    for (int from = 0; from < n_tasks; from++)
        for (int to = 0; to < n_tasks; to++) {
            char names[2][40];
            snprintf(names[0], sizeof(names[0]), "/job:worker/replica:0/task:%d", from);
            snprintf(names[1], sizeof(names[1]), "/job:worker/replica:0/task:%d", to);
            if (from != to)
                link_table_note(links, names[0],
                                &(struct link_report){span_of(names[1]), LINK_WAY_TCP,
                                                      (uint64_t)(10000 + below(seed, 2000000)),
                                                      UINT64_C(20000000) << below(seed, 8)});
        }
    return links;
}

static void trial_init(struct trial *t, int n_tasks, bool is_all_pinned, uint64_t seed) {
    *t = (struct trial){.text = STR_INIT, .tasks = STR_INIT};
    static const struct signature nothing = {0};
    for (int i = 0; i < n_tasks; i++)
        str_addf(&t->tasks, "worker:%d*%d ", i, 1 + below(&seed, 8));
    t->devices = devices_from_text(str_text(&t->tasks));
    compile_options_default(&t->options);
    t->options.placement = PLACEMENT_COST;
    t->options.links = random_links(n_tasks, &seed);
    write_graph(&t->text, n_tasks, is_all_pinned, &seed);
    compilation_init(&t->c, &nothing, t->devices, &t->options, NULL);
    assert_null(graph_parse(str_text(&t->text), &t->c.graph));
    assert_null(graph_topological_order(&t->c.graph, &t->order));
    assert_null(placer_init(&t->placer, &t->c.graph, t->devices, &t->options, &t->c.arena));
    assert_null(placer_settle(&t->placer, false));
    loop_frames_init(&t->frames, &t->c.graph, t->order, t->c.graph.n_live);
    cost_placer_init(&t->cost, &t->c, &t->placer, &t->frames, t->order);
}

static void trial_fini(struct trial *t) {
    cost_placer_fini(&t->cost);
    placer_fini(&t->placer);
    loop_frames_fini(&t->frames);
    free(t->order);
    compilation_fini(&t->c);
    device_table_unref(t->devices);
    link_table_free(t->options.links);
    str_fini(&t->text);
    str_fini(&t->tasks);
}

static double try_all(const struct schedule_problem *p, struct schedule *schedule) {
    int device_of[MAX_GROUPS], n_placements = 1;
    double best_ns = INFINITY;
    assert_true(p->n_groups <= MAX_GROUPS);
    for (int g = 0; g < p->n_groups; g++)
        n_placements *= p->fixed[g] < 0 ? p->n_devices : 1;
    for (int i = 0; i < n_placements; i++) {
        for (int g = 0, rest = i; g < p->n_groups; g++) {
            device_of[g] = p->fixed[g] < 0 ? rest % p->n_devices : p->fixed[g];
            rest /= p->fixed[g] < 0 ? p->n_devices : 1;
        }
        best_ns = MIN(best_ns, schedule_run(schedule, device_of).makespan_ns);
    }
    return best_ns;
}

/* ---- all graphs ---- */

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void print_ratios(const char *what, double *ratios, int n) {
    int n_best = 0, n_near = 0;
    qsort(ratios, (size_t)n, sizeof(*ratios), compare_doubles);
    for (int i = 0; i < n; i++) {
        n_best += ratios[i] <= 1 + 1e-6;
        n_near += ratios[i] <= 1.1;
    }
    print_message("%s: of %d graphs %d are the best, %d within a tenth; median %.3f, 95 %% %.3f, "
                  "worst %.3f\n",
                  what, n, n_best, n_near, ratios[n / 2], ratios[n * 95 / 100], ratios[n - 1]);
}

/* The simple rule's placement is kept where that takes at most a tenth longer. */
static void the_choice_is_within_a_tenth_of_the_best(void **state) {
    static double by_cost[N_GRAPHS], simple[N_GRAPHS];
    int n = 0;
    for (uint64_t seed = 1; n < N_GRAPHS; seed++) {
        struct trial t;
        int chosen[MAX_GROUPS];
        trial_init(&t, 2 + (int)(seed % 2), false, seed);
        if (t.cost.has_choice) {
            struct schedule *schedule = schedule_new(&t.cost.problem);
            struct cost_choice choice = cost_placer_choose(&t.cost, schedule, chosen);
            double best_ns = try_all(&t.cost.problem, schedule);
            assert_true(schedule_run(schedule, chosen).makespan_ns == choice.best.makespan_ns);
            by_cost[n] = choice.best.makespan_ns / best_ns;
            simple[n] = choice.simple.makespan_ns / best_ns;
            if (by_cost[n] > 1.1)
                fail_msg("seed %llu: %.3f ms, the best placement takes %.3f ms\n%s\n%s",
                         (unsigned long long)seed, choice.best.makespan_ns / 1e6, best_ns / 1e6,
                         str_text(&t.tasks), str_text(&t.text));
            n++;
            schedule_free(schedule);
        }
        trial_fini(&t);
    }
    print_ratios("by cost", by_cost, N_GRAPHS);
    print_ratios("simple rule", simple, N_GRAPHS);
}

/* ---- nothing to choose ---- */

/* The devices of all nodes after the pass; malloc'd. */
static int *devices_after_pass(const struct trial *t, enum placement placement) {
    struct compilation c;
    struct compile_options options = t->options;
    bool changed;
    options.placement = placement;
    compilation_init(&c, t->c.signature, t->devices, &options, NULL);
    assert_null(graph_parse(str_text(&t->text), &c.graph));
    assert_null(pass_place(&c, &changed));
    int *devices = xcalloc((size_t)c.graph.n_nodes + 1, sizeof(*devices));
    for (int i = 0; i < c.graph.n_nodes; i++)
        devices[i] = c.graph.nodes[i]->placed;
    compilation_fini(&c);
    return devices;
}

/* Without a choice no shape is inferred and nothing is simulated, so the pass takes no longer. */
static void check_nothing_to_choose(int n_tasks, bool is_all_pinned) {
    for (uint64_t seed = 1; seed <= N_GRAPHS; seed++) {
        struct trial t;
        trial_init(&t, n_tasks, is_all_pinned, seed);
        assert_false(t.cost.has_choice);
        assert_int_equal(t.cost.problem.n_units, 0);
        assert_int_equal(t.c.shapes.n_nodes, 0);
        int *simple = devices_after_pass(&t, PLACEMENT_SIMPLE),
            *by_cost = devices_after_pass(&t, PLACEMENT_COST);
        assert_memory_equal(simple, by_cost, (size_t)t.c.graph.n_nodes * sizeof(*simple));
        free(simple);
        free(by_cost);
        trial_fini(&t);
    }
}

static void one_device_leaves_no_choice(void **state) { check_nothing_to_choose(1, false); }

static void what_the_client_placed_stays(void **state) { check_nothing_to_choose(3, true); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_choice_is_within_a_tenth_of_the_best),
        cmocka_unit_test(one_device_leaves_no_choice),
        cmocka_unit_test(what_the_client_placed_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
