/* Gives the activities of a traced step to its spans (gpu_trace.h).
 *
 * A part that was given to the driver by itself has all activities of its group. In a graph, which
 * is a chain, the nodes run in the order of the parts, so an activity has an earliest and a latest
 * node by its name and its place in the order, also if others are missing:
 *
 *   nodes        mul   add   mul   product   relu
 *   activities   mul               ?         relu      the first mul may be of two nodes
 *
 * If both are of one part, the activity is that part's. The number that CUPTI has for the node is
 * kept then, so it is found in every later launch. */
#include "kernels/cuda/gpu_trace.h"

#include <stdlib.h>

#include "common/base/clock.h"

enum {
    NO_SPAN = -1,
    CLOCK_SLACK_NS = 10000000, /* how wrong CUPTI's conversion of the device's clock may be */
};

static int n_expected(const struct device_trace *trace, const struct trace_group *group) {
    int n = 0;
    for (int i = 0; i < group->n_parts; i++)
        n += trace->parts[group->first_part + i].n_nodes;
    return n;
}

/* ---- reading ---- */

/* Leaves out what has no times, or times that cannot be. */
static void leave_out_untimed(struct device_trace *trace) {
    int64_t first_ns = trace->begin_ns - CLOCK_SLACK_NS, last_ns = clock_now_ns() + CLOCK_SLACK_NS;
    size_t n = 0;
    for (size_t i = 0; i < trace->n_activities; i++) {
        const struct gpu_activity *activity = &trace->activities[i];
        if (activity->start_ns >= first_ns && activity->end_ns >= activity->start_ns &&
            activity->end_ns <= last_ns)
            trace->activities[n++] = *activity;
    }
    trace->n_activities = n;
}

static bool is_complete(const struct device_trace *trace) {
    size_t n = 0;
    for (int i = 0; i < trace->n_groups; i++)
        n += (size_t)n_expected(trace, &trace->groups[i]);
    return trace->n_activities >= n;
}

/* Records that are not complete are asked for only if some are missing. */
static void read_recording(struct device_trace *trace) {
    for (int is_forced = 0; is_forced <= 1 && !(trace->activities && is_complete(trace));
         is_forced++) {
        free(trace->activities);
        trace->activities = gpu_recording_read(&trace->recording, is_forced, &trace->n_activities);
        leave_out_untimed(trace);
    }
}

/* ---- giving ---- */

static void give(struct trace_part *part, struct gpu_activity *activity) {
    activity->mark = (uint64_t)(int64_t)part->span;
    part->start_ns = part->n_found ? MIN(part->start_ns, activity->start_ns) : activity->start_ns;
    part->end_ns = MAX(part->end_ns, activity->end_ns);
    part->n_found++;
}

/* The part that has a node of the group's graph. */
static struct trace_part *part_of_node(struct device_trace *trace, const struct trace_group *group,
                                       int node) {
    struct trace_part *part = &trace->parts[group->first_part];
    while (node >= part->n_nodes)
        node -= part++->n_nodes;
    return part;
}

/* A library's kernels have any names but those of our kernels. */
static bool fits(const struct device_trace *trace, const struct trace_group *group,
                 const struct trace_part *part, const char *name) {
    const struct trace_part *parts = &trace->parts[group->first_part];
    if (part->function)
        return strcmp(part->function, name) == 0;
    for (int i = 0; i < group->n_parts; i++)
        if (parts[i].function && strcmp(parts[i].function, name) == 0)
            return false;
    return true;
}

static struct gpu_segment *find_segment(struct gpu_device *gpu, uint64_t serial) {
    for (int i = 0; i < gpu->segments.n_captured; i++)
        if (gpu->segments.captured[i]->serial == serial)
            return gpu->segments.captured[i];
    return NULL;
}

