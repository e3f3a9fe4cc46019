/* The simulation of a step on devices, and the search for a short placement
 * (master/compile/cost/schedule.h). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/base.h"
#include "common/base/splitmix.h"
#include "master/compile/cost/schedule.h"

enum { MAX_UNITS = 64, MAX_DEVICES = 4, N_RANDOM_GRAPHS = 200, SEARCH_VISITS = 1000 * 1000 };

/* A problem whose arrays have room for tests. */
struct scene {
    struct schedule_problem p;
    int group[MAX_UNITS], first_value[MAX_UNITS + 1], fixed[MAX_UNITS];
    double cost_ns[MAX_UNITS * MAX_DEVICES], kept_bytes[MAX_UNITS];
    struct schedule_value values[MAX_UNITS];
    struct schedule_edge edges[MAX_UNITS * MAX_UNITS];
    struct schedule_device devices[MAX_DEVICES];
    struct schedule_link links[MAX_DEVICES * MAX_DEVICES];
};

/* `n_units` units of their own groups, which cost 100 on each device, and devices with one lane
 * that are a latency of 10 and 1 for a byte apart. */
static void scene_init(struct scene *scene, int n_units, int n_devices) {
    *scene = (struct scene){0};
    scene->p = (struct schedule_problem){.n_units = n_units,
                                         .n_groups = n_units,
                                         .n_devices = n_devices,
                                         .n_classes = n_devices,
                                         .group = scene->group,
                                         .cost_ns = scene->cost_ns,
                                         .first_value = scene->first_value,
                                         .values = scene->values,
                                         .edges = scene->edges,
                                         .devices = scene->devices,
                                         .links = scene->links,
                                         .kept_bytes = scene->kept_bytes,
                                         .fixed = scene->fixed};
    for (int u = 0; u < n_units; u++) {
        scene->group[u] = u;
        scene->fixed[u] = -1;
        for (int c = 0; c < n_devices; c++)
            scene->cost_ns[u * n_devices + c] = 100;
    }
    for (int d = 0; d < n_devices; d++) {
        scene->devices[d] =
            (struct schedule_device){.cost_class = d, .memory_bytes = INFINITY, .n_lanes = 1};
        for (int to = 0; to < n_devices; to++)
            if (to != d)
                scene->links[d * n_devices + to] = (struct schedule_link){10, 1};
    }
}

/* The value of `unit`, with its consumers; units in order, each once at most. */
static void add_value(struct scene *scene, int unit, double bytes, const int *consumers, int n) {
    struct schedule_problem *p = &scene->p;
    scene->values[p->n_values] = (struct schedule_value){
        .producer = unit, .first_edge = p->n_edges, .n_edges = n, .bytes = bytes};
    for (int i = 0; i < n; i++)
        scene->edges[p->n_edges++].consumer = consumers[i];
    p->n_values++;
    for (int u = unit + 1; u <= MAX_UNITS; u++)
        scene->first_value[u] = p->n_values;
}

static double makespan(const struct scene *scene, const int *device_of) {
    struct schedule *schedule = schedule_new(&scene->p);
    double ns = schedule_run(schedule, device_of).makespan_ns;
    schedule_free(schedule);
    return ns;
}

/* 0 ─► 1, 2 ─► 3 */
static void diamond(struct scene *scene, double bytes) {
    scene_init(scene, 4, 2);
    add_value(scene, 0, bytes, (int[]){1, 2}, 2);
    add_value(scene, 1, bytes, (int[]){3}, 1);
    add_value(scene, 2, bytes, (int[]){3}, 1);
}

static void units_of_one_lane_run_one_after_another(void **state) {
    struct scene scene;
    diamond(&scene, 5);
    assert_true(makespan(&scene, (int[]){0, 0, 0, 0}) == 400);
    scene.devices[0].n_lanes = 2;
    assert_true(makespan(&scene, (int[]){0, 0, 0, 0}) == 300);
}

