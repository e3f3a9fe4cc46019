/* Notes what a traced step gives to the driver, in groups (gpu_trace.h). */
#include "kernels/cuda/gpu_trace.h"

#include "common/base/clock.h"

/* The trace in whose span this thread is; NULL: in none. */
static _Thread_local struct device_trace *current __attribute__((tls_model("initial-exec")));

static uint64_t mark_of(const struct device_trace *trace, int group) {
    return trace->recording.number << GPU_MARK_BITS | (uint64_t)group;
}

static struct device_trace *find(struct gpu_device *gpu, uint64_t number) {
    struct device_trace *trace = gpu->traces;
    while (trace && (number == 0 || trace->recording.number != number))
        trace = trace->next;
    return trace;
}

/* -1: there are too many. */
static int group_new(struct device_trace *trace, int n_parts) {
    if (trace->n_groups == TRACE_MAX_GROUPS || trace->n_parts + n_parts > TRACE_MAX_PARTS)
        return -1;
    if (trace->n_groups == trace->groups_capacity) {
        trace->groups_capacity = MAX(64, trace->groups_capacity * 2);
        trace->groups =
            xreallocarray(trace->groups, (size_t)trace->groups_capacity, sizeof *trace->groups);
    }
    while (trace->n_parts + n_parts > trace->parts_capacity) {
        trace->parts_capacity = MAX(64, trace->parts_capacity * 2);
        trace->parts =
            xreallocarray(trace->parts, (size_t)trace->parts_capacity, sizeof *trace->parts);
    }
    trace->groups[trace->n_groups] =
        (struct trace_group){.first_part = trace->n_parts, .n_parts = n_parts};
    trace->n_parts += n_parts;
    return trace->n_groups++;
}

/* ---- hooks, with the device's lock ---- */

void gpu_trace_note(struct gpu_device *gpu, struct gpu_work *work) {
    work->trace = 0;
    if (!current || current->gpu != gpu || current->is_full)
        return;
    work->trace = current->recording.number;
    work->span = current->n_spans;
    current->n_added++;
}

struct gpu_trace_given gpu_trace_give_begin(struct gpu_device *gpu, const struct gpu_work *work,
                                            int n, const struct gpu_segment *segment) {
    struct device_trace *trace = NULL;
    for (int i = 0; i < n && !trace; i++)
        trace = find(gpu, work[i].trace);
    int number = trace ? group_new(trace, n) : -1;
    if (number < 0) { /* so that it does not count for a span that this thread is in */
        gpu_activity_push(0);
        return (struct gpu_trace_given){NULL, -1};
    }
    struct trace_group *group = &trace->groups[number];
    group->segment = segment ? segment->serial : 0;
    for (int i = 0; i < n; i++)
        trace->parts[group->first_part + i] = (struct trace_part){
            .span = work[i].trace == trace->recording.number ? work[i].span : -1,
            .function = work[i].function ? work[i].function->name : NULL,
            .n_nodes = segment && segment->n_nodes_sum ? segment->n_nodes[i] : 1};
    gpu_activity_push(mark_of(trace, number));
    gpu_trace_record(gpu, &group->start);
    return (struct gpu_trace_given){trace, number};
}

void gpu_trace_give_end(struct gpu_device *gpu, struct gpu_trace_given given) {
    if (given.trace)
        gpu_trace_record(gpu, &given.trace->groups[given.group].end);
    gpu_activity_pop();
}

void gpu_trace_touch(struct gpu_device *gpu) {
    struct device_trace *trace = current;
    if (!trace || trace->gpu != gpu || trace->direct_group >= 0 || trace->is_full)
        return;
    int number = group_new(trace, 1);
    if (number < 0)
        return;
    struct trace_group *group = &trace->groups[number];
    trace->parts[group->first_part] = (struct trace_part){.span = trace->n_spans, .n_nodes = 1};
    gpu_activity_push(mark_of(trace, number));
    gpu_trace_record(gpu, &group->start);
    trace->direct_group = number;
    trace->n_enqueued = atomic_load_explicit(&gpu->memory.enqueued, memory_order_relaxed);
}

/* ---- spans ---- */

void gpu_trace_open(struct device_trace *trace) {
    struct gpu_device *gpu = trace->gpu;
    trace->begin_ns = clock_now_ns();
    trace->direct_group = -1;
    struct status *st = gpu_lock_only(gpu);
    if (!st) {
        gpu_trace_record(gpu, &trace->base);
        trace->next = gpu->traces;
        gpu->traces = trace;
        gpu_unlock(gpu);
    }
    trace->is_full = st != NULL; /* nothing will be enqueued */
    status_unref(st);
}

void gpu_trace_span_begin(struct device_trace *trace) {
    if (trace->is_full || trace->is_begun || current)
        return;
    trace->is_begun = true;
    trace->n_added = 0;
    current = trace;
}

/* Ends what was enqueued at once. Returns whether it was anything. */
static bool direct_end(struct device_trace *trace) {
    struct gpu_device *gpu = trace->gpu;
    struct status *st = gpu_lock_only(gpu);
    bool is_work = false;
    if (!st) {
        struct trace_group *group = &trace->groups[trace->direct_group];
        is_work =
            atomic_load_explicit(&gpu->memory.enqueued, memory_order_relaxed) != trace->n_enqueued;
        if (is_work)
            gpu_trace_record(gpu, &group->end);
        else
            trace->parts[group->first_part] = (struct trace_part){.span = -1};
        gpu_unlock(gpu);
    }
    status_unref(st);
    gpu_activity_pop();
    trace->direct_group = -1;
    return is_work;
}

int gpu_trace_span_end(struct device_trace *trace) {
    if (!trace->is_begun)
        return -1;
    bool is_work = trace->direct_group >= 0 && direct_end(trace);
    trace->is_begun = false;
    current = NULL;
    if (!is_work && trace->n_added == 0)
        return -1; /* the next span has the number */
    trace->is_full = trace->n_spans + 1 == TRACE_MAX_SPANS;
    return trace->n_spans++;
}

bool gpu_trace_close(struct device_trace *trace) {
    if (!gpu_lock_always(trace->gpu))
        return false;
    struct device_trace **at = &trace->gpu->traces;
    while (*at && *at != trace)
        at = &(*at)->next;
    if (*at)
        *at = trace->next;
    gpu_unlock(trace->gpu);
    return true;
}
