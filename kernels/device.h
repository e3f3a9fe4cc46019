/* A device of a task: where its memory is, and how values get into it and out of it. A CPU is a
 * device whose memory is the host's, so its `ops` are NULL and nothing here is ever called for it.
 *
 * A device with a memory of its own (a GPU) works on a queue, and a node is done once its kernel is
 * enqueued. The device runs kernels in the order in which they were enqueued, so the host never
 * waits between two kernels of one device. It waits in two places only: for a copy to the host, and
 * at the end of a step, so that an error of the device belongs to the step that caused it.
 *
 *   host tensor ──copy──► device tensor ──kernel──► device tensor ──copy──► host tensor
 *                         (enqueued)      (enqueued)                (done when the bytes are there)
 *
 * Each argument of a kernel is in the device's memory or in the host's, which the kernel's row says
 * (kernel_def.host_args). The plan puts a copy where an edge leads from one memory to another. */
#ifndef MILLRACE_KERNELS_DEVICE_H
#define MILLRACE_KERNELS_DEVICE_H

#include "common/base/list.h"
#include "common/graph/device_name.h"
#include "kernels/kernel.h"

struct device;
struct device_rates; /* kernels/rates.h */
struct device_trace; /* of the type */

/* A kernel, a copy or a fill that a device did for a traced step. */
struct device_activity {
    int64_t start_ns, end_ns; /* monotonic */
    uint32_t stream;          /* on which of the device's streams */
    const char *name;         /* lives as long as the process */
};

/* One copy of a value between two memories. The caller owns the record and leaves it alone from
 * device_copy_start until the copy has ended. */
struct device_copy {
    /* The memories. NULL: the host's. At least one of the two is a device. */
    struct device *src, *dst;
    /* allocates the new value; the device's own allocator if dst is a device */
    struct allocator *allocator;
    /* A reference, which the copy releases once it has read the value. If dst is a device, the
     * value may be growing (common/tensor/growing_buffer.h): the copy takes its bytes as they come,
     * and fails as the growth does. It waits for them without a thread of the device. */
    struct tensor from;
    struct tensor *ret;    /* holds nothing before the copy; set on success */
    struct status *status; /* set at the end; the caller takes it */
    /* Whose work makes the value: host_data of its kernels. If that work was held back and has
     * failed since, a copy to the host fails, too. NULL: not known. */
    const void *owner;
    /* The name of the node whose value is copied, for messages; lives as long as the step. NULL:
     * not known. */
    const char *node;
    /* Nobody needs the value before the step ends, so a copy to the host may be enqueued with later
     * work of the owner. Then it starts once that work is flushed. */
    bool may_wait;
    /* Called once, on any thread, after copy_start has returned false. Never called inside
     * copy_start. */
    void (*on_done)(struct device_copy *copy);
    /* A copy to the host that fills this growing buffer (common/tensor/growing_buffer.h) instead of
     * a new value's memory, from its front. The device holds a reference for as long as it may
     * write, and calls growing_buffer_advance for what it has written; the caller ends the growth
     * when the copy ends. Then `ret` is not used. NULL: the copy makes a new value. */
    struct buffer *growing;
    struct list link; /* the device's */
    void *record;     /* the device's */
};

/* A wait for everything that a device was told to do before. The caller owns the record. */
struct device_wait {
    struct status *status;                     /* set at the end: the device's failure, or NULL */
    void (*on_done)(struct device_wait *wait); /* as device_copy.on_done */
    struct list link;                          /* the device's */
    void *record;                              /* the device's */
};

