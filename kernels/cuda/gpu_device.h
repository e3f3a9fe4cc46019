/* One GPU inside the plugin: its context, its compute stream, its memory, and the threads that copy
 * between its memory and the host's.
 *
 *   compute stream   kernels of all steps, small copies to the device, copies within it
 *   in               large copies to the device, in pieces through pinned memory
 *   out, large out   copies to the host and waits, in pieces through pinned memory
 *
 * Everything is enqueued on the compute stream under `lock`. So the stream does its work in the
 * order in which the host's threads have asked for it, and its entries need no events between them.
 * A copy on another stream first waits for an event of the compute stream, and holds a reference to
 * the device's buffer until it has ended.
 *
 * A host thread waits for the device in one place only: the thread of a copier, which sleeps in
 * cuEventSynchronize. */
#ifndef MILLRACE_KERNELS_CUDA_GPU_DEVICE_H
#define MILLRACE_KERNELS_CUDA_GPU_DEVICE_H

#include <pthread.h>

#include "common/base/list.h"
#include "common/base/map.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/gpu_kernel.h"
#include "kernels/cuda/gpu_memory.h"
#include "kernels/cuda/gpu_segments.h"
#include "kernels/rates.h"

enum {
    GPU_STAGE_PARTS = 4,
    GPU_STAGE_PART_BYTES = 1 << 20,
    GPU_SMALL_BYTES = 64 << 10, /* a copy to the device of at most this size is enqueued at once */
    GPU_MAX_FREE_EVENTS = 256,
    GPU_MAX_STEMS = 512,
    GPU_RECENT_PRODUCTS = 256,
    /* A driver makes its caller wait once about a thousand entries are enqueued. A replayed segment
     * counts as all of its parts: the device needs time for each, and a step that is cancelled
     * waits for them. */
    GPU_MAX_AHEAD = 512,
    GPU_MARK_EVERY = 64,
    GPU_SUFFIX_BYTES = 8,
    GPU_MAX_COPY_THREADS = 4, /* of one large copy */
};

/* Pinned memory for what is copied to the device on the compute stream. It is filled part by part;
 * a part is used again once the event that was recorded when it was full has passed. */
struct gpu_stage {
    char *memory; /* NULL until its first use */
    int part;     /* which part is being filled */
    size_t used_bytes;
    CUevent full[GPU_STAGE_PARTS];
    bool is_full[GPU_STAGE_PARTS]; /* its event was recorded, and is not known to have passed */
};

/* Two pieces of pinned memory that a thread fills in turn, and events behind the copies of each. */
struct gpu_pieces {
    char *memory[2]; /* NULL until the first copy */
    CUevent done[2];
};

/* A thread that takes pieces of the large copies of a copier. */
struct gpu_helper {
    struct gpu_copier *copier;
    pthread_t thread;
    struct gpu_pieces pieces;
    int number; /* of its part; 0 is the copier's own */
};

/* The helpers of a copier (gpu_pageable.h). */
struct gpu_team {
    struct gpu_helper helpers[GPU_MAX_COPY_THREADS - 1];
    bool is_complete;        /* helpers were started. Used by the copier's thread only */
    _Atomic bool has_failed; /* `failure` is set */
    pthread_mutex_t lock;    /* guards what follows; the copier's thread alone writes n_helpers */
    pthread_cond_t begun, ended;
    int n_helpers;
    const struct gpu_staged_copy *copy;    /* under way */
    uint64_t n_begun;                      /* copies; each helper takes part in each */
    int n_busy;                            /* helpers that are at the copy */
    size_t n_filled[GPU_MAX_COPY_THREADS]; /* how many pieces of a growing buffer each has filled */
    struct status *failure;                /* of the copy, the first one */
    bool is_closed;
};

/* Small copies to the host that are parts of segments (gpu_outbox.h). */
struct gpu_outbox {
    pthread_mutex_t lock; /* guards what follows */
    struct list waiting;  /* jobs whose work may be held back */
    char *memory;         /* pinned; NULL until the first copy */
    bool is_off;          /* it could not be had */
    uint64_t used_slots;  /* bits */
};

/* What kernels read back (gpu_reads.c). */
struct gpu_reads {
    pthread_mutex_t lock; /* guards what follows */
    struct list list;     /* struct gpu_read, in the order of their starts */
};

