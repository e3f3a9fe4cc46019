/* Brings calls of Python functions together with the client processes that serve them. */
#include "kernels/host/calls/py_service.h"

#include <stdlib.h>

#include "common/base/alarm.h"
#include "kernels/host.h"
#include "kernels/support/rows.h"
#include "kernels/support/wait_room.h"

enum { CALLERS, SERVERS }; /* the room's lines */

/* One `with millrace.py_functions(...)` of the client. */
struct py_server {
    uint64_t id;
    struct py_memory *memory; /* one reference; NULL: it shares none with this task */
    int n_steps;              /* its serving steps that wait */
};

struct py_service {
    struct object object;
    struct wait_room room;
    /* The room's lock guards the fields below. */
    struct py_server servers[PY_MAX_SERVERS];
    int n_servers;
    uint64_t next_id;
    struct list pending, in_flight; /* struct calling.link */
    struct alarm_clock *alarms;
    struct alarm
        /* rings PY_SERVER_WAIT_MS after a call found no server; holds a reference while it is
         * set */
        alarm;
    bool is_alarm_set;
};

/* A call, from its kernel's begin to its end. */
struct calling {
    struct wait wait;
    struct py_service *service; /* the wait holds a reference */
    struct list link;           /* in pending or in_flight, or in no list once the call has ended */
    uint64_t id, server;        /* server: which server runs the call */
    const char *token;          /* owned by the kernel */
    uint32_t flags;
    bool is_settled;
    struct status *failure; /* set when the call has ended */
    struct tensor *results; /* set when the call has ended; n_results of them */
    int n_results;
};

/* A serving step that waits for a call. */
struct serving {
    struct wait wait;
    struct py_service *service; /* the wait holds a reference */
    uint64_t server;
    uint64_t id; /* the call that it took; 0 when there is none because its server has left */
    uint32_t flags;
    char *token;
    struct py_memory *memory; /* one reference, or NULL */
    struct tensor *values;    /* they share the memory of the call's inputs */
    int n_values;
};

static struct calling *calling_of(struct wait *wait) {
    return CONTAINER_OF(wait, struct calling, wait);
}
static struct serving *serving_of(struct wait *wait) {
    return CONTAINER_OF(wait, struct serving, wait);
}

static COLD struct status *nobody_serves(void) {
    return status_failed_precondition(
        "this step calls Python code of a client, and nobody serves it: wrap the session in "
        "millrace.py_functions(target)");
}

/* ---- the caller holds the lock ---- */

static struct py_server *find_server(struct py_service *service, uint64_t id) {
    for (int i = 0; i < service->n_servers; i++)
        if (service->servers[i].id == id)
            return &service->servers[i];
    return NULL;
}

static void settle(struct calling *calling, struct status *failure_take) {
    list_remove(&calling->link);
    calling->is_settled = true;
    calling->failure = failure_take;
}

/* Fails the server's calls in flight, because the server has left. */
static void fail_calls_of(struct py_service *service, uint64_t server) {
    LIST_FOR_EACH_SAFE (link, next, &service->in_flight) {
        struct calling *calling = LIST_ENTRY(link, struct calling, link);
        if (calling->server == server)
            settle(calling, status_unavailable(
                                "the client's process stopped serving Python functions while it "
                                "ran %s",
                                calling->token));
    }
}

static struct calling *find_in_flight(struct py_service *service, uint64_t server, uint64_t id) {
    LIST_FOR_EACH (link, &service->in_flight) {
        struct calling *calling = LIST_ENTRY(link, struct calling, link);
        if (calling->id == id && calling->server == server)
            return calling;
    }
    return NULL;
}

static bool has_calls(const struct py_service *service, uint64_t server) {
    LIST_FOR_EACH (link, &service->in_flight)
        if (LIST_ENTRY(link, struct calling, link)->server == server)
            return true;
    return false;
}

/* A server without a serving step and without a call has probably died, and its memory is given
 * back. If it lives after all, values pass through the connection until it joins again. */
static struct py_memory *take_unused_memory(struct py_service *service, uint64_t id) {
    struct py_server *server = find_server(service, id);
    if (!server || server->n_steps > 0 || has_calls(service, id))
        return NULL;
    struct py_memory *memory = server->memory;
    server->memory = NULL;
    return memory;
}

/* ---- calls that wait for a first server ---- */

