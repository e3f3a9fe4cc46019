/* Implements the host that kernels of a running execution call (kernels/host.h). */
#include "kernels/host.h"

#include "common/base/clock.h"
#include "rpc/grpc/grpc_duplex.h"
#include "worker/exchange/peer_call.h"
#include "worker/client_state.h"
#include "worker/container.h"
#include "worker/executor/executor_internal.h"
#include "worker/executor/function.h"

static struct executor *executor_of(struct kernel_ctx *ctx) { return ctx->host_data; }

static void host_done(struct kernel_ctx *ctx) {
    executor_post(CONTAINER_OF(ctx, struct async_op, ctx));
}

/* ---- resources ---- */

/* The task's containers, or, if container is NULL, the step's own, made at first use. */
static struct container_table *containers(struct kernel_ctx *ctx, const char *container) {
    struct executor *executor = executor_of(ctx);
    if (container)
        return executor->execution->containers;
    pthread_mutex_lock(&executor->lock);
    if (!executor->own_container)
        executor->own_container = container_table_new();
    pthread_mutex_unlock(&executor->lock);
    return executor->own_container;
}

/* The step's own container is found by its name, which handles to its resources have. */
static const char STEP_CONTAINER[] = "_step";

static bool is_step_container(const char *container) {
    return strcmp(container, STEP_CONTAINER) == 0;
}

/* The place of a container for the device of the node. NULL: the step's own container. */
static struct container_place place_of(const struct kernel_ctx *ctx, const char *container) {
    const char *device = ctx->instance->device;
    bool is_host = strstr(device, "/device:CPU:") != NULL;
    return (struct container_place){container ? container : STEP_CONTAINER, is_host ? "" : device};
}

struct creation {
    struct kernel_ctx *ctx;
    resource_create_fn *create;
    void *arg;
};

static struct status *run_creation(void *arg, struct object **ret) {
    struct creation *creation = arg;
    return creation->create(creation->ctx, creation->arg, ret);
}

static struct status *host_lookup(struct kernel_ctx *ctx, const char *container, const char *name,
                                  const struct object_type *type, struct object **ret) {
    return container_lookup(containers(ctx, container), place_of(ctx, container), name, type, ret);
}

static struct status *host_lookup_or_create(struct kernel_ctx *ctx, const char *container,
                                            const char *name, const struct object_type *type,
                                            resource_create_fn *create, void *arg,
                                            struct object **ret) {
    struct creation creation = {ctx, create, arg};
    return container_lookup_or_create(containers(ctx, container), place_of(ctx, container), name,
                                      type, run_creation, &creation, ret);
}

static struct container_table *containers_of_handle(struct kernel_ctx *ctx,
                                                    const struct resource_handle *handle) {
    return containers(ctx, is_step_container(handle->container) ? NULL : handle->container);
}

static struct status *check_device(struct kernel_ctx *ctx, const struct resource_handle *handle) {
    if (strcmp(handle->device, ctx->instance->device) == 0)
        return NULL;
    return status_invalid("Trying to access resource %s located in device %s from device %s",
                          handle->name, handle->device, ctx->instance->device);
}

static struct status *check_handle(struct kernel_ctx *ctx, const struct resource_handle *handle,
                                   const struct object_type *type) {
    TRY(check_device(ctx, handle));
    if (likely(strcmp(handle->type_name, type->name) == 0))
        return NULL;
    return status_invalid("Trying to access a handle's resource using the wrong type. The handle "
                          "points to a resource (name '%s') of type "
                          "'%s' but you are trying to access the resource as type '%s'",
                          handle->name, handle->type_name, type->name);
}

static struct status *host_delete(struct kernel_ctx *ctx, const struct resource_handle *handle) {
    TRY(check_device(ctx, handle));
    return container_delete(containers_of_handle(ctx, handle), place_of(ctx, handle->container),
                            handle->name, handle->type_name);
}