/* A thread with a stream of its own, which serves its jobs one after another. */
struct gpu_copier {
    struct gpu_device *gpu;
    const char *name;
    pthread_t thread;
    CUstream stream;
    struct gpu_pieces pieces;
    struct gpu_team team;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct list jobs;        /* struct gpu_job */
    struct gpu_job *current; /* what the thread is at; NULL: nothing */
    unsigned generation;     /* counts threads: one that hangs in the driver is replaced */
    bool is_started, is_closed;
};

/* How copies of another device that this one cannot reach come in (gpu_peers.h). */
struct gpu_bridge {
    CUstream stream; /* NULL until the first copy */
    CUevent piece_done[2];
};

/* What the last probe saw. Only probes use it. */
struct gpu_watch {
    uint64_t ended, enqueued, n_locked;
    int64_t looked_ns; /* when it was */
    int64_t since_ns;  /* when there was progress, or nothing to do */
    int64_t probed_ns; /* when the device was last given something to do */
    bool is_named;     /* the log says that there is no progress */
};

/* What the driver does not register (gpu_host_memory.c, whose lock guards it). */
struct gpu_host_refusals {
    bool is_off[2]; /* nothing of this kind, by gpu_host_range.is_read_only */
    bool is_told;   /* the log says that it did not register a range */
};

struct gpu_device {
    struct allocator allocator; /* of its memory; first, so that it leads to the device */
    struct device_memory device_memory;
    const struct driver_api *api;
    const struct driver_checker *checker;
    struct device *device; /* what plans name; set by gpu_device_bind */
    CUdevice cuda_device;
    CUcontext context;
    int ordinal;
    char name[128], bus_id[32];
    int major, minor; /* compute capability */
    struct device_rates rates;
    unsigned n_busy_blocks; /* this many blocks of GPU_BLOCK_THREADS fill all multiprocessors */
    size_t alignment;
    struct gpu_memory memory;
    CUlibrary *libraries; /* the kernels, one for each image */
    size_t n_libraries;
    CUstream compute;
    struct gpu_copier in, arriving, out, large_out;
    int n_copy_threads; /* of a large copy; constant */
    uint32_t reachable; /* a bit for each device whose memory this one can use; constant */
    struct gpu_bridge bridges[GPU_MEMORY_MAX_USERS]; /* by the ordinal of the source */
    /* The number of the last work that the driver was given for the compute stream: memory.enqueued
     * without what is held back. Written with the lock. */
    _Atomic uint64_t given;
    /* the number of the last work on the compute stream that is known to have ended */
    _Atomic uint64_t ended;
    /* The error after which the context is of no use; NULL while there is none. Set once. */
    _Atomic(struct status *) failure;
    bool is_writable_by_rdma, needs_flush; /* gpu_export.c; constant */
    _Atomic int n_copies; /* copies under way that free a buffer of the device at their end */
    struct gpu_dnn *dnn;  /* for convolutions; constant */
    struct gpu_compiler *compiler; /* for kernels that are compiled at run time; constant */
    struct gpu_xid *xid;           /* NULL: NVML cannot be used */
    _Atomic uint64_t last_xid;
    struct gpu_watch watch;
    struct gpu_host_refusals host_refusals;
    /* A call of the driver does not return. Its thread may use all this, so nothing is freed. */
    _Atomic bool is_hung;
    bool is_stopped;           /* its threads have ended */
    _Atomic uint64_t n_locked; /* how often `lock` was taken; written with the lock */

    pthread_mutex_t lock; /* for all that is enqueued on the compute stream; guards what follows */
    struct gpu_stage stage;
    struct strmap functions; /* name → struct gpu_function */
    /* by the stem's number; written with the lock, read without it */
    _Atomic(struct gpu_found *) found[GPU_MAX_STEMS];
    struct strmap products; /* kind → struct gpu_product (blas.c) */
    /* What a node has found last, by the node; NULL: nothing. Its kind is mostly the same the next
     * time, and comparing is cheaper than hashing. */
    struct gpu_product *recent_products[GPU_RECENT_PRODUCTS];
    void *blas_handle; /* NULL until the first product */
    struct gpu_segments segments;
    struct gpu_outbox outbox;    /* has a lock of its own, too */
    struct gpu_reads reads;      /* the same */
    struct device_trace *traces; /* traced steps whose times CUPTI tells (gpu_trace.h) */
    CUevent free_events[GPU_MAX_FREE_EVENTS];
    int n_free_events;
    /* Events of the compute stream, one for every GPU_MARK_EVERY entries, by which a step that is
     * far ahead waits for a part of what is enqueued. */
    struct gpu_mark {
        CUevent event; /* NULL: none */
        uint64_t number;
    } marks[GPU_MAX_AHEAD / GPU_MARK_EVERY * 2];
    uint64_t marked; /* the number of the last mark */
};