static void a_value_takes_its_latency_and_its_bytes(void **state) {
    struct scene scene;
    diamond(&scene, 5);
    /* 100, then 1 at once and 2 after 15 on the other device, whose value comes back 15 later */
    assert_true(makespan(&scene, (int[]){0, 0, 1, 0}) == 100 + 15 + 100 + 15 + 100);
}

static void a_value_is_sent_once_to_each_device(void **state) {
    struct scene scene;
    diamond(&scene, 5);
    struct schedule *schedule = schedule_new(&scene.p);
    struct schedule_result result = schedule_run(schedule, (int[]){0, 1, 1, 1});
    assert_true(result.sent_bytes == 5);
    assert_true(result.makespan_ns == 100 + 15 + 100 + 100 + 100);
    schedule_free(schedule);
}

static void a_link_carries_one_value_at_a_time(void **state) {
    struct scene scene;
    scene_init(&scene, 4, 2);
    scene.devices[0].n_lanes = scene.devices[1].n_lanes = 2;
    add_value(&scene, 0, 50, (int[]){2}, 1);
    add_value(&scene, 1, 50, (int[]){3}, 1);
    assert_true(makespan(&scene, (int[]){0, 0, 1, 1}) == 100 + 50 + 50 + 10 + 100);
}

static void memory_is_held_until_the_last_consumer_has_ended(void **state) {
    struct scene scene;
    diamond(&scene, 8);
    scene.kept_bytes[0] = 100;
    struct schedule *schedule = schedule_new(&scene.p);
    schedule_run(schedule, (int[]){0, 0, 0, 0});
    /* the second value of the pair is there before the first one is used */
    assert_true(schedule_peak_bytes(schedule)[0] == 100 + 8 + 8 + 8 ||
                schedule_peak_bytes(schedule)[0] == 100 + 8 + 8);
    assert_true(schedule_peak_bytes(schedule)[1] == 0);
    scene.devices[0].memory_bytes = 106;
    struct schedule_result result = schedule_run(schedule, (int[]){0, 0, 0, 0});
    assert_true(result.excess_bytes == schedule_peak_bytes(schedule)[0] - 106);
    schedule_free(schedule);
}

/* Unit 0 has two values for the other device, which takes them with units 1 and 2; unit 2 follows
 * on unit 1. The second value waits for the gate of unit 2's edge. */
static struct schedule_result run_gated(struct scene *scene, int gate, bool is_kept,
                                        double *ret_peaks) {
    scene_init(scene, 4, 2);
    add_value(scene, 0, 50, (int[]){1}, 1);
    add_value(scene, 1, 4, (int[]){2}, 1);
    add_value(scene, 3, 70, (int[]){2}, 1);
    scene->first_value[3] = 2;
    scene->values[2].is_kept = is_kept;
    int gates[] = {-1, -1, gate};
    scene->p.gate = gates;
    struct schedule *schedule = schedule_new(&scene->p);
    struct schedule_result result = schedule_run(schedule, (int[]){0, 1, 1, 0});
    for (int d = 0; d < 2; d++)
        ret_peaks[d] = schedule_peak_bytes(schedule)[d];
    schedule_free(schedule);
    scene->p.gate = NULL;
    return result;
}

static void a_gated_value_is_sent_when_its_gate_has_ended(void **state) {
    struct scene scene;
    double peaks[2];
    struct schedule_result result;
    /* the device's lane runs 0 until 100 and 3 until 200; 1 runs from 160 to 260 */
    result = run_gated(&scene, -1, false, peaks);
    assert_true(result.makespan_ns == 200 + 70 + 10 + 100);
    assert_true(peaks[1] == 50 + 4 + 70); /* 3's value is on its way while 1 runs */
    /* the request takes 10, the value 70 and 10 more */
    result = run_gated(&scene, 1, false, peaks);
    assert_true(result.makespan_ns == 260 + 10 + 70 + 10 + 100);
    assert_true(peaks[1] == 70 + 4);
}

