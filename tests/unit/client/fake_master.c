/* Runs the fake master: a gRPC server on its own thread that answers by the names of targets. */
#include "tests/unit/client/fake_master.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"

static const char HANDLE[] = "session \x01 of the fake";
enum { FIRST_VERSION = 77 };

static void reply(struct grpc_call *call, const struct str *text) {
    struct grpc_body body;
    grpc_body_init(&body);
    if (text)
        grpc_body_add_copy(&body, str_text(text), text->len);
    grpc_call_reply(call, &body);
    grpc_body_fini(&body);
}

static void keep(struct str *to, struct span bytes) {
    str_clear(to);
    str_add_bytes(to, bytes.data, bytes.len);
}

/* The session in field 1; an error to the caller when it is not ours. */
static bool has_handle(struct grpc_call *call) {
    struct span body = grpc_call_message(call)->body;
    struct proto_field field;
    while (proto_next(&body, &field) > 0)
        if (field.number == 1 && span_is(field.bytes, HANDLE))
            return true;
    grpc_call_fail(call, status_new(STATUS_ABORTED,
                                    "Session is not found. Possibly, this master has restarted."));
    return false;
}

static void on_create(void *service, struct grpc_call *call) {
    struct fake_master *master = service;
    struct span body = grpc_call_message(call)->body;
    struct proto_field field;
    struct str out = STR_INIT;
    master->timeout_ms = grpc_call_timeout_ms(call);
    while (proto_next(&body, &field) > 0) {
        if (field.number == 1)
            keep(&master->graph, field.bytes);
        else if (field.number == 2)
            keep(&master->config, field.bytes);
    }
    if (!master->refuses_handles)
        proto_add_bytes(&out, 1, HANDLE, strlen(HANDLE));
    proto_add_int(&out, 2, FIRST_VERSION);
    master->n_created++;
    reply(call, &out);
    str_fini(&out);
}

static void on_extend(void *service, struct grpc_call *call) {
    struct fake_master *master = service;
    struct span body = grpc_call_message(call)->body;
    struct proto_field field;
    struct str out = STR_INIT;
    if (!has_handle(call))
        return;
    while (proto_next(&body, &field) > 0) {
        if (field.number == 2)
            keep(&master->graph, field.bytes);
        else if (field.number == 3)
            master->extended_version = (int64_t)field.value;
    }
    proto_add_int(&out, 4, (uint64_t)(FIRST_VERSION + ++master->n_extended));
    reply(call, &out);
    str_fini(&out);
}

/* ---- steps ---- */

static struct span feed_of(struct span request, struct span name) {
    struct proto_field field, part;
    while (proto_next(&request, &field) > 0) {
        struct span feed = field.bytes, feed_name = {"", 0}, value = {"", 0};
        while (field.number == 2 && proto_next(&feed, &part) > 0) {
            if (part.number == 1)
                feed_name = part.bytes;
            else if (part.number == 2)
                value = part.bytes;
        }
        if (field.number == 2 && span_equal(feed_name, name))
            return value;
    }
    return (struct span){"", 0};
}

static void answer_fetches(struct span request, struct span instead, struct str *out) {
    struct span rest = request;
    struct proto_field field;
    struct str named = STR_INIT;
    while (proto_next(&rest, &field) > 0) {
        if (field.number != 3)
            continue;
        struct span value = instead.len > 0 ? instead : feed_of(request, field.bytes);
        str_clear(&named);
        proto_add_bytes(&named, 1, field.bytes.data, field.bytes.len);
        proto_add_bytes(&named, 2, value.data, value.len);
        proto_add_bytes(out, 1, named.data, named.len);
    }
    proto_add_bytes(out, 2, "metadata", 8);
    str_fini(&named);
}

static void on_hang_cancelled(struct grpc_call *call, void *user) {
    struct fake_master *master = user;
    int n = 0;
    for (int i = 0; i < master->n_hung; i++)
        if (master->hung[i] != call)
            master->hung[n++] = master->hung[i];
    master->n_hung = n;
    master->n_cancelled++;
    grpc_call_fail(call, status_new(STATUS_CANCELLED, "cancelled"));
}

static void hang(struct fake_master *master, struct grpc_call *call) {
    CHECK(master->n_hung < MAX_HUNG);
    master->hung[master->n_hung++] = call;
    grpc_call_set_user(call, master, on_hang_cancelled);
}

static void end_hung(struct fake_master *master) {
    for (int i = 0; i < master->n_hung; i++) {
        grpc_call_set_user(master->hung[i], NULL, NULL);
        grpc_call_fail(master->hung[i], status_new(STATUS_ABORTED, "it hung long enough"));
    }
    master->n_hung = 0;
}

static bool is_called(const struct fake_master *master, const char *target) {
    return strcmp(str_text(&master->targets), target) == 0;
}

static void note_request(struct fake_master *master, struct span request) {
    struct proto_field field;
    str_clear(&master->targets);
    str_clear(&master->run_options);
    while (proto_next(&request, &field) > 0) {
        if (field.number == 4)
            str_addf(&master->targets, "%s%.*s", master->targets.len > 0 ? " " : "",
                     (int)field.bytes.len, field.bytes.data);
        else if (field.number == 5)
            keep(&master->run_options, field.bytes);
        else if (field.number == 7)
            master->wants_errors_in_body = field.value != 0;
        else if (field.number == 8)
            master->request_id = (int64_t)field.value;
    }
}

