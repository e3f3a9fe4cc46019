/* Watches the devices that have a memory of their own. They are asked now and then whether they
 * still work. When one has failed, the masters get a new WorkerStatus, without the device, and go
 * on with the others, unless the task ends with its device:
 *
 *   a kernel, a copy or a probe fails ──► on_failure (any thread) ──► failed_task (loop)
 *                                                                        │ WorkerStatus, id 0
 *                                        sessions: ABORTED once ◄── each master
 */
#include "common/base/log.h"
#include "worker/service/service_internal.h"

/* Guards device->watcher of all devices: one may fail while the service ends. */
static pthread_mutex_t watchers = PTHREAD_MUTEX_INITIALIZER;

static void on_failure(struct device *device) {
    pthread_mutex_lock(&watchers);
    struct worker_service *service = device->watcher;
    if (service && !service->failed_device)
        service->failed_device = device;
    if (service && !atomic_exchange(&service->is_failure_posted, true))
        loop_post(service->loop, &service->failure_task);
    pthread_mutex_unlock(&watchers);
}

static void on_failed(struct loop_task *task) {
    struct worker_service *service = CONTAINER_OF(task, struct worker_service, failure_task);
    const struct worker_options *options = &service->options;
    atomic_store(&service->is_failure_posted, false);
    if (service->is_freed) {
        service_maybe_free(service);
        return;
    }
    pthread_mutex_lock(&watchers);
    struct device *device = service->failed_device;
    pthread_mutex_unlock(&watchers);
    /* Sessions that are opened until the task ends would be refused for good without the device. */
    if (options->on_device_failed &&
        options->on_device_failed(options->on_device_failed_arg, device))
        return;
    LIST_FOR_EACH (link, &service->connections) {
        struct service_connection *connection = LIST_ENTRY(link, struct service_connection, link);
        if (connection->master)
            service_send_status(connection, 0);
    }
}

void service_health_init(struct worker_service *service) {
    service->failure_task.run = on_failed;
    pthread_mutex_lock(&watchers);
    for (int i = 0; i < service->options.n_devices; i++) {
        struct device *device = &service->options.devices[i];
        device->watcher = service;
        device->on_failure = on_failure;
    }
    pthread_mutex_unlock(&watchers);
}

void service_health_close(struct worker_service *service) {
    pthread_mutex_lock(&watchers);
    for (int i = 0; i < service->options.n_devices; i++)
        service->options.devices[i].watcher = NULL;
    pthread_mutex_unlock(&watchers);
}

bool service_health_is_busy(const struct worker_service *service) {
    return atomic_load(&service->is_failure_posted);
}

void service_health_tick(struct worker_service *service) {
    for (int i = 0; i < service->options.n_devices; i++) {
        struct device *device = &service->options.devices[i];
        if (device->ops && device->ops->probe)
            device->ops->probe(device, service->options.device_hang_ms * INT64_C(1000000));
    }
}