/* What a device counts of the work that kernels enqueue (device_ops.counts). */
enum device_count {
    DEVICE_WORK,          /* launches, fills, products, convolutions, small copies */
    DEVICE_WORK_REPLAYED, /* those among them that were enqueued as parts of replayed segments */
    DEVICE_REPLAYS,       /* segments that were replayed */
    DEVICE_CHANGES,       /* kernels that got new arguments before a replay */
    DEVICE_CAPTURES,      /* segments that were captured */
    DEVICE_INTERRUPTED,   /* segments that were expected, and then went on in another way */
    DEVICE_FAILED,        /* segments that were given up after a failed call */
    /* segments that were not replayed, although the same work was captured at other addresses */
    DEVICE_OTHER_ADDRESSES,
    /* why segments have ended that were not replayed */
    DEVICE_ENDS_OTHER_USE, /* of the device's queue: a copy, an event */
    DEVICE_ENDS_LIBRARY,   /* a convolution that was not captured */
    DEVICE_ENDS_OTHER_STEP,
    DEVICE_ENDS_IDLE, /* the step has nothing to run, pauses, or ends */
    DEVICE_ENDS_FULL,
    /* Copies to and from the device, and behind each number their bytes: those that the host takes
     * no part in, and those through pinned memory of the device's. */
    DEVICE_TO_HOST_DIRECT,
    DEVICE_TO_HOST_DIRECT_BYTES,
    DEVICE_TO_HOST_STAGED,
    DEVICE_TO_HOST_STAGED_BYTES,
    DEVICE_FROM_HOST_DIRECT,
    DEVICE_FROM_HOST_DIRECT_BYTES,
    DEVICE_FROM_HOST_STAGED,
    DEVICE_FROM_HOST_STAGED_BYTES,
    DEVICE_FROM_HOST_LAUNCHED, /* in the arguments of a kernel */
    DEVICE_FROM_HOST_LAUNCHED_BYTES,
    DEVICE_FROM_PEER_DIRECT, /* another device of the task */
    DEVICE_FROM_PEER_DIRECT_BYTES,
    DEVICE_FROM_PEER_STAGED,
    DEVICE_FROM_PEER_STAGED_BYTES,
    /* calls of the driver that map, unmap or pin memory, of which a warm step makes none */
    DEVICE_MEMORY_CALLS,
    /* values that were put at another address than in the step before */
    DEVICE_MOVED,
    /* fused programs that were compiled, and those that cannot be */
    DEVICE_COMPILED,
    DEVICE_NOT_COMPILED,
    N_DEVICE_COUNTS,
};

/* A dmabuf of a part of a device's memory. Its first byte is the byte at `start`. */
struct device_dmabuf {
    int fd;
    const char *start;
};

/* How a device lends its memory to another one of the host (an RDMA device). Every method may be
 * called on any thread that may block. */
struct device_export {
    /* Grows a range of the device's memory to the whole pieces in which it is allocated from the
     * driver and given back. Before one is given back, that is announced
     * (common/tensor/release.h). */
    void (*widen)(struct device *device, const char **data, size_t *size_bytes);
    /* Makes a dmabuf that contains the bytes. The caller closes the descriptor. The other device
     * may read; it may write if is_written. Errors: UNIMPLEMENTED if the driver cannot do that for
     * this device; the driver's, the device's failure. */
    struct status *(*open)(struct device *device, const char *data, size_t size_bytes,
                           bool is_written, struct device_dmabuf *ret)MUST_USE;
    /* Another device has written: whatever this one is told to do from now on finds the bytes. If
     * that cannot be had, the device has failed. */
    void (*flush_writes)(struct device *device);
};

/* What a type of device does. Every method may be called on any thread that does not hold a lock of
 * the device, and none blocks unless its comment says so. */
