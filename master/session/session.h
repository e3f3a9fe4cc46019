/* A session: one client's growing graph, its compiled signatures and its running steps [WP 2,
 * OSDI 3.3].
 *
 * The graph changes and is compiled on pool threads, one job at a time per session, in the order
 * asked; steps whose signature is compiled already go on meanwhile. All else is on the loop
 * thread.
 *
 *   known signature?  ─ yes ─► step.c
 *        │ no
 *        ▼
 *   executable: COMPILING (a job) ─► REGISTERING (each partition at its task) ─► READY     or FAILED: its steps get the status,
 *        ▲                                                                │              and the entry goes, so that the next asks anew
 *        └────────────── a task restarted: registered again ◄──────────────┘ */
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

/* Work on the graph, on a pool thread; jobs of a session run one after another. */
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
    int n_refs;   /* the service's table, jobs and steps */
    bool is_closed;
    struct graph graph;         /* jobs only, while one runs */
    struct graph_shapes shapes; /* what is known of its outputs before any step; likewise */
    /* what its nodes are placed on: `placed` indexes it, so it stays the same */
    struct device_table *devices;
    int64_t graph_version;
    size_t refused_bytes; /* held by the graph for ExtendSessions that failed; running job's */
    struct compile_options options;
    int64_t operation_timeout_ms; /* of steps that say nothing; 0: none */
    bool is_isolated;             /* its variables and queues are its own */
    bool log_device_placement;    /* of every signature that is compiled */
    /* key → struct executable: the cache, at most master options' max_executables */
    struct strmap executables;
    struct list lru;              /* struct executable.lru_link, used last first */
    struct list live_executables; /* struct executable.live_link: in the cache, or still in use */
    struct list steps;            /* struct step.session_link */
    int n_steps;
    struct strmap partial_runs;  /* handle → struct partial_run */
    struct callables *callables; /* made at first use */
    uint64_t n_partial_runs_total;
    struct list jobs;
    struct session_job *running_job;
    struct u64map request_ids; /* of late requests, to refuse a repeat */
    uint64_t *request_ring;
    unsigned request_at;
    /* What the session last knew of each task that its steps touched: a change is answered with
     * ABORTED once. */
    uint64_t *known_incarnations; /* by task index; 0: never touched */
    uint64_t last_connection;
    uint64_t client;           /* whose process it belongs to (client_ids.h) */
    int64_t orphaned_since_ms; /* when its client's last connection closed; 0 while there is one */
    int64_t created_us, n_steps_total;
};

struct session *session_new(struct master_env *env, const struct session_config *config,
                            void (*on_end)(struct session *session));
void session_ref(struct session *session);
void session_unref(struct session *session);
/* The two halves of closing; the caller ends the session's steps in between. The first marks the
 * session as closed and tells the tasks to drop the state of an isolated one; false: it was closed
 * before. The second empties its cache of executables and gives up the reference of session_new. */
bool session_begin_close(struct session *session);
void session_end_close(struct session *session);

void session_run_job(struct session *session, struct session_job *job);

/* False when this id came before (0 is never refused). */
bool session_note_request(struct session *session, uint64_t request_id);
/* ABORTED once when a task that the executable needs has another incarnation than this session
 * last knew. */
struct status *session_check_incarnations(struct session *session,
                                          struct executable *executable) MUST_USE;

#endif
