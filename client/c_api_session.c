/* Runs sessions of the C client: writes requests and reads replies by hand, over
 * rpc/grpc/grpc_client. docs/compatibility.md lists the fields of the protocol. */
#include "client/c_api.h"

#include <stdlib.h>

#include "client/c_api_internal.h"
#include "client/local_link.h"
#include "client/step_call.h"
#include "client/tls_client.h"
#include "common/base/clock.h"
#include "common/base/str.h"
#include "common/tensor/tensor_proto.h"

struct TF_SessionOptions {
    struct str target, config;
    char *tls_ca, *tls_cert, *tls_key, *tls_name; /* or NULL */
    int64_t timeout_ms;
};

/* ---- one call ---- */

struct pending {
    struct loop_call call;
    TF_DeprecatedSession *session;
    const char *path;
    struct grpc_body *body;
    struct status *status;
    struct grpc_message message;
};

static void on_done(void *arg, struct status *status_take, struct grpc_message message_take) {
    struct pending *pending = arg;
    pending->status = status_take;
    pending->message = message_take;
    loop_call_done(&pending->call);
}

void session_start_call(TF_DeprecatedSession *session, const char *path, struct grpc_body *body,
                        grpc_done_fn *on_done_fn, void *arg, struct master_call *ret) {
    *ret = (struct master_call){NULL, NULL};
    if (session->client)
        ret->remote = grpc_client_start(session->client, path, body, session->timeout_ms,
                                        step_reply_align, on_done_fn, arg);
    else
        ret->local = session->local->call(session->cluster, path, body, session->timeout_ms,
                                          step_reply_align, on_done_fn, arg);
}

void session_cancel_call(TF_DeprecatedSession *session, const struct master_call *call) {
    if (call->remote)
        grpc_client_cancel(call->remote);
    else
        session->local->cancel(call->local);
}

static void begin(struct loop_call *call) {
    struct pending *pending = CONTAINER_OF(call, struct pending, call);
    struct master_call started;
    session_start_call(pending->session, pending->path, pending->body, on_done, pending, &started);
}

/* Calls and waits. On success the reply's buffer belongs to the caller. Takes the body's
 * contents. */
static struct status *call(TF_DeprecatedSession *session, const char *method,
                           struct grpc_body *body, struct grpc_message *ret) {
    struct str path = STR_INIT;
    str_addf(&path, "/tensorflow.MasterService/%s", method);
    struct pending pending = {.session = session, .path = str_text(&path), .body = body};
    call_loop_run(&session->calls, &pending.call, begin);
    str_fini(&path);
    *ret = pending.message;
    return pending.status;
}

struct status *session_call(TF_DeprecatedSession *session, const char *method,
                            const struct str *request, struct grpc_message *ret) {
    struct grpc_body body;
    grpc_body_init(&body);
    grpc_body_add_copy(&body, str_text(request), request->len);
    struct status *st = call(session, method, &body, ret);
    grpc_body_fini(&body);
    return st;
}

/* ---- options ---- */

TF_SessionOptions *TF_NewSessionOptions(void) {
    TF_SessionOptions *options = xcalloc(1, sizeof *options);
    options->timeout_ms = -1;
    return options;
}

void TF_DeleteSessionOptions(TF_SessionOptions *options) {
    if (!options)
        return;
    str_fini(&options->target);
    str_fini(&options->config);
    MR_SetTls(options, NULL, NULL, NULL, NULL);
    free(options);
}

void TF_SetTarget(TF_SessionOptions *options, const char *target) {
    if (!options)
        return;
    str_clear(&options->target);
    str_add(&options->target, target ? target : "");
}

void TF_SetConfig(TF_SessionOptions *options, const void *proto, size_t length, TF_Status *status) {
    if (!options || (!proto && length > 0)) {
        tf_status_set(status, null_refused(__func__, options ? "proto" : "options"));
    } else if (proto_is_message((struct span){proto ? proto : "", length})) {
        str_clear(&options->config);
        str_add_bytes(&options->config, proto ? proto : "", length);
        tf_status_set(status, NULL);
    } else {
        tf_status_set(status, status_invalid("%s: Unparseable ConfigProto", __func__));
    }
}

