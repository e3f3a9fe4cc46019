/* The search for a short placement: several starts, each improved by local moves (schedule.h).
 *
 * A list schedule looks at one unit at a time and never takes a choice back. The moves repair what
 * that costs: a group moves to another device alone, or together with the group that it exchanges
 * most bytes with. At the end any two groups of the best placement move at once, each to a device
 * of its own. Every trial is a whole simulation, so links, lanes and memory count as they will
 * in the result. */
#include <math.h>
#include <stdlib.h>

#include "common/base/base.h"
#include "common/base/splitmix.h"
#include "master/compile/cost/schedule_internal.h"

/* A start is a placement that improving begins with. Single devices come as starts while there are
 * few; with more devices the list schedule has to find what belongs together. */
enum { MAX_SINGLE_DEVICE_STARTS = 16, RANDOM_STARTS = 32 };

struct search {
    struct schedule *s;
    const struct schedule_problem *p;
    int *order;   /* units, producers first */
    double *rank; /* by unit: the longest way to the end of the step, with mean costs */
    int *partner; /* by group: the group that it exchanges most bytes with; -1: none */
    int *movable; /* the groups that may be on several devices */
    int n_movable;
    int *best, *current; /* device by group */
    struct schedule_result best_result;
    int64_t visits_end;
    uint64_t seed;
};

static bool may_use(const struct search *search, int group, int device) {
    const struct schedule_problem *p = search->p;
    if (p->fixed && p->fixed[group] >= 0)
        return device == p->fixed[group];
    return !p->may_use || p->may_use[(size_t)group * (size_t)p->n_devices + (size_t)device];
}

static bool is_free(const struct search *search, int group) {
    return !search->p->fixed || search->p->fixed[group] < 0;
}

static bool has_budget(const struct search *search) {
    return search->s->n_visits < search->visits_end;
}

static double cost_on(const struct schedule_problem *p, int unit, int device) {
    return p->cost_ns[(size_t)unit * (size_t)p->n_classes + (size_t)p->devices[device].cost_class];
}

static double mean_cost(const struct schedule_problem *p, int unit) {
    double sum = 0;
    int n = 0;
    for (int c = 0; c < p->n_classes; c++) {
        double cost = p->cost_ns[(size_t)unit * (size_t)p->n_classes + (size_t)c];
        if (isfinite(cost)) {
            sum += cost;
            n++;
        }
    }
    return n > 0 ? sum / n : 0;
}

static double transfer_ns(const struct schedule_link *link, double bytes) {
    return link->latency_ns + bytes * link->ns_per_byte;
}

/* ---- orders ---- */

static void find_order(struct search *search) {
    const struct schedule *s = search->s;
    const struct schedule_problem *p = search->p;
    int *n_missing = xcalloc((size_t)p->n_units + 1, sizeof(*n_missing)), n = 0;
    for (int u = 0; u < p->n_units; u++) {
        n_missing[u] = s->n_inputs[u];
        if (n_missing[u] == 0)
            search->order[n++] = u;
    }
    for (int i = 0; i < n; i++) {
        int unit = search->order[i];
        for (int v = p->first_value[unit]; v < p->first_value[unit + 1]; v++)
            for (int k = 0; k < p->values[v].n_edges; k++) {
                int consumer = p->edges[p->values[v].first_edge + k].consumer;
                if (--n_missing[consumer] == 0)
                    search->order[n++] = consumer;
            }
    }
    CHECK(n == p->n_units);
    free(n_missing);
}

