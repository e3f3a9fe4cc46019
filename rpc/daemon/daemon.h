/* Helps the mains of the daemons: configuration files and TF_CONFIG, which addresses are allowed,
 * the address of the admin port, port files. */
#ifndef MILLRACE_RPC_DAEMON_DAEMON_H
#define MILLRACE_RPC_DAEMON_DAEMON_H

#include "common/base/options.h"

/* The sections of a configuration file that is written for all daemons: one for each. */
extern const char *const daemon_sections[];
/* What --log-level takes: the names of enum log_level; ends with NULL. */
extern const char *const daemon_log_levels[];
/* What --log-format takes: enum log_format; ends with NULL. */
extern const char *const daemon_log_formats[];
/* Takes over TF_CONFIG's cluster as a setting and, with `is_task`, the job and index of this
 * process. Does nothing when TF_CONFIG is absent or empty. Errors: INVALID_ARGUMENT. */
struct status *daemon_read_tf_config(struct options *options, bool is_task) MUST_USE;

/* Checks an address that a daemon is to listen on. Loopback and Unix addresses are always allowed.
 * Others, and names, are allowed only with `is_allowed`: the port speaks TLS, or --insecure is
 * given. Errors: INVALID_ARGUMENT, which names the flag. */
struct status *daemon_check_listen(const char *flag, const char *address, bool is_allowed) MUST_USE;
/* The admin port of a daemon on `port`, where nothing else is said: port + 10000; 0: that is beyond
 * 65535. */
int daemon_admin_port(int port);
/* Writes the address of the admin port. `flag` is "off", "HOST:PORT" or NULL. NULL means loopback
 * (the host of `listen` if that is loopback, else 127.0.0.1) and daemon_admin_port, or any port
 * when `listen` has port 0 or daemon_admin_port says 0. Returns false when there is to be no admin
 * port. */
bool daemon_admin_address(const char *flag, const char *listen, int bound_port,
                          struct str *ret_address);
/* Appends the address with `port` in place of its own. */
void daemon_with_port(const char *address, int port, struct str *out);
/* Appends the address at which others reach the admin port: its own host, or the host of
 * `advertised` when its own is a wildcard. Only processes of this host reach a loopback address. */
void daemon_admin_advertised(const char *advertised, const char *admin_listen, int admin_port,
                             struct str *out);
/* Appends "port 2222, admin on port 12222" for the log. admin_port 0: there is none. */
void daemon_describe_ports(int port, int admin_port, struct str *out);
/* Logs the lines of /stepz, for SIGUSR1. An empty page is one line that says so. */
void daemon_log_steps(struct str *page);
/* Writes the lines "PORT", "admin PORT" and "client PORT"; a port that is 0 has no line. The
 * file is written under a temporary name and renamed, so a reader sees all of it or none.
 * Errors: UNAVAILABLE, which names the path and the reason. */
struct status *daemon_write_port_file(const char *path, int port, int admin_port,
                                      int client_port) MUST_USE;

#endif
