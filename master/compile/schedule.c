/* The simulator: one heap of events in order of time (schedule.h).
 *
 *   READY(unit) ──a lane is free──► runs ──► END(unit) ──► its values are sent or are at hand
 *        └──no lane──► the device's queue ──a lane becomes free──┘        │
 *        ▲──────────── the last input of a consumer has arrived ◄─────────┘ */
#include "master/compile/schedule.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/base.h"
#include "master/compile/schedule_internal.h"

enum { EDGES_OF_UNIT = 4, LINKS_OF_UNIT = 128 }; /* that cost as much as a unit */

/* ---- scratch ---- */

struct schedule *schedule_new(const struct schedule_problem *problem) {
    struct schedule *s = xcalloc(1, sizeof(*s));
    size_t n_units = (size_t)problem->n_units + 1, n_edges = (size_t)problem->n_edges + 1,
           n_devices = (size_t)problem->n_devices + 1, n_groups = (size_t)problem->n_groups + 1;
    s->problem = problem;
    s->n_inputs = xcalloc(n_units, sizeof(*s->n_inputs));
    s->first_input = xcalloc(n_units + 1, sizeof(*s->first_input));
    s->inputs = xcalloc(n_edges, sizeof(*s->inputs));
    s->value_of = xcalloc(n_edges, sizeof(*s->value_of));
    s->n_pending = xcalloc(n_units, sizeof(*s->n_pending));
    s->ready_ns = xcalloc(n_units, sizeof(*s->ready_ns));
    s->end_ns = xcalloc(n_units, sizeof(*s->end_ns));
    s->next_queued = xcalloc(n_units, sizeof(*s->next_queued));
    s->holder = xcalloc(n_edges, sizeof(*s->holder));
    s->n_users = xcalloc(n_edges, sizeof(*s->n_users));
    s->lanes = xcalloc(n_devices, sizeof(*s->lanes));
    s->link_free_ns = xcalloc(n_devices * n_devices, sizeof(*s->link_free_ns));
    s->peak_bytes = xcalloc(n_devices, sizeof(*s->peak_bytes));
    s->heap = xcalloc(2 * n_units, sizeof(*s->heap));
    s->members = xcalloc(n_units, sizeof(*s->members));
    s->first_member = xcalloc(n_groups + 1, sizeof(*s->first_member));
    schedule_index(s);
    return s;
}

void schedule_free(struct schedule *s) {
    if (!s)
        return;
    free(s->n_inputs);
    free(s->first_input);
    free(s->inputs);
    free(s->value_of);
    free(s->n_pending);
    free(s->ready_ns);
    free(s->end_ns);
    free(s->next_queued);
    free(s->holder);
    free(s->n_users);
    free(s->lanes);
    free(s->link_free_ns);
    free(s->peak_bytes);
    free(s->heap);
    free(s->members);
    free(s->first_member);
    free(s);
}

/* Sorts edges by consumer and units by group, by counting. */
void schedule_index(struct schedule *s) {
    const struct schedule_problem *p = s->problem;
    for (int v = 0; v < p->n_values; v++)
        for (int i = 0; i < p->values[v].n_edges; i++)
            s->value_of[p->values[v].first_edge + i] = v;
    for (int e = 0; e < p->n_edges; e++)
        s->n_inputs[p->edges[e].consumer]++;
    for (int u = 0; u < p->n_units; u++)
        s->first_input[u + 1] = s->first_input[u] + s->n_inputs[u];
    int *filled = xcalloc((size_t)MAX(p->n_units, p->n_groups) + 1, sizeof(*filled));
    for (int e = 0; e < p->n_edges; e++) {
        int consumer = p->edges[e].consumer;
        s->inputs[s->first_input[consumer] + filled[consumer]++] = e;
    }
    for (int u = 0; u < p->n_units; u++)
        s->first_member[p->group[u] + 1]++;
    for (int g = 0; g < p->n_groups; g++) {
        s->first_member[g + 1] += s->first_member[g];
        filled[g] = 0;
    }
    for (int u = 0; u < p->n_units; u++)
        s->members[s->first_member[p->group[u]] + filled[p->group[u]]++] = u;
    free(filled);
}