struct gpu_function {
    CUfunction function;
    char *name;
};

/* A function of a stem. Constant once it is in the list. */
struct gpu_found {
    struct gpu_found *next;
    const struct gpu_function *function;
    char suffix[GPU_SUFFIX_BYTES];
};

struct gpu_device_options {
    const struct driver_api *api;
    const struct driver_checker *checker; /* NULL on a real device */
    const struct device_engine *engine;   /* what the CPU's kernels hand their elements to */
    int ordinal;
    int64_t memory_limit_bytes; /* 0: 92 % of what is free */
    int n_copy_threads;         /* of a large copy; 0: by the number of cores */
    bool has_graphs;            /* segments are replayed */
};

/* Opens a device: context, streams, memory, kernels. If the driver refuses, the device has failed
 * from the beginning, and nothing of the driver is kept for it: gpu_failure() says why. Errors:
 * UNIMPLEMENTED for a device that cannot run the plugin's kernels. */
struct status *gpu_device_new(const struct gpu_device_options *options,
                              struct gpu_device **ret) MUST_USE;
/* Ends the threads of the device, once they have done what they were asked for. Threads of a device
 * use others, so the threads of all devices end before the first of them is freed. Accepts NULL. */
void gpu_device_stop(struct gpu_device *gpu);
/* Frees the device, after gpu_device_stop unless it is the only one. Nothing may use the device or
 * its memory any more. Accepts NULL. */
void gpu_device_free(struct gpu_device *gpu);
/* Fills in what plans and kernels see of it, under a name that must stay valid. */
void gpu_device_bind(struct gpu_device *gpu, struct device *device);
static inline struct gpu_device *gpu_of_allocator(struct allocator *allocator) {
    return CONTAINER_OF(allocator, struct gpu_device, allocator);
}

/* ---- inside the plugin ---- */

/* Makes the device's context current for this thread. Errors: the driver's. */
struct status *gpu_set_current(struct gpu_device *gpu) MUST_USE;
/* Makes the context current for a caller that cannot fail. A failure is logged. */
void gpu_try_set_current(struct gpu_device *gpu);
/* ---- failure (gpu_health.c) ---- */

/* NULL for success, otherwise what failed. After an error that may mean that the device has failed,
 * the device is asked. A failure is kept, and its Xid is in the status. */
struct status *gpu_check_failure(struct gpu_device *gpu, CUresult error,
                                 const char *call) COLD MUST_USE;
static inline struct status *gpu_check(struct gpu_device *gpu, CUresult error, const char *call) {
    return likely(error == CUDA_SUCCESS) ? NULL : gpu_check_failure(gpu, error, call);
}
/* Makes a call of the driver: gpu_call(gpu, cuEventRecord, event, stream). */
#define gpu_call(gpu, call, ...) gpu_check((gpu), (gpu)->api->call(__VA_ARGS__), #call)
/* Makes a call that gives something back to the driver. A failure is logged. */
#define gpu_give_back(gpu, call, ...) driver_note((gpu)->api->call(__VA_ARGS__), #call)
/* Asks the device whether it still works, after a library has failed with a status of its own, or
 * after an error that nobody checked. Returns the status, with the Xid if the device has failed. */
struct status *gpu_look_take(struct gpu_device *gpu, struct status *st) MUST_USE;
/* The device has failed: later users get UNAVAILABLE with `st`, whose words are returned with the
 * Xid, as UNAVAILABLE, too. */
struct status *gpu_fail_take(struct gpu_device *gpu, struct status *st) MUST_USE;
const struct status *gpu_failure(struct device *device); /* device_ops.failure */
void gpu_probe(struct device *device, int64_t hang_ns);  /* device_ops.probe */
/* Is a job of the device's copiers under way, or is one queued? Any thread. */
bool gpu_copiers_are_busy(struct gpu_device *gpu);
/* Queues something small to do, which finds out that the device has failed. */
void gpu_copiers_probe(struct gpu_device *gpu);
/* Ends the jobs that hang with the device's failure, and has new threads serve what is queued. */
void gpu_copiers_abandon(struct gpu_device *gpu);

