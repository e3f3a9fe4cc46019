/* The simulator: one heap of events in order of time (schedule.h).
 *
 *   READY(unit) ──a lane is free──► runs ──► END(unit) ──► its values are sent or are at hand
 *        └──no lane──► the device's queue ──a lane becomes free──┘        │
 *        ▲──────────── the last input of a consumer has arrived ◄─────────┤
 *        ▲──────────── the same ◄── is sent ◄── REQUEST ◄── its gate has ended */
#include "master/compile/cost/schedule.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/base.h"
#include "master/compile/cost/schedule_internal.h"

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
    free(s->first_gated);
    free(s->next_gated);
    free(s->n_unsent);
    free(s->stays_at);
    free(s->has_ended);
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

/* Among events of one time and kind, the lower index comes first. */
static bool is_earlier(const struct schedule_event *a, const struct schedule_event *b) {
    if (a->at_ns != b->at_ns)
        return a->at_ns < b->at_ns;
    if (a->kind != b->kind)
        return a->kind < b->kind;
    return a->index < b->index;
}

static void event_push(struct schedule *s, double at_ns, int index, enum schedule_event_kind kind) {
    struct schedule_event event = {.at_ns = at_ns, .index = index, .kind = kind};
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

static void release_copy(struct schedule *s, int holder, int device) {
    if (--s->n_users[holder] == 0)
        s->lanes[device].bytes -= s->problem->values[s->value_of[holder]].bytes;
}

static void release_inputs(struct schedule *s, int unit, int device) {
    for (int i = s->first_input[unit]; i < s->first_input[unit + 1]; i++)
        release_copy(s, s->holder[s->inputs[i]], device);
}

/* ---- running ---- */

static void start_unit(struct schedule *s, int unit, int device, double now_ns) {
    const struct schedule_problem *p = s->problem;
    double cost =
        p->cost_ns[(size_t)unit * (size_t)p->n_classes + (size_t)p->devices[device].cost_class];
    s->lanes[device].n_busy++;
    s->end_ns[unit] = now_ns + cost;
    event_push(s, s->end_ns[unit], unit, EVENT_END);
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
        event_push(s, s->ready_ns[unit], unit, EVENT_READY);
}

/* ---- values ---- */

static int device_of_edge(const struct schedule *s, int edge, const int *device_of) {
    return device_of[s->problem->group[s->problem->edges[edge].consumer]];
}

static const struct schedule_link *link_between(const struct schedule *s, int from, int to) {
    return &s->problem->links[(size_t)from * (size_t)s->problem->n_devices + (size_t)to];
}

/* Sends the copy of a value, and returns when it arrives. */
static double send_copy(struct schedule *s, int holder, int from, int to, double now_ns) {
    const struct schedule_value *value = &s->problem->values[s->value_of[holder]];
    hold(s, to, value->bytes);
    if (from == to)
        return now_ns;
    const struct schedule_link *link = link_between(s, from, to);
    double *free_ns = &s->link_free_ns[from * s->problem->n_devices + to];
    double sent_ns = MAX(now_ns, *free_ns) + value->bytes * link->ns_per_byte;
    *free_ns = sent_ns;
    s->sent_bytes += link->latency_ns > 0 ? value->bytes : 0;
    if (s->problem->gate && value->bytes > 0 && !value->is_kept)
        event_push(s, sent_ns, holder, EVENT_SENT);
    return sent_ns + link->latency_ns;
}

/* When the request for a gated value arrives; INFINITY: its gate has not ended, and the copy waits
 * for that. */
static double request_ns(struct schedule *s, int holder, int from, int to) {
    int gate = s->problem->gate ? s->problem->gate[holder] : -1;
    if (gate < 0 || from == to)
        return 0;
    if (s->has_ended[gate])
        return s->end_ns[gate] + link_between(s, to, from)->latency_ns;
    s->next_gated[holder] = s->first_gated[gate];
    s->first_gated[gate] = holder;
    return INFINITY;
}

/* Where a value leaves, it is held until the last copy has been sent. */
static void hold_unsent(struct schedule *s, int value, int n_unsent, int stays_at, int device) {
    if (n_unsent == 0 || s->problem->values[value].is_kept)
        return;
    s->n_unsent[value] = n_unsent;
    s->stays_at[value] = stays_at;
    if (stays_at < 0)
        hold(s, device, s->problem->values[value].bytes);
    else
        s->n_users[stays_at] += n_unsent;
}

static void copy_was_sent(struct schedule *s, int holder, const int *device_of) {
    int value = s->value_of[holder];
    int device = device_of[s->problem->group[s->problem->values[value].producer]];
    s->n_unsent[value]--;
    if (s->stays_at[value] >= 0)
        release_copy(s, s->stays_at[value], device);
    else if (s->n_unsent[value] == 0)
        s->lanes[device].bytes -= s->problem->values[value].bytes;
}

/* Sends a value to each device that needs it, once. The first edge to a device holds the value
 * there, so the users of the copy are counted at that edge. */
static void send_value(struct schedule *s, const struct schedule_value *value, int from,
                       double now_ns, const int *device_of) {
    int stays_at = -1, n_unsent = 0;
    for (int edge = value->first_edge; edge < value->first_edge + value->n_edges; edge++) {
        int to = device_of_edge(s, edge, device_of);
        struct schedule_lanes *lanes = &s->lanes[to];
        if (lanes->holder_value != value) {
            double requested_ns = request_ns(s, edge, from, to);
            lanes->holder_value = value;
            lanes->holder_edge = edge;
            lanes->arrival_ns = INFINITY;
            s->n_users[edge] = 0;
            if (requested_ns <= now_ns)
                lanes->arrival_ns = send_copy(s, edge, from, to, now_ns);
            else if (isfinite(requested_ns))
                event_push(s, requested_ns, edge, EVENT_REQUEST);
            stays_at = from == to ? edge : stays_at;
            n_unsent += from != to && value->bytes > 0;
        }
        s->holder[edge] = lanes->holder_edge;
        s->n_users[lanes->holder_edge]++;
        if (isfinite(lanes->arrival_ns))
            input_arrives(s, s->problem->edges[edge].consumer, lanes->arrival_ns);
    }
    if (s->problem->gate)
        hold_unsent(s, (int)(value - s->problem->values), n_unsent, stays_at, from);
}

static void copy_is_requested(struct schedule *s, int holder, double now_ns, const int *device_of) {
    const struct schedule_value *value = &s->problem->values[s->value_of[holder]];
    double arrival_ns = send_copy(s, holder, device_of[s->problem->group[value->producer]],
                                  device_of_edge(s, holder, device_of), now_ns);
    for (int edge = holder; edge < value->first_edge + value->n_edges; edge++)
        if (s->holder[edge] == holder)
            input_arrives(s, s->problem->edges[edge].consumer, arrival_ns);
}

/* The copies that wait for the end of a unit are requested. */
static void open_gate(struct schedule *s, int unit, int device, double now_ns,
                      const int *device_of) {
    s->has_ended[unit] = true;
    for (int holder = s->first_gated[unit]; holder >= 0; holder = s->next_gated[holder]) {
        int producer = s->problem->values[s->value_of[holder]].producer;
        int from = device_of[s->problem->group[producer]];
        event_push(s, now_ns + link_between(s, device, from)->latency_ns, holder, EVENT_REQUEST);
    }
}

static void unit_ends(struct schedule *s, int unit, const int *device_of) {
    const struct schedule_problem *p = s->problem;
    int device = device_of[p->group[unit]];
    struct schedule_lanes *lanes = &s->lanes[device];
    double now_ns = s->end_ns[unit];
    for (int v = p->first_value[unit]; v < p->first_value[unit + 1]; v++)
        send_value(s, &p->values[v], device, now_ns, device_of);
    if (p->gate)
        open_gate(s, unit, device, now_ns, device_of);
    release_inputs(s, unit, device);
    lanes->n_busy--;
    if (lanes->first_queued >= 0) {
        int next = lanes->first_queued;
        lanes->first_queued = s->next_queued[next];
        start_unit(s, next, device, now_ns);
    }
}

static void reset_gates(struct schedule *s) {
    const struct schedule_problem *p = s->problem;
    size_t n_units = (size_t)p->n_units + 1, n_edges = (size_t)p->n_edges + 1;
    if (!s->first_gated) {
        s->heap = xreallocarray(s->heap, 2 * n_units + 2 * n_edges, sizeof(*s->heap));
        s->first_gated = xcalloc(n_units, sizeof(*s->first_gated));
        s->next_gated = xcalloc(n_edges, sizeof(*s->next_gated));
        s->n_unsent = xcalloc((size_t)p->n_values + 1, sizeof(*s->n_unsent));
        s->stays_at = xcalloc((size_t)p->n_values + 1, sizeof(*s->stays_at));
        s->has_ended = xcalloc(n_units, sizeof(*s->has_ended));
    }
    memset(s->first_gated, -1, sizeof(*s->first_gated) * n_units);
    memset(s->has_ended, 0, sizeof(*s->has_ended) * n_units);
}

static bool reset(struct schedule *s, const int *device_of) {
    const struct schedule_problem *p = s->problem;
    if (p->gate)
        reset_gates(s);
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
            event_push(s, 0, u, EVENT_READY);
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
        n_ended += event.kind == EVENT_END;
        switch (event.kind) {
        case EVENT_END:
            unit_ends(s, event.index, device_of);
            result.makespan_ns = event.at_ns;
            break;
        case EVENT_SENT:
            copy_was_sent(s, event.index, device_of);
            break;
        case EVENT_REQUEST:
            copy_is_requested(s, event.index, event.at_ns, device_of);
            break;
        case EVENT_READY:
            unit_is_ready(s, event.index, device_of[p->group[event.index]], event.at_ns);
            break;
        }
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
