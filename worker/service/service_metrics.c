/* Writes the metrics that are made when they are asked for. */
#include "common/base/metrics.h"
#include "worker/service/service_internal.h"

static int64_t has_failed(struct device *device) { return device_failure(device) != NULL; }
static int64_t in_use_bytes(struct device *device) {
    return atomic_load(&device->allocator->in_use_bytes);
}
static int64_t peak_bytes(struct device *device) {
    return atomic_load(&device->allocator->peak_bytes);
}
static int64_t limit_bytes(struct device *device) { return device->memory_limit_bytes; }

static const struct device_metric {
    const char *name, *help;
    int64_t (*value)(struct device *device);
} device_metrics[] = {
    {"millrace_device_memory_in_use_bytes", "Memory that tensors on the device hold", in_use_bytes},
    {"millrace_device_memory_peak_bytes", "The most that tensors on the device have held",
     peak_bytes},
    {"millrace_device_memory_limit_bytes",
     "The device's limit, or the host's memory where there is none", limit_bytes},
    {"millrace_device_failed", "Has the device failed, so that nothing runs on it? (0 or 1)",
     has_failed},
};

void worker_service_write_metrics(struct worker_service *service, struct str *out) {
    for (size_t i = 0; i < ARRAY_LEN(device_metrics); i++) {
        const struct device_metric *metric = &device_metrics[i];
        metrics_write_head(out, metric->name, "gauge", metric->help);
        for (int k = 0; k < service->options.n_devices; k++) {
            struct device *device = &service->options.devices[k];
            str_addf(out, "%s{device=\"", metric->name);
            metrics_add_label_value(out, device->full_name);
            str_addf(out, "\"} %lld\n", (long long)metric->value(device));
        }
    }
    peer_table_write_metrics(service->home->peers, out);
}
