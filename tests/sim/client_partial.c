/* A partial run: a step whose feeds come and whose fetches go in two calls. */
#include "client/c_api_internal.h"
#include "common/tensor/tensor_proto.h"
#include "tests/sim/client.h"

static void add_names(struct str *out, uint32_t field, const char *const *names, int n) {
    for (int i = 0; i < n; i++)
        proto_add_bytes(out, field, names[i], strlen(names[i]));
}

static struct status *call(struct sim_client *client, const char *method, const struct str *request,
                           struct grpc_message *ret) {
    TF_DeprecatedSession *session = client->session;
    pthread_mutex_lock(&session->lock);
    struct status *st = session_call(session, method, request, ret);
    pthread_mutex_unlock(&session->lock);
    return st;
}

/* Field 1 of a reply, if it is there. */
static bool first_field(struct span body, struct span *ret) {
    struct proto_field field;
    while (proto_next(&body, &field) > 0)
        if (field.number == 1 && field.wire_type == 2) {
            *ret = field.bytes;
            return true;
        }
    return false;
}

static struct status *begin(struct sim_client *client, const char *const *feeds,
                            const char *const *fetches, struct str *ret_handle) {
    struct str request = STR_INIT;
    struct grpc_message reply = {0};
    struct span handle = {"", 0};
    proto_add_bytes(&request, 1, client->session->handle.data, client->session->handle.len);
    add_names(&request, 2, feeds, 2);
    add_names(&request, 3, fetches, 2);
    struct status *st = call(client, "PartialRunSetup", &request, &reply);
    if (!st && !first_field(reply.body, &handle))
        st = status_internal("PartialRunSetup answers without a handle");
    str_add_bytes(ret_handle, handle.data, handle.len);
    buffer_unref(reply.buffer);
    str_fini(&request);
    return st;
}

static struct status *reply_status(struct span body) {
    struct proto_field field;
    struct span message = {"", 0};
    int code = 0;
    while (proto_next(&body, &field) > 0) {
        if (field.number == 3 && field.wire_type == 0)
            code = (int)field.value;
        else if (field.number == 4 && field.wire_type == 2)
            message = field.bytes;
    }
    return status_from_wire(code, message);
}

static struct status *take_value(const struct grpc_message *reply, double *ret) {
    struct span named = {"", 0};
    struct proto_field field;
    struct tensor value;
    TRY(reply_status(reply->body));
    if (!first_field(reply->body, &named))
        return status_internal("a partial run answers without its fetch");
    while (proto_next(&named, &field) > 0) {
        if (field.number != 2 || field.wire_type != 2)
            continue;
        TRY(tensor_from_proto(field.bytes, reply->buffer, allocator_host(), &value));
        *ret = (double)*(const int64_t *)tensor_cdata(&value);
        tensor_clear(&value);
    }
    return NULL;
}

static struct status *go_on(struct sim_client *client, const struct str *handle, const char *feed,
                            int64_t value, const char *fetch, double *ret) {
    struct str request = STR_INIT, named = STR_INIT, tensor_bytes = STR_INIT;
    struct grpc_message reply = {0};
    struct tensor tensor;
    tensor_init_scalar_i64(&tensor, value);
    tensor_to_proto(&tensor, &tensor_bytes);
    proto_add_bytes(&named, 1, feed, strlen(feed));
    proto_add_bytes(&named, 2, tensor_bytes.data, tensor_bytes.len);
    proto_add_bytes(&request, 1, client->session->handle.data, client->session->handle.len);
    proto_add_bytes(&request, 2, named.data, named.len);
    add_names(&request, 3, &fetch, 1);
    proto_add_bytes(&request, 6, handle->data, handle->len);
    proto_add_int(&request, 7, 1);
    struct status *st = call(client, "RunStep", &request, &reply);
    if (!st)
        st = take_value(&reply, ret);
    buffer_unref(reply.buffer);
    str_fini(&request);
    str_fini(&named);
    str_fini(&tensor_bytes);
    return st;
}

bool client_run_partial(struct sim_client *client, struct client_step *step,
                        const char *const *feeds, const int64_t *values, int n_calls) {
    struct str handle = STR_INIT;
    client_begin_call(client, step->label);
    struct status *st = begin(client, feeds, step->fetches, &handle);
    for (int i = 0; i < n_calls && !st; i++)
        st = go_on(client, &handle, feeds[i], values[i], step->fetches[i], &step->values[i]);
    str_fini(&handle);
    tf_status_set(client->status, st);
    return client_end_step(client, step);
}
