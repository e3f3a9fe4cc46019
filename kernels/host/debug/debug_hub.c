/* Runs the jobs of a hub, and its streams, on a thread that lives as long as the step. */
#include "kernels/host/debug/debug_hub.h"

#include <stdlib.h>

#include "common/base/denormals.h"
#include "common/base/thread.h"

enum { STACK_BYTES = 1 << 20 };
static const char send_events[] = "/tensorflow.EventListener/SendEvents";
static const size_t scheme_bytes = 7;

/* The task's gates, between steps. */
struct task_gates {
    struct object object;
    pthread_mutex_t lock;
    struct debug_gates gates; /* guarded by lock */
};

struct stream {
    char *url, *address;
    struct grpc_duplex *duplex;
};

struct job {
    struct list link;
    struct kernel_ctx *ctx;
    debug_job_fn *run;
    void *arg;
    bool needs_gates;
};

struct debug_hub {
    struct object object; /* references: the step's container, the thread, kernels */
    const struct kernel_host *host;
    struct kernel_cancel_hook cancel;
    struct kernel_end_hook end;
    struct kernel_ctx ctx; /* what the host needs to take the hook back */
    bool has_cancel_hook;
    /* the thread's */
    struct stream streams[DEBUG_MAX_URLS];
    int n_streams;
    struct task_gates *kept; /* or NULL */

    _Atomic bool is_cancelled;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct list jobs;
    struct debug_gates gates;
    bool is_started, has_gates, is_ending;
    struct status *why; /* of the cancellation */
};

static _Atomic int n_hubs;

struct span debug_url_path(struct span url) {
    const char *slash = memchr(url.data + scheme_bytes, '/', url.len - scheme_bytes);
    return slash ? (struct span){slash, (size_t)(url.data + url.len - slash)} : span_of("");
}

static char *address_of(struct span url) {
    return xstrndup(url.data + scheme_bytes, url.len - scheme_bytes - debug_url_path(url).len);
}

/* ---- the task's gates ---- */

static void free_task_gates(struct object *object) {
    struct task_gates *kept = CONTAINER_OF(object, struct task_gates, object);
    debug_gates_fini(&kept->gates);
    pthread_mutex_destroy(&kept->lock);
    free(kept);
}
static const struct object_type task_gates_type = {"debug gates", free_task_gates, NULL};

static struct status *make_task_gates(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    struct task_gates *kept = xcalloc(1, sizeof *kept);
    object_init(&kept->object, &task_gates_type);
    pthread_mutex_init(&kept->lock, NULL);
    debug_gates_init(&kept->gates);
    *ret = &kept->object;
    return NULL;
}

struct status *debug_hub_keep_gates(struct debug_hub *hub, struct kernel_ctx *ctx) {
    struct object *object;
    if (hub->kept)
        return NULL;
    TRY(ctx->host->resource_lookup_or_create(ctx, "", "debug_gates", &task_gates_type,
                                             make_task_gates, NULL, &object));
    hub->kept = CONTAINER_OF(object, struct task_gates, object);
    return NULL;
}

void debug_hub_write_gates(struct debug_hub *hub, struct str *out) {
    pthread_mutex_lock(&hub->kept->lock);
    debug_gates_write(&hub->kept->gates, out);
    pthread_mutex_unlock(&hub->kept->lock);
}

/* ---- streams ---- */

static bool is_unwanted(void *arg) {
    return atomic_load_explicit(&((struct debug_hub *)arg)->is_cancelled, memory_order_relaxed);
}

static struct status *stream_of(struct debug_hub *hub, struct span url, struct stream **ret) {
    for (int i = 0; i < hub->n_streams; i++)
        if (span_is(url, hub->streams[i].url)) {
            *ret = &hub->streams[i];
            return NULL;
        }
    if (hub->n_streams == DEBUG_MAX_URLS)
        return status_exhausted("more than %d different debug_urls in a step", DEBUG_MAX_URLS);
    struct stream *stream = &hub->streams[hub->n_streams];
    *stream = (struct stream){.url = xstrndup(url.data, url.len), .address = address_of(url)};
    hub->n_streams++;
    *ret = stream;
    struct duplex_options options = {.address = stream->address,
                                     .path = send_events,
                                     .connect_ms = DEBUG_CONNECT_MS,
                                     .stall_ms = DEBUG_STALL_MS,
                                     .is_unwanted = is_unwanted,
                                     .arg = hub};
    return hub->host->duplex_open(&options, &stream->duplex);
}

static struct status *named(struct status *status_take) {
    return status_take ? status_prefix_take(status_take, "debug server ") : NULL;
}

struct status *debug_hub_send(struct debug_hub *hub, struct span url, struct span event) {
    struct stream *stream;
    struct status *st = stream_of(hub, url, &stream);
    return named(st ? st : hub->host->duplex_send(stream->duplex, event));
}

