/* Runs sessions of the C client: writes requests and reads replies by hand, one blocking call at a
 * time over rpc/grpc/grpc_client. docs/compatibility.md lists the fields of the protocol. */
#include "client/c_api.h"

#include <stdlib.h>

#include "client/c_api_internal.h"
#include "client/client_tensor.h"
#include "client/tls_client.h"
#include "common/base/clock.h"
#include "common/base/str.h"
#include "common/tensor/tensor_proto.h"

enum { SHARE_BYTES = 4096 }; /* larger contents are sent by reference */

struct TF_SessionOptions {
    struct str target, config;
    char *tls_ca, *tls_cert, *tls_key, *tls_name; /* or NULL */
    int64_t timeout_ms;
};

/* ---- one call ---- */

struct pending {
    struct status *status;
    struct grpc_message message;
    bool is_done;
};

static void on_done(void *arg, struct status *status_take, struct grpc_message message_take) {
    struct pending *pending = arg;
    pending->status = status_take;
    pending->message = message_take;
    pending->is_done = true;
}

/* Returns where the contents of the first large fetch start: RunStepResponse.tensor (1) →
 * NamedTensorProto.tensor (2) → tensor_content (4). */
static size_t align_reply(struct span head, size_t body_len) {
    static const uint32_t path[] = {1, 2, 4};
    return grpc_find_large(head, body_len, path, ARRAY_LEN(path), SHARE_BYTES);
}

/* Calls and waits. On success the reply's buffer belongs to the caller. Takes the body's
 * contents. */
static struct status *call(TF_DeprecatedSession *session, const char *method,
                           struct grpc_body *body, struct grpc_message *ret) {
    struct pending pending = {0};
    struct str path = STR_INIT;
    str_addf(&path, "/tensorflow.MasterService/%s", method);
    grpc_client_start(session->client, str_text(&path), body, session->timeout_ms, align_reply,
                      on_done, &pending);
    while (!pending.is_done)
        loop_run_once(session->loop);
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
    str_clear(&options->target);
    str_add(&options->target, target);
}

void TF_SetConfig(TF_SessionOptions *options, const void *proto, size_t length, TF_Status *status) {
    if (proto_is_message((struct span){proto, length})) {
        str_clear(&options->config);
        str_add_bytes(&options->config, proto, length);
        tf_status_set(status, NULL);
    } else {
        tf_status_set(status, status_invalid("Unparseable ConfigProto"));
    }
}

void MR_SetTimeout(TF_SessionOptions *options, int64_t timeout_ms) {
    options->timeout_ms = timeout_ms;
}

static void set_text(char **field, const char *text) {
    free(*field);
    *field = text ? xstrdup(text) : NULL;
}

void MR_SetTls(TF_SessionOptions *options, const char *ca_file, const char *cert_file,
               const char *key_file, const char *name) {
    set_text(&options->tls_ca, ca_file);
    set_text(&options->tls_cert, cert_file);
    set_text(&options->tls_key, key_file);
    set_text(&options->tls_name, name);
}

/* ---- life ---- */

static struct status *connect_client(TF_DeprecatedSession *session,
                                     const TF_SessionOptions *options, const char *address,
                                     bool is_tls) {
    struct tls_client settings = {options->tls_ca, options->tls_cert, options->tls_key,
                                  options->tls_name};
    struct tls *tls = NULL;
    tls_client_fill(&settings);
    if (is_tls)
        TRY(tls_client_new(&settings, &tls));
    session->client = grpc_client_new(session->loop, address, false);
    if (is_tls)
        grpc_client_secure(session->client, tls, settings.name);
    tls_unref(tls);
    return NULL;
}

static void free_session(TF_DeprecatedSession *session) {
    loop_free(session->loop);
    pthread_mutex_destroy(&session->lock);
    str_fini(&session->config);
    str_fini(&session->handle);
    free(session->target);
    free(session);
}