/* The node that CUPTI has given a number before. -1: it is not known. */
static int known_node(const struct gpu_segment *segment, uint64_t number) {
    for (int i = 0; segment->activities && number != 0 && i < segment->n_nodes_sum; i++)
        if (segment->activities[i] == number)
            return i;
    return -1;
}

/* Finds the earliest or the latest nodes that activities can be of. False: they are not those of
 * the graph. */
static bool place(struct device_trace *trace, const struct trace_group *group,
                  const struct gpu_segment *segment, const struct gpu_activity *activities, int n,
                  bool is_latest, int *ret_nodes) {
    int end = segment->n_nodes_sum, step = is_latest ? -1 : 1, node = is_latest ? end - 1 : 0;
    for (int k = 0; k < n; k++, node += step) {
        int i = is_latest ? n - 1 - k : k, known = known_node(segment, activities[i].graph_node);
        if (known >= 0 && (is_latest ? known > node : known < node))
            return false;
        node = known >= 0 ? known : node;
        while (node >= 0 && node < end &&
               !fits(trace, group, part_of_node(trace, group, node), activities[i].name))
            node = known >= 0 ? end : node + step;
        if (node < 0 || node >= end)
            return false;
        ret_nodes[i] = node;
    }
    return true;
}

static void learn(struct gpu_segment *segment, int node, uint64_t number) {
    if (!segment->activities)
        segment->activities = xcalloc((size_t)segment->n_nodes_sum, sizeof *segment->activities);
    segment->activities[node] = number;
}

static void give_placed(struct device_trace *trace, const struct trace_group *group,
                        struct gpu_segment *segment, struct gpu_activity *activities, int n) {
    int *earliest = xcalloc((size_t)n, sizeof *earliest),
        *latest = xcalloc((size_t)n, sizeof *latest);
    bool is_placed = place(trace, group, segment, activities, n, false, earliest) &&
                     place(trace, group, segment, activities, n, true, latest);
    for (int i = 0; i < n && is_placed; i++) {
        struct trace_part *part = part_of_node(trace, group, earliest[i]);
        if (part != part_of_node(trace, group, latest[i]))
            continue;
        if (earliest[i] == latest[i])
            learn(segment, earliest[i], activities[i].graph_node);
        give(part, &activities[i]);
    }
    free(earliest);
    free(latest);
}

static void give_graph(struct device_trace *trace, const struct trace_group *group,
                       struct gpu_activity *activities, int n) {
    if (!gpu_lock_always(trace->gpu))
        return;
    struct gpu_segment *segment = find_segment(trace->gpu, group->segment);
    if (segment && n <= segment->n_nodes_sum)
        give_placed(trace, group, segment, activities, n);
    gpu_unlock(trace->gpu);
}

static void give_group(struct device_trace *trace, const struct trace_group *group,
                       struct gpu_activity *activities, int n) {
    for (int i = 0; i < n; i++)
        activities[i].mark = (uint64_t)(int64_t)NO_SPAN;
    if (group->segment)
        give_graph(trace, group, activities, n);
    for (int i = 0; i < n && !group->segment; i++)
        give(&trace->parts[group->first_part], &activities[i]);
}

static void give_groups(struct device_trace *trace) {
    const uint64_t group_bits = ((uint64_t)1 << GPU_MARK_BITS) - 1;
    size_t end;
    for (size_t i = 0; i < trace->n_activities; i = end) {
        uint64_t mark = trace->activities[i].mark, number = mark & group_bits;
        for (end = i; end < trace->n_activities && trace->activities[end].mark == mark;)
            end++;
        if (number < (uint64_t)trace->n_groups)
            give_group(trace, &trace->groups[number], &trace->activities[i], (int)(end - i));
    }
}

/* ---- spans ---- */

static void widen(struct trace_span *span, int64_t start_ns, int64_t end_ns) {
    span->start_ns = span->start_ns ? MIN(span->start_ns, start_ns) : start_ns;
    span->end_ns = MAX(span->end_ns, end_ns);
}