static struct status *apply(struct debug_hub *hub, const struct stream *stream, struct span reply) {
    pthread_mutex_lock(&hub->lock);
    struct status *st = debug_gates_apply(&hub->gates, stream->address, reply);
    pthread_mutex_unlock(&hub->lock);
    if (st || !hub->kept)
        return st;
    pthread_mutex_lock(&hub->kept->lock);
    st = debug_gates_apply(&hub->kept->gates, stream->address, reply);
    pthread_mutex_unlock(&hub->kept->lock);
    return st;
}

static struct status *receive(struct debug_hub *hub, struct stream *stream, int64_t wait_ms,
                              bool *ret_is_ended) {
    struct str reply = STR_INIT;
    struct status *st = hub->host->duplex_receive(stream->duplex, wait_ms, &reply, ret_is_ended);
    if (!st && !*ret_is_ended)
        st = apply(hub, stream, (struct span){reply.data, reply.len});
    str_fini(&reply);
    return st;
}

struct status *debug_hub_receive(struct debug_hub *hub, struct span url, int64_t wait_ms) {
    struct stream *stream;
    bool is_ended = false;
    struct status *st = stream_of(hub, url, &stream);
    if (!st)
        st = receive(hub, stream, wait_ms, &is_ended);
    if (!st && is_ended)
        st = status_unavailable("%s has ended the stream", stream->address);
    return named(st);
}

enum debug_gate debug_hub_gate(struct debug_hub *hub, struct span url, const char *key) {
    char *address = address_of(url);
    pthread_mutex_lock(&hub->lock);
    enum debug_gate gate = debug_gates_find(&hub->gates, address, key);
    pthread_mutex_unlock(&hub->lock);
    free(address);
    return gate;
}

/* Lets the server read all events, and reads all replies. */
static struct status *end_stream(struct debug_hub *hub, struct stream *stream) {
    bool is_ended = false;
    TRY(hub->host->duplex_finish(stream->duplex));
    while (!is_ended)
        TRY(receive(hub, stream, DEBUG_STALL_MS, &is_ended));
    return NULL;
}

static struct status *end_streams(struct debug_hub *hub) {
    struct status *st = NULL;
    for (int i = 0; i < hub->n_streams; i++) {
        struct stream *stream = &hub->streams[i];
        if (!st && stream->duplex && !is_unwanted(hub))
            st = named(end_stream(hub, stream));
        hub->host->duplex_close(stream->duplex);
        stream->duplex = NULL;
    }
    return st;
}

/* ---- the thread ---- */

/* The next job that may run; NULL: the step has ended. Called with the lock. */
static struct job *wait_for_job(struct debug_hub *hub) {
    for (;;) {
        LIST_FOR_EACH (link, &hub->jobs) {
            struct job *job = LIST_ENTRY(link, struct job, link);
            if (!job->needs_gates || hub->has_gates || hub->why) {
                list_remove(&job->link);
                return job;
            }
        }
        if (hub->is_ending)
            return NULL;
        pthread_cond_wait(&hub->changed, &hub->lock);
    }
}

static void run_job(struct debug_hub *hub, struct job *job, struct status *why) {
    struct kernel_ctx *ctx = job->ctx;
    struct status *st = why ? why : job->run(ctx, hub, job->arg);
    free(job);
    if (st)
        kernel_fail(ctx, st);
    ctx->host->done(ctx);
}

static void *thread_main(void *arg) {
    struct debug_hub *hub = arg;
    struct job *job;
    denormals_flush_to_zero();
    pthread_mutex_lock(&hub->lock);
    while ((job = wait_for_job(hub))) {
        struct status *why = status_ref(hub->why);
        pthread_mutex_unlock(&hub->lock);
        run_job(hub, job, why);
        pthread_mutex_lock(&hub->lock);
    }
    pthread_mutex_unlock(&hub->lock);
    hub->end.status = end_streams(hub);
    if (hub->has_cancel_hook) /* one that runs now ends before the execution does */
        hub->host->cancel_deregister(&hub->ctx, &hub->cancel);
    hub->host->end_hook_done(&hub->end);
    object_unref(&hub->object);
    return NULL;
}

static void on_cancel(struct kernel_cancel_hook *hook, struct status *why) {
    struct debug_hub *hub = CONTAINER_OF(hook, struct debug_hub, cancel);
    atomic_store(&hub->is_cancelled, true);
    pthread_mutex_lock(&hub->lock);
    if (!hub->why)
        hub->why = status_ref(why);
    pthread_cond_signal(&hub->changed);
    pthread_mutex_unlock(&hub->lock);
}

