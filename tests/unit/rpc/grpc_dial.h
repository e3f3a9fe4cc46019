/* Dials a port as a gRPC client does and notes how its first call ends. Included after cmocka. */
#ifndef MILLRACE_TESTS_UNIT_RPC_GRPC_DIAL_H
#define MILLRACE_TESTS_UNIT_RPC_GRPC_DIAL_H

#include <stdio.h>

#include "rpc/grpc/grpc_client.h"
#include "tests/unit/rpc/loop_until.h"

struct grpc_dial {
    struct status *status; /* the caller's */
    bool is_done, is_closed;
};

static inline void grpc_dial_done(void *arg, struct status *status_take,
                                  struct grpc_message message_take) {
    struct grpc_dial *dial = arg;
    dial->status = status_take;
    dial->is_done = true;
    buffer_unref(message_take.buffer);
}

static inline void grpc_dial_closed(void *arg) { ((struct grpc_dial *)arg)->is_closed = true; }

/* Fails unless a CreateSession at 127.0.0.1:port ends with FAILED_PRECONDITION and words that
 * contain `words`. */
static inline void assert_grpc_is_refused(struct loop *loop, int port, const char *words) {
    struct grpc_dial dial = {0};
    struct grpc_body body;
    char target[40];
    snprintf(target, sizeof(target), "127.0.0.1:%d", port);
    struct grpc_client *client = grpc_client_new(loop, target, false);
    grpc_body_init(&body);
    grpc_client_start(client, "/tensorflow.MasterService/CreateSession", &body, 30000, NULL,
                      grpc_dial_done, &dial);
    LOOP_UNTIL(loop, dial.is_done);
    assert_int_equal(status_code(dial.status), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(status_message(dial.status), words));
    status_unref(dial.status);
    grpc_client_close(client, grpc_dial_closed, &dial);
    LOOP_UNTIL(loop, dial.is_closed);
}

#endif
