/* Gives kernels a host that needs no worker. */
#include "tests/tools/test_host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/tools/test_polls.h"

/* ---- resources ---- */

struct test_resource {
    char *key;
    struct object *object;
    const struct object_type *type;
};

static struct test_host *host_of(struct kernel_ctx *ctx) {
    return ((struct test_step *)ctx->host_data)->host;
}

static char *resource_key(struct kernel_ctx *ctx, const char *container, const char *name) {
    struct str key = STR_INIT;
    if (!container)
        str_addf(&key, "__per_step_%llu", (unsigned long long)ctx->step_id);
    else
        str_add(&key, container[0] ? container : "localhost");
    str_addf(&key, "/%s", name);
    return str_detach(&key);
}

static void resource_free(struct test_resource *resource) {
    object_unref(resource->object);
    free(resource->key);
    free(resource);
}

/* With the lock held. */
static struct status *find_locked(struct test_host *host, const char *key,
                                  const struct object_type *type, struct object **ret) {
    struct test_resource *resource = strmap_get(&host->resources, key);
    if (!resource)
        return status_not_found("Resource %s/%s does not exist.", key, type->name);
    if (resource->type != type)
        return status_invalid("Resource %s is a %s, not a %s", key, resource->type->name,
                              type->name);
    *ret = object_ref(resource->object);
    return NULL;
}

static struct status *host_lookup(struct kernel_ctx *ctx, const char *container, const char *name,
                                  const struct object_type *type, struct object **ret_resource) {
    struct test_host *host = host_of(ctx);
    char *key = resource_key(ctx, container, name);
    pthread_mutex_lock(&host->lock);
    struct status *st = find_locked(host, key, type, ret_resource);
    pthread_mutex_unlock(&host->lock);
    free(key);
    return st;
}

static struct status *host_lookup_or_create(struct kernel_ctx *ctx, const char *container,
                                            const char *name, const struct object_type *type,
                                            resource_create_fn *create, void *arg,
                                            struct object **ret_resource) {
    struct test_host *host = host_of(ctx);
    struct status *st = host_lookup(ctx, container, name, type, ret_resource);
    if (status_code(st) != STATUS_NOT_FOUND)
        return st;
    status_unref(st);
    struct object *made = NULL;
    TRY(create(ctx, arg, &made));
    CHECK(made && made->type == type);
    char *key = resource_key(ctx, container, name);
    pthread_mutex_lock(&host->lock);
    st = find_locked(host, key, type, ret_resource);
    if (status_code(st) == STATUS_NOT_FOUND) {
        status_unref(st);
        st = NULL;
        struct test_resource *resource = xcalloc(1, sizeof(*resource));
        *resource = (struct test_resource){.key = key, .object = made, .type = type};
        strmap_put(&host->resources, key, resource);
        *ret_resource = object_ref(made);
        key = NULL;
        made = NULL;
    }
    pthread_mutex_unlock(&host->lock);
    object_unref(made);
    free(key);
    return st;
}

static struct status *host_delete(struct kernel_ctx *ctx, const struct resource_handle *handle) {
    struct test_host *host = host_of(ctx);
    char *key = resource_key(ctx, handle->container, handle->name);
    pthread_mutex_lock(&host->lock);
    struct test_resource *resource = strmap_remove(&host->resources, key);
    pthread_mutex_unlock(&host->lock);
    struct status *st = NULL;
    if (resource)
        resource_free(resource);
    else
        st = status_not_found("Resource %s/%s does not exist.", key, handle->type_name);
    free(key);
    return st;
}

static struct resource_handle *host_handle_make(struct kernel_ctx *ctx, const char *container,
                                                const char *name, const struct object_type *type,
                                                enum dtype dtype) {
    char step_container[48];
    if (!container) {
        snprintf(step_container, sizeof(step_container), "__per_step_%llu",
                 (unsigned long long)ctx->step_id);
        container = step_container;
    }
    return resource_handle_new(ctx->instance->device, container[0] ? container : "localhost", name,
                               type->name, dtype, NULL);
}

static struct status *check_handle(struct kernel_ctx *ctx, const struct resource_handle *handle,
                                   const struct object_type *type) {
    if (!handle)
        return status_invalid("The resource handle is empty");
    if (strcmp(handle->device, ctx->instance->device) != 0)
        return status_invalid("Trying to access resource %s located in device %s from device %s",
                              handle->name, handle->device, ctx->instance->device);
    if (strcmp(handle->type_name, type->name) != 0)
        return status_invalid("Trying to access a handle's resource using the wrong type. The "
                              "handle points to a resource (name '%s') of "
                              "type '%s' but you are trying to access the resource as type '%s'",
                              handle->name, handle->type_name, type->name);
    return NULL;
}

static struct status *host_handle_lookup(struct kernel_ctx *ctx,
                                         const struct resource_handle *handle,
                                         const struct object_type *type,
                                         struct object **ret_resource) {
    TRY(check_handle(ctx, handle, type));
    return host_lookup(ctx, handle->container, handle->name, type, ret_resource);
}

