/* A task's part in its cluster: its entry in etcd, and the port where it accepts clients for the
 * master. Either may be absent.
 *
 * Loop thread only. */
#ifndef MILLRACE_WORKER_MEMBERSHIP_H
#define MILLRACE_WORKER_MEMBERSHIP_H

#include "rpc/membership/etcd_flags.h"

struct worker_membership;

struct worker_membership_options {
    const struct etcd_flags *etcd; /* borrowed until the membership is closed; urls NULL: no etcd */
    const char *job, *task;        /* "worker", "/job:worker/replica:0/task:0" */
    int index;
    const struct cluster_member *member; /* what is registered; borrowed for the call */
    struct tls *tls;                     /* of the worker wire, borrowed; NULL: without TLS */
    const char *client_listen;           /* the address of the client port; NULL: there is none */
    const char *master; /* the master's address, for the client port; NULL: etcd is asked */
    /* Called once when another process is registered as this task, so that this process has to
     * exit. `why` is one line. */
    void (*on_taken)(void *arg, const char *why);
    void (*on_job_ended)(void *arg); /* called once: the task has to drain */
    void *arg;
};

/* Errors: as listener_new and etcd_new. */
struct status *worker_membership_new(struct loop *loop,
                                     const struct worker_membership_options *options,
                                     struct worker_membership **ret) MUST_USE;
int worker_membership_client_port(const struct worker_membership *membership); /* 0: none */
/* Appends "ok", with what is wrong if it does not matter to running work. Until the task has been
 * registered it is not ready: appends why, and returns false. */
bool worker_membership_is_ready(const struct worker_membership *membership, struct str *out);
/* Removes the task's entry at once, because the task drains and nobody should count on it. A second
 * call does nothing. Accepts NULL. */
void worker_membership_leave(struct worker_membership *membership);
/* Leaves, and closes the client port. The memory is freed some iterations of the loop later.
 * Accepts NULL. */
void worker_membership_close(struct worker_membership *membership);
/* Appends a JSON object. */
void worker_membership_describe(const struct worker_membership *membership, struct str *out);

#endif