/* The upward rank of HEFT: a unit's mean cost and the longest way behind it. */
static void find_ranks(struct search *search) {
    const struct schedule_problem *p = search->p;
    struct schedule_link mean = {0};
    int n_links = MAX(1, p->n_devices * (p->n_devices - 1));
    for (int i = 0; i < p->n_devices * p->n_devices; i++) {
        mean.latency_ns += p->links[i].latency_ns / n_links;
        mean.ns_per_byte += p->links[i].ns_per_byte / n_links;
    }
    for (int i = p->n_units - 1; i >= 0; i--) {
        int unit = search->order[i];
        double longest = 0;
        for (int v = p->first_value[unit]; v < p->first_value[unit + 1]; v++)
            for (int k = 0; k < p->values[v].n_edges; k++) {
                int consumer = p->edges[p->values[v].first_edge + k].consumer;
                double sent = p->group[consumer] == p->group[unit]
                                  ? 0
                                  : transfer_ns(&mean, p->values[v].bytes);
                longest = MAX(longest, search->rank[consumer] + sent);
            }
        search->rank[unit] = mean_cost(p, unit) + longest;
    }
}

static void find_partners(struct search *search) {
    const struct schedule_problem *p = search->p;
    double *most = xcalloc((size_t)p->n_groups + 1, sizeof(*most));
    for (int g = 0; g < p->n_groups; g++)
        search->partner[g] = -1;
    for (int v = 0; v < p->n_values; v++) {
        int from = p->group[p->values[v].producer];
        for (int k = 0; k < p->values[v].n_edges; k++) {
            int to = p->group[p->edges[p->values[v].first_edge + k].consumer];
            double bytes = p->values[v].bytes + 1; /* a control edge counts, too */
            if (from == to)
                continue;
            if (bytes > most[from]) {
                most[from] = bytes;
                search->partner[from] = to;
            }
            if (bytes > most[to]) {
                most[to] = bytes;
                search->partner[to] = from;
            }
        }
    }
    free(most);
}

/* ---- starts ---- */

static int first_allowed(const struct search *search, int group, int wanted) {
    if (may_use(search, group, wanted))
        return wanted;
    for (int d = 0; d < search->p->n_devices; d++)
        if (may_use(search, group, d))
            return d;
    return search->best[group];
}

struct unit_rank {
    double rank;
    int position; /* in the topological order */
    int unit;
};

static int compare_ranks(const void *left, const void *right) {
    const struct unit_rank *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank > b->rank ? -1 : 1;
    return a->position - b->position;
}

/* Lanes of all devices, one after another. */
struct lane_times {
    double *free_ns;
    int *first; /* by device, n_devices + 1 entries */
};

static int earliest_lane(const struct lane_times *lanes, int device) {
    int best = lanes->first[device];
    for (int i = best + 1; i < lanes->first[device + 1]; i++)
        if (lanes->free_ns[i] < lanes->free_ns[best])
            best = i;
    return best;
}

static double inputs_ready_ns(const struct search *search, const double *end_ns, int unit,
                              int device) {
    const struct schedule *s = search->s;
    const struct schedule_problem *p = search->p;
    double ready = 0;
    for (int i = s->first_input[unit]; i < s->first_input[unit + 1]; i++) {
        const struct schedule_value *value = &p->values[s->value_of[s->inputs[i]]];
        int from = search->current[p->group[value->producer]];
        double at = end_ns[value->producer];
        if (from != device && from >= 0)
            at += transfer_ns(&p->links[from * p->n_devices + device], value->bytes);
        ready = MAX(ready, at);
    }
    return ready;
}

/* The rest of the group goes where its first unit goes, so its cost counts there. */
static double rest_of_group_ns(const struct search *search, int unit, int device) {
    const struct schedule *s = search->s;
    int group = search->p->group[unit];
    double sum = 0;
    for (int i = s->first_member[group]; i < s->first_member[group + 1]; i++)
        sum += s->members[i] == unit ? 0 : cost_on(search->p, s->members[i], device);
    return sum / search->p->devices[device].n_lanes;
}

static int best_device(const struct search *search, const struct lane_times *lanes,
                       const double *end_ns, int unit) {
    const struct schedule_problem *p = search->p;
    int best = -1;
    double best_ns = INFINITY;
    for (int d = 0; d < p->n_devices; d++) {
        if (!may_use(search, p->group[unit], d) || !isfinite(cost_on(p, unit, d)))
            continue;
        double start =
            MAX(inputs_ready_ns(search, end_ns, unit, d), lanes->free_ns[earliest_lane(lanes, d)]);
        double end = start + cost_on(p, unit, d) + rest_of_group_ns(search, unit, d);
        if (best < 0 || end < best_ns) {
            best = d;
            best_ns = end;
        }
    }
    return best >= 0 ? best : first_allowed(search, p->group[unit], 0);
}

