/* Finds out where the nodes of a signature are, and why: compiles it once more in a job of its
 * session, since nothing of that is kept. For /graphz. Loop thread. */
#ifndef MILLRACE_MASTER_SESSION_PLACED_JOB_H
#define MILLRACE_MASTER_SESSION_PLACED_JOB_H

#include <stdatomic.h>

#include "master/compile/place/placed_graph.h"
#include "master/session/session.h"

struct placed_job {
    struct session_job job;
    struct executable *executable; /* one reference */
    atomic_bool is_cancelled;
    struct placed_graph graph;
    struct status *status;                /* of the compilation */
    void (*work)(struct placed_job *job); /* called on the pool after that; may be NULL */
    /* Called on the loop, once. The callee frees what it has with placed_job_fini. */
    void (*done)(struct placed_job *job);
};

/* The executable must be READY. The caller has set `work` and `done`; all else is zero. */
void placed_job_start(struct placed_job *job, struct executable *executable);
/* A job that waits for its session compiles nothing from now on. `done` is called nevertheless. */
void placed_job_cancel(struct placed_job *job);
void placed_job_fini(struct placed_job *job);

#endif
