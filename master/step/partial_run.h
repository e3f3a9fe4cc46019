/* Partial runs: a step whose feeds come, and whose fetches are asked for, in several RunStep
 * calls.
 *
 *   PartialRunSetup ─► COMPILED ──first RunStep──► the step runs; each call adds feeds and waits for its fetches
 *                                                       └─ all fed and all fetched: the last call waits for the step's end
 *
 * A wrong call (a feed or fetch that was not set up, or was there before, or that needs feeds
 * which are not there) is refused and changes nothing. A step that fails ends the run: whoever
 * waits gets the status, or else the next call. Loop thread. */
#ifndef MILLRACE_MASTER_STEP_PARTIAL_RUN_H
#define MILLRACE_MASTER_STEP_PARTIAL_RUN_H

#include "master/request/request.h"
#include "master/session/session.h"
#include "rpc/grpc/grpc_server.h"

/* Answers the call with the new run's handle, or the failure to compile. */
void partial_run_setup(struct session *session, struct grpc_call *call,
                       const struct run_step_request *request, struct arena *arena_take);
/* A RunStep with a partial_run_handle. Answers the call sooner or later. */
void partial_run_call(struct session *session, struct grpc_call *call,
                      const struct run_step_request *request);
/* The session closes: its runs go as soon as their steps have ended. */
void partial_runs_drop(struct session *session);

#endif
