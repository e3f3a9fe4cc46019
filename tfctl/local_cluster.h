/* Runs a cluster of daemons on this host, and a command on it if there is one, until the end. It is
 * the part of `tfctl local` that has a process of its own (tfctl_local.c says why).
 *
 *   TASKS ─ all port files ─► MASTER ─ its port file ─► PROBE ─ every task answers ─► RUNNING
 *     └──────────────┴──────────────────────────────────┴───────────────────────────────┤
 *                 a daemon's death, the deadline, TERM, the end of the command          ▼
 *                                                         over ◄─ no child left ─ STOPPING
 *
 * RUNNING ends with the command, or at an order to stop, or (without a command, unless keep_going
 * or restart) when a daemon dies. STOPPING has waves: the command and the processes that it left
 * behind, the master, the tasks. Each wave gets TERM, and KILL after a limited time. */
#ifndef MILLRACE_TFCTL_LOCAL_CLUSTER_H
#define MILLRACE_TFCTL_LOCAL_CLUSTER_H

#include "tfctl/local_member.h"

/* The process in front sends orders as bytes: a signal's number, and ORDER_FROM_TERMINAL if a
 * terminal sent the signal to the whole group. When the pipe ends, that process is dead, and
 * everything is killed at once. */
enum { ORDER_FROM_TERMINAL = 0x80 };

/* The caller has blocked SIGCHLD, SIGTERM, SIGINT and SIGQUIT, and SIGHUP unless it is ignored.
 * Returns tfctl's exit code. */
int local_cluster_run(const struct local_options *options, int orders_fd);

#endif
