/* What the subcommands share that talk to a master. */
#ifndef MILLRACE_TFCTL_REMOTE_H
#define MILLRACE_TFCTL_REMOTE_H

#include "client/c_api.h"
#include "client/tls_client.h"
#include "common/base/status.h"

/* The flag's target, else $MILLRACE_TARGET's. Errors: INVALID_ARGUMENT when there is neither, or
 * it is no address. */
struct status *remote_target(const char *flag, const char **ret_target) MUST_USE;
TF_DeprecatedSession *remote_session(const char *target, const struct tls_client *tls,
                                     int64_t timeout_ms, TF_Status *status);
/* One line on stderr; the exit code: 74 where the master cannot be reached, else 70. */
int remote_error(const char *program, const TF_Status *status);

#endif
