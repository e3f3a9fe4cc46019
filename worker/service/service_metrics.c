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

const struct service_device_count service_device_counts[] = {
    {DEVICE_WORK, "work", "millrace_device_work_total", NULL,
     "Launches, fills and matrix products that kernels have enqueued"},
    {DEVICE_WORK_REPLAYED, "work_replayed", "millrace_device_work_replayed_total", NULL,
     "Those of them that were enqueued as parts of replayed segments"},
    {DEVICE_REPLAYS, "replays", "millrace_device_replays_total", NULL,
     "Segments of work that were replayed with one call"},
    {DEVICE_CHANGES, "changes", "millrace_device_replay_changes_total", NULL,
     "Launches that got new arguments before a replay"},
    {DEVICE_CAPTURES, "captures", "millrace_device_captures_total", NULL,
     "Segments that were captured"},
    {DEVICE_INTERRUPTED, "interrupted", "millrace_device_replay_misses_total",
     "why=\"interrupted\"",
     "Segments that were expected and not replayed, because a step went on in another way "
     "(interrupted), a call failed (failed), or values are elsewhere (addresses)"},
    {DEVICE_FAILED, "failed_replays", "millrace_device_replay_misses_total", "why=\"failed\"",
     NULL},
    {DEVICE_OTHER_ADDRESSES, "other_addresses", "millrace_device_replay_misses_total",
     "why=\"addresses\"", NULL},
    {DEVICE_ENDS_OTHER_USE, "ends_other_use", "millrace_device_segment_ends_total",
     "why=\"other_use\"",
     "Why segments have ended before they were replayed or captured: another use of the queue, a "
     "library, another step, nothing to run, or too much work"},
    {DEVICE_ENDS_LIBRARY, "ends_library", "millrace_device_segment_ends_total", "why=\"library\"",
     NULL},
    {DEVICE_ENDS_OTHER_STEP, "ends_other_step", "millrace_device_segment_ends_total",
     "why=\"other_step\"", NULL},
    {DEVICE_ENDS_IDLE, "ends_idle", "millrace_device_segment_ends_total", "why=\"idle\"", NULL},
    {DEVICE_ENDS_FULL, "ends_full", "millrace_device_segment_ends_total", "why=\"full\"", NULL},
    {DEVICE_TO_HOST_DIRECT, "to_host_direct", "millrace_device_copies_total",
     "kind=\"to_host\",path=\"direct\"",
     "Copies to the host, from the host and from other devices: without the host (direct), "
     "through pinned memory (staged), or in the arguments of a launch (launched)"},
    {DEVICE_TO_HOST_STAGED, "to_host_staged", "millrace_device_copies_total",
     "kind=\"to_host\",path=\"staged\"", NULL},
    {DEVICE_FROM_HOST_DIRECT, "from_host_direct", "millrace_device_copies_total",
     "kind=\"from_host\",path=\"direct\"", NULL},
    {DEVICE_FROM_HOST_STAGED, "from_host_staged", "millrace_device_copies_total",
     "kind=\"from_host\",path=\"staged\"", NULL},
    {DEVICE_FROM_HOST_LAUNCHED, "from_host_launched", "millrace_device_copies_total",
     "kind=\"from_host\",path=\"launched\"", NULL},
    {DEVICE_FROM_PEER_DIRECT, "from_peer_direct", "millrace_device_copies_total",
     "kind=\"from_peer\",path=\"direct\"", NULL},
    {DEVICE_FROM_PEER_STAGED, "from_peer_staged", "millrace_device_copies_total",
     "kind=\"from_peer\",path=\"staged\"", NULL},
    {DEVICE_TO_HOST_DIRECT_BYTES, "to_host_direct_bytes", "millrace_device_copied_bytes_total",
     "kind=\"to_host\",path=\"direct\"", "The bytes of these copies"},
    {DEVICE_TO_HOST_STAGED_BYTES, "to_host_staged_bytes", "millrace_device_copied_bytes_total",
     "kind=\"to_host\",path=\"staged\"", NULL},
    {DEVICE_FROM_HOST_DIRECT_BYTES, "from_host_direct_bytes", "millrace_device_copied_bytes_total",
     "kind=\"from_host\",path=\"direct\"", NULL},
    {DEVICE_FROM_HOST_STAGED_BYTES, "from_host_staged_bytes", "millrace_device_copied_bytes_total",
     "kind=\"from_host\",path=\"staged\"", NULL},
    {DEVICE_FROM_HOST_LAUNCHED_BYTES, "from_host_launched_bytes",
     "millrace_device_copied_bytes_total", "kind=\"from_host\",path=\"launched\"", NULL},
    {DEVICE_FROM_PEER_DIRECT_BYTES, "from_peer_direct_bytes", "millrace_device_copied_bytes_total",
     "kind=\"from_peer\",path=\"direct\"", NULL},
    {DEVICE_FROM_PEER_STAGED_BYTES, "from_peer_staged_bytes", "millrace_device_copied_bytes_total",
     "kind=\"from_peer\",path=\"staged\"", NULL},
    {DEVICE_MEMORY_CALLS, "memory_calls", "millrace_device_memory_calls_total", NULL,
     "Calls of the driver that map, unmap or pin memory; a step that has run before makes none"},
    {DEVICE_MOVED, "moved", "millrace_device_moved_total", NULL,
     "Values that were put at another address than in the step before"},
    {DEVICE_COMPILED, "compiled", "millrace_device_compiled_total", "outcome=\"compiled\"",
     "Fused programs that were compiled, and those that cannot be"},
    {DEVICE_NOT_COMPILED, "not_compiled", "millrace_device_compiled_total", "outcome=\"failed\"",
     NULL},
    {0, NULL, NULL, NULL, NULL},
};

static void write_count(struct worker_service *service, const struct service_device_count *count,
                        struct str *out) {
    for (int k = 0; k < service->options.n_devices; k++) {
        struct device *device = &service->options.devices[k];
        uint64_t counts[N_DEVICE_COUNTS] = {0};
        if (device->ops && device->ops->counts)
            device->ops->counts(device, counts);
        str_addf(out, "%s{device=\"", count->metric);
        metrics_add_label_value(out, device->full_name);
        str_addf(out, "\"%s%s} %llu\n", count->labels ? "," : "",
                 count->labels ? count->labels : "", (unsigned long long)counts[count->which]);
    }
}

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
    for (const struct service_device_count *count = service_device_counts; count->name; count++) {
        if (count->help)
            metrics_write_head(out, count->metric, "counter", count->help);
        write_count(service, count, out);
    }
    peer_table_write_metrics(service->home->peers, out);
}