TF_DeprecatedSession *TF_NewDeprecatedSession(const TF_SessionOptions *options, TF_Status *status) {
    bool is_tls;
    const char *target = str_text(&options->target), *address = tls_client_split(target, &is_tls);
    if (!*address || (!strchr(address, ':'))) {
        tf_status_set(
            status,
            status_invalid(
                "target '%s' is not of the form grpc://HOST:PORT, grpcs://HOST:PORT or unix:PATH",
                target));
        return NULL;
    }
    TF_DeprecatedSession *session = xcalloc(1, sizeof *session);
    pthread_mutex_init(&session->lock, NULL);
    session->loop = loop_new();
    session->target = xstrdup(target);
    session->timeout_ms = options->timeout_ms;
    str_add_bytes(&session->config, str_text(&options->config), options->config.len);
    struct status *st = connect_client(session, options, address, is_tls);
    if (st) {
        free_session(session);
        session = NULL;
    }
    tf_status_set(status, st);
    return session;
}

void TF_CloseDeprecatedSession(TF_DeprecatedSession *session, TF_Status *status) {
    struct str request = STR_INIT;
    struct grpc_message reply = {0};
    struct status *st = NULL;
    pthread_mutex_lock(&session->lock);
    if (!session->is_closed && session->handle.len) {
        proto_add_bytes(&request, 1, session->handle.data, session->handle.len);
        st = session_call(session, "CloseSession", &request, &reply);
        buffer_unref(reply.buffer);
    }
    session->is_closed = true;
    pthread_mutex_unlock(&session->lock);
    str_fini(&request);
    tf_status_set(status, st);
}

static void set_true(void *arg) { *(bool *)arg = true; }

