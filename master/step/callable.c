/* Makes, runs and releases callables. MakeCallable compiles the signature, so errors in its names
 * are reported there. A callable keeps names, and finds its executable in the session's cache like
 * any step. */
#include "master/step/callable.h"

#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "master/step/step_internal.h"

struct callable {
    int64_t handle;
    struct session *session; /* one reference while it is being made */
    struct grpc_call *call;  /* NULL once it is made, or once the client has cancelled the call */
    struct executable *executable;
    struct executable_wait wait;
    struct buffer *message; /* names are in this message */
    struct arena arena;
    struct run_step_request request;
};

struct callables {
    struct u64map by_handle; /* handle + 1 → struct callable */
    int64_t n_made;
};

static void reply_handle(struct grpc_call *call, int64_t handle) {
    struct str reply = STR_INIT;
    struct grpc_body body;
    grpc_body_init(&body);
    proto_add_int(&reply, 1, (uint64_t)handle);
    grpc_body_add_copy(&body, reply.data, reply.len);
    grpc_call_reply(call, &body);
    grpc_body_fini(&body);
    str_fini(&reply);
}

static void callable_free(struct callable *callable) {
    buffer_unref(callable->message);
    arena_fini(&callable->arena);
    free(callable);
}

void callables_free(struct callables *callables) {
    if (!callables)
        return;
    size_t cursor = 0;
    uint64_t handle;
    void *value;
    while (u64map_next(&callables->by_handle, &cursor, &handle, &value))
        callable_free(value);
    u64map_fini(&callables->by_handle);
    free(callables);
}

/* ---- making ---- */

static void keep(struct callable *callable) {
    struct session *session = callable->session;
    if (!session->callables) {
        session->callables = xcalloc(1, sizeof *session->callables);
        u64map_init(&session->callables->by_handle);
    }
    callable->handle = session->callables->n_made++;
    u64map_put(&session->callables->by_handle, (uint64_t)callable->handle + 1, callable);
}

static void made(struct executable_wait *waiter) {
    struct callable *callable = CONTAINER_OF(waiter, struct callable, wait);
    struct session *session = callable->session;
    struct executable *executable = callable->executable;
    if (!executable_await(executable, waiter))
        return;
    struct status *st =
        executable->state == EXECUTABLE_FAILED ? status_ref(executable->status) : NULL;
    if (!st && session->is_closed)
        st = status_new(STATUS_CANCELLED, "Session %s was closed", session->handle);
    if (callable->call) {
        grpc_call_set_user(callable->call, NULL, NULL);
        if (!st) {
            keep(callable);
            reply_handle(callable->call, callable->handle);
        } else {
            grpc_call_fail(callable->call, status_ref(st));
        }
    }
    callable->executable = NULL;
    if (!callable->call || st)
        callable_free(callable);
    else
        callable->call = NULL;
    status_unref(st);
    executable_unref(executable);
    session_unref(session);
}

static void make_cancelled(struct grpc_call *call, void *user) {
    struct callable *callable = user;
    callable->call = NULL;
    grpc_call_fail(call, status_new(STATUS_CANCELLED, "the client cancelled the call"));
}

void callable_make(struct session *session, struct grpc_call *call) {
    struct callable *callable = xcalloc(1, sizeof *callable);
    struct span body = grpc_call_message(call)->body, options, in = body;
    struct proto_field field;
    uint64_t request_id = 0;
    arena_init(&callable->arena);
    if (grpc_call_message(call)->buffer)
        callable->message = buffer_ref(grpc_call_message(call)->buffer);
    struct status *st = request_find_bytes(body, 2, &options);
    if (!st)
        st = callable_options_parse(options, &callable->arena, &callable->request);
    while (proto_next(&in, &field) > 0)
        if (field.number == 3 && field.wire_type == 0)
            request_id = field.value;
    if (!st && session->callables && session->callables->by_handle.n_entries >= MAX_CALLABLES)
        st = status_exhausted("The session has %d callables already", MAX_CALLABLES);
    if (!st)
        st = session_note_request(session, "MakeCallable", request_id);
    if (st) {
        callable_free(callable);
        grpc_call_fail(call, st);
        return;
    }
    callable->session = session;
    callable->call = call;
    session_ref(session);
    grpc_call_set_user(call, callable, make_cancelled);
    callable->executable =
        session_executable(session, run_step_request_key(&callable->request, &callable->arena),
                           step_fill_executable, &callable->request);
    callable->wait.settled = made;
    list_init(&callable->wait.link);
    made(&callable->wait);
}

/* ---- running ---- */

static struct status *read_handle(struct grpc_call *call, uint64_t *ret) {
    struct span body = grpc_call_message(call)->body;
    struct proto_field field;
    int more;
    *ret = 0;
    while ((more = proto_next(&body, &field)) > 0)
        if (field.number == 2 && field.wire_type == 0)
            *ret = field.value;
    return more < 0 ? status_invalid(
                          "Malformed request: a field is cut short or has an unknown wire type")
                    : NULL;
}

void callable_run(struct session *session, struct grpc_call *call) {
    uint64_t handle;
    struct arena arena;
    struct run_step_request request;
    arena_init(&arena);
    struct status *st = read_handle(call, &handle);
    const struct callable *callable =
        st || !session->callables ? NULL : u64map_get(&session->callables->by_handle, handle + 1);
    if (!st && !callable)
        st = status_invalid("No such callable handle: %lld", (long long)handle);
    if (!st)
        st =
            run_callable_parse(grpc_call_message(call)->body, &callable->request, &arena, &request);
    if (!st)
        st = session_note_request(session, "RunCallable", request.request_id);
    if (st)
        grpc_call_fail(call, st);
    else
        step_run(session, call, STEP_FORM_CALLABLE, &request, &arena);
    arena_fini(&arena);
}

/* Idempotent, as TensorFlow's. A running step of the callable continues. */
void callable_release(struct session *session, struct grpc_call *call) {
    uint64_t handle;
    struct grpc_body body;
    struct status *st = read_handle(call, &handle);
    if (st) {
        grpc_call_fail(call, st);
        return;
    }
    struct callable *callable =
        session->callables ? u64map_remove(&session->callables->by_handle, handle + 1) : NULL;
    if (callable)
        callable_free(callable);
    grpc_body_init(&body);
    grpc_call_reply(call, &body);
    grpc_body_fini(&body);
}
