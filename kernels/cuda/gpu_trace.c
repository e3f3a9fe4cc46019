/* Times at which a device does parts of a traced step, by events of its compute stream.
 *
 *   base ── [start ─ kernels of a node ─ end] ── [start ─ … ─ end] ── … ── the step's end
 *
 * Events tell how long after the base they passed, and not when that was. The step ends when the
 * host hears that the last event has passed, so that moment is the last event's: all times are late
 * by what it takes to wake a thread. Work of other steps may be between two events. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "kernels/cuda/gpu_device.h"

enum { TRACE_MAX_SPANS = 4096 };

struct device_trace {
    struct gpu_device *gpu;
    CUevent base, *events; /* a pair for each span */
    int n_spans;
    bool is_begun, is_full;
    uint64_t n_enqueued; /* when the last span began */
    int64_t base_ns;     /* the base's time; 0: not known yet */
};

/* Records a timing event, which is made unless there is one. With the lock held. */
static struct status *record(struct gpu_device *gpu, CUevent *event) {
    if (!*event)
        TRY(gpu_call(gpu, cuEventCreate, event, 0));
    return gpu_call(gpu, cuEventRecord, *event, gpu->compute);
}

/* The same for callers that go on without times. */
static bool try_record(struct gpu_device *gpu, CUevent *event, uint64_t *ret_enqueued) {
    struct status *st = gpu_lock(gpu);
    if (!st) {
        *ret_enqueued = atomic_load_explicit(&gpu->memory.enqueued, memory_order_relaxed);
        st = record(gpu, event);
        gpu_unlock(gpu);
    }
    bool is_recorded = !st;
    status_unref(st);
    return is_recorded;
}

struct device_trace *gpu_trace_new(struct device *device) {
    struct device_trace *trace = xcalloc(1, sizeof *trace);
    trace->gpu = gpu_of_allocator(device->allocator);
    trace->events = xcalloc(2 * TRACE_MAX_SPANS, sizeof *trace->events);
    if (try_record(trace->gpu, &trace->base, &trace->n_enqueued))
        return trace;
    gpu_trace_free(trace);
    return NULL;
}

void gpu_trace_begin(struct device_trace *trace) {
    if (trace->is_full || trace->is_begun)
        return;
    CUevent *start = &trace->events[2 * trace->n_spans];
    trace->is_begun = try_record(trace->gpu, start, &trace->n_enqueued);
    trace->is_full = !trace->is_begun;
}

int gpu_trace_end(struct device_trace *trace) {
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

static bool elapsed_ns(const struct device_trace *trace, CUevent event, int64_t *ret) {
    float ms;
    if (trace->gpu->api->cuEventElapsedTime(&ms, trace->base, event) != CUDA_SUCCESS)
        return false;
    *ret = (int64_t)((double)ms * 1e6);
    return true;
}

bool gpu_trace_read(struct device_trace *trace, int span, int64_t *ret_start_ns,
                    int64_t *ret_end_ns) {
    int64_t start_ns, end_ns, last_ns;
    gpu_try_set_current(trace->gpu);
    if (!trace->base_ns) {
        int64_t now_ns = clock_now_ns();
        if (!elapsed_ns(trace, trace->events[2 * trace->n_spans - 1], &last_ns))
            return false;
        trace->base_ns = now_ns - last_ns;
    }
    if (!elapsed_ns(trace, trace->events[2 * span], &start_ns) ||
        !elapsed_ns(trace, trace->events[2 * span + 1], &end_ns))
        return false;
    *ret_start_ns = trace->base_ns + start_ns;
    *ret_end_ns = trace->base_ns + end_ns;
    return true;
}

void gpu_trace_free(struct device_trace *trace) {
    if (!trace)
        return;
    gpu_try_set_current(trace->gpu);
    if (trace->base)
        gpu_give_back(trace->gpu, cuEventDestroy, trace->base);
    for (int i = 0; i < 2 * TRACE_MAX_SPANS && trace->events[i]; i++)
        gpu_give_back(trace->gpu, cuEventDestroy, trace->events[i]);
    free(trace->events);
    free(trace);
}
