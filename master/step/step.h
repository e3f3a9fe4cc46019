/* One step: runs one request of a client on the tasks and answers it.
 *
 * It carries out what step_machine.h decides: one RunGraph message per task, a RunDone from each,
 * CancelStep after a failure, and one answer to the client. Feeds are views on the request's
 * message and fetches are views on the workers' replies; neither is copied. Loop thread. */
#ifndef MILLRACE_MASTER_STEP_STEP_H
#define MILLRACE_MASTER_STEP_STEP_H

#include "master/request/request.h"
#include "master/session/session.h"
#include "rpc/grpc/grpc_server.h"

enum step_form {
    STEP_FORM_RUN,      /* RunStep: fetches by name */
    STEP_FORM_CALLABLE, /* RunCallable: fetches by position */
    STEP_FORM_PARTIAL,  /* it has no call of its own: see partial_run.h */
};

/* Starts the step that `call` asks for. The call is answered exactly once, possibly before this
 * returns. Takes the arena, in which the request is allocated. */
void step_run(struct session *session, struct grpc_call *call, enum step_form form,
              const struct run_step_request *request, struct arena *arena_take);
void step_metrics_register(void);
struct step *step_of_session_link(struct list *link); /* an entry of session->steps */
/* Cancels a step with a status, which it takes. The step may be freed before this returns. */
void step_cancel(struct step *step, struct status *why_take);
/* Appends what the step waits for, for /stepz. */
void step_describe(const struct step *step, struct str *out);
int64_t step_age_ns(const struct step *step);
const char *step_session_handle(const struct step *step);
uint64_t step_id(const struct step *step); /* 0 before it is launched */
/* true while its part on that task has not ended */
bool step_waits_for(const struct step *step, const struct task *task);
/* true while a client's call waits for it */
bool step_is_awaited(const struct step *step);
/* Cancels all steps of a session with `why` (shared). */
void steps_cancel_all(struct session *session, struct status *why);
/* Ends the saves that have waited too long at the save barrier. */
void steps_expire_saves(struct master_env *env);
/* The id of the oldest live step; 0 if there is none. Workers forget the ids of ended steps that
 * are older. */
uint64_t steps_oldest_live(struct master_env *env);

#endif