static void a_value_is_held_where_it_leaves_until_it_is_sent(void **state) {
    struct scene scene;
    double peaks[2];
    run_gated(&scene, 1, false, peaks);
    assert_true(peaks[0] == 70); /* the other value left at 150, and this one exists from 200 on */
    run_gated(&scene, 1, true, peaks);
    assert_true(peaks[0] == 50);
}

static void what_a_local_consumer_holds_counts_once(void **state) {
    struct scene scene;
    scene_init(&scene, 4, 2);
    add_value(&scene, 0, 50, (int[]){1, 2}, 2); /* 1 is here, 2 there */
    add_value(&scene, 3, 0, (int[]){2}, 1);
    int gates[] = {-1, 3, -1}; /* 3 is there, too */
    scene.p.gate = gates;
    scene.cost_ns[3 * 2 + 1] = 500;
    struct schedule *schedule = schedule_new(&scene.p);
    struct schedule_result result = schedule_run(schedule, (int[]){0, 0, 1, 1});
    assert_true(result.makespan_ns == 500 + 10 + 50 + 10 + 100);
    assert_true(schedule_peak_bytes(schedule)[0] == 50);
    assert_true(schedule_peak_bytes(schedule)[1] == 50);
    schedule_free(schedule);
}

static void a_device_that_cannot_run_a_unit_is_not_used(void **state) {
    struct scene scene;
    diamond(&scene, 5);
    scene.cost_ns[3 * 2 + 0] = INFINITY;
    assert_true(isinf(makespan(&scene, (int[]){0, 0, 0, 0})));
    int device_of[] = {0, 0, 0, 0};
    struct schedule *schedule = schedule_new(&scene.p);
    struct schedule_result result = schedule_search(schedule, device_of, SEARCH_VISITS);
    assert_true(isfinite(result.makespan_ns));
    assert_int_equal(device_of[3], 1);
    schedule_free(schedule);
}

static void what_is_fixed_stays(void **state) {
    struct scene scene;
    diamond(&scene, 5);
    scene.fixed[1] = 1;
    scene.fixed[2] = 1;
    int device_of[] = {0, 1, 1, 0};
    struct schedule *schedule = schedule_new(&scene.p);
    schedule_search(schedule, device_of, SEARCH_VISITS);
    assert_int_equal(device_of[1], 1);
    assert_int_equal(device_of[2], 1);
    schedule_free(schedule);
}

static void too_little_memory_counts_before_time(void **state) {
    struct scene scene;
    scene_init(&scene, 2, 2);
    add_value(&scene, 0, 1, (int[]){1}, 1);
    scene.kept_bytes[0] = scene.kept_bytes[1] = 60;
    scene.devices[0].memory_bytes = scene.devices[1].memory_bytes = 100;
    int device_of[] = {0, 0};
    struct schedule *schedule = schedule_new(&scene.p);
    struct schedule_result result = schedule_search(schedule, device_of, SEARCH_VISITS);
    assert_true(result.excess_bytes == 0);
    assert_int_not_equal(device_of[0], device_of[1]);
    schedule_free(schedule);
}

/* ---- the budget ---- */

static void edges_count_as_work_of_the_search(void **state) {
    struct scene scene;
    scene_init(&scene, MAX_UNITS, 2);
    for (int u = 0; u < MAX_UNITS - 1; u++) {
        int consumers[MAX_UNITS], n = 0;
        for (int later = u + 1; later < MAX_UNITS; later++)
            consumers[n++] = later;
        add_value(&scene, u, 1, consumers, n);
    }
    int device_of[MAX_UNITS] = {0};
    struct schedule *schedule = schedule_new(&scene.p);
    schedule_run(schedule, device_of);
    int64_t n_visits = schedule_n_visits(schedule);
    assert_in_range(n_visits, scene.p.n_edges / 4, scene.p.n_edges);
    enum { BUDGET = 100 * 1000 };
    schedule_search(schedule, device_of, BUDGET);
    /* one run before the search, and at most one that the budget's end does not stop in time */
    assert_true(schedule_n_visits(schedule) <= BUDGET + 5 * n_visits);
    schedule_free(schedule);
}