/* ---- the compute stream ---- */

/* Waits until a stream has done all its work, so that the caller may free the memory that the work
 * uses. Called after a failure. If the driver cannot tell whether the work has ended, the device is
 * marked as failed. Does not wait for a device that hangs, whose memory is never freed. */
void gpu_drain(struct gpu_device *gpu, CUstream stream);
/* Was the driver given GPU_MAX_AHEAD entries or more that are not known to have ended? */
static inline bool gpu_is_far_ahead(struct gpu_device *gpu) {
    uint64_t ended = atomic_load_explicit(&gpu->ended, memory_order_relaxed);
    uint64_t given = atomic_load_explicit(&gpu->given, memory_order_relaxed);
    return given > ended && given - ended >= GPU_MAX_AHEAD;
}
/* Takes the event of a mark after which at most half of GPU_MAX_AHEAD entries were enqueued. The
 * segment goes on, unless there is no such mark while work is held back. The caller holds the lock.
 * *ret_event is NULL if the device has passed the mark. Errors: the driver's. */
struct status *gpu_mark_take(struct gpu_device *gpu, CUevent *ret_event,
                             uint64_t *ret_number) MUST_USE;
/* Makes the context current. Errors: the device's failure; the driver's. */
struct status *gpu_enter(struct gpu_device *gpu) MUST_USE;
/* Locks the compute stream, so that this thread may enqueue on it, and ends the segment. Errors:
 * the device's failure; the lock is not held after an error. */
struct status *gpu_lock(struct gpu_device *gpu) MUST_USE;
struct status *gpu_lock_for(struct gpu_device *gpu, enum device_count why) MUST_USE;
/* The same for a caller that enqueues nothing, or work of a segment. */
struct status *gpu_lock_only(struct gpu_device *gpu) MUST_USE;
/* The same lock, also of a device that has failed, whose context need not be current. False: the
 * device has failed, and a thread that hangs in the driver has the lock. */
bool gpu_lock_always(struct gpu_device *gpu) MUST_USE;
void gpu_unlock(struct gpu_device *gpu);
/* Records a mark, with the lock held and nothing held back. */
void gpu_mark(struct gpu_device *gpu, uint64_t number);
/* Counts an entry of the compute stream that is held back, with the lock held. */
static inline void gpu_count_held(struct gpu_device *gpu) {
    uint64_t n = atomic_load_explicit(&gpu->memory.enqueued, memory_order_relaxed) + 1;
    atomic_store_explicit(&gpu->memory.enqueued, n, memory_order_relaxed);
}
/* The driver was given all that is counted, with the lock held. */
static inline void gpu_count_given(struct gpu_device *gpu) {
    uint64_t n = atomic_load_explicit(&gpu->memory.enqueued, memory_order_relaxed);
    atomic_store_explicit(&gpu->given, n, memory_order_relaxed);
    if (unlikely(n - gpu->marked >= GPU_MARK_EVERY))
        gpu_mark(gpu, n);
}
/* Counts one entry of the compute stream, with the lock held and nothing held back. */
static inline void gpu_count_enqueued(struct gpu_device *gpu) {
    gpu_count_held(gpu);
    gpu_count_given(gpu);
}
/* Notes that everything up to a number has ended. Any thread. */
void gpu_note_ended(struct gpu_device *gpu, uint64_t number);

/* Records an event on the compute stream, after everything that is enqueued, and returns it with
 * its number. The caller holds the lock, nothing is held back, and the caller calls gpu_event_put
 * when it will enqueue no more waits for the event. */
struct status *gpu_record(struct gpu_device *gpu, CUevent *ret_event,
                          uint64_t *ret_number) MUST_USE;
void gpu_event_put(struct gpu_device *gpu, CUevent event); /* without the lock */

/* Sets up the allocator of the device's memory. Takes no memory from the driver yet. */
void gpu_allocator_init(struct gpu_device *gpu, const struct device_engine *engine);
void gpu_functions_free(struct gpu_device *gpu);

/* ---- kernels (gpu_images.c) ---- */

