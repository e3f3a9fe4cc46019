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

struct session;

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
    uint8_t state; /* enum executable_state */
    struct session *session;
    struct span key;            /* in its own memory */
    struct signature signature; /* strings in arena */
    struct arena arena;
    struct compiled *compiled;
    struct registration *registrations; /* by partition */
    int n_registering;
    int *tasks, n_tasks; /* that it runs on: numbers of task_index */
    int *saved_tasks,
        n_saved_tasks; /* whose values it saves, where a save asks for a consistent checkpoint */
    bool *is_repeated_fetch; /* by fetch: the same endpoint came before */
    struct status *status;   /* while registering or failed: the first failure */
    struct list waiting;     /* struct executable_wait.link */
    struct list lru_link;    /* session->lru, while it is in the cache */
    struct list live_link;   /* session->live_executables, as long as it lives */
};

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