static void on_alarm(struct alarm *alarm) {
    struct py_service *service = CONTAINER_OF(alarm, struct py_service, alarm);
    wait_room_lock(&service->room);
    service->is_alarm_set = false;
    if (service->n_servers == 0) {
        struct status *why = nobody_serves();
        wait_room_fail_line(&service->room, CALLERS, why);
        status_unref(why);
    }
    wait_room_unlock_elsewhere(&service->room);
    py_service_unref(service);
}

static void await_server(struct py_service *service, struct alarm_clock *alarms) {
    if (service->is_alarm_set)
        return;
    service->is_alarm_set = true;
    service->alarms = alarms;
    object_ref(&service->object);
    alarm_set(alarms, &service->alarm, PY_SERVER_WAIT_MS * 1000);
}

static void await_no_longer(struct py_service *service) {
    if (!service->is_alarm_set || !alarm_clear(service->alarms, &service->alarm))
        return;
    service->is_alarm_set = false;
    py_service_unref(service); /* never the last reference, because the caller has one */
}

/* ---- a call ---- */

/* The first attempt adds the call to the list for servers. */
static enum wait_result calling_begin(struct calling *calling) {
    struct py_service *service = calling->service;
    struct kernel_ctx *ctx = calling->wait.ctx;
    if (service->n_servers == 0) {
        struct alarm_clock *alarms = ctx->host->alarms ? ctx->host->alarms(ctx) : NULL;
        if (!alarms) {
            calling->wait.status = nobody_serves();
            return WAIT_ENDED;
        }
        await_server(service, alarms);
    }
    calling->id = ++service->next_id;
    list_push_back(&service->pending, &calling->link);
    return WAIT_ADVANCED;
}

static enum wait_result calling_attempt(struct wait *wait) {
    struct calling *calling = calling_of(wait);
    if (calling->id == 0)
        return calling_begin(calling);
    if (!calling->is_settled)
        return WAIT_STUCK;
    wait->status = calling->failure;
    calling->failure = NULL;
    return WAIT_ENDED;
}

static void calling_give_back(struct wait *wait) { list_remove(&calling_of(wait)->link); }

static struct status *calling_finish(struct wait *wait) {
    struct calling *calling = calling_of(wait);
    struct kernel_ctx *ctx = wait->ctx;
    int n = ctx->instance->n_outputs;
    if (calling->n_results != n)
        return status_invalid("%s returns %d values, but expects to see %d values.", calling->token,
                              calling->n_results, n);
    for (int i = 0; i < n; i++) {
        enum dtype got = (enum dtype)calling->results[i].dtype;
        enum dtype want = dtype_base((enum dtype)ctx->instance->out_types[i]);
        if (got != want)
            return status_invalid("%d-th value returned by %s is %s, but expects %s", i,
                                  calling->token, dtype_name(got), dtype_name(want));
    }
    for (int i = 0; i < n; i++)
        tensor_move(&ctx->outputs[i], &calling->results[i]);
    return NULL;
}

static void calling_free(struct wait *wait) {
    struct calling *calling = calling_of(wait);
    struct py_service *service = calling->service;
    wait_room_lock(&service->room);
    struct py_memory *unused = take_unused_memory(service, calling->server);
    wait_room_unlock_elsewhere(&service->room);
    py_memory_unref(unused);
    status_unref(calling->failure);
    rows_free(calling->results, (size_t)calling->n_results);
    free(calling);
}

static const struct wait_kind calling_kind = {.cancelled =
                                                  "a call of a Python function was cancelled",
                                              .attempt = calling_attempt,
                                              .give_back = calling_give_back,
                                              .finish = calling_finish,
                                              .free = calling_free};

enum kernel_result py_service_call(struct py_service *service, struct kernel_ctx *ctx,
                                   const char *token, uint32_t flags) {
    struct calling *calling = xcalloc(1, sizeof(*calling));
    calling->wait.kind = &calling_kind;
    calling->service = service;
    list_init(&calling->link);
    calling->token = token;
    calling->flags = flags;
    return wait_room_enter(&service->room, CALLERS, ctx, &calling->wait);
}

/* ---- a serving step ---- */

