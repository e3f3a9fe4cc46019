/* What devices did and when, as CUPTI records it: kernels, copies and fills, each with its times.
 *
 *   a thread that enqueues       push(mark) ── calls of the driver ── pop
 *   CUPTI, any thread            fills buffers: "call 7 was made under mark m", "the kernel of call
 *                                7 ran from … to …"
 *   the reader of a recording    asks for what is filled, and joins both by the call's number
 *
 * CUPTI is opened by dlopen for the first traced step, and records only while there is a recording.
 * It hands out records in any order, perhaps some of them never: a reader takes what is there. All
 * functions may be called by any thread, and wait for no device.
 *
 * Source: NVIDIA, CUPTI documentation, "CUPTI Activity API", "External Correlation". */
#ifndef MILLRACE_KERNELS_CUDA_ACTIVITY_H
#define MILLRACE_KERNELS_CUDA_ACTIVITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

/* A mark is a recording's number and what the recorder makes of the rest. 0 is nobody's mark. */
enum { GPU_MARK_BITS = 24 };

struct gpu_activity {
    uint64_t mark;
    int64_t start_ns, end_ns; /* monotonic; 0: CUPTI could not tell */
    uint64_t graph_node;      /* within a launch of a graph, its node's number; 0: no graph */
    const char *name;         /* of a kernel, or "copy", "fill"; lives as long as the process */
    uint32_t stream, correlation;
};

struct gpu_recording {
    uint64_t number;
    uint64_t from; /* the first record that may be of it */
    struct gpu_recording *next;
};

/* Says where CUPTI is looked for: in `folders` (DIR:DIR…, or NULL), else where the system looks for
 * libraries. With `is_off` nothing is ever recorded. Before devices are opened. */
void gpu_activity_setup(const char *folders, bool is_off);
/* Adds how times are taken, for /statusz: by CUPTI and its version, or why not. */
void gpu_activity_describe(struct str *out);

/* Begins a recording, in the caller's memory. False: CUPTI is missing, unknown, or refuses; the
 * log says so once for each reason. */
bool gpu_recording_begin(struct gpu_recording *recording);
void gpu_recording_end(struct gpu_recording *recording);
/* Until the pop, calls of this thread are made under a mark. Pairs may be nested. */
void gpu_activity_push(uint64_t mark);
void gpu_activity_pop(void);
/* Returns what is known of the recording's marks, sorted by mark and time; the caller frees it.
 * With `is_forced` CUPTI hands out buffers with records that are not complete, too. */
struct gpu_activity *gpu_recording_read(struct gpu_recording *recording, bool is_forced,
                                        size_t *ret_n);

#endif
