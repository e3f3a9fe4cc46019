/* Answers grpc.health.v1.Health: Check at once, Watch whenever the state changes. */
#include "rpc/grpc/grpc_health.h"

#include <stdlib.h>

#include "common/base/str.h"
#include "common/tensor/tensor_proto.h"
#include "rpc/grpc/grpc_call.h"

enum health_status { HEALTH_SERVING = 1, HEALTH_NOT_SERVING = 2, HEALTH_SERVICE_UNKNOWN = 3 };

struct grpc_health {
    struct grpc_server *server;
    struct list watchers;
    enum health_status status; /* of every service */
};

struct watcher {
    struct list link;
    struct grpc_call *call;
    bool is_known;
};

static void on_check(void *arg, struct grpc_call *call);
static void on_watch(void *arg, struct grpc_call *call);
static const struct grpc_method methods[] = {
    {"/grpc.health.v1.Health/Check", on_check, NULL},
    {"/grpc.health.v1.Health/Watch", on_watch, NULL},
};

bool grpc_health_owns(const struct grpc_method *method) {
    return method >= methods && method < methods + ARRAY_LEN(methods);
}

static enum health_status ask(const struct grpc_health *health) {
    const struct grpc_server *server = health->server;
    bool is_serving = !server->is_draining && (!server->options.is_serving ||
                                               server->options.is_serving(server->options.service));
    return is_serving ? HEALTH_SERVING : HEALTH_NOT_SERVING;
}

struct grpc_health *grpc_health_new(struct grpc_server *server) {
    struct grpc_health *health = xcalloc(1, sizeof(*health));
    health->server = server;
    /* The service may not be complete yet, so it is asked at the first call. */
    health->status = HEALTH_NOT_SERVING;
    list_init(&health->watchers);
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        strmap_put(&server->methods, methods[i].path, (void *)&methods[i]);
    return health;
}

void grpc_health_free(struct grpc_health *health) { free(health); }

static struct status *read_request(struct span body, struct span *ret_service) {
    struct proto_field field;
    int more;
    *ret_service = (struct span){"", 0};
    while ((more = proto_next(&body, &field)) > 0)
        if (field.number == 1 && field.wire_type == 2)
            *ret_service = field.bytes;
    return more < 0 ? status_invalid("Malformed HealthCheckRequest") : NULL;
}

static bool is_known(const struct grpc_health *health, struct span service) {
    for (const char *const *name = health->server->options.health_services; *name; name++)
        if (span_is(service, *name))
            return true;
    return false;
}

static void make_reply(enum health_status status, struct grpc_body *body) {
    const char bytes[2] = {1 << 3, (char)status};
    grpc_body_init(body);
    grpc_body_add_copy(body, bytes, sizeof(bytes));
}

static void on_check(void *arg, struct grpc_call *call) {
    struct grpc_health *health = arg;
    struct span service;
    struct grpc_body body;
    grpc_health_review(health);
    struct status *st = read_request(grpc_call_message(call)->body, &service);
    if (!st && !is_known(health, service))
        st = status_new(STATUS_NOT_FOUND, "unknown service '%.*s'",
                        (int)MIN(service.len, (size_t)128), service.data);
    if (st) {
        grpc_call_fail(call, st);
        return;
    }
    make_reply(health->status, &body);
    grpc_call_reply(call, &body);
}

/* ---- Watch ---- */

static void send_status(struct watcher *watcher, enum health_status status) {
    struct grpc_body body;
    make_reply(watcher->is_known ? status : HEALTH_SERVICE_UNKNOWN, &body);
    grpc_call_send(watcher->call, &body);
}

static void end_watch(struct watcher *watcher, struct status *why_take) {
    struct grpc_call *call = watcher->call;
    list_remove(&watcher->link);
    free(watcher);
    grpc_call_fail(call, why_take);
}

static void on_cancel(struct grpc_call *call, void *user) {
    end_watch(user, status_new(STATUS_CANCELLED, "the client cancelled the call"));
}

static void on_watch(void *arg, struct grpc_call *call) {
    struct grpc_health *health = arg;
    struct span service;
    struct status *st = read_request(grpc_call_message(call)->body, &service);
    if (st) {
        grpc_call_fail(call, st);
        return;
    }
    grpc_health_review(health);
    struct watcher *watcher = xcalloc(1, sizeof(*watcher));
    watcher->call = call;
    watcher->is_known = is_known(health, service);
    list_push_back(&health->watchers, &watcher->link);
    grpc_call_set_user(call, watcher, on_cancel);
    send_status(watcher, health->status);
    if (health->server->is_draining)
        end_watch(watcher, status_unavailable("the server is shutting down"));
}

void grpc_health_review(struct grpc_health *health) {
    if (!health)
        return;
    enum health_status before = health->status;
    health->status = ask(health);
    if (health->status == before)
        return;
    LIST_FOR_EACH (link, &health->watchers) {
        struct watcher *watcher = LIST_ENTRY(link, struct watcher, link);
        if (watcher->is_known)
            send_status(watcher, health->status);
    }
}

void grpc_health_stop(struct grpc_health *health) {
    if (!health)
        return;
    grpc_health_review(health);
    LIST_FOR_EACH_SAFE (link, next, &health->watchers)
        end_watch(LIST_ENTRY(link, struct watcher, link),
                  status_unavailable("the server is shutting down"));
}