/* Groups with one allowed device each cost no simulation, so no budget would end the search among
 * their pairs: before pairs were made of groups that may move, this took a minute. */
static void a_search_among_groups_that_cannot_move_ends(void **state) {
    enum { N = 30000, N_DEVICES = 64 };
    struct schedule_problem p = {
        .n_units = N, .n_groups = N, .n_devices = N_DEVICES, .n_classes = 1};
    int *group = xcalloc(N, sizeof(int)), *device_of = xcalloc(N, sizeof(int));
    double *cost_ns = xcalloc(N, sizeof(double));
    bool *may_use = xcalloc((size_t)N * N_DEVICES, sizeof(bool));
    struct schedule_device devices[N_DEVICES];
    for (int i = 0; i < N; i++) {
        group[i] = i;
        cost_ns[i] = 100;
        device_of[i] = i % N_DEVICES;
        may_use[(size_t)i * N_DEVICES + (size_t)device_of[i]] = true;
    }
    for (int d = 0; d < N_DEVICES; d++)
        devices[d] = (struct schedule_device){.memory_bytes = INFINITY, .n_lanes = 1};
    p.group = group;
    p.cost_ns = cost_ns;
    p.may_use = may_use;
    p.devices = devices;
    p.first_value = xcalloc(N + 1, sizeof(int));
    p.links = xcalloc((size_t)N_DEVICES * N_DEVICES, sizeof(*p.links));
    struct schedule *schedule = schedule_new(&p);
    struct schedule_result result = schedule_search(schedule, device_of, SEARCH_VISITS * 10);
    assert_true(fabs(result.makespan_ns - 100.0 * ((N + N_DEVICES - 1) / N_DEVICES)) < 1);
    schedule_free(schedule);
    free((void *)p.first_value);
    free((void *)p.links);
    free(group);
    free(device_of);
    free(cost_ns);
    free(may_use);
}

/* ---- against trying all ---- */

static int below(uint64_t *seed, int n) { return (int)(splitmix64(seed) % (uint64_t)n); }

/* Up to ten units in up to seven groups on two or three devices of different speeds. */
static void random_scene(struct scene *scene, uint64_t seed) {
    int n_units = 4 + below(&seed, 7), n_devices = 2 + below(&seed, 2);
    scene_init(scene, n_units, n_devices);
    scene->p.n_groups = MIN(n_units, 3 + below(&seed, 5));
    double speed[MAX_DEVICES];
    for (int d = 0; d < n_devices; d++) {
        speed[d] = 1 + below(&seed, 4);
        scene->devices[d].n_lanes = 1 + below(&seed, 2);
        for (int to = 0; to < n_devices; to++)
            if (to != d)
                scene->links[d * n_devices + to] =
                    (struct schedule_link){5 + below(&seed, 100), 0.1 * below(&seed, 30)};
    }
    for (int u = 0; u < n_units; u++) {
        double cost = 10 + below(&seed, 300);
        scene->group[u] = u < scene->p.n_groups ? u : below(&seed, scene->p.n_groups);
        for (int d = 0; d < n_devices; d++)
            scene->cost_ns[u * n_devices + d] = cost * speed[d];
        int consumers[MAX_UNITS], n = 0;
        for (int later = u + 1; later < n_units; later++)
            if (below(&seed, 3) == 0)
                consumers[n++] = later;
        add_value(scene, u, 1 + below(&seed, 100), consumers, n);
    }
    if (below(&seed, 2) == 0)
        scene->fixed[0] = below(&seed, n_devices);
}

