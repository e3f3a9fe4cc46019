/* Helps the subcommands that connect to a master: target, session, exit code. */
#ifndef MILLRACE_TFCTL_REMOTE_H
#define MILLRACE_TFCTL_REMOTE_H

#include "client/c_api.h"
#include "client/tls_client.h"
#include "common/base/status.h"
#include "tfctl/cli.h"

/* Returns the flag's target, or $MILLRACE_TARGET. Errors: INVALID_ARGUMENT when there is
 * neither, or when it is no address. */
struct status *remote_target(const char *flag, const char **ret_target) MUST_USE;
TF_DeprecatedSession *remote_session(const char *target, const struct tls_client *tls,
                                     int64_t timeout_ms, TF_Status *status);
/* Reports the status of a call (cli_fail_call). Returns the exit code. */
int remote_fail(const struct cli *cli, const TF_Status *status);

#endif