struct device_ops {
    /* Starts a copy of at least one element from or to this device's memory. True: the copy has
     * ended, or it is enqueued so that whatever is enqueued later finds the value. False: on_done
     * will be called. Errors, in copy->status: RESOURCE_EXHAUSTED for memory, INTERNAL or
     * UNAVAILABLE for a device that has failed. */
    bool (*copy_start)(struct device *device, struct device_copy *copy);
    /* Copies a host value to the device and returns when the value is there. Used for the constants
     * of a plan that is being made. The call may wait for staging memory, but not for a kernel.
     * *ret must hold nothing. */
    struct status *(*upload)(struct device *device, const struct tensor *value,
                             struct tensor *ret)MUST_USE;
    /* Starts a wait until the device has done everything that was enqueued before the call. Returns
     * true if the device had nothing left to do; on_done is not called then. */
    bool (*wait_start)(struct device *device, struct device_wait *wait);
    /* Enqueues the work of an owner (host_data of its kernels) that is held back. A device may hold
     * work back to enqueue much of it at once, until something waits for it. Returns the failure of
     * such work of the owner, once: the caller takes it. It names the node. NULL: nothing is ever
     * held back. */
    struct status *(*flush)(struct device *device, const void *owner)MUST_USE;
    /* Fills in ret[N_DEVICE_COUNTS]. NULL: nothing is counted. */
    void (*counts)(struct device *device, uint64_t *ret);
    /* Should callers stop enqueueing, and call catch_up_start? With too much work in its queue, a
     * driver makes the caller wait inside a call. Cheap. NULL: the device never gets too far
     * behind. */
    bool (*is_far_ahead)(struct device *device);
    /* Starts a wait until the device has done about half of what is enqueued. Returns true if it
     * has done that already; on_done is not called then. */
    bool (*catch_up_start)(struct device *device, struct device_wait *wait);
    /* Times of a traced step: the caller says when it begins and ends to enqueue the work of a
     * node. One thread at a time uses a trace. All may be NULL: the device tells no times.
     * trace_new returns NULL if it cannot. trace_end returns the number of the span, or -1 if
     * nothing was enqueued in it, or there are too many. */
    struct device_trace *(*trace_new)(struct device *device);
    void (*trace_begin)(struct device_trace *trace);
    int (*trace_end)(struct device_trace *trace);
    /* When did the device do the work of a span? Called as soon as the device has ended the step's
     * work. Times are of the monotonic clock. False: it is not known. */
    bool (*trace_read)(struct device_trace *trace, int span, int64_t *ret_start_ns,
                       int64_t *ret_end_ns);
    void (*trace_free)(struct device_trace *trace); /* accepts NULL */
    /* Says why nothing runs on the device any more; NULL while it works. Constant once it is set,
     * and lives as long as the device. Cheap. */
    const struct status *(*failure)(struct device *device);
    /* Finds out whether the device still works. Called by one thread about once a second. A device
     * that has work and makes no progress for hang_ns is named in the log; after ten times as long
     * it has failed. An idle one is given something to do now and then. */
    void (*probe)(struct device *device, int64_t hang_ns);
    const struct device_export *export; /* NULL: the memory cannot be lent */
    /* Adds a line that describes the device to clients, in TensorFlow's words ("device: 0, name:
     * …, pci bus id: …, compute capability: 9.0"). */
    void (*describe)(struct device *device, struct str *out);
    /* The work of a span in detail, after trace_read of it: the n-th thing that the device did, in
     * the order in which they began. False: no more is known. NULL: nothing ever is. */
    bool (*trace_activity)(struct device_trace *trace, int span, size_t n,
                           struct device_activity *ret);
    /* How fast the device is, as its driver describes it. Constant, and cheap. NULL: not known. */
    struct device_rates (*rates)(const struct device *device);
};

struct device {
    struct device_name name;
    char *full_name;              /* "/job:worker/replica:0/task:0/device:CPU:0" */
    const char *type;             /* "CPU", "GPU" */
    const struct device_ops *ops; /* NULL: its memory is the host's */
    struct allocator *allocator;  /* of the device's memory */
    /* allocates what other tasks of this host are likely to map; NULL: `allocator` does */
    struct allocator *shared_allocator;
    uint64_t incarnation;
    /* how many executions use the device now; counted only if it has a memory of its own */
    _Atomic int n_steps;
    /* What clients are told: the allocator's limit, or the host's memory if there is no limit. */
    int64_t memory_limit_bytes;
    /* Called once, when the device has failed: on any thread, perhaps with locks of the device
     * held. NULL: nobody wants to know. `watcher` is the callee's. Set before the first use. */
    void (*on_failure)(struct device *device);
    void *watcher;
    void *state; /* of the type */
};

/* Why nothing runs on the device any more; NULL while it works. */
static inline const struct status *device_failure(struct device *device) {
    return device->ops && device->ops->failure ? device->ops->failure(device) : NULL;
}

/* Is the name among a row's host_args? */
bool kernel_names_host_arg(const char *const *host_args, const char *name);
/* Is the argument in host memory, for a node on a device with a memory of its own? `def` is the
 * node's row on the device's type. Cost: a look at the op's arguments. */
bool kernel_input_is_on_host(const struct kernel_def *def, const struct node *node, int input);
bool kernel_output_is_on_host(const struct kernel_def *def, const struct node *node, int output);

#endif
