/* Steps that do not block their caller.
 *
 *   MR_Run *run = MR_SessionRunAsync(session, …, on_done, arg, status);
 *   …
 *   void on_done(void *arg, MR_Run *run) {
 *       MR_RunResult(run, outputs, NULL, status);
 *       MR_DeleteRun(run);
 *   }
 *
 * on_done is called exactly once for each run, one run at a time, in the order in which they end.
 * By default a thread of the session calls it; it may block, call any function, and start further
 * runs. A program with an event loop of its own calls MR_SessionEventFd once, before its first
 * asynchronous run, polls that descriptor, and calls MR_SessionDispatch when it is readable:
 * on_done is then called inside that function only. Without an on_done the program waits with
 * MR_WaitRun.
 *
 * TF_DeleteSession first cancels the runs that have not ended, and calls what is due. An on_done
 * may call it, too; then what is due is called after it. */
#ifndef MILLRACE_CLIENT_C_RUN_ASYNC_H
#define MILLRACE_CLIENT_C_RUN_ASYNC_H

#include "client/c_session.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MR_Run MR_Run;
typedef void (*MR_RunDone)(void *arg, MR_Run *run);

/* Starts a step with the arguments of TF_SessionRun. The arrays may be freed, and the feeds
 * deleted, when it returns. Sends the graph first if it has grown, which blocks. on_done may be
 * NULL. Returns NULL, with the status, if the step could not be started; on_done is not called
 * then. Any thread. */
MR_Run *MR_SessionRunAsync(TF_Session *session, const TF_Buffer *run_options,
                           const TF_Output *inputs, TF_Tensor *const *input_values, int ninputs,
                           const TF_Output *outputs, int noutputs,
                           const TF_Operation *const *target_opers, int ntargets,
                           MR_RunDone on_done, void *arg, TF_Status *status);
/* Asks the master to cancel the step. The run ends soon, with CANCELLED unless it has ended before.
 * Any thread. */
void MR_CancelRun(MR_Run *run);
/* 1: the step has ended, so MR_RunResult does not block. Any thread. */
unsigned char MR_RunHasEnded(MR_Run *run);
/* Waits until the step has ended; not inside an on_done. Any thread. */
void MR_WaitRun(MR_Run *run);
/* Waits as MR_WaitRun, then gives the result, once: outputs[0 … noutputs) are the caller's, and
 * run_metadata, unless it is NULL, a serialized RunMetadata. A second call is
 * TF_FAILED_PRECONDITION. */
void MR_RunResult(MR_Run *run, TF_Tensor **outputs, TF_Buffer *run_metadata, TF_Status *status);
/* Cancels the step if it has not ended; then nobody is told of its end, unless its on_done is being
 * called already by another thread. Accepts NULL. */
void MR_DeleteRun(MR_Run *run);

/* A descriptor that is readable while ended runs wait for MR_SessionDispatch. It belongs to the
 * session. -1, with the status, if the system has none left, or a thread of the session calls
 * on_done already. */
int MR_SessionEventFd(TF_Session *session, TF_Status *status);
/* Calls on_done of the runs that have ended, and returns how many. Never blocks by itself. One
 * thread at a time. */
int MR_SessionDispatch(TF_Session *session);

#ifdef __cplusplus
}
#endif
#endif
