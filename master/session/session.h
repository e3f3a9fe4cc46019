/* A session: one client's growing graph, its executables and its running steps [WP 2, OSDI 3.3].
 *
 * The graph changes, and is compiled, in jobs on pool threads. The jobs of a session run one after
 * another, in the order in which they were asked for. Steps whose signature is compiled run
 * meanwhile. Everything else happens on the loop thread.
 *
 * A step looks for the executable of its signature (executable.h). A known one that is READY runs
 * at once; for a new signature a job compiles an executable, and the step waits for it.
 *
 * A session is counted: the service's table, each job, each step and each executable hold a
 * reference. */
#ifndef MILLRACE_MASTER_SESSION_SESSION_H
#define MILLRACE_MASTER_SESSION_SESSION_H

#include "common/base/list.h"
#include "common/base/pool.h"
#include "common/ops/infer.h"
#include "master/request/session_config.h"
#include "master/session/executable.h"
#include "master/session/master_env.h"

struct session_config;
struct callables;

/* Work on the session's graph. */
struct session_job {
    struct list link;
    struct session *session;
    void (*work)(struct session_job *job); /* pool thread */
    void (*done)(struct session_job *job); /* loop thread; frees the job */
    struct pool_task pool_task;
    struct loop_task loop_task;
};

struct session {
    struct list link; /* service->sessions */
    struct master_env *env;
    /* called once, just before its memory is freed */
    void (*on_end)(struct session *session);
    char *handle; /* random, 32 hex digits */
    int n_refs;
    bool is_closed;
    struct graph graph;         /* only the running job uses it */
    struct graph_shapes shapes; /* static shapes of the graph's outputs; only the running job */
    /* the devices that the nodes are placed on; never replaced, since `node.placed` indexes it */
    struct device_table *devices;
    int64_t graph_version;
    /* memory that the graph holds for ExtendSessions that failed; only the running job */
    size_t refused_bytes;
    struct compile_options options;
    int64_t operation_timeout_ms; /* the timeout of steps that state none; 0: none */
    bool is_isolated;             /* it has containers of its own at the tasks */
    bool log_device_placement;    /* log the devices of each executable */
    /* which steps of each executable have a cost graph (cost_graph.h); 0: none */
    int64_t build_cost_model, build_cost_model_after;
    /* key → struct executable: the cache, at most master options' max_executables */
    struct strmap executables;
    struct list lru;              /* struct executable.lru_link, the most recently used first */
    struct list live_executables; /* struct executable.live_link: in the cache, or still in use */
    struct list steps;            /* struct step.session_link */
    int n_steps;
    struct strmap partial_runs;  /* handle → struct partial_run */
    struct callables *callables; /* NULL before the first MakeCallable */
    uint64_t n_partial_runs_total;
    struct list jobs;
    struct session_job *running_job;
    struct u64map request_ids; /* of the last requests, to refuse one that arrives twice */
    uint64_t *request_ring;
    unsigned request_at;
    /* By task index: the incarnation that the session's steps last used; 0: none has used the task.
     * When it changes, one step fails with ABORTED. */
    uint64_t *known_incarnations;
    uint64_t *known_devices; /* the same of the task's devices, if steps have used them */
    uint64_t last_connection;
    uint64_t client;           /* whose process it belongs to (client_ids.h) */
    int64_t orphaned_since_ms; /* when its client's last connection closed; 0 while there is one */
    int64_t created_us, n_steps_total, n_executables_total;
    int64_t n_steps_failed;
    struct status *last_error; /* of the last of them; NULL: there was none */
    int64_t last_error_us;     /* when that was, in µs of Unix time */
};

/* A new session that can use the devices of those of the environment's ready tasks that `config`
 * allows. With a cluster of its own it is isolated. `on_end` is
 * called once, just before the session's memory is freed. The caller owns one reference. */
struct session *session_new(struct master_env *env, const struct session_config *config,
                            void (*on_end)(struct session *session));
void session_ref(struct session *session);
void session_unref(struct session *session);
/* The two halves of closing; the caller ends the session's steps in between. The first marks the
 * session as closed and tells the tasks to drop the state of an isolated one; false: it was closed
 * before. The second empties its cache of executables and gives up the reference of session_new. */
bool session_begin_close(struct session *session);
void session_end_close(struct session *session);

/* Runs the job on the pool when all earlier jobs of the session are done. The job stays alive until
 * its `done` is called; the session takes a reference meanwhile. */
void session_run_job(struct session *session, struct session_job *job);

/* Notes the id of a request of the method. Id 0 means none. Errors: ABORTED: a request with that id
 * has arrived before. */
struct status *session_note_request(struct session *session, const char *method,
                                    uint64_t request_id) MUST_USE;
/* Fails with ABORTED, once per change, if a task of the executable has another incarnation than the
 * one that this session last used. Where the executable uses devices with a memory of their own,
 * these count, too. */
struct status *session_check_incarnations(struct session *session,
                                          struct executable *executable) MUST_USE;

#endif