static struct schedule_result try_all(const struct scene *scene, struct schedule *schedule) {
    const struct schedule_problem *p = &scene->p;
    struct schedule_result best = {.makespan_ns = INFINITY};
    int device_of[MAX_UNITS], n_placements = 1;
    for (int g = 0; g < p->n_groups; g++)
        n_placements *= p->n_devices;
    for (int i = 0; i < n_placements; i++) {
        bool is_allowed = true;
        for (int g = 0, rest = i; g < p->n_groups; g++, rest /= p->n_devices) {
            device_of[g] = rest % p->n_devices;
            is_allowed &= scene->fixed[g] < 0 || scene->fixed[g] == device_of[g];
        }
        if (!is_allowed)
            continue;
        struct schedule_result result = schedule_run(schedule, device_of);
        if (schedule_result_is_better(&result, &best))
            best = result;
    }
    return best;
}

static void the_search_is_within_a_tenth_of_the_best(void **state) {
    double sum = 0, worst = 1;
    int n_best = 0;
    for (uint64_t seed = 1; seed <= N_RANDOM_GRAPHS; seed++) {
        struct scene scene;
        int device_of[MAX_UNITS];
        random_scene(&scene, seed);
        struct schedule *schedule = schedule_new(&scene.p);
        for (int g = 0; g < scene.p.n_groups; g++)
            device_of[g] = scene.fixed[g] >= 0 ? scene.fixed[g] : 0;
        double simple = schedule_run(schedule, device_of).makespan_ns;
        double found = schedule_search(schedule, device_of, SEARCH_VISITS).makespan_ns;
        double best = try_all(&scene, schedule).makespan_ns;
        assert_true(schedule_run(schedule, device_of).makespan_ns == found);
        assert_true(found <= simple);
        if (found > 1.1 * best)
            fail_msg("seed %llu: %g ns, the best placement takes %g ns", (unsigned long long)seed,
                     found, best);
        n_best += found <= best * (1 + 1e-6);
        sum += found / best;
        worst = MAX(worst, found / best);
        schedule_free(schedule);
    }
    print_message("search: %d of %d placements are the best; mean %.4f, worst %.3f of the best\n",
                  n_best, N_RANDOM_GRAPHS, sum / N_RANDOM_GRAPHS, worst);
}

static void equal_problems_have_equal_answers(void **state) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        int device_of[2][MAX_UNITS];
        for (int i = 0; i < 2; i++) {
            struct scene scene;
            random_scene(&scene, seed);
            struct schedule *schedule = schedule_new(&scene.p);
            for (int g = 0; g < scene.p.n_groups; g++)
                device_of[i][g] = MAX(scene.fixed[g], 0);
            schedule_search(schedule, device_of[i], SEARCH_VISITS);
            schedule_free(schedule);
        }
        assert_memory_equal(device_of[0], device_of[1], sizeof(int) * 3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_of_one_lane_run_one_after_another),
        cmocka_unit_test(a_value_takes_its_latency_and_its_bytes),
        cmocka_unit_test(a_value_is_sent_once_to_each_device),
        cmocka_unit_test(a_link_carries_one_value_at_a_time),
        cmocka_unit_test(memory_is_held_until_the_last_consumer_has_ended),
        cmocka_unit_test(a_gated_value_is_sent_when_its_gate_has_ended),
        cmocka_unit_test(a_value_is_held_where_it_leaves_until_it_is_sent),
        cmocka_unit_test(what_a_local_consumer_holds_counts_once),
        cmocka_unit_test(a_device_that_cannot_run_a_unit_is_not_used),
        cmocka_unit_test(what_is_fixed_stays),
        cmocka_unit_test(too_little_memory_counts_before_time),
        cmocka_unit_test(edges_count_as_work_of_the_search),
        cmocka_unit_test(a_search_among_groups_that_cannot_move_ends),
        cmocka_unit_test(the_search_is_within_a_tenth_of_the_best),
        cmocka_unit_test(equal_problems_have_equal_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
