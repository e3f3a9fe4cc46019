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
#ifndef MILLRACE_MASTER_SESSION_H
#define MILLRACE_MASTER_SESSION_H

#include "common/base/list.h"
#include "common/base/pool.h"
#include "common/ops/infer.h"
#include "master/compile/compile.h"
#include "master/cluster/tasks.h"

struct service;
struct session;
struct session_config;
struct step;
struct callables;
struct partial_run;

enum executable_state {
    EXECUTABLE_COMPILING,
    EXECUTABLE_REGISTERING,
    EXECUTABLE_READY,
    EXECUTABLE_FAILED
};

/* One partition at its task. */
struct registration {
    struct task_call call;
    struct executable *executable;
    struct task *task;
    int partition;
    uint64_t incarnation; /* of the task when it was registered */
    uint64_t membership;  /* likewise: the task has dropped what was registered under another one */
    uint64_t graph;       /* the worker's handle, 0 while unknown */
};

/* Somebody who waits until an executable is READY or FAILED; embedded in the waiting record. */
struct executable_wait {
    struct list link;                                /* executable->waiting, while it waits */
    void (*settled)(struct executable_wait *waiter); /* once for each executable_await */
};

/* A compiled signature. Counted: the session's cache and each of its steps hold it. */
struct executable {
    int n_refs;
    enum executable_state state;
    struct session *session;
    struct span key;            /* in its own memory */
    struct signature signature; /* strings in arena */
    struct arena arena;
    struct compiled *compiled;
    struct registration *registrations; /* by partition */
    int n_registering;
    int *tasks, n_tasks;         /* that it runs on: numbers of task_index */
    int *cut_tasks, n_cut_tasks; /* whose values it saves, where a save asks for a consistent cut */
    bool *is_repeated_fetch;     /* by fetch: the same endpoint came before */
    struct status *status;       /* while registering or failed: the first failure */
    struct list waiting;         /* struct executable_wait.link */
    struct list lru_link;        /* session->lru, while it is in the cache */
    struct list live_link;       /* session->live_executables, as long as it lives */
};

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
    struct service *service;
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
    /* key → struct executable: the cache, at most service options' max_executables */
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
    int64_t orphaned_since_ms; /* when its client's last connection closed; 0 while there is one */
    int64_t created_us, n_steps_total;
};

struct session *session_new(struct service *service, const struct session_config *config);
void session_ref(struct session *session);
void session_unref(struct session *session);
/* Ends its steps with `why` (shared), forgets its executables at the workers, and leaves the
 * service's table. */
void session_close(struct session *session, struct status *why);

void session_run_job(struct session *session, struct session_job *job);

/* Does anybody wait for one of its steps? A partial run between two calls keeps nobody waiting. */
bool session_is_awaited(const struct session *session);
/* False when this id came before (0 is never refused). */
bool session_note_request(struct session *session, uint64_t request_id);
/* ABORTED once when a task that the executable needs has another incarnation than this session
 * last knew. */
struct status *session_check_incarnations(struct session *session,
                                          struct executable *executable) MUST_USE;

/* The cached executable for a key, or a new one that starts to compile. One reference for the
 * caller. `fill` writes the signature of a new one into its arena. */
struct executable *session_executable(struct session *session, struct span key,
                                      void (*fill)(void *arg, struct executable *executable),
                                      void *arg);
void executable_unref(struct executable *executable);
/* The handles of the session's graphs at a task, as it was when it was lost: uint64_t, appended
 * to `out`. */
void session_graphs_at(const struct session *session, const struct task *task, struct str *out);
/* True: FAILED, or READY with every registration of its task's present incarnation. Else it is
 * on its way (registered anew where a task has restarted), and the waiter is told. A waiter that
 * no longer wants to be told takes its link off the list. */
bool executable_await(struct executable *executable, struct executable_wait *waiter);

#endif
