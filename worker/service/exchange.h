/* What this task needs to exchange values with other tasks under one of its names.
 *
 * A task has its own name in its own cluster. A session may bring another cluster, and call the
 * task otherwise there (docs/membership.md). There "/job:worker/task:0" may be another process than
 * in this task's own cluster, and than in a third one. Therefore nothing that is found by a task's
 * name, by a connection or by a step is shared between clusters: each has an exchange, with peers,
 * connections, live steps and credit of its own. The end of a cluster frees them together.
 *
 * The memory of values, the arena and the threads are the process', and shared.
 *
 * Counted: the service holds a reference to the exchange of its own cluster, the record of a
 * session's master one to that of the session's cluster, and each registered graph one to its own.
 * Loop thread, except that any thread may give a reference back. */
#ifndef MILLRACE_WORKER_SERVICE_EXCHANGE_H
#define MILLRACE_WORKER_SERVICE_EXCHANGE_H

#include "common/base/list.h"
#include "rpc/loop.h"
#include "worker/exchange/peer.h"
#include "worker/exchange/peer_call.h"
#include "worker/exchange/rendezvous.h"
#include "worker/service/service.h"

struct exchange {
    _Atomic uint32_t n_refs;
    struct list link; /* of those of sessions' clusters: service->exchanges */
    struct loop *loop;
    uint64_t cluster; /* 0: the task's own; else the incarnation of the session's master */
    bool is_closed;   /* its master has left, so no task may connect any more */
    char *task;       /* this task's name in it: "/job:ps/replica:0/task:0" */
    char *own_task;   /* and in its own cluster */
    char *cpu_device; /* its first device, by that name */
    struct peer_table *peers;
    struct peer_call_table *peer_calls;
    struct rendezvous_table *rendezvous;
    struct loop_task free_task;
    void (*on_freed)(void *arg);
    void *arg;
};

enum {
    /* the credit for large values in a session's cluster is this part of the task's */
    EXCHANGE_SESSION_SHARE = 4,
};

/* A new exchange with one reference. Its lists and tables are empty. `cluster` 0: takes
 * options->rdma_device. A session's cluster does not use RDMA. The peers' on_lost is to be set.
 * on_freed(arg) is called on the loop when the exchange is freed. */
struct exchange *exchange_new(struct loop *loop, const struct worker_options *options,
                              uint64_t incarnation, uint64_t cluster, const char *task,
                              void (*on_freed)(void *arg), void *arg);
struct exchange *exchange_ref(struct exchange *exchange);
/* Accepts NULL. The last reference frees: at once on the loop thread, else soon. Any thread. */
void exchange_unref(struct exchange *exchange);
/* Appends a JSON object: the cluster, this task's name in it, peers, rendezvous. */
void exchange_describe(struct exchange *exchange, struct str *out);

#endif
