/* A worker inside a master's process, for tf-master --with-worker and for local sessions of the C
 * client: the same service as tf-worker's, on the master's loop, at an address that only this
 * process knows (rpc/wire/wire_local.c). A message between the two costs no change of thread.
 *
 * Loop thread. */
#ifndef MILLRACE_WORKER_EMBEDDED_WORKER_H
#define MILLRACE_WORKER_EMBEDDED_WORKER_H

#include "worker/worker_task.h"

struct embedded_worker_options {
    struct worker_task_options task;
    const char *listen;     /* "local:NAME", which the master's list of tasks has */
    int64_t max_feed_bytes; /* of one step; 0: the worker's default */
    int64_t device_hang_ms; /* as worker_options; 0: the default */
    bool (*on_device_failed)(void *arg, struct device *device); /* as worker_options */
    void *on_device_failed_arg;
};

struct embedded_worker {
    struct worker_task task;
    struct worker_service *service; /* NULL once it is being freed */
};

/* Errors: those of worker_task_init and wire_listen. */
struct status *embedded_worker_new(struct loop *loop, const struct embedded_worker_options *options,
                                   struct embedded_worker **ret) MUST_USE;
/* Ends every step and connection. on_stopped(arg) is called on the loop when nothing of the worker
 * uses the loop any more. */
void embedded_worker_stop(struct embedded_worker *worker, void (*on_stopped)(void *arg), void *arg);
/* Ends the threads that are the worker's own, after loop_run has returned, and before the pool that
 * it borrows is freed. Accepts NULL. */
void embedded_worker_stop_threads(struct embedded_worker *worker);
/* Frees the devices, after the pool has been freed. Accepts NULL. */
void embedded_worker_free(struct embedded_worker *worker);

#endif
