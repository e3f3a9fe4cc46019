/* Callables: a session's signatures under a number, run with feeds and fetches by position
 * (MakeCallable, RunCallable, ReleaseCallable). Loop thread. */
#ifndef MILLRACE_MASTER_STEP_CALLABLE_H
#define MILLRACE_MASTER_STEP_CALLABLE_H

#include "master/session/session.h"
#include "rpc/grpc/grpc_server.h"

enum { MAX_CALLABLES = 100000 }; /* of a session */

struct callables;

/* Each answers its call, now or later. */
void callable_make(struct session *session, struct grpc_call *call);
void callable_run(struct session *session, struct grpc_call *call);
void callable_release(struct session *session, struct grpc_call *call);
void callables_free(struct callables *callables); /* NULL is fine */

#endif
