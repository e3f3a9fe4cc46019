/* Runs a master and a worker inside a client's process, for a local session [WP 3]. */
#include <stdlib.h>

#include "client/local/local_plugin.h"
#include "common/base/log.h"
#include "common/io/file_root.h"
#include "common/tensor/tensor_proto.h"
#include "master/service/service.h"
#include "worker/embedded_worker.h"

enum { MAX_THREADS = 1024 };

struct local_cluster {
    struct loop *loop;
    struct pool *pool;
    struct embedded_worker *worker;
    struct service *service;
    struct cluster_spec spec;
};

/* What counts of a ConfigProto. */
struct local_config {
    int n_cpu_devices, n_threads; /* 0 threads: one for each core */
};

/* ---- ConfigProto ---- */

static struct status *read_device_count(struct span entry, struct local_config *ret) {
    struct proto_field field;
    struct span type = {"", 0};
    int64_t n = 0;
    while (proto_next(&entry, &field) > 0) {
        if (field.number == 1 && field.wire_type == 2)
            type = field.bytes;
        else if (field.number == 2 && field.wire_type == 0)
            n = (int32_t)field.value;
    }
    if (!span_is(type, "CPU"))
        return NULL;
    if (n < 1 || n > TASK_MAX_CPU_DEVICES)
        return status_invalid("device_count[\"CPU\"] is %lld: a local session has 1 to %d CPU "
                              "devices",
                              (long long)n, TASK_MAX_CPU_DEVICES);
    ret->n_cpu_devices = (int)n;
    return NULL;
}

/* ConfigProto: device_count 1, intra_op_parallelism_threads 2, inter_op_parallelism_threads 5.
 * Kernels and nodes share one pool, so the larger number counts. */
static struct status *read_config(struct span config, struct local_config *ret) {
    struct proto_field field;
    *ret = (struct local_config){.n_cpu_devices = 1};
    while (proto_next(&config, &field) > 0) {
        if (field.number == 1 && field.wire_type == 2)
            TRY(read_device_count(field.bytes, ret));
        else if ((field.number == 2 || field.number == 5) && field.wire_type == 0)
            ret->n_threads = MAX(ret->n_threads, (int32_t)field.value);
    }
    if (ret->n_threads > MAX_THREADS)
        return status_invalid("%d threads: a local session has at most %d", ret->n_threads,
                              MAX_THREADS);
    return NULL;
}

/* ---- the process ---- */

/* The session may do what its program may: all files, and no log that nobody asked for. */
static void set_up_process(void) {
    const char *level = getenv("MILLRACE_LOG_LEVEL");
    log_set_task("millrace");
    log_set_level(level && strcmp(level, "debug") == 0  ? LOG_DEBUG
                  : level && strcmp(level, "info") == 0 ? LOG_INFO
                                                        : LOG_WARNING);
    file_roots_set_whole();
}

static const char *next_address(struct str *out) {
    static _Atomic unsigned n_started;
    str_addf(out, "local:session-%u", n_started++);
    return str_text(out);
}

static struct status *start_both(struct loop *loop, const struct local_config *config,
                                 struct local_cluster *cluster) {
    struct str address = STR_INIT;
    struct embedded_worker_options worker_options = {
        .task = {.job = "localhost",
                 .n_cpu_devices = config->n_cpu_devices,
                 .pool = cluster->pool,
                 .gpu_mode = GPU_OFF},
        .listen = next_address(&address)};
    struct master_options master_options;
    master_options_default(&master_options);
    master_options.listen = NULL;
    struct status *st = cluster_spec_add_local(&cluster->spec, "localhost", worker_options.listen);
    if (!st)
        st = embedded_worker_new(loop, &worker_options, &cluster->worker);
    if (!st)
        st = service_new(loop, cluster->pool, &cluster->spec, &master_options, &cluster->service);
    str_fini(&address);
    return st;
}

/* The worker may wait for the pool, when nothing is open on the loop. */
static void on_worker_stopped(void *arg) { loop_stop(((struct local_cluster *)arg)->loop); }

static void stop_cluster(struct local_cluster *cluster) {
    if (cluster->service)
        service_free(cluster->service);
    if (cluster->worker)
        embedded_worker_stop(cluster->worker, on_worker_stopped, cluster);
    else
        loop_stop(cluster->loop);
    cluster->service = NULL;
}

static void free_cluster(struct local_cluster *cluster) {
    embedded_worker_stop_threads(cluster->worker);
    pool_free(cluster->pool);
    embedded_worker_free(cluster->worker);
    cluster_spec_fini(&cluster->spec);
    free(cluster);
}

static struct status *start_cluster(struct loop *loop, struct span config_bytes,
                                    struct local_cluster **ret) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct local_config config;
    TRY(read_config(config_bytes, &config));
    pthread_once(&once, set_up_process);
    struct local_cluster *cluster = xcalloc(1, sizeof *cluster);
    cluster->loop = loop;
    cluster->pool = pool_new(config.n_threads);
    cluster_spec_init(&cluster->spec);
    struct status *st = start_both(loop, &config, cluster);
    if (st) {
        stop_cluster(cluster);
        loop_run(loop);
        free_cluster(cluster);
        return st;
    }
    *ret = cluster;
    return NULL;
}

static struct grpc_inproc *call_master(struct local_cluster *cluster, const char *path,
                                       struct grpc_body *body, int64_t timeout_ms,
                                       grpc_align_fn *align, grpc_done_fn *on_done, void *arg) {
    return grpc_inproc_start(cluster->service->server, path, body, timeout_ms, align, on_done, arg);
}

extern const struct local_plugin millrace_local_export;
const struct local_plugin millrace_local_export = {.version = MILLRACE_VERSION,
                                                   .tensor_size = sizeof(struct tensor),
                                                   .buffer_size = sizeof(struct buffer),
                                                   .allocator_size = sizeof(struct allocator),
                                                   .start = start_cluster,
                                                   .call = call_master,
                                                   .cancel = grpc_inproc_cancel,
                                                   .stop = stop_cluster,
                                                   .free = free_cluster};
