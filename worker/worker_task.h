/* What one task of a cluster owns: its name, its devices, and the threads that run kernels. The
 * program around it (tf-worker, tf-master --with-worker, a local session of the C client) gives
 * these to a worker service (worker/service/service.h).
 *
 * Made and freed by one thread, when no other one uses it. */
#ifndef MILLRACE_WORKER_WORKER_TASK_H
#define MILLRACE_WORKER_WORKER_TASK_H

#include "common/base/pool.h"
#include "common/tensor/shm_arena.h"
#include "kernels/cuda/rows/gpu_plugin.h"
#include "worker/service/service.h"

enum { TASK_MAX_CPU_DEVICES = 64 };

enum gpu_mode { GPU_OFF, GPU_AUTO, GPU_REQUIRE };
/* How long the steps have to end, and their replies to arrive, when a GPU that is required has
 * failed. */
enum { TASK_GPU_FAILED_MS = 5000 };

struct worker_task_options {
    const char *job;
    int index;
    int n_cpu_devices;          /* 1 to TASK_MAX_CPU_DEVICES */
    int64_t memory_limit_bytes; /* of each CPU device; 0: no limit */
    struct pool *pool;          /* that runs kernels, borrowed; NULL: the task has its own, of */
    int n_threads;              /* threads; 0: one for each core */
    bool has_arena;             /* tensors are in memory that other processes of the host can map */
    enum gpu_mode gpu_mode;
    struct gpu_plugin_options gpu; /* memory_limit_bytes: of each GPU */
};

struct worker_task {
    char *name; /* "/job:worker/replica:0/task:0" */
    struct pool *pool;
    bool is_pool_borrowed;
    struct pool *io_pool;                                          /* kernels that block on files */
    struct shm_arena *arena;                                       /* or NULL */
    struct device devices[TASK_MAX_CPU_DEVICES + GPU_MAX_DEVICES]; /* CPUs first */
    int n_devices, n_cpu_devices;
    const struct gpu_plugin *gpu_plugin; /* NULL: there are no GPUs */
    char *gpu_text;                      /* for /statusz */
};

/* Errors: those of GPUs that are required. The task is to be freed in any case. */
struct status *worker_task_init(struct worker_task *task,
                                const struct worker_task_options *options) MUST_USE;
/* Puts the task into the options of its service. They borrow it. */
void worker_task_fill(struct worker_task *task, struct worker_options *options);
/* Ends the threads that are the task's own, after what is queued has run. The loop may be freed
 * only afterwards. */
void worker_task_stop(struct worker_task *task);
/* Frees the rest, when nothing uses a device any more. The arena stays until the end of the
 * process, because other processes may read it. */
void worker_task_fini(struct worker_task *task);

#endif
