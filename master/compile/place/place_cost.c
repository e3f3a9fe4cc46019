/* Placement by the cost model [WP 3.2.1]: chooses the devices of groups that the client left open,
 * so that the simulated step is short (schedule.h, place_cost_problem.c).
 *
 * It begins with the simple rule's placement and keeps it unless another one saves a relevant part
 * of the simulated step: estimates are rough, and each further task of a step costs a message. So a
 * graph that gains nothing is placed as before. */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/units.h"
#include "master/compile/place/place_cost_internal.h"

enum {
    MAX_EXPLAINED = 64,
    MAX_VISITS = 1000 * 1000, /* simulated units in one search: some 0.1 s */
};

/* What a better placement must save: a part of its own step, and some time at all. */
static const double MIN_GAIN = 0.1, MIN_GAIN_NS = 50000;

static const double SHOWN_NS = 1000; /* the last digit of a time in a reason */

/* What the step would take with one group where the simple rule puts it. */
static double makespan_without(struct schedule *schedule, int *chosen, int group, int placed) {
    int moved_to = chosen[group];
    chosen[group] = placed;
    double makespan_ns = schedule_run(schedule, chosen).makespan_ns;
    chosen[group] = moved_to;
    return makespan_ns;
}

/* ---- saying why ---- */

/* What the choice is explained by. */
struct explanation {
    struct cost_placer *p;
    struct schedule *schedule;
    double step_ns, simple_ns;                 /* as placed, and by the simple rule */
    const double *simple_bytes, *chosen_bytes; /* peaks, by device of the problem */
    int n_simulated;
};

static const double *peaks_of(struct cost_placer *p, struct schedule *schedule,
                              const int *device_of) {
    schedule_run(schedule, device_of);
    return arena_memdup(&p->arena, schedule_peak_bytes(schedule),
                        sizeof(double) * (size_t)p->problem.n_devices);
}

static bool exceeds(const struct cost_placer *p, const double *peak_bytes, int device) {
    return peak_bytes[device] > p->problem.devices[device].memory_bytes;
}

static const char *name_of(const struct cost_placer *p, int device) {
    return p->c->devices->devices[p->device_of[device]].full_name;
}

/* "BEFORE/job:… NEEDS 312.0 MiB of memory at once, and has 200.0 MiB"; in bytes where the rounded
 * sizes would be equal. */
static const char *memory_reason(const struct cost_placer *p, const char *before, const char *needs,
                                 int device, double peak_bytes) {
    double limit_bytes = p->problem.devices[device].memory_bytes;
    struct str peak = STR_INIT, limit = STR_INIT;
    units_add_size(&peak, peak_bytes);
    units_add_size(&limit, limit_bytes);
    if (peak_bytes != limit_bytes && strcmp(str_text(&peak), str_text(&limit)) == 0) {
        str_clear(&peak);
        str_clear(&limit);
        str_addf(&peak, "%.0f B", peak_bytes);
        str_addf(&limit, "%.0f B", limit_bytes);
    }
    const char *reason =
        arena_printf(p->placer->arena, "%s%s %s %s of memory at once, and has %s", before,
                     name_of(p, device), needs, str_text(&peak), str_text(&limit));
    str_fini(&peak);
    str_fini(&limit);
    return reason;
}

/* On its own, the node would do as well where it was, or nobody has tried. */
static const char *why_moved_with_others(const struct explanation *e) {
    return arena_printf(e->p->placer->arena,
                        "it has moved with other nodes: the simulated step takes %.3f ms, and "
                        "%.3f ms by the simple rule",
                        e->step_ns / 1e6, e->simple_ns / 1e6);
}

/* Of many groups that moved only the first get times of their own, since each takes a
 * simulation. */
static const char *why_moved(struct explanation *e, int *chosen, int group) {
    struct cost_placer *p = e->p;
    int before = p->placed[group];
    if (exceeds(p, e->simple_bytes, before))
        return memory_reason(p, "by the simple rule ", "would need", before,
                             e->simple_bytes[before]);
    if (e->n_simulated++ >= MAX_EXPLAINED)
        return why_moved_with_others(e);
    double without_ns = makespan_without(e->schedule, chosen, group, before);
    if (without_ns - e->step_ns < SHOWN_NS)
        return why_moved_with_others(e);
    return arena_printf(p->placer->arena,
                        "the simulated step takes %.3f ms, and %.3f ms with this node on %s",
                        e->step_ns / 1e6, without_ns / 1e6, name_of(p, before));
}