static void on_end(struct kernel_end_hook *hook) {
    struct debug_hub *hub = CONTAINER_OF(hook, struct debug_hub, end);
    pthread_mutex_lock(&hub->lock);
    hub->is_ending = true;
    pthread_cond_signal(&hub->changed);
    pthread_mutex_unlock(&hub->lock);
}

/* ---- hubs ---- */

static void free_hub(struct object *object) {
    struct debug_hub *hub = CONTAINER_OF(object, struct debug_hub, object);
    for (int i = 0; i < hub->n_streams; i++) {
        free(hub->streams[i].url);
        free(hub->streams[i].address);
    }
    if (hub->kept)
        object_unref(&hub->kept->object);
    debug_gates_fini(&hub->gates);
    status_unref(hub->why);
    pthread_cond_destroy(&hub->changed);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
    atomic_fetch_sub(&n_hubs, 1);
}
static const struct object_type hub_type = {"debug hub", free_hub, NULL};

static struct status *make_hub(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    if (atomic_fetch_add(&n_hubs, 1) >= DEBUG_MAX_HUBS) {
        atomic_fetch_sub(&n_hubs, 1);
        return status_exhausted("%d steps are sending to debug servers already", DEBUG_MAX_HUBS);
    }
    struct debug_hub *hub = xcalloc(1, sizeof *hub);
    object_init(&hub->object, &hub_type);
    hub->host = ctx->host;
    list_init(&hub->jobs);
    debug_gates_init(&hub->gates);
    pthread_mutex_init(&hub->lock, NULL);
    pthread_cond_init(&hub->changed, NULL);
    hub->cancel.cancel = on_cancel;
    hub->end = (struct kernel_end_hook){.begin = on_end, .what = "to end streams to debug servers"};
    *ret = &hub->object;
    return NULL;
}

static int start_thread(struct debug_hub *hub) {
    pthread_t thread;
    pthread_attr_t attr;
    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) == 0);
    CHECK(pthread_attr_setstacksize(&attr, STACK_BYTES) == 0);
    object_ref(&hub->object);
    int error = thread_start(&thread, &attr, thread_main, hub);
    if (error)
        object_unref(&hub->object);
    pthread_attr_destroy(&attr);
    return error;
}

/* Called with the lock. The thread may run before its hooks are set, but has nothing to do yet. */
static struct status *start(struct debug_hub *hub, struct kernel_ctx *ctx) {
    struct status *why = NULL;
    if (hub->is_started)
        return NULL;
    int error = start_thread(hub);
    if (error)
        return status_exhausted("no thread for a debug server: %s", strerror(error));
    hub->is_started = true;
    ctx->host->at_end(ctx, &hub->end);
    hub->ctx = (struct kernel_ctx){.host = ctx->host, .host_data = ctx->host_data};
    hub->has_cancel_hook = ctx->host->cancel_register(ctx, &hub->cancel, &why);
    if (!hub->has_cancel_hook) {
        hub->why = why;
        atomic_store(&hub->is_cancelled, true);
    }
    return NULL;
}

struct status *debug_hub_of(struct kernel_ctx *ctx, struct debug_hub **ret) {
    struct object *object;
    if (!ctx->host || !ctx->host->at_end || !ctx->host->duplex_open)
        return status_unimplemented("Debug servers can be used on workers only");
    TRY(ctx->host->resource_lookup_or_create(ctx, NULL, "debug_hub", &hub_type, make_hub, NULL,
                                             &object));
    struct debug_hub *hub = CONTAINER_OF(object, struct debug_hub, object);
    pthread_mutex_lock(&hub->lock);
    struct status *st = start(hub, ctx);
    pthread_mutex_unlock(&hub->lock);
    if (st)
        debug_hub_unref(hub);
    else
        *ret = hub;
    return st;
}

void debug_hub_unref(struct debug_hub *hub) {
    if (hub)
        object_unref(&hub->object);
}

enum kernel_result debug_hub_run(struct debug_hub *hub, struct kernel_ctx *ctx, debug_job_fn *run,
                                 void *arg, bool needs_gates) {
    struct job *job = xcalloc(1, sizeof *job);
    *job = (struct job){.ctx = ctx, .run = run, .arg = arg, .needs_gates = needs_gates};
    pthread_mutex_lock(&hub->lock);
    list_push_back(&hub->jobs, &job->link);
    pthread_cond_signal(&hub->changed);
    pthread_mutex_unlock(&hub->lock);
    return KERNEL_PENDING;
}

struct status *debug_hub_set_gates(struct debug_hub *hub, struct span gates) {
    pthread_mutex_lock(&hub->lock);
    struct status *st = debug_gates_read(&hub->gates, gates);
    hub->has_gates = true;
    pthread_cond_signal(&hub->changed);
    pthread_mutex_unlock(&hub->lock);
    return st;
}
