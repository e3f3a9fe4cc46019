/* What the files of the service share: service.c (connections, Hello, messages that are answered at
 * once, the end), service_graphs.c (RegisterGraph, masters), service_steps.c (RunGraph to RunDone),
 * service_values.c (feeds and fetches), service_status.c (GetStatus), service_health.c (devices
 * that fail), service_cancel.c (how a graph run is cut short), service_drain.c (how all of them end
 * before the task does), service_peer_calls.c (calls of other tasks' kernels), service_alarms.c
 * (kernels that wait for a time), service_page.c (status pages).
 *
 * All functions are called on the loop thread, unless a comment says otherwise. */
#ifndef MILLRACE_WORKER_SERVICE_SERVICE_INTERNAL_H
#define MILLRACE_WORKER_SERVICE_SERVICE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/alarm.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/metrics.h"
#include "kernels/rates.h"
#include "worker/exchange/peer_call.h"
#include "worker/container.h"
#include "worker/executor/executor.h"
#include "rpc/wire/heartbeat.h"
#include "worker/service/graph_cache.h"
#include "rpc/wire/step_messages.h"
#include "worker/exchange/peer.h"
#include "worker/exchange/rendezvous.h"
#include "worker/service/service.h"
#include "worker/service/step_ring.h"

enum {
    SERVICE_TICK_MS = 1000,
    SERVICE_MAX_EARLY_CANCELS = 4096,
    /* after this long a RunGraph whose cancel came first is not expected any more: its connection
     * has ended */
    SERVICE_EARLY_CANCEL_SECONDS = 120,
    SERVICE_MAX_MASTERS = 1024,
    SERVICE_MAX_CONNECTIONS = 16384,
    SERVICE_HELLO_SECONDS = 10, /* a connection that has not said Hello after this long is closed */
    SERVICE_MAX_TRACE_BYTES = 512 << 20,
    /* the master enforces the deadline; this worker does so this much later */
    SERVICE_TIMEOUT_SLACK_MS = 2000,
    RUNS_KEPT = 64,
};

/* A master process, by its incarnation. */
struct master {
    struct list link;
    uint64_t incarnation;
    uint64_t membership; /* random; tells this record from a later one of the same master */
    int n_connections;
    int64_t lost_ns;            /* when the last of its connections ended */
    struct exchange *exchange;  /* of a session's cluster; NULL: the task's own cluster */
    bool has_left;              /* for good: the record goes with its last connection */
    struct heartbeat heartbeat; /* passive: the master pings; it starts with the first ping */
};

/* An accepted connection: a master's, another task's, or a tool's. */
struct service_connection {
    struct list link;
    struct worker_service *service;
    struct wire_conn *wire;
    bool is_greeted;
    int64_t since_ns;
    uint64_t incarnation;  /* from its Hello */
    struct master *master; /* NULL: a tool */
    struct str hello_task;
    bool is_caller; /* another task's, for calls of its kernels */
    int n_served_calls;
    struct list served_calls; /* service_peer_calls.c */
};

/* A master's RunGraph, from its arrival to its RunDone. */
struct graph_run {
    struct execution execution;
    _Atomic uint32_t n_refs; /* the execution's, and those of callers that are about to cancel it */
    struct worker_service *service;
    struct list link; /* service->runs; guarded by service->lock */
    struct graph_run *next_free;
    struct wire_conn *conn;    /* one reference */
    struct graph_entry *graph; /* one reference */
    uint64_t id, master_incarnation;
    int64_t start_ns, deadline_ns; /* deadline 0: none */
    int64_t clock_ahead_us;        /* of the master's clock; what a trace is corrected by */
    struct status *cancelled; /* the status that CancelStep brought; guarded by service->lock */
    struct tensor *values;    /* feeds, then fetches */
    uint32_t n_values, values_capacity;
    struct str meta;
    struct feed_job *feed_job; /* between service_take_feeds and service_decode_feeds */
    struct pool_task release_task;
};

/* What has been encoded for RunDone ahead of it. */
struct encoded {
    struct buffer *buffer; /* NULL: nothing */
    size_t len;
};
struct encoded_reply {
    struct encoded trace;   /* a StepStats message */
    struct encoded texts[]; /* by fetch: the TensorProto of a string tensor */
};