static struct status *host_handle_lookup_or_create(struct kernel_ctx *ctx,
                                                   const struct resource_handle *handle,
                                                   const struct object_type *type,
                                                   resource_create_fn *create, void *arg,
                                                   struct object **ret_resource) {
    TRY(check_handle(ctx, handle, type));
    return host_lookup_or_create(ctx, handle->container, handle->name, type, create, arg,
                                 ret_resource);
}

static void drop_container(struct test_host *host, const char *prefix) {
    size_t cursor = 0;
    struct span key;
    void *value;
    pthread_mutex_lock(&host->lock);
    while (strmap_next(&host->resources, &cursor, &key, &value)) {
        size_t len = strlen(prefix);
        if (key.len < len || memcmp(key.data, prefix, len) != 0)
            continue;
        strmap_remove_span(&host->resources, key);
        resource_free(value);
    }
    pthread_mutex_unlock(&host->lock);
}

/* ---- cancellation and threads ---- */

static bool host_cancel_register(struct kernel_ctx *ctx, struct kernel_cancel_hook *hook,
                                 struct status **ret_why) {
    struct test_step *step = ctx->host_data;
    pthread_mutex_lock(&step->lock);
    bool is_live = !step->cancelled;
    if (is_live)
        list_push_back(&step->hooks, &hook->link);
    else
        *ret_why = status_ref(step->cancelled);
    pthread_mutex_unlock(&step->lock);
    return is_live;
}

static bool host_cancel_deregister(struct kernel_ctx *ctx, struct kernel_cancel_hook *hook) {
    struct test_step *step = ctx->host_data;
    pthread_mutex_lock(&step->lock);
    bool was_there = !list_is_empty(&hook->link);
    if (was_there)
        list_remove(&hook->link);
    pthread_mutex_unlock(&step->lock);
    return was_there;
}

static bool host_is_cancelled(struct kernel_ctx *ctx) {
    struct test_step *step = ctx->host_data;
    pthread_mutex_lock(&step->lock);
    bool is = step->cancelled != NULL;
    pthread_mutex_unlock(&step->lock);
    return test_polls_ask() || is;
}

static void host_done(struct kernel_ctx *ctx) {
    struct test_call *call = CONTAINER_OF(ctx, struct test_call, ctx);
    pthread_mutex_lock(&call->lock);
    CHECK(!call->is_done);
    call->is_done = true;
    pthread_cond_broadcast(&call->changed);
    pthread_mutex_unlock(&call->lock);
}

static struct pool *host_io_pool(struct kernel_ctx *ctx) {
    struct test_host *host = host_of(ctx);
    pthread_mutex_lock(&host->lock);
    if (!host->io_pool)
        host->io_pool = pool_new_io(4);
    pthread_mutex_unlock(&host->lock);
    return host->io_pool;
}

static void host_submit_io(struct kernel_ctx *ctx, struct pool_task *task) {
    pool_submit(host_io_pool(ctx), task);
}

static struct alarm_clock *host_alarms(struct kernel_ctx *ctx) { return host_of(ctx)->alarms; }
static int64_t host_now_ns(void *arg) { return ((struct test_host *)arg)->now_ns; }
static void host_wake(void *arg) {}

static uint64_t host_unique_id(void) {
    static _Atomic uint64_t last;
    return ++last;
}

struct test_host *test_host_new(int n_threads) {
    struct test_host *host = xcalloc(1, sizeof(*host));
    host->host = (struct kernel_host){
        .done = host_done,
        .resource_lookup = host_lookup,
        .resource_lookup_or_create = host_lookup_or_create,
        .resource_delete = host_delete,
        .handle_make = host_handle_make,
        .handle_lookup = host_handle_lookup,
        .handle_lookup_or_create = host_handle_lookup_or_create,
        .cancel_register = host_cancel_register,
        .cancel_deregister = host_cancel_deregister,
        .is_cancelled = host_is_cancelled,
        .submit_io = host_submit_io,
        .io_pool = host_io_pool,
        .alarms = host_alarms,
        .unique_id = host_unique_id,
    };
    host->pool = n_threads > 0 ? pool_new(n_threads) : NULL;
    pthread_mutex_init(&host->lock, NULL);
    strmap_init(&host->resources);
    const struct alarm_clock_options clock = {
        .now_ns = host_now_ns, .wake = host_wake, .arg = host};
    host->alarms = alarm_clock_new(&clock);
    return host;
}

void test_host_free(struct test_host *host) {
    if (!host)
        return;
    alarm_clock_free(host->alarms);
    drop_container(host, "");
    strmap_fini(&host->resources);
    pool_free(host->pool);
    pool_free(host->io_pool);
    pthread_mutex_destroy(&host->lock);
    free(host);
}

void test_host_advance(struct test_host *host, int64_t us) {
    host->now_ns += us * 1000;
    alarm_clock_run(host->alarms);
}

