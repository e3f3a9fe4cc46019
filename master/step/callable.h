/* Callables: signatures that a session keeps under a number (MakeCallable, RunCallable,
 * ReleaseCallable). A call states its feeds, and gets its fetches, by position. Loop thread. */
#ifndef MILLRACE_MASTER_STEP_CALLABLE_H
#define MILLRACE_MASTER_STEP_CALLABLE_H

#include "master/session/session.h"
#include "rpc/grpc/grpc_server.h"

enum { MAX_CALLABLES = 100000 }; /* per session */

struct callables;

/* Each answers its call exactly once, now or later. */
void callable_make(struct session *session, struct grpc_call *call);
void callable_run(struct session *session, struct grpc_call *call);
void callable_release(struct session *session, struct grpc_call *call);
void callables_free(struct callables *callables); /* accepts NULL */

#endif