static struct resource_handle *host_handle_make(struct kernel_ctx *ctx, const char *container,
                                                const char *name, const struct object_type *type,
                                                enum dtype dtype) {
    const char *in = !container ? STEP_CONTAINER : *container ? container : "localhost";
    struct object *entry =
        container_entry(containers(ctx, container), place_of(ctx, in), name, type);
    return resource_handle_new(ctx->instance->device, in, name, type->name, dtype, entry);
}

static struct status *host_handle_lookup(struct kernel_ctx *ctx,
                                         const struct resource_handle *handle,
                                         const struct object_type *type, struct object **ret) {
    TRY(check_handle(ctx, handle, type));
    if (likely(handle->entry != NULL))
        return container_entry_lookup(containers_of_handle(ctx, handle), handle->entry, ret);
    return container_lookup(containers_of_handle(ctx, handle), place_of(ctx, handle->container),
                            handle->name, type, ret);
}

static struct status *host_handle_lookup_or_create(struct kernel_ctx *ctx,
                                                   const struct resource_handle *handle,
                                                   const struct object_type *type,
                                                   resource_create_fn *create, void *arg,
                                                   struct object **ret) {
    struct creation creation = {ctx, create, arg};
    TRY(check_handle(ctx, handle, type));
    if (likely(handle->entry != NULL))
        return container_entry_lookup_or_create(containers_of_handle(ctx, handle), handle->entry,
                                                run_creation, &creation, ret);
    return container_lookup_or_create(containers_of_handle(ctx, handle),
                                      place_of(ctx, handle->container), handle->name, type,
                                      run_creation, &creation, ret);
}

/* ---- cancellation ---- */

static bool host_cancel_register(struct kernel_ctx *ctx, struct kernel_cancel_hook *hook,
                                 struct status **ret_why) {
    struct executor *executor = executor_of(ctx);
    pthread_mutex_lock(&executor->lock);
    bool is_open = executor->cancel_why == NULL;
    if (is_open)
        list_push_back(&executor->cancel_hooks, &hook->link);
    else
        *ret_why = status_ref(executor->cancel_why);
    pthread_mutex_unlock(&executor->lock);
    return is_open;
}

static bool host_cancel_deregister(struct kernel_ctx *ctx, struct kernel_cancel_hook *hook) {
    struct executor *executor = executor_of(ctx);
    pthread_mutex_lock(&executor->lock);
    bool was_waiting = !list_is_empty(&hook->link);
    list_remove(&hook->link);
    pthread_mutex_unlock(&executor->lock);
    return was_waiting;
}

static bool host_is_cancelled(struct kernel_ctx *ctx) {
    return executor_is_unwanted(executor_of(ctx));
}

static uint64_t host_unique_id(void) {
    static _Atomic uint64_t next = 1;
    return atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
}

/* ---- the end ---- */

static void host_at_end(struct kernel_ctx *ctx, struct kernel_end_hook *hook) {
    struct executor *executor = executor_of(ctx);
    pthread_mutex_lock(&executor->lock);
    list_push_back(&executor->end_hooks, &hook->link);
    pthread_mutex_unlock(&executor->lock);
    atomic_store_explicit(&executor->has_end_hooks, true, memory_order_release);
}

static void host_end_hook_done(struct kernel_end_hook *hook) {
    struct async_op *op = hook->record;
    op->ctx.status = hook->status;
    executor_post(op);
}

/* ---- servers outside the cluster ---- */

static struct status *host_duplex_open(const struct duplex_options *options,
                                       struct grpc_duplex **ret) {
    return grpc_duplex_open(&(struct grpc_duplex_options){.address = options->address,
                                                          .path = options->path,
                                                          .connect_ms = options->connect_ms,
                                                          .stall_ms = options->stall_ms,
                                                          .is_unwanted = options->is_unwanted,
                                                          .arg = options->arg},
                            ret);
}

/* ---- files ---- */

static struct pool *host_io_pool(struct kernel_ctx *ctx) {
    const struct execution *execution = executor_of(ctx)->execution;
    struct pool *pool = execution->io_pool ? execution->io_pool : execution->pool;
    CHECK(pool);
    return pool;
}

