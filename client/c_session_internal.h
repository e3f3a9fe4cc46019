/* What the files about sessions of a graph share. */
#ifndef MILLRACE_CLIENT_C_SESSION_INTERNAL_H
#define MILLRACE_CLIENT_C_SESSION_INTERNAL_H

#include "client/c_graph_internal.h"
#include "client/step_call.h"

struct run_queue;

struct TF_Session {
    TF_DeprecatedSession *master;
    TF_Graph *graph;
    pthread_mutex_t lock; /* held while the graph is sent; guards what follows */
    int n_nodes_sent;     /* nodes with ids below are at the master */
    int n_functions_sent;
    bool is_created;
    struct run_queue *runs; /* asynchronous runs; NULL before the first */
};

/* The arguments of one step. */
struct session_step {
    const TF_Output *inputs;
    TF_Tensor *const *input_values;
    int ninputs;
    const TF_Output *outputs;
    int noutputs;
    const TF_Operation *const *targets;
    int ntargets;
};

/* Checks the outputs and operations that are arguments of `function`, and names them in `spec`; the
 * names are in the arena. Errors: INVALID_ARGUMENT, which names the function and the culprit. */
struct status *session_step_name(const char *function, const TF_Session *session,
                                 const struct session_step *step, struct arena *arena,
                                 struct step_spec *spec) MUST_USE;

/* Checks the values of the inputs, and puts them into `spec`, which has their names. Errors: as
 * above. */
struct status *session_step_feed(const char *function, const struct session_step *step,
                                 struct step_spec *spec) MUST_USE;

/* Sends the master what the graph has grown by. Any thread. */
struct status *session_extend(TF_Session *session) MUST_USE;

/* ---- c_run_async.c ---- */
/* Cancels the runs that have not ended, waits for their ends, and tells of them. Accepts NULL. */
void run_queue_close(struct run_queue *runs);

#endif