void TF_DeleteDeprecatedSession(TF_DeprecatedSession *session, TF_Status *status) {
    bool is_closed = false;
    if (!session)
        return;
    TF_CloseDeprecatedSession(session, status);
    grpc_client_close(session->client, set_true, &is_closed);
    while (!is_closed)
        loop_run_once(session->loop);
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

static struct status *closed(const TF_DeprecatedSession *session) {
    return session->is_closed
               ? status_failed_precondition("the session at %s is closed", session->target)
               : NULL;
}

void TF_ExtendGraph(TF_DeprecatedSession *session, const void *graph_def, size_t length,
                    TF_Status *status) {
    struct span def = {graph_def, length};
    pthread_mutex_lock(&session->lock);
    struct status *st = closed(session);
    if (!st)
        st = session->handle.len ? extend(session, def) : create(session, def);
    pthread_mutex_unlock(&session->lock);
    tf_status_set(status, st);
}

/* ---- steps ---- */

/* Appends a name as the server expects it: "a" means "a:0" (TensorFlow's server never answers a
 * fetch without an index). */
static void endpoint_name(const char *name, struct str *out) {
    str_addf(out, "%s%s", name, strchr(name, ':') ? "" : ":0");
}

static void add_fetch(struct str *out, const char *name) {
    struct str full = STR_INIT;
    endpoint_name(name, &full);
    proto_add_bytes(out, 3, full.data, full.len);
    str_fini(&full);
}

static void add_feed(struct grpc_body *body, const char *name, const struct tensor *value) {
    struct str head = STR_INIT, tensor = STR_INIT, full = STR_INIT;
    size_t content = 0;
    endpoint_name(name, &full);
    if (dtype_in((enum dtype)value->dtype, DTYPES_PLAIN)) {
        tensor_proto_head(value, &tensor);
        content = tensor_size_bytes(value);
    } else {
        tensor_to_proto(value, &tensor);
    }
    size_t tensor_len = tensor.len + content;
    proto_add_tag(&head, 2, 2);
    proto_add_varint(&head, 1 + proto_varint_size(full.len) + full.len + 1 +
                                proto_varint_size(tensor_len) + tensor_len);
    proto_add_tag(&head, 1, 2);
    proto_add_varint(&head, full.len);
    str_add_bytes(&head, full.data, full.len);
    proto_add_tag(&head, 2, 2);
    proto_add_varint(&head, tensor_len);
    str_add_bytes(&head, tensor.data, tensor.len);
    grpc_body_add_copy(body, head.data, head.len);
    if (content >= SHARE_BYTES && value->storage == TENSOR_BUFFER)
        grpc_body_add_shared(body, tensor_cdata(value), content, buffer_ref(value->buffer));
    else if (content)
        grpc_body_add_copy(body, tensor_cdata(value), content);
    str_fini(&full);
    str_fini(&head);
    str_fini(&tensor);
}

static void add_str(struct grpc_body *body, const struct str *text) {
    grpc_body_add_copy(body, str_text(text), text->len);
}

static struct status *take_tensor(struct span named, struct buffer *owner,
                                  const char **output_names, TF_Tensor **outputs, int noutputs) {
    struct proto_field field;
    struct span name = {"", 0}, proto = {"", 0};
    while (proto_next(&named, &field) > 0) {
        if (field.wire_type == 2 && field.number == 1)
            name = field.bytes;
        else if (field.wire_type == 2 && field.number == 2)
            proto = field.bytes;
    }
    for (int i = 0; i < noutputs; i++) {
        size_t len = strlen(output_names[i]);
        bool is_short = !strchr(output_names[i], ':') && name.len == len + 2 &&
                        memcmp(name.data + len, ":0", 2) == 0;
        if (outputs[i] || !(span_is(name, output_names[i]) ||
                            (is_short && memcmp(name.data, output_names[i], len) == 0)))
            continue;
        struct tensor value;
        TRY(tensor_from_proto(proto, owner, allocator_host(), &value));
        outputs[i] = client_tensor_new(&value);
    }
    return NULL;
}

static struct status *take_reply(const struct grpc_message *reply, const char **output_names,
                                 TF_Tensor **outputs, int noutputs, TF_Buffer *run_metadata) {
    struct proto_field field;
    struct span body = reply->body, message = {"", 0};
    int more, code = 0;
    while ((more = proto_next(&body, &field)) > 0) {
        if (field.number == 1 && field.wire_type == 2)
            TRY(take_tensor(field.bytes, reply->buffer, output_names, outputs, noutputs));
        else if (field.number == 2 && field.wire_type == 2 && run_metadata) {
            TF_Buffer *copy = TF_NewBufferFromString(field.bytes.data, field.bytes.len);
            *run_metadata = *copy;
            free(copy);
        } else if (field.number == 3 && field.wire_type == 0)
            code = (int)field.value;
        else if (field.number == 4 && field.wire_type == 2)
            message = field.bytes;
    }
    if (more < 0)
        return status_internal("the reply to RunStep is malformed");
    TRY(status_from_wire(code, message));
    for (int i = 0; i < noutputs; i++)
        if (!outputs[i])
            return status_internal("the reply to RunStep lacks %s", output_names[i]);
    return NULL;
}

/* Runs a step, or with a handle a part of a partial run. */
static struct status *run_step(TF_DeprecatedSession *session, const TF_Buffer *run_options,
                               const char *handle, const char **input_names, TF_Tensor **inputs,
                               int ninputs, const char **output_names, TF_Tensor **outputs,
                               int noutputs, const char **target_names, int ntargets,
                               TF_Buffer *run_metadata) {
    struct str text = STR_INIT;
    struct grpc_body body;
    struct grpc_message reply = {0};
    for (int i = 0; i < noutputs; i++)
        outputs[i] = NULL;
    if (run_metadata && run_metadata->data)
        return status_invalid("Passing non-empty run_metadata is invalid.");
    grpc_body_init(&body);
    pthread_mutex_lock(&session->lock);
    struct status *st = closed(session);
    if (!st && !session->handle.len)
        st = create(session, (struct span){"", 0});
    if (!st) {
        proto_add_bytes(&text, 1, session->handle.data, session->handle.len);
        add_str(&body, &text);
        for (int i = 0; i < ninputs; i++)
            add_feed(&body, input_names[i], &inputs[i]->value);
        str_clear(&text);
        for (int i = 0; i < noutputs; i++)
            add_fetch(&text, output_names[i]);
        for (int i = 0; i < ntargets; i++)
            proto_add_bytes(&text, 4, target_names[i], strlen(target_names[i]));
        if (run_options)
            proto_add_bytes(&text, 5, run_options->data, run_options->length);
        if (handle)
            proto_add_bytes(&text, 6, handle, strlen(handle));
        proto_add_int(&text, 7, 1);
        proto_add_int(&text, 8, random_u64());
        add_str(&body, &text);
        st = call(session, "RunStep", &body, &reply);
    }
    if (!st)
        st = take_reply(&reply, output_names, outputs, noutputs, run_metadata);
    pthread_mutex_unlock(&session->lock);
    for (int i = 0; st && i < noutputs; i++) {
        TF_DeleteTensor(outputs[i]);
        outputs[i] = NULL;
    }
    buffer_unref(reply.buffer);
    grpc_body_fini(&body);
    str_fini(&text);
    return st;
}

void TF_Run(TF_DeprecatedSession *session, const TF_Buffer *run_options, const char **input_names,
            TF_Tensor **inputs, int ninputs, const char **output_names, TF_Tensor **outputs,
            int noutputs, const char **target_names, int ntargets, TF_Buffer *run_metadata,
            TF_Status *status) {
    tf_status_set(status,
                  run_step(session, run_options, NULL, input_names, inputs, ninputs, output_names,
                           outputs, noutputs, target_names, ntargets, run_metadata));
}

/* ---- partial runs ---- */

static void add_names(struct str *out, uint32_t number, const char **names, int n, bool has_index) {
    struct str full = STR_INIT;
    for (int i = 0; i < n; i++) {
        str_clear(&full);
        if (has_index)
            endpoint_name(names[i], &full);
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

void TF_PRunSetup(TF_DeprecatedSession *session, const char **input_names, int ninputs,
                  const char **output_names, int noutputs, const char **target_names, int ntargets,
                  const char **handle, TF_Status *status) {
    struct str request = STR_INIT;
    struct grpc_message reply = {0};
    if (!handle) {
        tf_status_set(status, status_invalid("%s: handle is NULL", __func__));
        return;
    }
    *handle = NULL;
    pthread_mutex_lock(&session->lock);
    struct status *st = closed(session);
    if (!st && !session->handle.len)
        st = create(session, (struct span){"", 0});
    if (!st) {
        proto_add_bytes(&request, 1, session->handle.data, session->handle.len);
        add_names(&request, 2, input_names, ninputs, true);
        add_names(&request, 3, output_names, noutputs, true);
        add_names(&request, 4, target_names, ntargets, false);
        proto_add_int(&request, 5, random_u64());
        st = session_call(session, "PartialRunSetup", &request, &reply);
    }
    pthread_mutex_unlock(&session->lock);
    if (!st)
        st = take_handle(&reply, handle);
    buffer_unref(reply.buffer);
    str_fini(&request);
    tf_status_set(status, st);
}

void TF_PRun(TF_DeprecatedSession *session, const char *handle, const char **input_names,
             TF_Tensor **inputs, int ninputs, const char **output_names, TF_Tensor **outputs,
             int noutputs, const char **target_names, int ntargets, TF_Status *status) {
    tf_status_set(status,
                  handle ? run_step(session, NULL, handle, input_names, inputs, ninputs,
                                    output_names, outputs, noutputs, target_names, ntargets, NULL)
                         : status_invalid("%s: handle is NULL", __func__));
}

void TF_DeletePRunHandle(const char *handle) { free((void *)(uintptr_t)handle); }

/* ---- resources ---- */

void TF_Reset(const TF_SessionOptions *options, const char **containers, int ncontainers,
              TF_Status *status) {
    struct str request = STR_INIT;
    struct grpc_message reply = {0};
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
