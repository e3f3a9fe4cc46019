/* What a worker answers: the messages of masters, tools and other workers (rpc/wire/wire.h),
 * from the first Hello to the last RunDone.
 *
 *   Hello ──► a master: RegisterGraph, RunGraph, CancelStep, …   (service.c, service_graphs.c, service_steps.c)
 *         ├─► a tool: GetStatus, Ping
 *         └─► another task: handed to worker/exchange/peer, which reads tensors
 *
 * Loop thread, but for the end of a step, which may come on any thread. */
#ifndef MILLRACE_WORKER_SERVICE_SERVICE_H
#define MILLRACE_WORKER_SERVICE_SERVICE_H

#include "common/base/pool.h"
#include "rpc/loop.h"
#include "worker/exchange/peer.h"
#include "worker/plan/plan.h"

struct worker_service;
struct container_table;

struct worker_options {
    const char *task;   /* "/job:worker/replica:0/task:0" */
    const char *listen; /* "127.0.0.1:2300" */
    /* TCP speaks TLS, and who comes shows that he is whom he says he is; NULL: in the clear.
     * Borrowed */
    struct tls *tls;
    bool use_checksums; /* messages on the worker wire carry checksums (rpc/wire/wire.h) */
    /* values of 8 MB and more go over so many sockets at once; default 1 */
    int n_streams;
    bool use_unix; /* also listen on an abstract Unix socket, for tasks of this host */
    /* maps the arenas of other tasks of this host, and offers this process' own
     * (allocator_host_arena) */
    bool use_shm;
    /* that one of them may keep alive in it; default PEER_SHM_MAX_KEPT_BYTES */
    int64_t max_shm_kept_bytes;
    enum rdma_mode rdma_mode;
    struct rdma_device *rdma_device; /* taken by worker_service_new when it succeeds; NULL: none */
    const char *why_no_rdma;         /* then */
    struct device *devices;          /* of the task; borrowed for the service's life */
    int n_devices;
    struct pool *pool;
    /* of kernels that block on files; NULL: they run on the pool */
    struct pool *io_pool;
    /* to what other tasks' kernels ask; NULL: nothing is answered */
    peer_handler_fn *serve_peer_call;
    /* a step runs so long on the loop thread before it moves to the pool; default 50 µs */
    int64_t inline_budget_ns;
    int64_t graph_grace_ms; /* a lost master's graphs are kept so long; default 60 s */
    /* between pings to other tasks; after three without a sign of life one is lost. Default 2 s */
    int64_t heartbeat_ms;
    /* without any master for so long after there was one: on_masters_gone. 0, the default: never */
    int64_t master_wait_ms;
    void (*on_masters_gone)(void *arg); /* on the loop, once */
    void *on_masters_gone_arg;
    void (*on_job_ended)(void *arg); /* a master says so: the task has to drain. May be NULL */
    void *on_job_ended_arg;
    int64_t max_in_flight_bytes; /* of large tensors granted to peers; default 2 GiB */
    int64_t max_feed_bytes;      /* of one RunGraph; default 64 GiB */
    int max_steps;               /* live at once; default 65536 */
};
void worker_options_default(struct worker_options *options);

/* Errors: what wire_listen says. */
struct status *worker_service_new(struct loop *loop, const struct worker_options *options,
                                  struct worker_service **ret_service) MUST_USE;
/* Ends every step and connection. The memory goes on the loop when the last has ended; then
 * on_freed(arg), unless NULL. */
void worker_service_free(struct worker_service *service, void (*on_freed)(void *arg), void *arg);
/* Refuses new steps from now on; on_drained(arg) comes on the loop when no step is left. */
void worker_service_drain(struct worker_service *service, void (*on_drained)(void *arg), void *arg);

int worker_service_port(const struct worker_service *service);
uint64_t worker_service_incarnation(const struct worker_service *service);
const char *worker_service_unix_address(const struct worker_service *service); /* "" without one */
int worker_service_n_steps(struct worker_service *service);
/* /statusz, a JSON object */
void worker_service_describe(struct worker_service *service, struct str *out);
/* /stepz: text */
void worker_service_describe_steps(struct worker_service *service, struct str *out);

#endif