static enum wait_result serving_attempt(struct wait *wait) {
    struct serving *serving = serving_of(wait);
    struct py_service *service = serving->service;
    const struct py_server *server = find_server(service, serving->server);
    if (!server)
        return WAIT_ENDED;
    struct list *link = list_pop_front(&service->pending);
    if (!link)
        return WAIT_STUCK;
    struct calling *calling = LIST_ENTRY(link, struct calling, link);
    calling->server = serving->server;
    list_push_back(&service->in_flight, &calling->link);
    const struct kernel_ctx *caller = calling->wait.ctx;
    serving->id = calling->id;
    serving->flags = calling->flags | (server->memory ? PY_CALL_SHARES : 0);
    serving->memory = py_memory_ref(server->memory);
    serving->token = xstrdup(calling->token);
    serving->n_values = caller->instance->n_inputs;
    serving->values = rows_new(serving->n_values);
    for (int i = 0; i < serving->n_values; i++)
        tensor_copy(&serving->values[i], &caller->inputs[i]);
    return WAIT_ENDED;
}

/* Fails the call that the step took, because its inputs cannot be sent to the client. */
static void fail_taken_call(struct serving *serving, struct status *why_take) {
    struct py_service *service = serving->service;
    wait_room_lock(&service->room);
    struct calling *calling = find_in_flight(service, serving->server, serving->id);
    if (calling)
        settle(calling, status_ref(why_take));
    wait_room_unlock_elsewhere(&service->room);
    status_unref(why_take);
}

static struct status *output_nothing(struct kernel_ctx *ctx) {
    return kernel_alloc(ctx, 0, DT_UINT8, (struct shape){1, &(int64_t){0}});
}

static struct status *serving_finish(struct wait *wait) {
    struct serving *serving = serving_of(wait);
    if (serving->id == 0)
        return output_nothing(wait->ctx);
    struct py_call call = {.id = serving->id,
                           .flags = serving->flags,
                           .token = {serving->token, strlen(serving->token)},
                           .values = serving->values,
                           .memory = serving->memory,
                           .n_values = serving->n_values};
    struct status *st =
        py_call_write(&call, wait->ctx->instance->allocator, &wait->ctx->outputs[0]);
    if (!st)
        return NULL;
    fail_taken_call(serving, st); /* the caller is at fault, not the server */
    return output_nothing(wait->ctx);
}

static int64_t serving_weight(const struct wait *wait) {
    const struct serving *serving = CONTAINER_OF(wait, const struct serving, wait);
    int64_t n = 0;
    for (int i = 0; i < serving->n_values; i++)
        n += (int64_t)tensor_size_bytes(&serving->values[i]);
    return n;
}

static void step_begins(struct py_service *service, uint64_t id) {
    wait_room_lock(&service->room);
    struct py_server *server = find_server(service, id);
    if (server)
        server->n_steps++;
    wait_room_unlock(&service->room);
}

static void step_ended(struct py_service *service, uint64_t id) {
    wait_room_lock(&service->room);
    struct py_server *server = find_server(service, id);
    if (server)
        server->n_steps--;
    struct py_memory *unused = take_unused_memory(service, id);
    wait_room_unlock_elsewhere(&service->room);
    py_memory_unref(unused);
}

static void serving_free(struct wait *wait) {
    struct serving *serving = serving_of(wait);
    step_ended(serving->service, serving->server);
    rows_free(serving->values, (size_t)serving->n_values);
    py_memory_unref(serving->memory);
    free(serving->token);
    free(serving);
}

static const struct wait_kind serving_kind = {.cancelled = "serving Python functions was cancelled",
                                              .attempt = serving_attempt,
                                              .finish = serving_finish,
                                              .weight = serving_weight,
                                              .free = serving_free};

static struct status *failure_of(const struct py_request *request) {
    if (request->code == STATUS_OK)
        return NULL;
    enum status_code code =
        request->code <= STATUS_UNAUTHENTICATED ? (enum status_code)request->code : STATUS_UNKNOWN;
    return status_new(code, "%.*s", (int)request->message.len, request->message.data);
}

/* Does the request's call still wait for its result? Then *ret_memory has its server's memory: one
 * reference, or NULL. */
static bool is_awaited(struct py_service *service, const struct py_request *request,
                       struct py_memory **ret_memory) {
    wait_room_lock(&service->room);
    const struct py_server *server = find_server(service, request->server);
    bool waits = server && find_in_flight(service, request->server, request->id);
    *ret_memory = waits ? py_memory_ref(server->memory) : NULL;
    wait_room_unlock(&service->room);
    return waits;
}

/* Delivers the result of the call that the request names. A call that has ended meanwhile is
 * skipped. */