/* When the base was passed: not later than an activity of a group began, less what lay between the
 * base and the event before that group. Without activities: as by events alone. */
static bool find_base(struct device_trace *trace, int64_t now_ns) {
    int64_t base_ns = INT64_MAX, after_ns, last_ns = INT64_MIN;
    for (int i = 0; i < trace->n_groups; i++) {
        const struct trace_group *group = &trace->groups[i];
        if (gpu_trace_elapsed(trace, group->end, &after_ns))
            last_ns = MAX(last_ns, after_ns);
        for (int k = 0; k < group->n_parts; k++) {
            const struct trace_part *part = &trace->parts[group->first_part + k];
            if (part->n_found == 0)
                continue;
            if (gpu_trace_elapsed(trace, group->start, &after_ns))
                base_ns = MIN(base_ns, part->start_ns - after_ns);
            break;
        }
    }
    if (base_ns == INT64_MAX && last_ns != INT64_MIN)
        base_ns = now_ns - last_ns;
    trace->base_ns = base_ns == INT64_MAX ? 0 : base_ns;
    return trace->base_ns != 0;
}

/* The times of a part by its group's events, and by its neighbours in a graph. */
static void widen_by_events(struct device_trace *trace, const struct trace_group *group, int at) {
    const struct trace_part *parts = &trace->parts[group->first_part];
    int64_t start_ns, end_ns;
    if (!gpu_trace_elapsed(trace, group->start, &start_ns) ||
        !gpu_trace_elapsed(trace, group->end, &end_ns))
        return;
    start_ns += trace->base_ns;
    end_ns += trace->base_ns;
    for (int i = 0; i < at; i++)
        if (parts[i].n_found)
            start_ns = MAX(start_ns, parts[i].end_ns);
    for (int i = at + 1; i < group->n_parts; i++)
        if (parts[i].n_found)
            end_ns = MIN(end_ns, parts[i].start_ns);
    widen(&trace->spans[parts[at].span], start_ns, MAX(start_ns, end_ns));
}

static void fill_spans(struct device_trace *trace, int64_t now_ns) {
    bool has_base = false, wants_base = true;
    for (int i = 0; i < trace->n_groups; i++)
        for (int k = 0; k < trace->groups[i].n_parts; k++) {
            const struct trace_part *part = &trace->parts[trace->groups[i].first_part + k];
            if (part->span < 0 || part->span >= trace->n_spans)
                continue;
            struct trace_span *span = &trace->spans[part->span];
            if (part->n_found)
                widen(span, part->start_ns, part->end_ns);
            if (part->n_found >= part->n_nodes)
                continue;
            if (wants_base)
                has_base = find_base(trace, now_ns);
            wants_base = false;
            if (has_base)
                widen_by_events(trace, &trace->groups[i], k);
        }
}

static int compare_spans(const void *a, const void *b) {
    const struct gpu_activity *x = a, *y = b;
    if (x->mark != y->mark)
        return x->mark < y->mark ? -1 : 1;
    return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

/* Those of no span are the last ones. */
static void sort_activities(struct device_trace *trace) {
    qsort(trace->activities, trace->n_activities, sizeof *trace->activities, compare_spans);
    for (size_t i = 0; i < trace->n_activities; i++) {
        uint64_t number = trace->activities[i].mark;
        if (number >= (uint64_t)trace->n_spans)
            break;
        struct trace_span *span = &trace->spans[number];
        span->first = span->n++ ? span->first : i;
    }
}

void gpu_trace_join(struct device_trace *trace) {
    int64_t now_ns = clock_now_ns();
    trace->is_joined = true;
    trace->spans = xcalloc((size_t)trace->n_spans + 1, sizeof *trace->spans);
    if (!gpu_trace_close(trace) || atomic_load(&trace->gpu->failure))
        return;
    read_recording(trace);
    give_groups(trace);
    fill_spans(trace, now_ns);
    sort_activities(trace);
}
