/* The parts of the master service: service.c (the method table, waits, RunStep and the small
 * methods), service_sessions.c (CreateSession, ExtendSession and what a client's ConfigProto
 * asks for), service_reset.c. Loop thread. */
#ifndef MILLRACE_MASTER_SERVICE_SERVICE_INTERNAL_H
#define MILLRACE_MASTER_SERVICE_SERVICE_INTERNAL_H

#include "common/base/metrics.h"
#include "master/service/service.h"
#include "master/request/session_config.h"

/* that a session may hold for graphs that were refused */
enum { SERVICE_MAX_REFUSED_BYTES = 256 << 20 };

extern struct metric service_sessions_gauge, service_sessions_total;

/* ---- service.c ---- */
/* Answers with a message's bytes; NULL: an empty one. */
void service_reply(struct grpc_call *call, const struct str *message);
/* The session that field 1 of the call's message names; its client has been seen. ABORTED when
 * there is none. */
struct status *service_called_session(struct service *service, struct grpc_call *call,
                                      struct span *ret_handle, struct session **ret) MUST_USE;
/* A session's memory is about to be freed: session_new's on_end. */
void service_session_ended(struct session *session);
struct status *service_no_session(struct span handle) MUST_USE;

/* ---- service_sessions.c ---- */
/* Answers the call later, or fails now without having answered. */
struct status *service_create_session(struct service *service, struct grpc_call *call,
                                      const struct session_config *config) MUST_USE;
/* Ends its steps with `why` (shared), drops its executables at the tasks, and takes it out of the
 * service's table. */
void service_end_session(struct session *session, struct status *why);
void service_extend_session(void *service, struct grpc_call *call);

/* ---- service_reset.c ---- */
void service_reset(void *service, struct grpc_call *call);

#endif