void MR_SetTimeout(TF_SessionOptions *options, int64_t timeout_ms) {
    if (options)
        options->timeout_ms = timeout_ms;
}

static void set_text(char **field, const char *text) {
    free(*field);
    *field = text ? xstrdup(text) : NULL;
}

void MR_SetTls(TF_SessionOptions *options, const char *ca_file, const char *cert_file,
               const char *key_file, const char *name) {
    if (!options)
        return;
    set_text(&options->tls_ca, ca_file);
    set_text(&options->tls_cert, cert_file);
    set_text(&options->tls_key, key_file);
    set_text(&options->tls_name, name);
}

/* ---- life ---- */

static struct status *connect_remote(TF_DeprecatedSession *session,
                                     const TF_SessionOptions *options) {
    bool is_tls;
    const char *target = str_text(&options->target), *address = tls_client_split(target, &is_tls);
    struct tls_client settings = {options->tls_ca, options->tls_cert, options->tls_key,
                                  options->tls_name};
    struct tls *tls = NULL;
    if (!*address || !strchr(address, ':'))
        return status_invalid("target '%s' is not of the form grpc://HOST:PORT, "
                              "grpcs://HOST:PORT or unix:PATH, nor \"\" for a local session",
                              target);
    tls_client_fill(&settings);
    if (is_tls)
        TRY(tls_client_new(&settings, &tls));
    session->client = grpc_client_new(session->calls.loop, address, false);
    if (is_tls)
        grpc_client_secure(session->client, tls, settings.name);
    tls_unref(tls);
    return NULL;
}

/* A local session has a master and a worker of its own, which must go on between its calls. */
static struct status *connect_local(TF_DeprecatedSession *session) {
    TRY(local_link_plugin(&session->local));
    return session->local->start(session->calls.loop,
                                 (struct span){session->config.data, session->config.len},
                                 &session->cluster);
}

static void set_true(void *arg) { *(bool *)arg = true; }

/* Ends what uses the loop, and runs it until nothing is open on it. No other thread uses the
 * session any more. */
static void close_loop(TF_DeprecatedSession *session) {
    bool is_closed = session->client == NULL;
    call_loop_end_keeper(&session->calls);
    loop_claim(session->calls.loop);
    if (session->client)
        grpc_client_close(session->client, set_true, &is_closed);
    while (!is_closed)
        loop_run_once(session->calls.loop);
    if (session->cluster) {
        session->local->stop(session->cluster);
        loop_run(session->calls.loop);
        session->local->free(session->cluster);
    }
    call_loop_fini(&session->calls);
}

static void free_session(TF_DeprecatedSession *session) {
    close_loop(session);
    pthread_mutex_destroy(&session->lock);
    str_fini(&session->config);
    str_fini(&session->handle);
    free(session->target);
    free(session);
}

TF_DeprecatedSession *TF_NewDeprecatedSession(const TF_SessionOptions *options, TF_Status *status) {
    if (!options) {
        tf_status_set(status, null_refused(__func__, "options"));
        return NULL;
    }
    TF_DeprecatedSession *session = xcalloc(1, sizeof *session);
    bool is_local = options->target.len == 0;
    pthread_mutex_init(&session->lock, NULL);
    call_loop_init(&session->calls);
    session->target = xstrdup(is_local ? "the local master" : str_text(&options->target));
    session->timeout_ms = options->timeout_ms;
    str_add_bytes(&session->config, str_text(&options->config), options->config.len);
    struct status *st = is_local ? connect_local(session) : connect_remote(session, options);
    loop_release(session->calls.loop);
    if (!st && is_local)
        st = call_loop_keep(&session->calls, true);
    if (st) {
        free_session(session);
        session = NULL;
    }
    tf_status_set(status, st);
    return session;
}

