/* Answers the messages of masters, tools and other tasks (rpc/wire/wire.h), from a connection's
 * Hello to the last RunDone.
 *
 *   Hello ──► a master: RegisterGraph, RunGraph, CancelStep, …
 *         ├─► a tool: GetStatus, Ping
 *         └─► another task: the connection is given to worker/exchange/peer, which reads tensors
 *
 * Everything is called on the loop thread. An execution may end on any thread. */
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
    /* TCP connections use TLS, and the other end proves who it is; NULL: without TLS. Borrowed. */
    struct tls *tls;
    bool use_checksums; /* messages on the worker wire carry checksums (rpc/wire/wire.h) */
    /* over how many sockets values of 8 MB and more are sent at once; default 1 */
    int n_streams;
    bool use_unix; /* also listen on an abstract Unix socket, for tasks of this host */
    /* map the arenas of other tasks of this host, and let them map this process's
     * (allocator_host_arena) */
    bool use_shm;
    /* how much one of them may keep alive in this arena; default PEER_SHM_MAX_KEPT_BYTES */
    int64_t max_shm_kept_bytes;
    enum rdma_mode rdma_mode;
    struct rdma_device *rdma_device; /* taken by worker_service_new when it succeeds; NULL: none */
    const char *why_no_rdma;         /* where rdma_device is NULL: what is missing */
    const char *gpu_text;            /* for /statusz: the GPUs' driver, or why there is no GPU */
    void (*gpu_describe)(struct str *out); /* the same as it is now; NULL: there is no GPU */
    struct device *devices;                /* of the task; borrowed until the service is freed */
    int n_devices;
    struct pool *pool;
    /* for kernels that block on files; NULL: they run on the pool */
    struct pool *io_pool;
    /* serves calls of other tasks' kernels; NULL: such calls fail */
    peer_handler_fn *serve_peer_call;
    /* how long an execution may use the loop thread before it moves to the pool; default 50 µs */
    int64_t inline_budget_ns;
    /* > 1: for tests, every kernel takes this many times as long (executor.h); default 1 */
    double device_scale;
    int64_t graph_grace_ms; /* how long a lost master's graphs are kept; default 60 s */
    /* Between pings to other tasks; a task that is silent for three of them is lost. Default 2 s */
    int64_t heartbeat_ms;
    /* on_masters_gone is called when the last master has been gone for this long; 0, the default:
     * never */
    int64_t master_wait_ms;
    void (*on_masters_gone)(void *arg); /* on the loop, once */
    void *on_masters_gone_arg;
    /* a master tells the task to drain, and why; may be NULL */
    void (*on_told_to_drain)(void *arg, const char *why);
    void *on_told_to_drain_arg;
    /* A device has failed; on the loop; may be NULL. Returns whether the task ends, with or without
     * worker_service_abandon. If it goes on, the masters are told to do so without the device. */
    bool (*on_device_failed)(void *arg, struct device *device);
    void *on_device_failed_arg;
    /* A device that has work and makes no progress for so long is named in the log; after ten times
     * as long it has failed. Default 60 s */
    int64_t device_hang_ms;
    /* memory for what the last steps have done (step_ring.h); 0: none. Default 1 MiB */
    int64_t step_ring_bytes;
    int64_t max_in_flight_bytes; /* of large tensors granted to peers; default 2 GiB */
    int64_t max_feed_bytes;      /* of one RunGraph; default 64 GiB */
    int64_t max_graph_bytes;     /* of one partition with its functions; default 16 GiB */
    int max_steps;               /* live at once; default 65536 */
};
void worker_options_default(struct worker_options *options);

/* Errors: what wire_listen says. */
struct status *worker_service_new(struct loop *loop, const struct worker_options *options,
                                  struct worker_service **ret_service) MUST_USE;
/* Ends every step and connection. When the last one has ended the memory is freed on the loop, and
 * on_freed(arg) is called unless it is NULL. */
void worker_service_free(struct worker_service *service, void (*on_freed)(void *arg), void *arg);
/* Refuses new graphs and steps from now on. Calls on_drained(arg) on the loop when no step is left
 * and the masters have what was sent to them, or do not take it for two seconds. */
void worker_service_drain(struct worker_service *service, void (*on_drained)(void *arg), void *arg);
/* As worker_service_drain, because a device has failed and the task ends with it. New connections
 * are refused, and new graphs and steps get UNAVAILABLE with the device's failure. The steps that
 * use a failed device have a second to end with what they have seen; all others end now. */
void worker_service_abandon(struct worker_service *service, struct device *device,
                            void (*on_drained)(void *arg), void *arg);

int worker_service_port(const struct worker_service *service);
uint64_t worker_service_incarnation(const struct worker_service *service);
const char *worker_service_unix_address(const struct worker_service *service); /* "" without one */
int worker_service_n_steps(struct worker_service *service);
/* Adds what /statusz shows: a JSON object. */
/* Appends where clients connect, for one that has dialled this task: "dial the master at …".
 * Accepts NULL. */
void worker_service_say_where(const struct worker_service *service, struct str *out);
/* Adds what /statusz shows, as a JSON object, with at most max_rows graphs and resources. */
void worker_service_describe(struct worker_service *service, int max_rows, struct str *out);
/* Adds what /stepz shows, as text: a paragraph for each live step. */
void worker_service_describe_steps(struct worker_service *service, struct str *out);
/* Adds the same as a JSON object. */
void worker_service_page_steps(struct worker_service *service, struct str *out);
/* Adds what /tracez shows, as a JSON object: the last steps, the newest first. */
void worker_service_page_traces(struct worker_service *service, struct str *out);
/* Adds what /memz shows, as a JSON object. */
void worker_service_page_memory(struct worker_service *service, struct str *out);
/* Adds what /rendezvousz shows, as a JSON object. Only an operator sees messages of errors. */
void worker_service_page_rendezvous(struct worker_service *service, bool is_operator,
                                    struct str *out);
/* Adds what /transportz shows, as a JSON object. */
void worker_service_page_transport(struct worker_service *service, struct str *out);
/* Adds the metrics that are made when they are asked for: memory by device, bytes by peer. */
void worker_service_write_metrics(struct worker_service *service, struct str *out);

#endif