enum rates_phase { RATES_UNKNOWN = 0, RATES_MEASURING, RATES_KNOWN };

struct worker_service {
    struct loop *loop;
    struct worker_options options;
    char *task, *unix_address;
    char *master_address; /* where clients reach the master that came last; NULL: unknown */
    uint64_t incarnation;
    struct wire_server *server, *unix_server;
    struct exchange *home; /* of the task's own cluster; one reference */
    struct list exchanges; /* struct exchange.link: those of sessions' clusters */
    int n_exchanges;       /* all that are not freed yet */
    struct container_table *containers;
    struct graph_cache *graphs;
    struct step_ring *ring; /* what the last steps have done */
    struct list connections, masters;
    /* step id → struct early_cancel: a cancel that came before its RunGraph */
    struct u64map early_cancels;
    struct loop_timer tick;
    int64_t trimmed_ns;
    struct loop_timer beat;     /* watches the masters */
    int64_t beat_ns;            /* when `beat` fired last */
    struct alarm_clock *alarms; /* service_alarms.c */
    struct loop_timer alarm_timer;
    struct loop_task alarm_task;
    _Atomic bool is_alarm_posted;
    /* since when there has been no master; 0: there is one, or there never was */
    int64_t masterless_ns;
    struct loop_task drain_task, free_task;
    struct loop_timer drain_timer; /* service_drain.c */
    struct status *refusal;        /* of graphs and steps, because the task ends; NULL: none */
    bool is_flushing;              /* no step is left, and replies are under way */
    size_t unarrived_bytes;        /* of these replies, when they became less */
    int64_t unarrived_since_ns;
    uint64_t oldest_live_step; /* as the masters' last messages say */
    /* service_status.c. A pool thread writes `rates` while they are being measured. */
    enum rates_phase rates_phase;
    struct device_rates rates; /* of a CPU device, without device_scale */
    struct pool_task rates_task;
    struct loop_task rates_home_task;
    struct list status_waits;
    struct loop_task failure_task; /* service_health.c */
    _Atomic bool is_failure_posted;
    struct device *failed_device; /* the first one; guarded by service_health.c's lock */
    int n_connections, n_registering, n_served_calls;
    int n_open_timers;
    bool is_draining, is_freed;
    bool is_ending; /* service_maybe_free is under way */
    void (*on_drained)(void *arg);
    void *on_drained_arg;
    void (*on_freed)(void *arg);
    void *on_freed_arg;

    pthread_mutex_t lock;  /* guards what follows */
    struct u64map by_step; /* step id → struct graph_run */
    struct list runs;      /* live graph runs */
    int n_runs;            /* live, or ended while somebody holds a reference */
    struct graph_run *free_runs;
    int n_free_runs;
    bool is_end_watched; /* set: the end of the last run posts drain_task */
};

extern struct metric worker_steps_total, worker_steps_failed_total, worker_steps_live,
    worker_step_duration, worker_graphs;

/* ---- service.c ---- */
void service_maybe_free(struct worker_service *service);
void service_exchange_freed(void *service); /* struct exchange.on_freed */
/* Closes connections that have not said Hello in time. */
void connections_expire(struct worker_service *service, int64_t now_ns);
/* Notices that this process was stopped, or that its host slept. Masters may have given the task up
 * meanwhile, so connections that they have closed are ended before what they had sent is read: its
 * steps are over. */
void service_check_awake(struct worker_service *service, int64_t now_ns);
/* Sends a message without payload. Any thread. */
void service_send(struct wire_conn *conn, enum wire_type type, uint64_t id, const void *meta,
                  size_t len);

/* ---- service_alarms.c: the loop drives the clock of the kernels' alarms ---- */
void service_alarms_init(struct worker_service *service);
/* Closes the clock: no alarm rings from now on, though steps that are ending may still set some.
 * `on_closed` is called as by loop_timer_close. */
void service_alarms_close(struct worker_service *service,
                          void (*on_closed)(struct loop_timer *timer));
/* True: a posted task is still to run; it will call service_maybe_free. */
bool service_alarms_is_busy(const struct worker_service *service);