/* Fills `current` with the list schedule. */
static void start_with_list(struct search *search) {
    const struct schedule_problem *p = search->p;
    struct unit_rank *units = xcalloc((size_t)p->n_units + 1, sizeof(*units));
    double *end_ns = xcalloc((size_t)p->n_units + 1, sizeof(*end_ns));
    struct lane_times lanes = {.first = xcalloc((size_t)p->n_devices + 1, sizeof(int))};
    for (int d = 0; d < p->n_devices; d++)
        lanes.first[d + 1] = lanes.first[d] + p->devices[d].n_lanes;
    lanes.free_ns = xcalloc((size_t)lanes.first[p->n_devices] + 1, sizeof(*lanes.free_ns));
    for (int g = 0; g < p->n_groups; g++)
        search->current[g] = is_free(search, g) ? -1 : p->fixed[g];
    for (int i = 0; i < p->n_units; i++)
        units[i] = (struct unit_rank){search->rank[search->order[i]], i, search->order[i]};
    qsort(units, (size_t)p->n_units, sizeof(*units), compare_ranks);
    for (int i = 0; i < p->n_units; i++) {
        int unit = units[i].unit, group = p->group[unit];
        if (search->current[group] < 0)
            search->current[group] = best_device(search, &lanes, end_ns, unit);
        int device = search->current[group], lane = earliest_lane(&lanes, device);
        double cost = cost_on(p, unit, device);
        double start = MAX(inputs_ready_ns(search, end_ns, unit, device), lanes.free_ns[lane]);
        end_ns[unit] = start + (isfinite(cost) ? cost : 0);
        lanes.free_ns[lane] = end_ns[unit];
    }
    for (int g = 0; g < p->n_groups; g++) /* a group without units */
        if (search->current[g] < 0)
            search->current[g] = search->best[g];
    free(units);
    free(end_ns);
    free(lanes.first);
    free(lanes.free_ns);
}

static void start_on_device(struct search *search, int device) {
    for (int g = 0; g < search->p->n_groups; g++)
        search->current[g] = first_allowed(search, g, device);
}

/* The best placement so far, with about one free group in three moved. */
static void start_near_best(struct search *search) {
    for (int g = 0; g < search->p->n_groups; g++) {
        uint64_t random = splitmix64(&search->seed);
        search->current[g] = search->best[g];
        if (is_free(search, g) && random % 3 == 0)
            search->current[g] =
                first_allowed(search, g, (int)((random >> 32) % (uint64_t)search->p->n_devices));
    }
}

/* ---- moves ---- */

/* Simulates `current` with `group`, and `also` unless it is -1, on `device`. Keeps the move if it
 * helps. */
static bool try_move(struct search *search, int group, int also, int device,
                     struct schedule_result *result) {
    int *current = search->current, was = current[group], also_was = also >= 0 ? current[also] : -1;
    current[group] = device;
    if (also >= 0)
        current[also] = device;
    struct schedule_result moved = schedule_run(search->s, current);
    if (schedule_result_is_better(&moved, result)) {
        *result = moved;
        return true;
    }
    current[group] = was;
    if (also >= 0)
        current[also] = also_was;
    return false;
}

static bool improve_group(struct search *search, int group, struct schedule_result *result) {
    bool is_better = false;
    int partner = search->partner[group];
    for (int d = 0; d < search->p->n_devices && has_budget(search); d++) {
        if (!may_use(search, group, d))
            continue;
        if (d != search->current[group])
            is_better |= try_move(search, group, -1, d, result);
        bool takes_along = partner >= 0 && is_free(search, partner) && may_use(search, partner, d);
        if (takes_along && d != search->current[partner] && has_budget(search))
            is_better |= try_move(search, group, partner, d, result);
    }
    return is_better;
}

