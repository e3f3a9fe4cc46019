/* Writes the status pages /statusz and /stepz. */
#include "worker/service/service_internal.h"

#include "common/base/clock.h"
#include "common/tensor/tensor_proto.h"
#include "kernels/cpu/cpu_libraries.h"
#include "rpc/daemon/page.h"
#include "rpc/tls/tls.h"

static void add_text(struct str *out, const char *key, const char *text) {
    str_addf(out, "\"%s\":\"", key);
    str_add_json_escaped(out, text, strlen(text));
    str_add(out, "\",");
}

static void describe_counts(struct device *device, struct str *out) {
    uint64_t counts[N_DEVICE_COUNTS] = {0};
    device->ops->counts(device, counts);
    str_add(out, "\"counts\":{");
    for (const struct service_device_count *count = service_device_counts; count->name; count++)
        str_addf(out, "%s\"%s\":%llu", count == service_device_counts ? "" : ",", count->name,
                 (unsigned long long)counts[count->which]);
    str_add(out, "},");
}

static void describe_devices(const struct worker_service *service, struct str *out) {
    str_add(out, "\"devices\":[");
    for (int i = 0; i < service->options.n_devices; i++) {
        struct device *device = &service->options.devices[i];
        str_add(out, i > 0 ? ",{" : "{");
        add_text(out, "name", device->full_name);
        struct device_rates rates = service_device_rates(service, device);
        str_addf(out,
                 "\"scale\":%g,\"rates\":{\"flops_per_second\":%.3g,\"bytes_per_second\":%.3g,"
                 "\"dispatch_ns\":%.3g},",
                 service->options.device_scale, rates.flops_per_second, rates.bytes_per_second,
                 rates.dispatch_ns);
        if (device->ops) {
            struct str text = STR_INIT;
            device->ops->describe(device, &text);
            add_text(out, "description", str_text(&text));
            str_fini(&text);
        }
        const struct status *failure = device_failure(device);
        if (failure)
            add_text(out, "failed", status_message(failure));
        if (device->ops && device->ops->counts)
            describe_counts(device, out);
        str_addf(
            out,
            "\"memory_in_use_bytes\":%lld,\"memory_peak_bytes\":%lld,\"memory_limit_bytes\":%lld}",
            (long long)atomic_load(&device->allocator->in_use_bytes),
            (long long)atomic_load(&device->allocator->peak_bytes),
            (long long)device->memory_limit_bytes);
    }
    str_add(out, "],");
}

/* A page is made on the loop, from names that clients chose, so all of it is limited. */
enum {
    MAX_STEPS_SHOWN = 100,
    MAX_WAITS_BYTES = 64 << 10,  /* of one step */
    MAX_STEPS_BYTES = 512 << 10, /* of all steps' rows, about: a browser draws at most 1 MiB */
    MAX_CLUSTERS_BYTES = 1 << 20,
};

/* Lists the runs that have lasted longest, with a reference each, of one master or of all (0). */
static int take_shown(struct worker_service *service, uint64_t master_incarnation,
                      struct graph_run **ret_runs, size_t *ret_n_live) {
    int n = 0;
    pthread_mutex_lock(&service->lock);
    *ret_n_live = service->by_step.n_entries;
    LIST_FOR_EACH (link, &service->runs) {
        struct graph_run *run = LIST_ENTRY(link, struct graph_run, link);
        if (n == MAX_STEPS_SHOWN)
            break;
        if (master_incarnation != 0 && run->master_incarnation != master_incarnation)
            continue;
        atomic_fetch_add_explicit(&run->n_refs, 1, memory_order_relaxed);
        ret_runs[n++] = run;
    }
    pthread_mutex_unlock(&service->lock);
    return n;
}

/* Writes a line for each operation, or one that says that the step only computes. */
static void describe_waits(struct graph_run *run, struct str *out) {
    size_t before = out->len;
    execution_describe_waits(&run->execution, MAX_WAITS_BYTES, out);
    if (out->len == before)
        str_add(out, "nothing waits: it is computing\n");
}

void worker_service_describe_steps(struct worker_service *service, struct str *out) {
    struct graph_run *shown[MAX_STEPS_SHOWN];
    size_t n_live;
    int n = take_shown(service, 0, shown, &n_live);
    int64_t now_ns = clock_now_ns();
    for (int i = 0; i < n; i++) {
        str_addf(out, "step %016llx of master %016llx, %.3f s:\n", (unsigned long long)shown[i]->id,
                 (unsigned long long)shown[i]->master_incarnation,
                 (double)(now_ns - shown[i]->start_ns) / 1e9);
        describe_waits(shown[i], out);
        graph_run_unref(shown[i]);
    }
    if (n_live > (size_t)n)
        str_addf(out, "and %zu more\n", n_live - (size_t)n);
}

