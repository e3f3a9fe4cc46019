/* Partial runs: a step that takes its feeds, and hands out its fetches, in several RunStep calls.
 *
 *   PartialRunSetup ─► compiled ─ first RunStep ─► the step runs; each call adds feeds and waits
 *                                                  for its fetches; the call after which all is
 *                                                  fed and fetched also waits for the step's end
 *
 * A wrong call is refused and changes nothing: one with a feed or fetch that was not set up or was
 * stated before, or with a fetch that needs feeds which have not arrived. A step that fails ends
 * the run: the waiting calls get its status, or else the next call does. Loop thread. */
#ifndef MILLRACE_MASTER_STEP_PARTIAL_RUN_H
#define MILLRACE_MASTER_STEP_PARTIAL_RUN_H

#include "master/request/request.h"
#include "master/session/session.h"
#include "rpc/grpc/grpc_server.h"

/* Answers the call with the handle of a new run, or with the failure to compile. Takes the
 * arena, in which the request is allocated. */
void partial_run_setup(struct session *session, struct grpc_call *call,
                       const struct run_step_request *request, struct arena *arena_take);
/* Handles a RunStep with a partial_run_handle. The call is answered exactly once, now or later. */
void partial_run_call(struct session *session, struct grpc_call *call,
                      const struct run_step_request *request);
/* The session closes: each of its runs is freed when its step has ended. */
void partial_runs_drop(struct session *session);

#endif
