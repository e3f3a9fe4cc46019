/* Executables: the compiled signatures of a session, and their registrations at the tasks.
 *
 * A session keeps executables in a cache, so a step whose signature is known starts at once.
 *
 * The states of an executable:
 *
 *   (new) -> COMPILING       a job on the pool compiles the session's graph for the signature
 *   COMPILING   -> REGISTERING   each partition is sent to its task
 *               -> READY         there is no partition
 *               -> FAILED        the graph cannot be compiled
 *   REGISTERING -> READY         every task has answered
 *               -> FAILED        a task refused its partition, or was lost
 *   READY       -> REGISTERING   a task restarted or dropped our graphs: register all again
 *
 * A FAILED executable leaves the cache. Its waiting steps get its status, and the next step with
 * that signature compiles again. Loop thread. */
#ifndef MILLRACE_MASTER_SESSION_EXECUTABLE_H
#define MILLRACE_MASTER_SESSION_EXECUTABLE_H

#include "common/base/list.h"
#include "common/base/state_machine.h"
#include "master/cluster/tasks.h"
#include "master/compile/compile.h"
#include "master/session/placement_trial.h"

struct session;
struct replacement;

enum executable_state {
    EXECUTABLE_COMPILING,
    EXECUTABLE_REGISTERING,
    EXECUTABLE_READY,
    EXECUTABLE_FAILED
};
extern const struct state_machine executable_machine;

/* One partition at its task. */
struct registration {
    struct task_call call;
    struct executable *executable;
    struct task *task;
    int partition;
    /* The task's when the partition was registered. The task has dropped graphs of any other
     * membership. */
    uint64_t incarnation, membership;
    uint64_t graph; /* the worker's handle; 0 while unknown */
};

/* Waits until an executable is READY or FAILED; embedded in the record of whoever waits. */
struct executable_wait {
    struct list link;                                /* executable->waiting, while it waits */
    void (*settled)(struct executable_wait *waiter); /* once for each executable_await */
};

/* A compiled signature. Counted: the session's cache and each of its steps hold a reference. */
struct executable {
    int n_refs;
    uint8_t state; /* enum executable_state */
    struct session *session;
    struct span key;            /* allocated in arena */
    struct signature signature; /* strings in arena */
    struct arena arena;
    struct compiled *compiled;
    struct registration *registrations; /* by partition */
    int n_registering;
    int *tasks, n_tasks;             /* the tasks that it runs on, by task_index */
    int *saved_tasks, n_saved_tasks; /* tasks whose values its saves take */
    bool *is_repeated_fetch;         /* by fetch: an earlier fetch has the same endpoint */
    struct status *status;           /* the first failure, while REGISTERING or FAILED */
    struct list waiting;             /* struct executable_wait.link */
    struct list lru_link;            /* session->lru, while it is in the cache */
    struct list live_link;           /* session->live_executables, until it is freed */
    int64_t number;                  /* among the session's, from 1 on; never used twice */
    /* those of the executables whose place it took, the last first; 0: there were no more */
    int64_t earlier_numbers[TRIAL_MAX_TAKES];
    struct replacement *replacement; /* the trial of its placement (replacement.h); or NULL */
    struct replacement *races_in;    /* the trial of the executable that it may replace; or NULL */
    const double *expected_ns;       /* of cost_rows_contradiction, in arena; or NULL */
    const bool *is_away;             /* as compile_options has it, in arena; or NULL */
    bool is_by_simple_rule;          /* likewise */
    int64_t n_steps;                 /* that were launched */
    int64_t unsampled_ns;            /* the time of steps since the last sampled one */
    int64_t n_unsampled;             /* their number */
    int64_t usual_ns;                /* their mean time when the last sampled step began */
    int64_t sampled_rows, sample_ns; /* of the last sampled step: struct last_sample */
    struct buffer *graphs;           /* while it is handed to those who wait for it */
    bool is_encoding_graphs;
};

/* The cached executable of a key, or a new one that starts to compile. The caller owns one
 * reference. `fill` is called for a new one: it writes the signature into the executable's
 * arena. */
struct executable *session_executable(struct session *session, struct span key,
                                      void (*fill)(void *arg, struct executable *executable),
                                      void *arg);
void executable_unref(struct executable *executable);
/* A new executable of the same signature that starts to compile, with the placement of `present`,
 * which is compiled, as options.present, by costs or by the simple rule. It is not in the cache. If
 * its nodes are placed alike, it is not registered, and is FAILED with ALREADY_EXISTS. The caller
 * owns one reference. */
struct executable *executable_compile_again(struct executable *present, bool is_by_simple_rule);
/* Puts `other` into the cache in place of `present`, whose reference of the cache becomes the
 * caller's; `other` gets one of its own. False: `present` is not in the cache. */
bool executable_take_place(struct executable *other, struct executable *present);
/* Appends the worker's handles (uint64_t) of all graphs that the session has registered at the
 * task's last known incarnation and membership. */
void session_graphs_at(const struct session *session, const struct task *task, struct str *out);
/* True: the executable is FAILED, or it is READY at the present incarnations of its tasks. False:
 * it is being compiled or registered (again, if a task has restarted), and `waiter->settled` is
 * called later. A waiter that no longer wants the call removes its link from the list. */
bool executable_await(struct executable *executable, struct executable_wait *waiter);
/* RunMetadata.partition_graphs of an executable that is READY: its fields, one for each device.
 * True: *ret_graphs is a new reference; NULL where there is no partition. False: the graphs are
 * being encoded on the pool, and `waiter->settled` is called when the next call has them. */
bool executable_await_graphs(struct executable *executable, struct executable_wait *waiter,
                             struct buffer **ret_graphs);

#endif