static void host_submit_io(struct kernel_ctx *ctx, struct pool_task *task) {
    pool_submit(host_io_pool(ctx), task);
}

static void host_inputs_taken(struct kernel_ctx *ctx) {
    struct execution *execution = executor_of(ctx)->execution;
    if (execution->on_inputs_taken && !saves_is_told(executor_of(ctx), ctx->instance))
        execution->on_inputs_taken(execution);
}

static struct alarm_clock *host_alarms(struct kernel_ctx *ctx) {
    return executor_of(ctx)->execution->alarms;
}

/* ---- other tasks ---- */

static int host_peer_count(struct kernel_ctx *ctx) { return executor_of(ctx)->execution->n_others; }
static const char *host_peer_name(struct kernel_ctx *ctx, int task) {
    return peer_call_task_name(executor_of(ctx)->execution->others[task]);
}
static void host_peer_call_start(struct kernel_ctx *ctx, struct peer_call *question) {
    peer_call_start(executor_of(ctx)->execution->others[question->task], question);
}

/* ---- what a session keeps ---- */

static struct status *session_of(struct kernel_ctx *ctx, struct session_state **ret) {
    *ret = executor_of(ctx)->plan->session_state;
    return *ret ? NULL
                : status_failed_precondition("%s called on null session state",
                                             ctx->instance->node->op->name);
}

static struct status *host_client_object(struct kernel_ctx *ctx, const struct object_type *type,
                                         struct object *(*make)(void), struct object **ret) {
    struct client_state *client = executor_of(ctx)->plan->client;
    if (!client)
        return status_failed_precondition("the session of %s belongs to no client",
                                          ctx->instance->node->name);
    *ret = client_state_object(client, type, make);
    return NULL;
}

static struct status *host_session_value_put(struct kernel_ctx *ctx, const char *name,
                                             const struct tensor *value) {
    struct session_state *session;
    TRY(session_of(ctx, &session));
    session_state_put_value(session, name, value);
    return NULL;
}

static struct status *host_session_value_get(struct kernel_ctx *ctx, struct span name,
                                             struct tensor *ret) {
    struct session_state *session;
    TRY(session_of(ctx, &session));
    return session_state_get_value(session, name, ret);
}

static struct status *host_session_value_delete(struct kernel_ctx *ctx, struct span name) {
    struct session_state *session;
    TRY(session_of(ctx, &session));
    return session_state_delete_value(session, name);
}

const struct kernel_host executor_host = {
    .done = host_done,
    .defer_wakes_begin = wake_defer_begin,
    .defer_wakes_end = wake_defer_end,
    .resource_lookup = host_lookup,
    .resource_lookup_or_create = host_lookup_or_create,
    .resource_delete = host_delete,
    .handle_make = host_handle_make,
    .handle_lookup = host_handle_lookup,
    .handle_lookup_or_create = host_handle_lookup_or_create,
    .cancel_register = host_cancel_register,
    .cancel_deregister = host_cancel_deregister,
    .is_cancelled = host_is_cancelled,
    .at_end = host_at_end,
    .end_hook_done = host_end_hook_done,
    .duplex_open = host_duplex_open,
    .duplex_send = grpc_duplex_send,
    .duplex_receive = grpc_duplex_receive,
    .duplex_finish = grpc_duplex_finish,
    .duplex_close = grpc_duplex_close,
    .submit_io = host_submit_io,
    .io_pool = host_io_pool,
    .inputs_taken = host_inputs_taken,
    .alarms = host_alarms,
    .peer_count = host_peer_count,
    .peer_name = host_peer_name,
    .peer_call_start = host_peer_call_start,
    .function_find = function_find,
    .function_fresh = function_fresh,
    .function_prepare = function_prepare,
    .function_call = function_call,
    .function_cancel = function_cancel,
    .function_finish = function_finish,
    .client_object = host_client_object,
    .session_value_put = host_session_value_put,
    .session_value_get = host_session_value_get,
    .session_value_delete = host_session_value_delete,
    .unique_id = host_unique_id,
};
