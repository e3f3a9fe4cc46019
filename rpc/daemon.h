/* What the mains of the daemons share: which addresses are allowed, the admin port, port files. */
#ifndef MILLRACE_RPC_DAEMON_H
#define MILLRACE_RPC_DAEMON_H

#include "common/base/status.h"
#include "common/base/str.h"

/* Loopback and Unix addresses are always fine; wider ones only when `insecure`. Errors name the flag. */
struct status *daemon_check_listen(const char *flag, const char *address, bool insecure) MUST_USE;
/* The admin address from its flag ("off", "HOST:PORT" or NULL) and the daemon's own address and bound port: by default the same host and
 * the port + 10000 (any port when the daemon's own was 0 in its flag, or the sum is beyond 65535). False: no admin port. */
bool daemon_admin_address(const char *flag, const char *listen, int bound_port, struct str *ret_address);
/* "PORT\n" and "admin PORT\n", written to a temporary name and renamed, so that a reader sees all or nothing. */
struct status *daemon_write_port_file(const char *path, int port, int admin_port) MUST_USE;

#endif