/* Steps of other threads end with CANCELLED. */
void TF_CloseDeprecatedSession(TF_DeprecatedSession *session, TF_Status *status) {
    struct str request = STR_INIT;
    struct grpc_message reply = {0};
    struct status *st = NULL;
    if (!session) {
        tf_status_set(status, null_refused(__func__, "session"));
        return;
    }
    pthread_mutex_lock(&session->lock);
    bool is_open = !session->is_closed && session->handle.len > 0;
    session->is_closed = true;
    pthread_mutex_unlock(&session->lock);
    if (is_open) {
        proto_add_bytes(&request, 1, session->handle.data, session->handle.len);
        st = session_call(session, "CloseSession", &request, &reply);
        buffer_unref(reply.buffer);
    }
    str_fini(&request);
    tf_status_set(status, st);
}

void TF_DeleteDeprecatedSession(TF_DeprecatedSession *session, TF_Status *status) {
    tf_status_set(status, NULL);
    if (!session)
        return;
    TF_CloseDeprecatedSession(session, status);
    free_session(session);
}

/* ---- the graph ---- */

static struct status *read_created(TF_DeprecatedSession *session, struct span body) {
    struct proto_field field;
    while (proto_next(&body, &field) > 0) {
        if (field.number == 1 && field.wire_type == 2)
            str_add_bytes(&session->handle, field.bytes.data, field.bytes.len);
        else if (field.number == 2 && field.wire_type == 0)
            session->graph_version = (int64_t)field.value;
    }
    return session->handle.len
               ? NULL
               : status_internal("%s created a session without a handle", session->target);
}

/* Creates the session at the master. The lock is held. graph_def may be empty. */
static struct status *create(TF_DeprecatedSession *session, struct span graph_def) {
    struct str request = STR_INIT;
    struct grpc_message reply = {0};
    proto_add_bytes(&request, 1, graph_def.data, graph_def.len);
    if (session->config.len)
        proto_add_bytes(&request, 2, session->config.data, session->config.len);
    proto_add_bytes(&request, 3, session->target, strlen(session->target));
    struct status *st = session_call(session, "CreateSession", &request, &reply);
    if (!st)
        st = read_created(session, reply.body);
    buffer_unref(reply.buffer);
    str_fini(&request);
    return st;
}

static struct status *extend(TF_DeprecatedSession *session, struct span graph_def) {
    struct str request = STR_INIT;
    struct grpc_message reply = {0};
    struct proto_field field;
    proto_add_bytes(&request, 1, session->handle.data, session->handle.len);
    proto_add_bytes(&request, 2, graph_def.data, graph_def.len);
    proto_add_int(&request, 3, (uint64_t)session->graph_version);
    struct status *st = session_call(session, "ExtendSession", &request, &reply);
    while (!st && proto_next(&reply.body, &field) > 0)
        if (field.number == 4 && field.wire_type == 0)
            session->graph_version = (int64_t)field.value;
    buffer_unref(reply.buffer);
    str_fini(&request);
    return st;
}

/* Is the session open, and does the master have it? The lock is held. The handle, once set, stays
 * the same until the session is freed. */
static struct status *check_open(TF_DeprecatedSession *session) {
    if (session->is_closed)
        return status_failed_precondition("the session at %s is closed", session->target);
    return session->handle.len ? NULL : create(session, (struct span){"", 0});
}

struct status *session_open(TF_DeprecatedSession *session) {
    pthread_mutex_lock(&session->lock);
    struct status *st = check_open(session);
    pthread_mutex_unlock(&session->lock);
    return st;
}

struct status *session_add_graph(TF_DeprecatedSession *session, struct span graph_def) {
    pthread_mutex_lock(&session->lock);
    bool is_new = session->handle.len == 0 && !session->is_closed;
    struct status *st = is_new ? create(session, graph_def) : check_open(session);
    if (!st && !is_new)
        st = extend(session, graph_def);
    pthread_mutex_unlock(&session->lock);
    return st;
}

