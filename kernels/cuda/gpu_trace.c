/* Times at which a device does parts of a traced step: by CUPTI (gpu_trace.h), or by events of its
 * compute stream.
 *
 *   base ── [start ─ kernels of a node ─ end] ── [start ─ … ─ end] ── … ── the step's end
 *
 * Events tell how long after the base they passed, and not when that was. The step ends when the
 * host hears that the last event has passed, so that moment is the last event's: all times are late
 * by what it takes to wake a thread. Work of other steps may be between two events. */
#include "kernels/cuda/gpu_trace.h"

#include <stdlib.h>

#include "common/base/clock.h"

bool gpu_trace_record(struct gpu_device *gpu, CUevent *event) {
    struct status *st = *event ? NULL : gpu_call(gpu, cuEventCreate, event, 0);
    if (!st)
        st = gpu_call(gpu, cuEventRecord, *event, gpu->compute);
    bool is_recorded = !st;
    status_unref(st);
    return is_recorded;
}

/* Without the lock, for callers that go on without times. */
static bool try_record(struct gpu_device *gpu, CUevent *event, uint64_t *ret_enqueued) {
    struct status *st = gpu_lock(gpu);
    bool is_recorded = false;
    if (!st) {
        *ret_enqueued = atomic_load_explicit(&gpu->memory.enqueued, memory_order_relaxed);
        is_recorded = gpu_trace_record(gpu, event);
        gpu_unlock(gpu);
    }
    status_unref(st);
    return is_recorded;
}

struct device_trace *gpu_trace_new(struct device *device) {
    struct device_trace *trace = xcalloc(1, sizeof *trace);
    trace->gpu = gpu_of_allocator(device->allocator);
    trace->has_recording =
        !atomic_load(&trace->gpu->failure) && gpu_recording_begin(&trace->recording);
    if (trace->has_recording) {
        gpu_trace_open(trace);
        return trace;
    }
    trace->events = xcalloc(2 * TRACE_MAX_SPANS, sizeof *trace->events);
    if (try_record(trace->gpu, &trace->base, &trace->n_enqueued))
        return trace;
    gpu_trace_free(trace);
    return NULL;
}

/* ---- spans ---- */

void gpu_trace_begin(struct device_trace *trace) {
    if (trace->has_recording) {
        gpu_trace_span_begin(trace);
        return;
    }
    if (trace->is_full || trace->is_begun)
        return;
    CUevent *start = &trace->events[2 * trace->n_spans];
    trace->is_begun = try_record(trace->gpu, start, &trace->n_enqueued);
    trace->is_full = !trace->is_begun;
}

int gpu_trace_end(struct device_trace *trace) {
    if (trace->has_recording)
        return gpu_trace_span_end(trace);
    CUevent *end = &trace->events[2 * trace->n_spans + 1];
    uint64_t before = trace->n_enqueued;
    if (!trace->is_begun)
        return -1;
    trace->is_begun = false;
    if (!try_record(trace->gpu, end, &trace->n_enqueued)) {
        trace->is_full = true;
        return -1;
    }
    if (trace->n_enqueued == before)
        return -1; /* the next span uses the events */
    trace->is_full = trace->n_spans + 1 == TRACE_MAX_SPANS;
    return trace->n_spans++;
}

/* ---- times ---- */

bool gpu_trace_elapsed(const struct device_trace *trace, CUevent event, int64_t *ret_ns) {
    float ms;
    if (!event || !trace->base ||
        trace->gpu->api->cuEventElapsedTime(&ms, trace->base, event) != CUDA_SUCCESS)
        return false;
    *ret_ns = (int64_t)((double)ms * 1e6);
    return true;
}

static bool read_activities(struct device_trace *trace, int number, int64_t *ret_start_ns,
                            int64_t *ret_end_ns) {
    if (!trace->is_joined)
        gpu_trace_join(trace);
    const struct trace_span *span = &trace->spans[number];
    *ret_start_ns = span->start_ns;
    *ret_end_ns = span->end_ns;
    return span->start_ns != 0;
}

bool gpu_trace_read(struct device_trace *trace, int span, int64_t *ret_start_ns,
                    int64_t *ret_end_ns) {
    int64_t start_ns, end_ns, last_ns;
    gpu_try_set_current(trace->gpu);
    if (trace->has_recording)
        return read_activities(trace, span, ret_start_ns, ret_end_ns);
    if (!trace->base_ns) {
        int64_t now_ns = clock_now_ns();
        if (!gpu_trace_elapsed(trace, trace->events[2 * trace->n_spans - 1], &last_ns))
            return false;
        trace->base_ns = now_ns - last_ns;
    }
    if (!gpu_trace_elapsed(trace, trace->events[2 * span], &start_ns) ||
        !gpu_trace_elapsed(trace, trace->events[2 * span + 1], &end_ns))
        return false;
    *ret_start_ns = trace->base_ns + start_ns;
    *ret_end_ns = trace->base_ns + end_ns;
    return true;
}

bool gpu_trace_activity(struct device_trace *trace, int span, size_t n,
                        struct device_activity *ret) {
    if (!trace->is_joined || n >= trace->spans[span].n)
        return false;
    const struct gpu_activity *activity = &trace->activities[trace->spans[span].first + n];
    *ret = (struct device_activity){.start_ns = activity->start_ns,
                                    .end_ns = activity->end_ns,
                                    .stream = activity->stream,
                                    .name = activity->name};
    return true;
}

/* ---- freeing ---- */

static void event_free(struct gpu_device *gpu, CUevent event) {
    if (event)
        gpu_give_back(gpu, cuEventDestroy, event);
}

/* A thread that hangs may still use the trace, which is then never freed. */
static bool recording_end(struct device_trace *trace) {
    bool is_free = gpu_trace_close(trace);
    gpu_recording_end(&trace->recording);
    for (int i = 0; i < trace->n_groups && is_free; i++) {
        event_free(trace->gpu, trace->groups[i].start);
        event_free(trace->gpu, trace->groups[i].end);
    }
    return is_free;
}

void gpu_trace_free(struct device_trace *trace) {
    if (!trace)
        return;
    gpu_try_set_current(trace->gpu);
    if (trace->has_recording && !recording_end(trace))
        return;
    event_free(trace->gpu, trace->base);
    for (int i = 0; trace->events && i < 2 * TRACE_MAX_SPANS && trace->events[i]; i++)
        event_free(trace->gpu, trace->events[i]);
    free(trace->events);
    free(trace->groups);
    free(trace->parts);
    free(trace->spans);
    free(trace->activities);
    free(trace);
}