size_t test_host_n_resources(struct test_host *host) {
    pthread_mutex_lock(&host->lock);
    size_t n = host->resources.n_entries;
    pthread_mutex_unlock(&host->lock);
    return n;
}

void test_step_init(struct test_step *step, struct test_host *host) {
    *step = (struct test_step){.host = host, .id = ++host->next_step_id};
    pthread_mutex_init(&step->lock, NULL);
    list_init(&step->hooks);
}

void test_step_fini(struct test_step *step) {
    char prefix[48];
    snprintf(prefix, sizeof(prefix), "__per_step_%llu/", (unsigned long long)step->id);
    drop_container(step->host, prefix);
    CHECK(list_is_empty(&step->hooks));
    status_unref(step->cancelled);
    pthread_mutex_destroy(&step->lock);
}

void test_step_cancel(struct test_step *step, struct status *why_take) {
    pthread_mutex_lock(&step->lock);
    if (step->cancelled) {
        pthread_mutex_unlock(&step->lock);
        status_unref(why_take);
        return;
    }
    step->cancelled = why_take;
    struct list *link;
    while ((link = list_pop_front(&step->hooks))) {
        struct kernel_cancel_hook *hook = LIST_ENTRY(link, struct kernel_cancel_hook, link);
        pthread_mutex_unlock(&step->lock);
        hook->cancel(hook, step->cancelled);
        pthread_mutex_lock(&step->lock);
    }
    pthread_mutex_unlock(&step->lock);
}

/* ---- one call ---- */

static struct tensor *tensors_new(int n) {
    size_t size = (size_t)(n > 0 ? n : 1) * sizeof(struct tensor);
    struct tensor *tensors = aligned_alloc(_Alignof(struct tensor), size);
    CHECK(tensors);
    memset(tensors, 0, size);
    return tensors;
}

static void tensors_free(struct tensor *tensors, int n) {
    for (int i = 0; tensors && i < n; i++)
        tensor_clear(&tensors[i]);
    free(tensors);
}

void test_call_start(struct test_call *call, struct test_step *step,
                     const struct kernel_instance *instance, const struct tensor *inputs) {
    memset(call, 0, sizeof(*call));
    pthread_mutex_init(&call->lock, NULL);
    pthread_cond_init(&call->changed, NULL);
    call->ctx = (struct kernel_ctx){
        .inputs = tensors_new(instance->n_inputs),
        .outputs = tensors_new(instance->n_outputs),
        .instance = instance,
        .host = &step->host->host,
        .pool = step->host->pool,
        .host_data = step,
        .step_id = step->id,
    };
    for (int i = 0; i < instance->n_inputs; i++)
        tensor_copy(&call->ctx.inputs[i], &inputs[i]);
    test_polls_begin(instance);
    enum kernel_result result = instance->compute(&call->ctx);
    test_polls_end(&call->ctx, result);
    if (result == KERNEL_DONE) {
        pthread_mutex_lock(&call->lock);
        CHECK(!call->is_done); /* done() is only for PENDING */
        call->is_done = true;
        pthread_mutex_unlock(&call->lock);
    } else {
        CHECK(instance->def->flags & KERNEL_ASYNC);
    }
}

bool test_call_is_done(struct test_call *call) {
    pthread_mutex_lock(&call->lock);
    bool is = call->is_done;
    pthread_mutex_unlock(&call->lock);
    return is;
}

/* True once done; false after the time. */
static bool wait_until_done(struct test_call *call, int timeout_ms) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&call->lock);
    int rc = 0;
    while (!call->is_done && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&call->changed, &call->lock, &until);
    bool is = call->is_done;
    pthread_mutex_unlock(&call->lock);
    return is;
}

void test_call_skip_time(struct test_call *call) {
    struct test_host *host = ((struct test_step *)call->ctx.host_data)->host;
    for (int64_t next_ns;
         !test_call_is_done(call) && (next_ns = alarm_clock_run(host->alarms)) != INT64_MAX;)
        host->now_ns = MAX(host->now_ns, next_ns);
}

struct status *test_call_wait(struct test_call *call, int timeout_ms) {
    if (!wait_until_done(call, timeout_ms)) {
        test_step_cancel(call->ctx.host_data,
                         status_new(STATUS_DEADLINE_EXCEEDED, "Timed out waiting for %s",
                                    call->ctx.instance->node->name));
        CHECK(wait_until_done(call, 10000)); /* a wait that cancellation does not end */
    }
    return status_ref(call->ctx.status);
}

void test_call_fini(struct test_call *call) {
    if (!call->ctx.instance)
        return;
    tensors_free(call->ctx.inputs, call->ctx.instance->n_inputs);
    tensors_free(call->ctx.outputs, call->ctx.instance->n_outputs);
    status_unref(call->ctx.status);
    pthread_mutex_destroy(&call->lock);
    pthread_cond_destroy(&call->changed);
    memset(call, 0, sizeof(*call));
}