static struct status *deliver(struct py_service *service, struct kernel_ctx *ctx,
                              const struct py_request *request) {
    struct py_memory *memory;
    if (!is_awaited(service, request, &memory))
        return NULL;
    struct tensor *results = rows_new(request->n_values);
    struct status *st =
        py_values_read(kernel_input(ctx, 0), request, memory, ctx->instance->allocator, results);
    py_memory_unref(memory);
    wait_room_lock(&service->room);
    struct calling *calling = find_in_flight(service, request->server, request->id);
    if (calling) {
        settle(calling, st ? status_ref(st) : failure_of(request));
        calling->results = results;
        calling->n_results = request->n_values;
        results = NULL;
    }
    wait_room_unlock(&service->room);
    rows_free(results, results ? (size_t)request->n_values : 0);
    return st;
}

/* A server that joins again has memory of its own again. Sets *ret_shares to whether it has some
 * that this task reaches. */
static struct status *join(struct py_service *service, const struct py_request *request,
                           bool *ret_shares) {
    struct status *st = NULL;
    struct py_memory *memory = py_memory_open(request->message), *old = NULL;
    *ret_shares = memory != NULL;
    wait_room_lock(&service->room);
    struct py_server *server = find_server(service, request->server);
    if (server)
        fail_calls_of(service, request->server);
    else if (service->n_servers < PY_MAX_SERVERS)
        *(server = &service->servers[service->n_servers++]) = (struct py_server){0};
    else
        st = status_exhausted("%d servers of Python functions are open already", PY_MAX_SERVERS);
    if (server) {
        old = server->memory;
        *server = (struct py_server){request->server, memory, server->n_steps};
        memory = NULL;
    }
    await_no_longer(service);
    wait_room_unlock(&service->room);
    py_memory_unref(old);
    py_memory_unref(memory);
    return st;
}

static void leave(struct py_service *service, uint64_t server) {
    struct py_memory *memory = NULL;
    wait_room_lock(&service->room);
    fail_calls_of(service, server);
    struct py_server *found = find_server(service, server);
    if (found) {
        memory = found->memory;
        *found = service->servers[--service->n_servers];
    }
    if (service->n_servers == 0) {
        struct status *why = nobody_serves();
        wait_room_fail_line(&service->room, CALLERS, why);
        status_unref(why);
    }
    wait_room_unlock(&service->room);
    py_memory_unref(memory);
}

static enum kernel_result serve(struct py_service *service, struct kernel_ctx *ctx,
                                const struct py_request *request) {
    step_begins(service, request->server);
    struct status *st = request->id ? deliver(service, ctx, request) : NULL;
    if (st)
        step_ended(service, request->server);
    KERNEL_TRY(ctx, st);
    struct serving *serving = xcalloc(1, sizeof(*serving));
    serving->wait.kind = &serving_kind;
    serving->service = service;
    serving->server = request->server;
    return wait_room_enter(&service->room, SERVERS, ctx, &serving->wait);
}

enum kernel_result py_service_serve(struct py_service *service, struct kernel_ctx *ctx) {
    struct py_request request;
    KERNEL_TRY(ctx, py_request_read(kernel_input(ctx, 0), &request));
    if (request.kind == PY_SERVE)
        return serve(service, ctx, &request);
    bool shares = false;
    if (request.kind == PY_JOIN)
        KERNEL_TRY(ctx, join(service, &request, &shares));
    else
        leave(service, request.server);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_UINT8, (struct shape){1, &(int64_t){shares}}));
    if (shares)
        *(uint8_t *)tensor_data(&ctx->outputs[0]) = 1;
    return KERNEL_DONE;
}

/* ---- the service ---- */

static void service_free(struct object *object) {
    struct py_service *service = (struct py_service *)object;
    wait_room_fini(&service->room);
    for (int i = 0; i < service->n_servers; i++)
        py_memory_unref(service->servers[i].memory);
    free(service);
}

static const struct object_type py_service_type = {.name = "PyService", .free = service_free};

static struct object *service_new(void) {
    struct py_service *service = xcalloc(1, sizeof(*service));
    object_init(&service->object, &py_service_type);
    wait_room_init(&service->room, &service->object);
    service->room.lines[CALLERS].is_scanned = true;
    service->alarm.ring = on_alarm;
    list_init(&service->pending);
    list_init(&service->in_flight);
    return &service->object;
}

struct status *py_service_of(struct kernel_ctx *ctx, struct py_service **ret) {
    if (!ctx->host || !ctx->host->client_object)
        return status_unimplemented("Python functions can be called on workers only");
    struct object *object = NULL;
    TRY(ctx->host->client_object(ctx, &py_service_type, service_new, &object));
    *ret = (struct py_service *)object;
    return NULL;
}

void py_service_unref(struct py_service *service) {
    if (service)
        object_unref(&service->object);
}
