/* The status page's rows. */
#include "worker/service_internal.h"

#include "common/base/clock.h"

static void add_text(struct str *out, const char *key, const char *text) {
    str_addf(out, "\"%s\":\"", key);
    str_add_json_escaped(out, text, strlen(text));
    str_add(out, "\",");
}

static void describe_devices(const struct worker_service *service, struct str *out) {
    str_add(out, "\"devices\":[");
    for (int i = 0; i < service->options.n_devices; i++) {
        const struct device *device = &service->options.devices[i];
        str_add(out, i > 0 ? ",{" : "{");
        add_text(out, "name", device->full_name);
        str_addf(out, "\"memory_in_use_bytes\":%lld,\"memory_peak_bytes\":%lld,\"memory_limit_bytes\":%lld}",
                 (long long)atomic_load(&device->allocator->in_use_bytes), (long long)atomic_load(&device->allocator->peak_bytes),
                 (long long)device->memory_limit_bytes);
    }
    str_add(out, "],");
}

/* At most so many steps are listed: a page is made on the loop. */
enum { MAX_STEPS_SHOWN = 100 };

static void describe_steps(struct worker_service *service, struct str *out) {
    struct run *shown[MAX_STEPS_SHOWN];
    int n = 0;
    int64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&service->lock);
    str_addf(out, "\"live_steps\":%zu,\"steps\":[", service->by_step.n_entries);
    LIST_FOR_EACH (link, &service->runs) {
        if (n == MAX_STEPS_SHOWN)
            break;
        shown[n] = LIST_ENTRY(link, struct run, link);
        atomic_fetch_add_explicit(&shown[n++]->n_refs, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&service->lock);
    for (int i = 0; i < n; i++) {
        struct str waits = STR_INIT;
        executor_describe_waits(&shown[i]->exec, &waits);
        str_addf(out, "%s{\"step\":\"%016llx\",\"graph\":%llu,\"seconds\":%.3f,\"waits\":\"", i > 0 ? "," : "",
                 (unsigned long long)shown[i]->id, (unsigned long long)shown[i]->graph->handle,
                 (double)(now_ns - shown[i]->start_ns) / 1e9);
        str_add_json_escaped(out, str_text(&waits), waits.len);
        str_add(out, "\"}");
        str_fini(&waits);
        service_run_let_go(shown[i]);
    }
    str_add(out, "],");
}

void worker_service_describe(struct worker_service *service, struct str *out) {
    str_add_char(out, '{');
    add_text(out, "task", service->task);
    str_addf(out, "\"incarnation\":\"%016llx\",\"version\":\"%s\",\"draining\":%s,\"clients\":%d,",
             (unsigned long long)service->incarnation, MILLRACE_VERSION, service->is_draining ? "true" : "false", service->n_clients);
    add_text(out, "unix_address", service->unix_address);
    describe_devices(service, out);
    describe_steps(service, out);
    str_add(out, "\"graphs\":");
    graph_cache_describe(service->graphs, out);
    str_addf(out, ",\"n_resources\":%zu,\"resources\":", container_n_resources(service->containers));
    container_describe(service->containers, out);
    str_add(out, ",\"peers\":");
    peer_table_describe(service->peers, out);
    str_add(out, ",\"rendezvous\":");
    rendezvous_table_describe(service->rendezvous, out);
    str_add(out, "}\n");
}
