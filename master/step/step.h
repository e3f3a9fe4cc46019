/* One step: a RunStep call on its way through the workers and back. Loop thread.
 *
 * Carries out what step_machine.c decides: one RunGraph message per task, their RunDones,
 * CancelSteps, and one answer to the client. Feeds are views on the request's message and
 * fetches views on the workers' replies: neither is copied here. */
#ifndef MILLRACE_MASTER_STEP_STEP_H
#define MILLRACE_MASTER_STEP_STEP_H

#include "master/request/request.h"
#include "master/session/session.h"
#include "rpc/grpc/grpc_server.h"

enum step_form {
    STEP_FORM_RUN,      /* RunStep: fetches by name */
    STEP_FORM_CALLABLE, /* RunCallable: fetches by position */
    STEP_FORM_PARTIAL,  /* no call of its own: see partial_run.h */
};

/* Starts the step that `call` asks for. Answers the call sooner or later, whatever happens. */
void step_run(struct session *session, struct grpc_call *call, enum step_form form,
              const struct run_step_request *request, struct arena *arena_take);
void step_metrics_register(void);
struct step *step_of_session_link(struct list *link); /* an entry of session->steps */
/* Ends a live step; takes the status. */
void step_cancel(struct step *step, struct status *why_take);
/* One line for /stepz: what it waits for. */
void step_describe(const struct step *step, struct str *out);
uint64_t step_id(const struct step *step); /* 0 before it is launched */
/* its part there has not ended */
bool step_waits_for(const struct step *step, const struct task *task);
/* somebody waits for an answer */
bool step_is_awaited(const struct step *step);
/* All steps of a session, from session_close. */
void steps_cancel_all(struct session *session, struct status *why);
/* Ends the saves that have waited too long for a consistent checkpoint. */
void steps_expire_saves(struct master_env *env);
/* The oldest step id that may still be alive, for the workers' memory of ended ids. */
uint64_t steps_oldest_live(struct master_env *env);

#endif