/* Moves groups while it helps, then compares with the best placement so far. */
static void improve(struct search *search) {
    const struct schedule_problem *p = search->p;
    struct schedule_result result = schedule_run(search->s, search->current);
    for (bool is_better = true; is_better && has_budget(search);) {
        is_better = false;
        for (int g = 0; g < p->n_groups && has_budget(search); g++)
            if (is_free(search, g))
                is_better |= improve_group(search, g, &result);
    }
    if (schedule_result_is_better(&result, &search->best_result)) {
        search->best_result = result;
        memcpy(search->best, search->current, sizeof(*search->best) * (size_t)p->n_groups);
    }
}

static void find_movable(struct search *search) {
    const struct schedule_problem *p = search->p;
    for (int g = 0; g < p->n_groups; g++) {
        int n_allowed = 0;
        for (int d = 0; d < p->n_devices && n_allowed < 2; d++)
            n_allowed += may_use(search, g, d);
        if (n_allowed == 2)
            search->movable[search->n_movable++] = g;
    }
}

/* Moves group `a` to each other device and, with it, group `b`. Returns true, with both moved, at
 * the first move that helps. */
static bool move_both(struct search *search, int a, int b, struct schedule_result *result) {
    int was = search->current[a];
    for (int d = 0; d < search->p->n_devices; d++) {
        if (d == was || !may_use(search, a, d))
            continue;
        search->current[a] = d;
        for (int e = 0; e < search->p->n_devices && has_budget(search); e++)
            if (e != search->current[b] && may_use(search, b, e) &&
                try_move(search, b, -1, e, result))
                return true;
        search->current[a] = was;
    }
    return false;
}

/* Moves any two groups of the best placement at once, each to any device, until one such move
 * helps. Each pair costs a simulation at least, because both may move, so the budget ends it. */
static bool improve_pair(struct search *search) {
    const struct schedule_problem *p = search->p;
    struct schedule_result result = search->best_result;
    memcpy(search->current, search->best, sizeof(*search->best) * (size_t)p->n_groups);
    for (int i = 0; i < search->n_movable; i++)
        for (int k = i + 1; k < search->n_movable && has_budget(search); k++)
            if (move_both(search, search->movable[i], search->movable[k], &result))
                return true;
    return false;
}

static void try_starts(struct search *search) {
    const struct schedule_problem *p = search->p;
    start_with_list(search);
    improve(search);
    memcpy(search->current, search->best, sizeof(*search->best) * (size_t)p->n_groups);
    improve(search);
    for (int d = 0; d < MIN(p->n_devices, MAX_SINGLE_DEVICE_STARTS) && has_budget(search); d++) {
        start_on_device(search, d);
        improve(search);
    }
    for (int i = 0; i < RANDOM_STARTS && has_budget(search); i++) {
        start_near_best(search);
        improve(search);
    }
    while (has_budget(search) && improve_pair(search))
        improve(search);
}

struct schedule_result schedule_search(struct schedule *s, int *device_of, int64_t max_visits) {
    const struct schedule_problem *p = s->problem;
    size_t n_units = (size_t)p->n_units + 1, n_groups = (size_t)p->n_groups + 1;
    struct search search = {.s = s,
                            .p = p,
                            .order = xcalloc(n_units, sizeof(int)),
                            .rank = xcalloc(n_units, sizeof(double)),
                            .partner = xcalloc(n_groups, sizeof(int)),
                            .movable = xcalloc(n_groups, sizeof(int)),
                            .best = device_of,
                            .current = xcalloc(n_groups, sizeof(int)),
                            .best_result = schedule_run(s, device_of)};
    search.visits_end = s->n_visits + max_visits;
    find_order(&search);
    find_ranks(&search);
    find_partners(&search);
    find_movable(&search);
    try_starts(&search);
    free(search.order);
    free(search.rank);
    free(search.partner);
    free(search.movable);
    free(search.current);
    return search.best_result;
}
