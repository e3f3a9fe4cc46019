/* A task's part in its cluster: its entry in etcd, and the port where it takes clients on for
 * the master. Either may be absent.
 *
 * Loop thread only. */
#ifndef MILLRACE_WORKER_MEMBERSHIP_H
#define MILLRACE_WORKER_MEMBERSHIP_H

#include "rpc/membership/etcd_flags.h"

struct worker_membership;

struct worker_membership_options {
    const struct etcd_flags *etcd; /* borrowed for its life; urls NULL: no etcd */
    const char *job, *task;        /* "worker", "/job:worker/replica:0/task:0" */
    int index;
    const struct cluster_member *member; /* what is registered; borrowed for the call */
    struct tls *tls;                     /* of the worker wire, borrowed; NULL: in the clear */
    const char *client_listen;           /* NULL: no client port */
    const char *master;                  /* its address, for clients; NULL: etcd knows */
    /* Another process holds this task's place: this one has to exit. `why` is one line. */
    void (*on_taken)(void *arg, const char *why);
    void (*on_job_ended)(void *arg);
    void *arg;
};

/* Errors: as listener_new and etcd_new. */
struct status *worker_membership_new(struct loop *loop,
                                     const struct worker_membership_options *options,
                                     struct worker_membership **ret) MUST_USE;
int worker_membership_client_port(const struct worker_membership *membership); /* 0: none */
/* The task drains: its entry goes at once, so that nobody counts on it. Twice is harmless;
 * accepts NULL. */
void worker_membership_leave(struct worker_membership *membership);
/* Leaves, and ends the client port. The memory goes some turns of the loop later. Accepts NULL. */
void worker_membership_close(struct worker_membership *membership);
/* a JSON object */
void worker_membership_describe(const struct worker_membership *membership, struct str *out);

#endif