/* What the reply has in the place of each fed value; empty: the value. */
static struct span other_tensor(const struct fake_master *master) {
    if (is_called(master, "bad_tensor"))
        return span_of("\x08\x63");       /* dtype 99 */
    if (is_called(master, "large_claim")) /* 2^30 floats, none of them listed */
        return span_of("\x08\x01\x12\x08\x12\x06\x08\x80\x80\x80\x80\x04");
    return (struct span){"", 0};
}

static void on_run(void *service, struct grpc_call *call) {
    struct fake_master *master = service;
    struct span request = grpc_call_message(call)->body;
    struct str out = STR_INIT;
    if (!has_handle(call))
        return;
    note_request(master, request);
    master->timeout_ms = grpc_call_timeout_ms(call);
    master->n_steps++;
    if (is_called(master, "hang")) {
        hang(master, call);
        return;
    }
    if (is_called(master, "end_hung"))
        end_hung(master);
    if (is_called(master, "fail_in_trailers")) {
        grpc_call_fail(call, status_new(STATUS_OUT_OF_RANGE,
                                        "100%% out of range:\n\t [[{{node caf\xc3\xa9}}]]"));
        return;
    }
    if (is_called(master, "fail_in_body")) {
        proto_add_int(&out, 3, STATUS_FAILED_PRECONDITION);
        proto_add_bytes(&out, 4, "not initialized", 15);
    } else if (is_called(master, "garbage")) {
        str_add(&out, "\x0a\x7fgarbage");
    } else if (!is_called(master, "leave_out")) {
        answer_fetches(request, other_tensor(master), &out);
    }
    reply(call, &out);
    str_fini(&out);
}

/* ---- the rest ---- */

static void on_close(void *service, struct grpc_call *call) {
    struct fake_master *master = service;
    if (!has_handle(call))
        return;
    master->n_closed++;
    reply(call, NULL);
}

static void on_reset(void *service, struct grpc_call *call) {
    struct fake_master *master = service;
    struct span body = grpc_call_message(call)->body;
    struct proto_field field;
    str_clear(&master->containers);
    while (proto_next(&body, &field) > 0)
        str_addf(&master->containers, "[%.*s]", (int)field.bytes.len, field.bytes.data);
    master->n_reset++;
    reply(call, NULL);
}

static void add_device(struct str *out, uint32_t field, const char *name, const char *type,
                       int64_t memory, uint64_t incarnation) {
    struct str device = STR_INIT;
    proto_add_bytes(&device, 1, name, strlen(name));
    proto_add_bytes(&device, 2, type, strlen(type));
    proto_add_int(&device, 4, (uint64_t)memory);
    proto_add_tag(&device, 6, 1);
    str_add_bytes(&device, &incarnation, sizeof(incarnation));
    proto_add_bytes(out, field, device.data, device.len);
    str_fini(&device);
}

static void on_devices(void *service, struct grpc_call *call) {
    struct str out = STR_INIT;
    add_device(&out, 1, "/job:worker/replica:0/task:0/device:CPU:0", "CPU", 1 << 28,
               0xfedcba9876543210);
    add_device(&out, 2, "/job:ps/replica:0/task:0/device:GPU:1", "GPU", 0, 1);
    reply(call, &out);
    str_fini(&out);
}

#define METHOD(name, function) \
    { "/tensorflow.MasterService/" name, function, NULL }

static const struct grpc_method methods[] = {
    METHOD("CreateSession", on_create), METHOD("ExtendSession", on_extend),
    METHOD("RunStep", on_run),          METHOD("CloseSession", on_close),
    METHOD("ListDevices", on_devices),  METHOD("Reset", on_reset),
};

static void *serve(void *arg) {
    loop_run(((struct fake_master *)arg)->loop);
    return NULL;
}

struct fake_master *fake_master_start(void) {
    struct fake_master *master = calloc(1, sizeof(*master));
    struct grpc_server_options options = {
        .methods = methods, .n_methods = ARRAY_LEN(methods), .service = master};
    master->loop = loop_new();
    CHECK(grpc_server_new(master->loop, "127.0.0.1:0", &options, &master->server) == NULL);
    snprintf(master->target, sizeof(master->target), "grpc://127.0.0.1:%d",
             grpc_server_port(master->server));
    CHECK(pthread_create(&master->thread, NULL, serve, master) == 0);
    return master;
}

static void stop(struct loop_task *task) {
    struct fake_master *master = CONTAINER_OF(task, struct fake_master, stop);
    grpc_server_close(master->server, NULL, NULL);
    loop_stop(master->loop);
}

void fake_master_stop(struct fake_master *master) {
    master->stop.run = stop;
    loop_post(master->loop, &master->stop);
    pthread_join(master->thread, NULL);
    loop_free(master->loop);
    str_fini(&master->graph);
    str_fini(&master->config);
    str_fini(&master->containers);
    str_fini(&master->run_options);
    str_fini(&master->targets);
    free(master);
}
