/* The trace of one step on one device: spans, each the work of a node.
 *
 * By events (gpu_trace.c), each span is enqueued by itself, between two events.
 *
 * With CUPTI (gpu_trace_groups.c, gpu_trace_join.c), a step is enqueued as an untraced one: its
 * work may be held back, and replayed as a CUDA graph. What is given to the driver together is a
 * group, which has a mark of CUPTI's and an event on either side:
 *
 *   spans    0         1                2      3
 *   parts    mul       product, bias    relu   (a convolution, enqueued at once)
 *   groups   └──────── one graph ───────┘      └── direct
 *
 * At the end of the step the activities of a group are given to its parts, and so to the spans. A
 * span of which CUPTI tells nothing, or not all, lasts as its group's events say. */
#ifndef MILLRACE_KERNELS_CUDA_GPU_TRACE_H
#define MILLRACE_KERNELS_CUDA_GPU_TRACE_H

#include "kernels/cuda/activity.h"
#include "kernels/cuda/gpu_device.h"

enum { TRACE_MAX_SPANS = 4096, TRACE_MAX_GROUPS = 8192, TRACE_MAX_PARTS = 16384 };

struct trace_part {
    int span;             /* -1: not of this trace */
    const char *function; /* the kernel that it is; NULL: not known */
    int n_nodes;          /* of a graph, which is this many activities; else 1, and maybe more */
    int n_found;
    int64_t start_ns, end_ns; /* of what was found */
};

struct trace_group {
    CUevent start, end;
    int first_part, n_parts;
    uint64_t segment; /* the number of the replayed segment; 0: none */
};

/* What is known of a span at the end. */
struct trace_span {
    int64_t start_ns, end_ns; /* 0: not known */
    size_t first, n;          /* its activities */
};

struct device_trace {
    struct gpu_device *gpu;
    CUevent base;
    int n_spans;
    bool is_begun, is_full;
    uint64_t n_enqueued; /* when the last span began */
    int64_t base_ns;     /* the base's time; 0: not known yet */

    CUevent *events; /* by events: a pair for each span */

    bool has_recording; /* with CUPTI */
    bool is_joined;
    struct gpu_recording recording;
    int64_t begin_ns;
    int n_added;      /* parts of the span that is begun */
    int direct_group; /* of that span; -1: none */
    /* Written with the device's lock until the trace is off the device's list. */
    struct device_trace *next;
    struct trace_group *groups;
    struct trace_part *parts;
    int n_groups, n_parts, groups_capacity, parts_capacity;
    /* Set by gpu_trace_join. */
    struct trace_span *spans;
    struct gpu_activity *activities; /* by span and time; `mark` is the span's number */
    size_t n_activities;
};

/* ---- events (gpu_trace.c) ---- */

/* Records a timing event on the compute stream, which is made unless there is one. With the lock.
 * False: it was not recorded. */
bool gpu_trace_record(struct gpu_device *gpu, CUevent *event);
/* The time of an event after the base. False: it is not known. */
bool gpu_trace_elapsed(const struct device_trace *trace, CUevent event, int64_t *ret_ns);

/* ---- groups (gpu_trace_groups.c), with the device's lock ---- */

/* Notes whose work this is. It was added by a thread that may be within a span. */
void gpu_trace_note(struct gpu_device *gpu, struct gpu_work *work);
/* Work is given to the driver from here, parts or a segment, up to gpu_trace_give_end. */
struct gpu_trace_given {
    struct device_trace *trace; /* NULL: it is no traced step's */
    int group;
};
struct gpu_trace_given gpu_trace_give_begin(struct gpu_device *gpu, const struct gpu_work *work,
                                            int n, const struct gpu_segment *segment);
void gpu_trace_give_end(struct gpu_device *gpu, struct gpu_trace_given given);
/* This thread may enqueue on the compute stream from here to the end of its span. */
void gpu_trace_touch(struct gpu_device *gpu);

/* The spans of a trace with a recording. Without the lock. */
void gpu_trace_open(struct device_trace *trace);
void gpu_trace_span_begin(struct device_trace *trace);
int gpu_trace_span_end(struct device_trace *trace);
/* No more work is noted from here on; a second call changes nothing. False: a thread that hangs in
 * the driver may still use the trace. */
bool gpu_trace_close(struct device_trace *trace) MUST_USE;

/* ---- the end (gpu_trace_join.c) ---- */

/* Reads the recording, and fills `spans` and `activities`. */
void gpu_trace_join(struct device_trace *trace);

#endif