/* Typical graphs have some two edges a unit, which a visit's cost includes. */
static int64_t visits_of_run(const struct schedule_problem *p) {
    int64_t n_links = (int64_t)p->n_devices * p->n_devices;
    return MAX(p->n_units, p->n_edges / EDGES_OF_UNIT) + n_links / LINKS_OF_UNIT;
}

int64_t schedule_n_visits(const struct schedule *s) { return s->n_visits; }
const double *schedule_ends_ns(const struct schedule *s) { return s->end_ns; }
const double *schedule_peak_bytes(const struct schedule *s) { return s->peak_bytes; }

/* ---- events ---- */

/* Among events of one time, ends come first because they free lanes, then the lower unit. */
static bool is_earlier(const struct schedule_event *a, const struct schedule_event *b) {
    if (a->at_ns != b->at_ns)
        return a->at_ns < b->at_ns;
    if (a->is_end != b->is_end)
        return a->is_end;
    return a->unit < b->unit;
}

static void event_push(struct schedule *s, double at_ns, int unit, bool is_end) {
    struct schedule_event event = {.at_ns = at_ns, .unit = unit, .is_end = is_end};
    int i = s->n_events++;
    for (; i > 0 && is_earlier(&event, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = event;
}

static struct schedule_event event_pop(struct schedule *s) {
    struct schedule_event first = s->heap[0], last = s->heap[--s->n_events];
    int i = 0;
    for (int child; (child = 2 * i + 1) < s->n_events; i = child) {
        if (child + 1 < s->n_events && is_earlier(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!is_earlier(&s->heap[child], &last))
            break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return first;
}

/* ---- memory ---- */

static void hold(struct schedule *s, int device, double bytes) {
    s->lanes[device].bytes += bytes;
    s->peak_bytes[device] = MAX(s->peak_bytes[device], s->lanes[device].bytes);
}

static void release_inputs(struct schedule *s, int unit, int device) {
    for (int i = s->first_input[unit]; i < s->first_input[unit + 1]; i++) {
        int edge = s->inputs[i], holder = s->holder[edge];
        if (--s->n_users[holder] == 0)
            s->lanes[device].bytes -= s->problem->values[s->value_of[edge]].bytes;
    }
}

/* ---- running ---- */

static void start_unit(struct schedule *s, int unit, int device, double now_ns) {
    const struct schedule_problem *p = s->problem;
    double cost =
        p->cost_ns[(size_t)unit * (size_t)p->n_classes + (size_t)p->devices[device].cost_class];
    s->lanes[device].n_busy++;
    s->end_ns[unit] = now_ns + cost;
    event_push(s, s->end_ns[unit], unit, true);
}

static void unit_is_ready(struct schedule *s, int unit, int device, double now_ns) {
    struct schedule_lanes *lanes = &s->lanes[device];
    if (lanes->n_busy < s->problem->devices[device].n_lanes) {
        start_unit(s, unit, device, now_ns);
        return;
    }
    s->next_queued[unit] = -1;
    if (lanes->first_queued < 0)
        lanes->first_queued = unit;
    else
        s->next_queued[lanes->last_queued] = unit;
    lanes->last_queued = unit;
}

static void input_arrives(struct schedule *s, int unit, double at_ns) {
    s->ready_ns[unit] = MAX(s->ready_ns[unit], at_ns);
    if (--s->n_pending[unit] == 0)
        event_push(s, s->ready_ns[unit], unit, false);
}

/* Sends a value to each device that needs it, once. The first edge to a device holds the value
 * there, so the users of the copy are counted at that edge. */
static void send_value(struct schedule *s, const struct schedule_value *value, int from,
                       double now_ns, const int *device_of) {
    const struct schedule_problem *p = s->problem;
    for (int i = 0; i < value->n_edges; i++) {
        int edge = value->first_edge + i, unit = p->edges[edge].consumer;
        int to = device_of[p->group[unit]];
        struct schedule_lanes *lanes = &s->lanes[to];
        if (lanes->holder_value != value) {
            const struct schedule_link *link =
                &p->links[(size_t)from * (size_t)p->n_devices + (size_t)to];
            double *free_ns = &s->link_free_ns[from * p->n_devices + to];
            lanes->holder_value = value;
            lanes->holder_edge = edge;
            lanes->arrival_ns = now_ns;
            if (from != to) {
                double sent_ns = MAX(now_ns, *free_ns) + value->bytes * link->ns_per_byte;
                *free_ns = sent_ns;
                lanes->arrival_ns = sent_ns + link->latency_ns;
                s->sent_bytes += link->latency_ns > 0 ? value->bytes : 0;
            }
            hold(s, to, value->bytes);
            s->n_users[edge] = 0;
        }
        s->holder[edge] = lanes->holder_edge;
        s->n_users[lanes->holder_edge]++;
        input_arrives(s, unit, lanes->arrival_ns);
    }
}

static void unit_ends(struct schedule *s, int unit, const int *device_of) {
    const struct schedule_problem *p = s->problem;
    int device = device_of[p->group[unit]];
    struct schedule_lanes *lanes = &s->lanes[device];
    double now_ns = s->end_ns[unit];
    for (int v = p->first_value[unit]; v < p->first_value[unit + 1]; v++)
        send_value(s, &p->values[v], device, now_ns, device_of);
    release_inputs(s, unit, device);
    lanes->n_busy--;
    if (lanes->first_queued >= 0) {
        int next = lanes->first_queued;
        lanes->first_queued = s->next_queued[next];
        start_unit(s, next, device, now_ns);
    }
}

static bool reset(struct schedule *s, const int *device_of) {
    const struct schedule_problem *p = s->problem;
    s->n_events = 0;
    s->sent_bytes = 0;
    for (int d = 0; d < p->n_devices; d++) {
        s->lanes[d] = (struct schedule_lanes){.first_queued = -1};
        s->peak_bytes[d] = 0;
    }
    memset(s->link_free_ns, 0,
           sizeof(*s->link_free_ns) * (size_t)p->n_devices * (size_t)p->n_devices);
    for (int g = 0; g < p->n_groups; g++)
        if (p->kept_bytes)
            hold(s, device_of[g], p->kept_bytes[g]);
    for (int u = 0; u < p->n_units; u++) {
        int cost_class = p->devices[device_of[p->group[u]]].cost_class;
        if (isinf(p->cost_ns[(size_t)u * (size_t)p->n_classes + (size_t)cost_class]))
            return false;
        s->n_pending[u] = s->n_inputs[u];
        s->ready_ns[u] = 0;
        if (s->n_inputs[u] == 0)
            event_push(s, 0, u, false);
    }
    return true;
}

struct schedule_result schedule_run(struct schedule *s, const int *device_of) {
    const struct schedule_problem *p = s->problem;
    struct schedule_result result = {0};
    int n_ended = 0;
    s->n_visits += visits_of_run(p);
    if (!reset(s, device_of))
        return (struct schedule_result){.makespan_ns = INFINITY};
    while (s->n_events > 0) {
        struct schedule_event event = event_pop(s);
        if (!event.is_end) {
            unit_is_ready(s, event.unit, device_of[p->group[event.unit]], event.at_ns);
            continue;
        }
        unit_ends(s, event.unit, device_of);
        result.makespan_ns = event.at_ns;
        n_ended++;
    }
    CHECK(n_ended == p->n_units); /* no cycles */
    result.sent_bytes = s->sent_bytes;
    for (int d = 0; d < p->n_devices; d++)
        result.excess_bytes += MAX(0, s->peak_bytes[d] - p->devices[d].memory_bytes);
    return result;
}

/* ---- comparing ---- */

static const double RELEVANT_PART = 1e-6;

static int compare(double a, double b) {
    bool is_close = isfinite(a) && isfinite(b) && fabs(a - b) <= RELEVANT_PART * MAX(a, b);
    return a == b || is_close ? 0 : a < b ? -1 : 1;
}

bool schedule_result_is_better(const struct schedule_result *a, const struct schedule_result *b) {
    int order = compare(a->excess_bytes, b->excess_bytes);
    order = order ? order : compare(a->makespan_ns, b->makespan_ns);
    return (order ? order : compare(a->sent_bytes, b->sent_bytes)) < 0;
}