void service_send_steps(struct service_connection *connection, uint64_t id) {
    struct graph_run *shown[MAX_STEPS_SHOWN];
    struct str steps = STR_INIT, step = STR_INIT, waits = STR_INIT;
    size_t n_live;
    int n = take_shown(connection->service, connection->incarnation, shown, &n_live);
    for (int i = 0; i < n; i++) {
        str_clear(&step);
        str_clear(&waits);
        describe_waits(shown[i], &waits);
        proto_add_tag(&step, 1, 1);
        str_add_bytes(&step, &shown[i]->id, sizeof(shown[i]->id));
        proto_add_bytes(&step, 2, waits.data, waits.len);
        proto_add_bytes(&steps, 1, step.data, step.len);
        graph_run_unref(shown[i]);
    }
    service_send(connection->wire, WIRE_STEPS, id, steps.data, steps.len);
    str_fini(&steps);
    str_fini(&step);
    str_fini(&waits);
}

static void add_step_row(struct graph_run *run, int64_t now_ns, struct str *out) {
    struct str waits = STR_INIT;
    execution_describe_waits(&run->execution, MAX_WAITS_BYTES, &waits);
    page_open(out, NULL, '{');
    page_id(out, "step", run->id);
    page_id(out, "master", run->master_incarnation);
    page_int(out, "graph", (int64_t)run->graph->handle);
    page_real(out, "seconds", (double)(now_ns - run->start_ns) / 1e9);
    page_key(out, "waits");
    str_add_char(out, '"');
    str_add_json_escaped(out, str_text(&waits), waits.len);
    str_add_char(out, '"');
    page_close(out, '}');
    str_fini(&waits);
}

static void describe_steps(struct worker_service *service, struct str *out) {
    struct graph_run *shown[MAX_STEPS_SHOWN];
    size_t n_live, begin = out->len, n_more = 0;
    int n = take_shown(service, 0, shown, &n_live);
    int64_t now_ns = clock_now_ns();
    page_int(out, "live_steps", (int64_t)n_live);
    page_open(out, "steps", '[');
    for (int i = 0; i < n; i++) {
        if (out->len - begin <= MAX_STEPS_BYTES)
            add_step_row(shown[i], now_ns, out);
        else
            n_more++;
        graph_run_unref(shown[i]);
    }
    page_more(out, n_more + (n_live > (size_t)n ? n_live - (size_t)n : 0));
    page_close(out, ']');
}

void worker_service_page_steps(struct worker_service *service, struct str *out) {
    page_open(out, NULL, '{');
    describe_steps(service, out);
    page_close(out, '}');
    str_add_char(out, '\n');
}

static void describe_clusters(const struct worker_service *service, struct str *out) {
    size_t begin = out->len, n_more = 0;
    page_open(out, "session_clusters", '[');
    LIST_FOR_EACH (link, &service->exchanges) {
        if (out->len - begin > MAX_CLUSTERS_BYTES) {
            n_more++;
            continue;
        }
        page_key(out, NULL);
        exchange_describe(LIST_ENTRY(link, struct exchange, link), out);
    }
    page_more(out, n_more);
    page_close(out, ']');
}

void worker_service_describe(struct worker_service *service, int max_rows, struct str *out) {
    str_add_char(out, '{');
    add_text(out, "task", service->task);
    str_addf(out, "\"incarnation\":\"%016llx\",\"version\":\"%s\",\"draining\":%s,\"clients\":%d,",
             (unsigned long long)service->incarnation, MILLRACE_VERSION,
             service->is_draining ? "true" : "false", service->n_connections);
    add_text(out, "unix_address", service->unix_address);
    str_add(out, "\"tls\":");
    if (service->options.tls)
        tls_describe(service->options.tls, out);
    else
        str_add(out, "null");
    str_add_char(out, ',');
    describe_devices(service, out);
    str_add(out, "\"libraries\":");
    cpu_libraries_describe(out);
    str_add_char(out, ',');
    describe_steps(service, out);
    page_key(out, "graphs");
    graph_cache_describe(service->graphs, (size_t)max_rows, out);
    str_addf(out,
             ",\"n_resources\":%zu,\"resources\":", container_n_resources(service->containers));
    container_describe(service->containers, (size_t)max_rows, out);
    str_add(out, ",\"peers\":");
    peer_table_describe(service->home->peers, out);
    describe_clusters(service, out);
    struct str gpu = STR_INIT;
    if (service->options.gpu_describe)
        service->options.gpu_describe(&gpu);
    else
        str_add(&gpu, service->options.gpu_text);
    str_add(out, ",\"gpu\":\"");
    str_add_json_escaped(out, str_text(&gpu), gpu.len);
    str_fini(&gpu);
    str_add(out, "\",\"rdma\":");
    peer_table_describe_rdma(service->home->peers, out);
    str_add(out, ",\"rendezvous\":");
    rendezvous_table_describe(service->home->rendezvous, out);
    str_add(out, "}\n");
}