void TF_ExtendGraph(TF_DeprecatedSession *session, const void *graph_def, size_t length,
                    TF_Status *status) {
    struct span def = {graph_def ? graph_def : "", length};
    struct status *st;
    if (!session || (!graph_def && length > 0))
        st = null_refused(__func__, session ? "graph_def" : "session");
    else if (!proto_is_message(def))
        st = status_invalid("%s: Unparseable GraphDef", __func__);
    else
        st = session_add_graph(session, def);
    tf_status_set(status, st);
}

/* ---- steps ---- */

struct status *session_run_step(TF_DeprecatedSession *session, const struct step_spec *step,
                                TF_Tensor **outputs, TF_Buffer *run_metadata) {
    struct grpc_body body;
    struct grpc_message reply = {0};
    for (int i = 0; i < step->noutputs; i++)
        outputs[i] = NULL;
    if (run_metadata && run_metadata->data)
        return status_invalid("Passing non-empty run_metadata is invalid.");
    TRY(session_open(session));
    grpc_body_init(&body);
    step_request_write(&session->handle, step, &body);
    struct status *st = call(session, "RunStep", &body, &reply);
    if (!st)
        st = step_reply_take(&reply, step->output_names, outputs, step->noutputs, run_metadata);
    buffer_unref(reply.buffer);
    grpc_body_fini(&body);
    return st;
}

/* The names and the numbers of one call's feeds, fetches and targets. */
static struct step_spec step_of_names(const char **input_names, int ninputs,
                                      const char **output_names, int noutputs,
                                      const char **target_names, int ntargets) {
    return (struct step_spec){.input_names = input_names,
                              .ninputs = ninputs,
                              .output_names = output_names,
                              .noutputs = noutputs,
                              .target_names = target_names,
                              .ntargets = ntargets};
}

static struct status *check_texts(const char *function, const char *what, const char *const *texts,
                                  int n) {
    if (n < 0)
        return status_invalid("%s: %d %s", function, n, what);
    if (n > 0 && !texts)
        return null_refused(function, what);
    for (int i = 0; i < n; i++)
        if (!texts[i])
            return status_invalid("%s: %s[%d] is NULL", function, what, i);
    return NULL;
}

static struct status *check_step(const char *function, const TF_DeprecatedSession *session,
                                 const struct step_spec *step) {
    if (!session)
        return null_refused(function, "session");
    TRY(check_texts(function, "input_names", step->input_names, step->ninputs));
    TRY(check_texts(function, "output_names", step->output_names, step->noutputs));
    return check_texts(function, "target_names", step->target_names, step->ntargets);
}

/* Runs a step, or with a handle a part of a partial run, for the function of the client. */
static struct status *run_named(const char *function, TF_DeprecatedSession *session,
                                const struct step_spec *step, TF_Tensor **outputs,
                                TF_Buffer *run_metadata) {
    TRY(check_step(function, session, step));
    if ((step->ninputs > 0 && !step->inputs) || (step->noutputs > 0 && !outputs))
        return null_refused(function, step->ninputs > 0 && !step->inputs ? "inputs" : "outputs");
    for (int i = 0; i < step->ninputs; i++)
        if (!step->inputs[i])
            return status_invalid("%s: the value of input '%s' is NULL", function,
                                  step->input_names[i]);
    return session_run_step(session, step, outputs, run_metadata);
}

void TF_Run(TF_DeprecatedSession *session, const TF_Buffer *run_options, const char **input_names,
            TF_Tensor **inputs, int ninputs, const char **output_names, TF_Tensor **outputs,
            int noutputs, const char **target_names, int ntargets, TF_Buffer *run_metadata,
            TF_Status *status) {
    struct step_spec step =
        step_of_names(input_names, ninputs, output_names, noutputs, target_names, ntargets);
    step.run_options = run_options;
    step.inputs = inputs;
    tf_status_set(status, run_named(__func__, session, &step, outputs, run_metadata));
}

/* ---- partial runs ---- */