/* ---- service_health.c: devices that fail ---- */
void service_health_init(struct worker_service *service);
/* Devices that fail from now on are not looked at. */
void service_health_close(struct worker_service *service);
/* Is a failure on its way to the loop? It frees the service when it arrives. */
bool service_health_is_busy(const struct worker_service *service);
/* Asks the devices. Once a second. */
void service_health_tick(struct worker_service *service);

/* ---- service_graphs.c ---- */
/* The exchange of the cluster that the connection's master drives. */
static inline struct exchange *exchange_of(const struct service_connection *connection) {
    return connection->master && connection->master->exchange ? connection->master->exchange
                                                              : connection->service->home;
}
/* The exchange of a cluster, by its id; 0: the task's own. NULL: there is none. */
struct exchange *service_find_exchange(struct worker_service *service, uint64_t cluster);
/* The master drives a session's cluster, in which this task has that name. Errors:
 * FAILED_PRECONDITION (it has another name in that cluster already). */
struct status *master_enter_cluster(struct worker_service *service, struct master *master,
                                    const char *task) MUST_USE;
/* Leave: frees everything of the master and closes its connections. */
void service_master_leaves(struct service_connection *connection);
/* The record of a master, made when it is new. NULL: there are too many masters. */
struct master *master_join(struct worker_service *service, uint64_t incarnation);
void master_leave(struct worker_service *service, struct master *master);
void masters_expire(struct worker_service *service, int64_t now_ns);
/* Ends the connections of masters that are silent. */
void masters_beat(struct worker_service *service, int64_t now_ns);
void master_pinged(struct master *master, struct span meta, int64_t now_ns);
void masters_free(struct worker_service *service);
struct status *service_register_graph(struct service_connection *connection,
                                      struct wire_message *message) MUST_USE;
/* Answers a RegisterGraph for whose graphs there was no memory. */
void service_refuse_graph(struct service_connection *connection, const struct wire_message *message,
                          struct status *why_take);
struct status *service_keep_graphs(struct service_connection *connection,
                                   const struct wire_message *message) MUST_USE;
struct status *service_close_session(struct service_connection *connection,
                                     const struct wire_message *message) MUST_USE;
struct status *service_deregister_graph(struct service_connection *connection,
                                        const struct wire_message *message) MUST_USE;
struct status *service_reset_containers(struct service_connection *connection,
                                        const struct wire_message *message) MUST_USE;

/* ---- service_steps.c ---- */
struct status *service_run_graph(struct service_connection *connection,
                                 struct wire_message *message) MUST_USE;
struct status *service_feed_step(struct service_connection *connection,
                                 struct wire_message *message) MUST_USE;
/* Cancels a step for whose feed there was no memory. */
void service_refuse_feed(struct service_connection *connection, const struct wire_message *message,
                         struct status *why_take);
/* Answers a RunGraph for whose feeds there was no memory; the step does not start. */
void service_refuse_run(struct service_connection *connection, const struct wire_message *message,
                        struct status *why_take);
void graph_run_unref(struct graph_run *run); /* drops a reference taken under service->lock */
void graph_runs_free(struct worker_service *service);
/* Answers the master and gives back the execution's reference. `encoded` may be NULL. Any thread.
 */
void graph_run_finish(struct graph_run *run, const struct encoded_reply *encoded,
                      struct status *status_take);
/* The run has no references, and its values are released. Any thread. */
void graph_run_recycle(struct graph_run *run);

/* ---- service_values.c: feeds and fetches; those with much text on the pool, in pieces ---- */
/* Takes the feeds of a RunGraph. With *ret_is_later set, service_decode_feeds must follow in place
 * of execution_start. */
struct status *service_take_feeds(struct graph_run *run, struct wire_message *message,
                                  bool *ret_is_later) MUST_USE;
/* Takes the feeds, then starts the execution; feeds that cannot be taken fail it. */
void service_decode_feeds(struct graph_run *run);
/* Takes the feeds of a FeedStep, perhaps later. */
struct status *service_feed_run(struct graph_run *run, struct wire_message *message) MUST_USE;
/* True: the run has ended well with much text in its fetches, or with a trace, so graph_run_finish
 * follows later. Any thread. */