/* Errors: UNIMPLEMENTED as gpu_device_new; the driver's. */
struct status *gpu_images_load(struct gpu_device *gpu) MUST_USE;
/* Finds a kernel by its name. CUDA_ERROR_NOT_FOUND: no image has it. *ret_call names the call that
 * made the error. */
CUresult gpu_images_find(struct gpu_device *gpu, const char *name, CUfunction *ret,
                         const char **ret_call) MUST_USE;

/* Allocates for work on `stream`, which must be told to wait for the compute stream up to
 * *ret_free_number before it uses the memory. */
struct status *gpu_buffer_new(struct gpu_device *gpu, size_t size_bytes, CUstream stream,
                              struct buffer **ret, uint64_t *ret_free_number) MUST_USE;
/* The same without waiting: RESOURCE_EXHAUSTED as soon as memory is short. */
struct status *gpu_buffer_try_new(struct gpu_device *gpu, size_t size_bytes, CUstream stream,
                                  struct buffer **ret, uint64_t *ret_free_number) MUST_USE;
/* Pinned memory of the host, which the caller gives back by cuMemFreeHost. Errors: the driver's,
 * with the bytes that were wanted. */
struct status *gpu_pinned_new(struct gpu_device *gpu, size_t size_bytes, char **ret) MUST_USE;
/* Enqueues a copy of host bytes on the compute stream, through the stage. The bytes may be reused
 * when the call returns. With the lock held; it may wait for earlier work of the stream. */
struct status *gpu_stage_in(struct gpu_device *gpu, CUdeviceptr to, const void *from,
                            size_t size_bytes) MUST_USE;
void gpu_stage_close(struct gpu_device *gpu);

/* Enqueues a copy of host bytes on the compute stream. Few bytes of a step become arguments of a
 * launch, as a part of the step's segment; others take the stage. The host bytes may be reused when
 * the call returns. `node` is for messages, and may be NULL, as may the owner. Writes how the bytes
 * are copied. */
struct status *gpu_copy_small(struct gpu_device *gpu, const void *owner, const char *node,
                              CUdeviceptr to, const void *from, size_t size_bytes,
                              enum device_count *ret_path) MUST_USE;

/* ---- copies and waits (gpu_copies.c, gpu_copiers.c) ---- */

/* Counts a copy; `which` is the count of copies, whose bytes are counted next to it. Any thread. */
static inline void gpu_count_copy(struct gpu_device *gpu, enum device_count which,
                                  size_t size_bytes) {
    atomic_fetch_add_explicit(&gpu->segments.counts[which], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&gpu->segments.counts[which + 1], size_bytes, memory_order_relaxed);
}

void gpu_reads_init(struct gpu_device *gpu);
void gpu_reads_free(struct gpu_device *gpu);
/* The owner has nothing to run: hands over its first read, at once or when it arrives. Without the
 * device's lock. */
void gpu_reads_flush(struct gpu_device *gpu, const void *owner);

/* ---- memory for RDMA devices (gpu_export.c): see struct device_export ---- */

/* Asks the driver what it does about writes of other devices. Errors: the driver's. */
struct status *gpu_export_init(struct gpu_device *gpu) MUST_USE;
extern const struct device_export gpu_export;

/* ---- traced steps (gpu_trace.h): see struct device_ops ---- */

struct device_trace *gpu_trace_new(struct device *device);
void gpu_trace_begin(struct device_trace *trace);
int gpu_trace_end(struct device_trace *trace);
bool gpu_trace_read(struct device_trace *trace, int span, int64_t *ret_start_ns,
                    int64_t *ret_end_ns);
bool gpu_trace_activity(struct device_trace *trace, int span, size_t n,
                        struct device_activity *ret);
void gpu_trace_free(struct device_trace *trace);

extern const struct device_ops gpu_device_ops;
struct status *gpu_copiers_start(struct gpu_device *gpu) MUST_USE;
/* Serves what is queued, then ends the threads. */
void gpu_copiers_stop(struct gpu_device *gpu);
/* Gives back what they have of the driver, after gpu_copiers_stop. Its context is current. */
void gpu_copiers_free(struct gpu_device *gpu);
/* Lets the threads end without waiting for them, and calls no driver, because a call of the driver
 * hangs. What they use is not freed. */
void gpu_copiers_detach(struct gpu_device *gpu);

#endif