static void add_names(struct str *out, uint32_t number, const char *const *names, int n,
                      bool has_index) {
    struct str full = STR_INIT;
    for (int i = 0; i < n; i++) {
        str_clear(&full);
        if (has_index)
            step_endpoint_name(names[i], &full);
        else
            str_add(&full, names[i]);
        proto_add_bytes(out, number, str_text(&full), full.len);
    }
    str_fini(&full);
}

static struct status *take_handle(const struct grpc_message *reply, const char **ret) {
    struct proto_field field;
    struct span body = reply->body;
    *ret = NULL;
    while (!*ret && proto_next(&body, &field) > 0)
        if (field.number == 1 && field.wire_type == 2)
            *ret = strndup(field.bytes.data, field.bytes.len);
    return *ret ? NULL : status_internal("the reply to PartialRunSetup lacks a handle");
}

struct status *session_set_up_partial_run(TF_DeprecatedSession *session,
                                          const struct step_spec *step, const char **ret_handle) {
    struct str request = STR_INIT;
    struct grpc_message reply = {0};
    TRY(session_open(session));
    proto_add_bytes(&request, 1, session->handle.data, session->handle.len);
    add_names(&request, 2, step->input_names, step->ninputs, true);
    add_names(&request, 3, step->output_names, step->noutputs, true);
    add_names(&request, 4, step->target_names, step->ntargets, false);
    proto_add_int(&request, 5, random_u64());
    struct status *st = session_call(session, "PartialRunSetup", &request, &reply);
    if (!st)
        st = take_handle(&reply, ret_handle);
    buffer_unref(reply.buffer);
    str_fini(&request);
    return st;
}

void TF_PRunSetup(TF_DeprecatedSession *session, const char **input_names, int ninputs,
                  const char **output_names, int noutputs, const char **target_names, int ntargets,
                  const char **handle, TF_Status *status) {
    struct step_spec step =
        step_of_names(input_names, ninputs, output_names, noutputs, target_names, ntargets);
    if (handle)
        *handle = NULL;
    struct status *st =
        handle ? check_step(__func__, session, &step) : null_refused(__func__, "handle");
    tf_status_set(status, st ? st : session_set_up_partial_run(session, &step, handle));
}

void TF_PRun(TF_DeprecatedSession *session, const char *handle, const char **input_names,
             TF_Tensor **inputs, int ninputs, const char **output_names, TF_Tensor **outputs,
             int noutputs, const char **target_names, int ntargets, TF_Status *status) {
    struct step_spec step =
        step_of_names(input_names, ninputs, output_names, noutputs, target_names, ntargets);
    step.handle = handle;
    step.inputs = inputs;
    tf_status_set(status, handle ? run_named(__func__, session, &step, outputs, NULL)
                                 : null_refused(__func__, "handle"));
}

void TF_DeletePRunHandle(const char *handle) { free((void *)(uintptr_t)handle); }

/* ---- resources ---- */

void TF_Reset(const TF_SessionOptions *options, const char **containers, int ncontainers,
              TF_Status *status) {
    struct str request = STR_INIT;
    struct grpc_message reply = {0};
    struct status *st = options ? check_texts(__func__, "containers", containers, ncontainers)
                                : null_refused(__func__, "options");
    if (st) {
        tf_status_set(status, st);
        return;
    }
    if (options->target.len == 0) {
        tf_status_set(status,
                      status_unimplemented("TF_Reset of local sessions: each has resources of its "
                                           "own, which end with it"));
        return;
    }
    TF_Status *ignored = TF_NewStatus();
    TF_DeprecatedSession *session = TF_NewDeprecatedSession(options, status);
    if (session) {
        for (int i = 0; i < ncontainers; i++)
            proto_add_bytes(&request, 1, containers[i], strlen(containers[i]));
        tf_status_set(status, session_call(session, "Reset", &request, &reply));
        buffer_unref(reply.buffer);
        TF_DeleteDeprecatedSession(session, ignored);
    }
    TF_DeleteStatus(ignored);
    str_fini(&request);
}
