/* A master without a cluster, on a thread of its own, for tests of clients. It keeps only the names
 * of sessions. The name of a target says what the step does:
 *
 *   fetches            the reply has the feed of the same name for each fetch
 *   fail_in_body       an error in the reply's body
 *   fail_in_trailers   an error of the call
 *   hang               no reply until the call is cancelled, or
 *   end_hung           is called, which ends those that hang, with ABORTED
 *   leave_out          no fetches in the reply
 *   garbage            a reply that is not a message
 *   bad_tensor         fetches that are not tensors
 *   large_claim        fetches of a few bytes that claim 4 GiB */
#ifndef MILLRACE_TESTS_UNIT_CLIENT_FAKE_MASTER_H
#define MILLRACE_TESTS_UNIT_CLIENT_FAKE_MASTER_H

#include <pthread.h>

#include "common/base/str.h"
#include "rpc/grpc/grpc_server.h"

enum { MAX_HUNG = 64 };

struct fake_master {
    struct loop *loop;
    struct grpc_server *server;
    struct loop_task stop;
    pthread_t thread;
    char target[64]; /* "grpc://127.0.0.1:PORT" */
    /* What it saw. The master's thread writes; look between calls. */
    _Atomic int n_created, n_extended, n_steps, n_closed, n_reset, n_cancelled;
    /* of the last call that had such a thing */
    struct str graph, config, containers, run_options, targets;
    int64_t extended_version, request_id;
    _Atomic int64_t timeout_ms;
    bool wants_errors_in_body;
    struct grpc_call *hung[MAX_HUNG]; /* the master's thread's */
    int n_hung;
    _Atomic bool refuses_handles; /* create sessions without one */
};

struct fake_master *fake_master_start(void);
void fake_master_stop(struct fake_master *master); /* all calls must be over */

#endif
