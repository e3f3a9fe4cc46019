/* Placement by the cost model [WP 3.2.1]: chooses the devices of groups that the client left open,
 * so that the simulated step is short (schedule.h, place_cost_problem.c).
 *
 * It begins with the simple rule's placement and keeps it unless another one saves a relevant part
 * of the simulated step: estimates are rough, and each further task of a step costs a message. So a
 * graph that gains nothing is placed as before. */
#include <stdlib.h>

#include "common/base/log.h"
#include "master/compile/place_cost_internal.h"

enum {
    MAX_EXPLAINED = 64,
    MAX_VISITS = 1000 * 1000, /* simulated units in one search: some 0.1 s */
};

/* What a better placement must save: a part of its own step, and some time at all. */
static const double MIN_GAIN = 0.1, MIN_GAIN_NS = 50000;

/* What the step would take with one group where the simple rule puts it. */
static double makespan_without(struct schedule *schedule, int *chosen, int group, int placed) {
    int moved_to = chosen[group];
    chosen[group] = placed;
    double makespan_ns = schedule_run(schedule, chosen).makespan_ns;
    chosen[group] = moved_to;
    return makespan_ns;
}

/* Says why groups moved, and why open ones did not. Of many that moved only the first get figures
 * of their own, since each takes a simulation. */
static void explain(struct cost_placer *p, struct schedule *schedule, int *chosen, double step_ns,
                    bool saves_memory) {
    const char **reason = arena_array(&p->arena, const char *, p->problem.n_groups + 1);
    for (int g = 0, n_simulated = 0; g < p->problem.n_groups; g++) {
        const char *there = p->c->devices->devices[p->device_of[p->placed[g]]].full_name;
        if (p->problem.fixed[g] >= 0)
            continue;
        if (chosen[g] == p->placed[g])
            reason[g] = "elsewhere the simulated step is not relevantly shorter";
        else if (saves_memory)
            reason[g] = arena_printf(p->placer->arena, "with all on %s memory is exceeded", there);
        else if (n_simulated++ < MAX_EXPLAINED)
            reason[g] = arena_printf(
                p->placer->arena, "the simulated step takes %.3f ms; with this on %s %.3f ms",
                step_ns / 1e6, there, makespan_without(schedule, chosen, g, p->placed[g]) / 1e6);
        else
            reason[g] = "the simulated step is shorter so";
    }
    for (int i = 0; i < p->c->graph.n_live; i++) {
        struct place_group *group = placer_group(p->placer, p->order[i]);
        int g = cost_placer_group(p, p->order[i]);
        if (g >= 0)
            group->reason = reason[g]; /* NULL: it could not move */
    }
}

/* Gives the groups that moved their devices. Returns how many nodes moved. */
static int take_placement(struct cost_placer *p, const int *chosen) {
    int n_moved = 0;
    for (int i = 0; i < p->c->graph.n_live; i++) {
        struct node *node = p->order[i];
        struct place_group *group = placer_group(p->placer, node);
        int g = cost_placer_group(p, node);
        if (g < 0 || p->problem.fixed[g] >= 0)
            continue;
        group->device = p->device_of[chosen[g]];
        group->is_chosen = true;
        n_moved += chosen[g] != p->placed[g];
    }
    return n_moved;
}

static bool is_relevantly_better(const struct schedule_result *a, const struct schedule_result *b) {
    double needed_ns = MAX(a->makespan_ns * MIN_GAIN, MIN_GAIN_NS);
    return a->excess_bytes < b->excess_bytes || b->makespan_ns - a->makespan_ns >= needed_ns;
}

/* Chooses the present placement again, unless the choice gains something, or the present one gains
 * nothing any more in comparison with the simple rule's. */
static void keep_present(const struct cost_placer *p, struct schedule *schedule, int *chosen,
                         struct cost_choice *choice) {
    size_t size = sizeof(int) * (size_t)p->problem.n_groups;
    struct schedule_result present = schedule_run(schedule, p->present);
    if (is_relevantly_better(&choice->best, &present) ||
        !is_relevantly_better(&present, &choice->simple))
        return;
    memcpy(chosen, p->present, size);
    choice->best = present;
    choice->is_better = memcmp(p->present, p->placed, size) != 0;
}

struct cost_choice cost_placer_choose(const struct cost_placer *p, struct schedule *schedule,
                                      int *chosen) {
    size_t size = sizeof(int) * (size_t)p->problem.n_groups;
    struct cost_choice choice = {.simple = schedule_run(schedule, p->placed)};
    memcpy(chosen, p->placed, size);
    choice.best = schedule_search(schedule, chosen, MAX_VISITS);
    choice.is_better = is_relevantly_better(&choice.best, &choice.simple);
    if (!choice.is_better) {
        memcpy(chosen, p->placed, size);
        choice.best = choice.simple;
    }
    if (p->present)
        keep_present(p, schedule, chosen, &choice);
    return choice;
}

static void place(struct cost_placer *p) {
    int *chosen = arena_array(&p->arena, int, p->problem.n_groups + 1);
    struct schedule *schedule = schedule_new(&p->problem);
    struct cost_choice choice = cost_placer_choose(p, schedule, chosen);
    int n_moved = choice.is_better ? take_placement(p, chosen) : 0;
    if (p->c->options->placement_log || p->c->options->placed_graph)
        explain(p, schedule, chosen, choice.best.makespan_ns,
                choice.best.excess_bytes < choice.simple.excess_bytes);
    log_event(EVENT_PLACEMENT_COST,
              "placement by cost: %d of %d nodes moved, with %d measured times; simulated step "
              "%.3f ms, %.3f ms by the simple rule",
              n_moved, p->problem.n_units, p->estimates.n_measured, choice.best.makespan_ns / 1e6,
              choice.simple.makespan_ns / 1e6);
    schedule_free(schedule);
}

bool place_by_cost(struct compilation *c, struct placer *placer, const struct loop_frames *frames,
                   struct node *const *order) {
    struct cost_placer p;
    cost_placer_init(&p, c, placer, frames, order);
    bool has_choice = p.has_choice;
    if (has_choice)
        place(&p);
    cost_placer_fini(&p);
    return has_choice;
}
