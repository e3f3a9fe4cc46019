/* Answers GetStatus. A master is told how fast the devices are, which a pool thread measures when
 * the first master asks. Tools, and tasks that look whether this process lives, do not wait for
 * that. */
#include <stdlib.h>

#include "proto/worker.pb-c.h"
#include "rpc/host_id.h"
#include "worker/service/service_internal.h"

/* A master's GetStatus that waits for the rates. */
struct status_wait {
    struct list link; /* service->status_waits */
    struct service_connection *connection;
    uint64_t id;
};

struct device_rates service_device_rates(const struct worker_service *service,
                                         const struct device *device) {
    struct device_rates rates = {0};
    if (service->rates_phase == RATES_KNOWN && !device->ops)
        rates = service->rates;
    else if (device->ops && device->ops->rates)
        rates = device->ops->rates(device);
    return device_rates_divide(rates, service->options.device_scale);
}

static void add_rates(const struct worker_service *service, const struct device *device,
                      Millrace__DeviceInfo *info, Millrace__DeviceRates *out) {
    struct device_rates rates = service_device_rates(service, device);
    millrace__device_rates__init(out);
    out->flops_per_second = rates.flops_per_second;
    out->bytes_per_second = rates.bytes_per_second;
    out->dispatch_ns = rates.dispatch_ns;
    info->rates = out;
}

/* A GPU has one stream. */
static uint32_t n_lanes(const struct worker_service *service, const struct device *device) {
    if (device->ops || !service->options.pool)
        return 1;
    return (uint32_t)pool_n_threads(service->options.pool);
}

/* The devices that are not there any more, and why. The caller frees the list, behind which they
 * are. */
static Millrace__FailedDevice **list_failed(const struct worker_service *service, size_t *ret_n) {
    int n = service->options.n_devices;
    Millrace__FailedDevice *devices = NULL, **list = NULL;
    *ret_n = 0;
    for (int i = 0; i < n; i++) {
        struct device *device = &service->options.devices[i];
        const struct status *failure = device_failure(device);
        if (!failure)
            continue;
        list = list ? list : xcalloc((size_t)n, sizeof *list + sizeof *devices);
        devices = (Millrace__FailedDevice *)(list + n) + *ret_n;
        millrace__failed_device__init(devices);
        devices->name = device->full_name;
        devices->why = (char *)(uintptr_t)status_message(failure);
        list[(*ret_n)++] = devices;
    }
    return list;
}

void service_send_status(const struct service_connection *connection, uint64_t id) {
    struct worker_service *service = connection->service;
    Millrace__WorkerStatus status = MILLRACE__WORKER_STATUS__INIT;
    int n = service->options.n_devices, n_listed = 0;
    Millrace__DeviceInfo *devices = xcalloc((size_t)n, sizeof(*devices));
    Millrace__DeviceInfo **list = xcalloc((size_t)n, sizeof(Millrace__DeviceInfo *));
    Millrace__DeviceRates *rates = xcalloc((size_t)n, sizeof(*rates));
    struct str *descriptions = xcalloc((size_t)n, sizeof(*descriptions));
    for (int i = 0; i < n; i++) {
        struct device *device = &service->options.devices[i];
        if (device_failure(device))
            continue; /* it is not there any more */
        millrace__device_info__init(&devices[i]);
        devices[i].name = device->full_name;
        devices[i].type = (char *)(uintptr_t)device->type;
        devices[i].memory_limit_bytes = device->memory_limit_bytes;
        devices[i].incarnation = device->incarnation;
        add_rates(service, device, &devices[i], &rates[i]);
        devices[i].lanes = n_lanes(service, device);
        list[n_listed++] = &devices[i];
        if (device->ops) {
            device->ops->describe(device, &descriptions[i]);
            devices[i].description = (char *)(uintptr_t)str_text(&descriptions[i]);
        }
    }
    status.task = service->task;
    status.incarnation = service->incarnation;
    status.n_device = (size_t)n_listed;
    status.device = list;
    status.version = (char *)(uintptr_t)MILLRACE_VERSION;
    status.unix_address = service->unix_address;
    status.revision = WIRE_REVISION;
    status.host_id = (char *)(uintptr_t)host_id();
    status.failed_device = list_failed(service, &status.n_failed_device);
    status.membership = connection->master ? connection->master->membership : 0;
    size_t len = millrace__worker_status__get_packed_size(&status);
    uint8_t *bytes = xmalloc(len);
    millrace__worker_status__pack(&status, bytes);
    service_send(connection->wire, WIRE_STATUS, id, bytes, len);
    free(bytes);
    for (int i = 0; i < n; i++)
        str_fini(&descriptions[i]);
    free(descriptions);
    free(status.failed_device);
    free(rates);
    free(list);
    free(devices);
}

static void on_measured(struct loop_task *task) {
    struct worker_service *service = CONTAINER_OF(task, struct worker_service, rates_home_task);
    service->rates_phase = RATES_KNOWN;
    for (struct list *link; (link = list_pop_front(&service->status_waits));) {
        struct status_wait *wait = LIST_ENTRY(link, struct status_wait, link);
        if (!service->is_freed)
            service_send_status(wait->connection, wait->id);
        free(wait);
    }
    service_maybe_free(service);
}

static void measure(struct pool_task *task) {
    struct worker_service *service = CONTAINER_OF(task, struct worker_service, rates_task);
    service->rates = device_rates_measure();
    loop_post(service->loop, &service->rates_home_task);
}

void service_answer_status(struct service_connection *connection, uint64_t id) {
    struct worker_service *service = connection->service;
    if (!connection->master || !service->options.pool || service->rates_phase == RATES_KNOWN) {
        service_send_status(connection, id);
        return;
    }
    struct status_wait *wait = xmalloc(sizeof(*wait));
    *wait = (struct status_wait){.connection = connection, .id = id};
    list_push_back(&service->status_waits, &wait->link);
    if (service->rates_phase == RATES_MEASURING)
        return;
    service->rates_phase = RATES_MEASURING;
    service->rates_task.run = measure;
    service->rates_home_task.run = on_measured;
    pool_submit(service->options.pool, &service->rates_task);
}

void service_forget_status(struct service_connection *connection) {
    LIST_FOR_EACH_SAFE (link, next, &connection->service->status_waits) {
        struct status_wait *wait = LIST_ENTRY(link, struct status_wait, link);
        if (wait->connection != connection)
            continue;
        list_remove(&wait->link);
        free(wait);
    }
}