static const char *why_kept(const struct explanation *e, int group) {
    const struct cost_placer *p = e->p;
    int device = p->placed[group];
    if (p->c->options->is_by_simple_rule)
        return "by the simple rule, by which measured steps were shorter than by cost";
    if (exceeds(p, e->chosen_bytes, device))
        return memory_reason(p, "no placement was found that fits: ", "needs", device,
                             e->chosen_bytes[device]);
    if (exceeds(p, e->simple_bytes, device))
        return memory_reason(p, "it fits, since other nodes have moved: ", "needs", device,
                             e->chosen_bytes[device]);
    return arena_printf(p->placer->arena,
                        "the simulated step takes %.3f ms, and is not relevantly shorter with this "
                        "node elsewhere",
                        e->step_ns / 1e6);
}

/* Says why groups moved, and why open ones did not. */
static void explain(struct cost_placer *p, struct schedule *schedule, int *chosen,
                    const struct cost_choice *choice) {
    const char **reason = arena_array(&p->arena, const char *, p->problem.n_groups + 1);
    struct explanation e = {.p = p,
                            .schedule = schedule,
                            .step_ns = choice->best.makespan_ns,
                            .simple_ns = choice->simple.makespan_ns,
                            .simple_bytes = peaks_of(p, schedule, p->placed),
                            .chosen_bytes = peaks_of(p, schedule, chosen)};
    for (int g = 0; g < p->problem.n_groups; g++)
        if (p->problem.fixed[g] < 0)
            reason[g] = chosen[g] == p->placed[g] ? why_kept(&e, g) : why_moved(&e, chosen, g);
    for (int i = 0; i < p->c->graph.n_live; i++) {
        struct place_group *group = placer_group(p->placer, p->order[i]);
        int g = cost_placer_group(p, p->order[i]);
        if (g >= 0)
            group->reason = reason[g]; /* NULL: it could not move */
    }
}

static void log_choice(const struct cost_placer *p, const struct cost_choice *choice, int n_moved) {
    struct str missing = STR_INIT;
    if (choice->best.excess_bytes > 0) {
        str_add(&missing, "; no placement was found that fits: ");
        units_add_size(&missing, choice->best.excess_bytes);
        str_add(&missing, " of memory are missing");
    }
    log_event(EVENT_PLACEMENT_COST,
              "placement by cost: %d of %d nodes moved, with %d measured times; simulated step "
              "%.3f ms, %.3f ms by the simple rule%s",
              n_moved, p->problem.n_units, p->estimates.n_measured, choice->best.makespan_ns / 1e6,
              choice->simple.makespan_ns / 1e6, str_text(&missing));
    str_fini(&missing);
}

/* ---- choosing ---- */

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
    choice.best = choice.simple;
    memcpy(chosen, p->placed, size);
    if (p->c->options->is_by_simple_rule)
        return choice;
    struct schedule_result found = schedule_search(schedule, chosen, MAX_VISITS);
    choice.is_better = is_relevantly_better(&found, &choice.simple);
    if (choice.is_better)
        choice.best = found;
    else
        memcpy(chosen, p->placed, size);
    if (p->present)
        keep_present(p, schedule, chosen, &choice);
    return choice;
}

static void place(struct cost_placer *p) {
    int *chosen = arena_array(&p->arena, int, p->problem.n_groups + 1);
    struct schedule *schedule = schedule_new(&p->problem);
    struct cost_choice choice = cost_placer_choose(p, schedule, chosen);
    int n_moved = choice.is_better ? take_placement(p, chosen) : 0;
    p->c->has_rival = n_moved > 0 && !(choice.simple.excess_bytes > 0) && !p->c->options->is_away;
    if (p->c->options->placement_log || p->c->options->placed_graph)
        explain(p, schedule, chosen, &choice);
    if (!p->c->options->is_by_simple_rule)
        log_choice(p, &choice, n_moved);
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
