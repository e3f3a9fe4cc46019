/* The entry of a process in etcd, and its key (docs/membership.md):
 *
 *   /millrace/CLUSTER/master             the master
 *   /millrace/CLUSTER/tasks/JOB/INDEX    a task
 *   /millrace/CLUSTER/job                "ended" once the job has ended
 *
 * The first two hold a JSON object: {"address": "10.0.0.20:2300", "incarnation": "0123…",
 * "admin_address": …, "devices": […], …}.
 *
 * Any thread. */
#ifndef MILLRACE_RPC_MEMBERSHIP_MEMBER_H
#define MILLRACE_RPC_MEMBERSHIP_MEMBER_H

#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/base/str.h"

enum { MEMBER_MAX_DEVICES = 1024, MEMBER_MAX_TEXT_BYTES = 512, MEMBER_MAX_BYTES = 64 * 1024 };

#define MEMBER_JOB_ENDED "ended"

struct cluster_member {
    const char
        *address; /* "host:port" or "unix:…": where the other processes connect; never empty */
    const char *admin_address; /* "" when it has no admin port; the next strings may be "", too */
    const char *unix_address, *host_id, *version;
    uint64_t incarnation;
    const char *const *devices; /* full names */
    int n_devices;
    const char *const *transports; /* "tcp", "unix", …: how the other processes may reach it */
    int n_transports;
};

void member_write(const struct cluster_member *member, struct str *out);
/* Puts the strings into the arena. Ignores unknown fields. Errors: INVALID_ARGUMENT, which says
 * what is wrong. */
struct status *member_parse(struct span text, struct arena *arena,
                            struct cluster_member *ret) MUST_USE;

/* Checks a cluster's name: letters, digits, '.', '_' and '-', at most 63. Errors:
 * INVALID_ARGUMENT. */
struct status *member_check_cluster(const char *name) MUST_USE;
void member_prefix(const char *cluster, struct str *out); /* "/millrace/CLUSTER/" */
void member_key_of_task(const char *cluster, const char *job, int index, struct str *out);
void member_key_of_master(const char *cluster, struct str *out);
void member_key_of_job(const char *cluster, struct str *out);
/* Appends "/job:ps/replica:0/task:0" for the key of a task. Returns false for another key. */
bool member_read_task_key(const char *cluster, const char *key, struct str *ret_task);

/* Appends the address for other processes. The host is that of `advertise` if given, else that
 * of `listen`, or this host's name if that is a wildcard. The port is that of `advertise` unless
 * it is 0, else `port`, which was bound. */
void member_address(const char *advertise, const char *listen, int port, struct str *out);

#endif
