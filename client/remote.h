/* What the subcommands share that talk to a master. */
#ifndef MILLRACE_CLIENT_REMOTE_H
#define MILLRACE_CLIENT_REMOTE_H

#include "client/c_api.h"
#include "common/base/status.h"

const char *remote_target(const char *flag);    /* the flag's, else $MILLRACE_TARGET; NULL when there is neither */
struct status *remote_no_target(void) MUST_USE; /* what is to be said then */
TF_DeprecatedSession *remote_session(const char *target, int64_t timeout_ms, TF_Status *status);
/* One line on stderr; the exit code: 74 where the master cannot be reached, else 70. */
int remote_error(const char *program, const TF_Status *status);

#endif
