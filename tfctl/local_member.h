/* A member of a local cluster: a task, the master, the probe that waits until they are ready, or
 * the user's command.
 *
 * A daemon listens on any free port and writes it into a port file in the cluster's private
 * directory. It keeps that port when it is restarted. */
#ifndef MILLRACE_TFCTL_LOCAL_MEMBER_H
#define MILLRACE_TFCTL_LOCAL_MEMBER_H

#include "tfctl/child.h"
#include "tfctl/cli.h"
#include "tfctl/relay.h"
#include "rpc/membership/cluster.h"

enum member_kind { MEMBER_TASK, MEMBER_MASTER, MEMBER_PROBE, MEMBER_COMMAND };

struct member {
    enum member_kind kind;
    struct child child;
    struct relay_source source;
    const struct cluster_task *task; /* MEMBER_TASK */
    const char *port_path;           /* daemons */
    int port, admin_port;            /* 0 until they are known */
    bool is_up;                      /* its port file has appeared since it was started */
    int n_failed_starts;             /* restarts in a row that ended before it was up */
    int64_t restart_due_ns;          /* when to try again; 0: not waiting */
};

struct local_options {
    struct cluster_spec tasks; /* jobs and numbers; the addresses are place holders */
    const char *listen, *port_file, *log_level;
    int log_format; /* enum log_format */
    int64_t cpu_devices, start_timeout_ms;
    bool quiet, keep_going, restart;
    bool is_json; /* tfctl's own lines on stdout are JSON */
    struct cli_list worker_flags, master_flags;
    char *const *command; /* NULL: none */
    sigset_t mask;        /* what children start with */
};

/* Makes the command line of a daemon, in the arena. `cluster` is the master's --cluster. */
char *const *member_argv(const struct member *member, const struct local_options *options,
                         const char *cluster, struct arena *arena);
/* Reads the port file if it exists. Returns true when the ports are known now. */
bool member_read_ports(struct member *member);
/* Appends the master's target for clients, from its --listen and its port. A wildcard host becomes
 * loopback. */
void member_print_target(const char *listen, int port, struct str *out);

#endif
