/* What a step costs a TensorFlow client by itself: a server that runs nothing and answers every
 * RunStep at once with the values that were fed (as many fetches as feeds, or none). It prints
 * its port and serves until it is killed; compare.py measures against it. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/arena.h"
#include "master/request/request.h"
#include "rpc/grpc/grpc_server.h"

static void add_varint(struct grpc_body *body, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        grpc_body_add_copy(body, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
    grpc_body_add_copy(body, &(uint8_t){(uint8_t)value}, 1);
}

static size_t varint_size(uint64_t value) {
    size_t size = 1;
    for (; value >= 0x80; value >>= 7)
        size++;
    return size;
}

static void add_bytes(struct grpc_body *body, int field, struct span bytes) {
    add_varint(body, (uint64_t)field << 3 | 2);
    add_varint(body, bytes.len);
    grpc_body_add_copy(body, bytes.data, bytes.len);
}

static size_t bytes_size(struct span bytes) { return 1 + varint_size(bytes.len) + bytes.len; }

static void on_create_session(void *service, struct grpc_call *call) {
    struct grpc_body body;
    grpc_body_init(&body);
    add_bytes(&body, 1, span_of("floor")); /* CreateSessionResponse.session_handle */
    grpc_call_reply(call, &body);
}

static void on_empty(void *service, struct grpc_call *call) {
    struct grpc_body body;
    grpc_body_init(&body);
    grpc_call_reply(call, &body);
}

static void on_run_step(void *service, struct grpc_call *call) {
    struct arena arena;
    struct run_step_request request;
    struct grpc_body body;
    arena_init(&arena);
    struct status *st = run_step_request_parse(grpc_call_message(call)->body, &arena, &request);
    if (st) {
        arena_fini(&arena);
        grpc_call_fail(call, st);
        return;
    }
    grpc_body_init(&body);
    /* RunStepResponse.tensor: NamedTensorProto {name, tensor} */
    for (int i = 0; i < request.n_fetches && i < request.n_feeds; i++) {
        add_varint(&body, 1 << 3 | 2);
        add_varint(&body, bytes_size(request.fetches[i]) + bytes_size(request.feed_protos[i]));
        add_bytes(&body, 1, request.fetches[i]);
        add_bytes(&body, 2, request.feed_protos[i]);
    }
    grpc_call_reply(call, &body);
    arena_fini(&arena);
}

int main(void) {
    static const struct grpc_method methods[] = {
        {"/tensorflow.MasterService/CreateSession", on_create_session, NULL},
        {"/tensorflow.MasterService/ExtendSession", on_empty, NULL},
        {"/tensorflow.MasterService/RunStep", on_run_step, NULL},
        {"/tensorflow.MasterService/CloseSession", on_empty, NULL},
        {"/tensorflow.MasterService/Reset", on_empty, NULL},
        {"/tensorflow.MasterService/ListDevices", on_empty, NULL},
    };
    struct loop *loop = loop_new();
    struct grpc_server_options options = {.methods = methods, .n_methods = ARRAY_LEN(methods)};
    struct grpc_server *server;
    struct status *st = grpc_server_new(loop, "127.0.0.1:0", &options, &server);
    if (st) {
        fprintf(stderr, "client_floor: %s\n", status_message(st));
        return EXIT_FAILURE;
    }
    printf("%d\n", grpc_server_port(server));
    fflush(stdout);
    loop_run(loop);
    return EXIT_SUCCESS;
}
