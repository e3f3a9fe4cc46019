/* Runs a worker in its master's process. */
#include "worker/embedded_worker.h"

#include <stdlib.h>

struct status *embedded_worker_new(struct loop *loop, const struct embedded_worker_options *options,
                                   struct embedded_worker **ret) {
    struct embedded_worker *worker = xcalloc(1, sizeof *worker);
    struct worker_options service_options;
    struct status *st = worker_task_init(&worker->task, &options->task);
    worker_options_default(&service_options);
    worker_task_fill(&worker->task, &service_options);
    service_options.listen = options->listen;
    service_options.use_unix = service_options.use_shm = false; /* there is no other task */
    service_options.why_no_rdma = "there is no other task";
    if (options->max_feed_bytes > 0)
        service_options.max_feed_bytes = options->max_feed_bytes;
    if (options->device_hang_ms > 0)
        service_options.device_hang_ms = options->device_hang_ms;
    service_options.on_device_failed = options->on_device_failed;
    service_options.on_device_failed_arg = options->on_device_failed_arg;
    if (!st)
        st = worker_service_new(loop, &service_options, &worker->service);
    if (st) {
        worker_task_fini(&worker->task);
        free(worker);
        return st;
    }
    *ret = worker;
    return NULL;
}

void embedded_worker_stop(struct embedded_worker *worker, void (*on_stopped)(void *arg),
                          void *arg) {
    struct worker_service *service = worker->service;
    worker->service = NULL;
    worker_service_free(service, on_stopped, arg);
}

void embedded_worker_stop_threads(struct embedded_worker *worker) {
    if (worker)
        worker_task_stop(&worker->task);
}

void embedded_worker_free(struct embedded_worker *worker) {
    if (!worker)
        return;
    worker_task_fini(&worker->task);
    free(worker);
}
