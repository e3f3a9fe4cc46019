/* What the mains of the daemons share: configuration files and TF_CONFIG, which addresses are
 * allowed, the admin port, port files. */
#ifndef MILLRACE_RPC_DAEMON_H
#define MILLRACE_RPC_DAEMON_H

#include "common/base/options.h"

/* The sections of a file that all daemons share, one each. */
extern const char *const daemon_sections[];
/* What --log-level takes: the names of enum log_level; ends with NULL. */
extern const char *const daemon_log_levels[];
/* The environment: TF_CONFIG's cluster, and with `is_task` the job and index that it gives this
 * process, as settings. Nothing where it is absent or empty. */
struct status *daemon_read_tf_config(struct options *options, bool is_task) MUST_USE;

/* Is it an address, and one that is allowed? Loopback and Unix addresses are always fine; wider
 * ones, and names, only where TLS is spoken, or by --insecure: `is_allowed`. Errors:
 * INVALID_ARGUMENT naming the flag. */
struct status *daemon_check_listen(const char *flag, const char *address, bool is_allowed) MUST_USE;
/* The admin address from its flag ("off", "HOST:PORT" or NULL) and the daemon's own address and
 * bound port: by default the same host and the port + 10000 (any port when the daemon's own was
 * 0 in its flag, or the sum is beyond 65535). False: no admin port. */
bool daemon_admin_address(const char *flag, const char *listen, int bound_port,
                          struct str *ret_address);
/* An address with another port. */
void daemon_with_port(const char *address, int port, struct str *out);
/* Where others reach the admin port: its own host, or that of the daemon's advertised address
 * where its own is a wildcard. */
void daemon_admin_advertised(const char *advertised, const char *admin_listen, int admin_port,
                             struct str *out);
/* "port 2222, admin on port 12222", for the log line that says so; admin_port 0: none. */
void daemon_describe_ports(int port, int admin_port, struct str *out);
/* "PORT\n", "admin PORT\n" and "client PORT\n" (0: not there), written to a temporary name and
 * renamed, so that a reader sees all or nothing. */
struct status *daemon_write_port_file(const char *path, int port, int admin_port,
                                      int client_port) MUST_USE;

#endif