bool service_encode_later(struct graph_run *run, const struct status *status);
/* Releases the values of a run without references. True: graph_run_recycle follows later. Any
 * thread. */
bool service_release_later(struct graph_run *run);

/* ---- service_cancel.c ---- */
struct status *service_cancel_step(struct service_connection *connection,
                                   const struct wire_message *message) MUST_USE;
/* Cancels the live runs for which `matches` is true. Other threads may end runs meanwhile. */
void service_cancel_runs(struct worker_service *service,
                         bool (*matches)(const struct graph_run *run, const void *arg),
                         const void *arg, struct status *why);
/* Cancels the runs that came over a connection which has ended: nobody waits for their answers. */
void service_cancel_runs_of(struct service_connection *connection);
void steps_expire(struct worker_service *service, int64_t now_ns);
void service_on_peer_lost(void *arg, struct peer *peer, struct status *why);
/* The status that cancelled a step before its RunGraph came; NULL: none did. The caller owns it. */
struct status *early_cancel_take(struct worker_service *service, uint64_t step_id);
void early_cancels_clear(struct worker_service *service);

/* ---- service_drain.c ---- */
void service_drain_init(struct worker_service *service);
/* Nothing is drained any more. `on_closed` is called as by loop_timer_close. */
void service_drain_close(struct worker_service *service,
                         void (*on_closed)(struct loop_timer *timer));
/* Sends the meta to each master over both of its connections, because it reads either's end
 * first. */
void service_tell_masters(struct worker_service *service, void (*add_what)(struct str *ret_meta));

/* ---- service_peer_calls.c ---- */
struct status *service_serve_call(struct service_connection *connection,
                                  const struct wire_message *message) MUST_USE;
/* Drops the replies to a connection that is ending. */
void service_forget_caller(struct service_connection *connection);

/* ---- service_status.c ---- */
/* Answers a GetStatus, a master's perhaps later. */
void service_answer_status(struct service_connection *connection, uint64_t id);
/* Sends the task's WorkerStatus: the answer to GetStatus, or, with id 0, what has changed. */
void service_send_status(const struct service_connection *connection, uint64_t id);
/* Drops the answers to a connection that is ending. */
void service_forget_status(struct service_connection *connection);
/* The device's rates as masters are told; all 0 while they are unknown. */
struct device_rates service_device_rates(const struct worker_service *service,
                                         const struct device *device);

/* ---- service_metrics.c ---- */
/* What devices count, on /statusz and as metrics. The last one has no name. */
struct service_device_count {
    enum device_count which;
    const char *name, *metric;
    const char *labels; /* name="value",…; NULL: none */
    const char *help;   /* NULL: the metric of the count before */
};
extern const struct service_device_count service_device_counts[];

/* ---- service_page.c ---- */
void service_send_steps(struct service_connection *connection, uint64_t id);

/* ---- trace_page.c ---- */
/* Answers a GetTraces. */
struct status *service_send_traces(struct service_connection *connection,
                                   const struct wire_message *message) MUST_USE;

/* ---- step_stats.c ---- */
/* Writes TensorFlow's StepStats message of a traced step: a row for each node of the program that
 * ran, a row "RecvTensor" for each value that came from another task, and a row "SendTensor" for
 * each that went to one. Nodes without a kernel are on the CPU of the exchange, which also knows
 * how values travel. After max_bytes, which one row may exceed, further rows are left out, and a
 * row says how many. */
struct stats_writer {
    const struct step_stats *stats;
    const struct exchange *exchange; /* borrowed */
    size_t max_bytes;
    struct str out;  /* complete once stats_writer_run has returned true; the caller may take it */
    struct str rows; /* of the present device */
    struct strmap done; /* devices */
    const char *name;   /* of the present device, or NULL */
    size_t first;       /* rows before it have a device that is in `done` */
    size_t next;        /* row to look at for the present device */
    size_t n_left_out;
};
void stats_writer_init(struct stats_writer *writer, const struct step_stats *stats,
                       const struct exchange *exchange, size_t max_bytes);
/* Writes rows until *units of 100 ns are used up. True: all is written. */
bool stats_writer_run(struct stats_writer *writer, int64_t *units);
void stats_writer_fini(struct stats_writer *writer);

#endif
