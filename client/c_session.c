/* Sessions of a graph: sends the master what the graph has grown by, and names feeds, fetches and
 * targets for the calls of c_api_session.c. */
#include "client/c_session.h"

#include <stdlib.h>

#include "client/c_session_internal.h"

TF_Session *TF_NewSession(TF_Graph *graph, const TF_SessionOptions *options, TF_Status *status) {
    if (!graph || !options) {
        tf_status_set(status, null_refused(__func__, graph ? "options" : "graph"));
        return NULL;
    }
    TF_DeprecatedSession *master = TF_NewDeprecatedSession(options, status);
    if (!master)
        return NULL;
    TF_Session *session = xcalloc(1, sizeof *session);
    session->master = master;
    session->graph = graph;
    pthread_mutex_init(&session->lock, NULL);
    graph_ref_session(graph);
    return session;
}

void TF_CloseSession(TF_Session *session, TF_Status *status) {
    if (session)
        TF_CloseDeprecatedSession(session->master, status);
    else
        tf_status_set(status, null_refused(__func__, "session"));
}

void TF_DeleteSession(TF_Session *session, TF_Status *status) {
    tf_status_set(status, NULL);
    if (!session)
        return;
    run_queue_close(session->runs);
    TF_DeleteDeprecatedSession(session->master, status);
    graph_unref_session(session->graph);
    pthread_mutex_destroy(&session->lock);
    free(session);
}

/* ---- the graph ---- */

/* Writes what the master lacks; false where it lacks nothing. */
static bool write_growth(const TF_Session *session, struct str *out, int *ret_n_nodes,
                         int *ret_n_functions) {
    TF_Graph *graph = session->graph;
    pthread_mutex_lock(&graph->lock);
    *ret_n_nodes = graph->graph.n_nodes;
    *ret_n_functions = (int)graph->graph.functions.n_entries + graph->graph.n_gradient_defs;
    bool with_library = *ret_n_functions > session->n_functions_sent;
    bool has_grown = !session->is_created || with_library || *ret_n_nodes > session->n_nodes_sent;
    if (has_grown)
        graph_to_graphdef_from(&graph->graph, session->n_nodes_sent, with_library, out);
    pthread_mutex_unlock(&graph->lock);
    return has_grown;
}

struct status *session_extend(TF_Session *session) {
    struct str growth = STR_INIT;
    struct status *st = NULL;
    int n_nodes, n_functions;
    pthread_mutex_lock(&session->lock);
    if (write_growth(session, &growth, &n_nodes, &n_functions)) {
        st = session_add_graph(session->master, (struct span){str_text(&growth), growth.len});
        if (!st) {
            session->n_nodes_sent = n_nodes;
            session->n_functions_sent = n_functions;
            session->is_created = true;
        }
    }
    pthread_mutex_unlock(&session->lock);
    str_fini(&growth);
    return st;
}

void TF_ExtendSession(TF_Session *session, TF_Status *status) {
    tf_status_set(status, session ? session_extend(session) : null_refused(__func__, "session"));
}

/* ---- steps ---- */

static struct status *name_outputs(const char *function, const TF_Session *session,
                                   const TF_Output *outputs, int n, struct arena *arena,
                                   const char *const **ret) {
    const char **names = arena_array(arena, const char *, MAX(n, 0) + 1);
    if (n > 0 && !outputs)
        return null_refused(function, "an array of outputs");
    for (int i = 0; i < n; i++) {
        TRY(output_check(function, session->graph, outputs[i]));
        names[i] = arena_printf(arena, "%s:%d", outputs[i].oper->node->name, outputs[i].index);
    }
    *ret = names;
    return NULL;
}

struct status *session_step_name(const char *function, const TF_Session *session,
                                 const struct session_step *step, struct arena *arena,
                                 struct step_spec *spec) {
    if (!session)
        return null_refused(function, "session");
    if (step->ninputs < 0 || step->noutputs < 0 || step->ntargets < 0)
        return status_invalid("%s: %d inputs, %d outputs, %d targets", function, step->ninputs,
                              step->noutputs, step->ntargets);
    TRY(name_outputs(function, session, step->inputs, step->ninputs, arena, &spec->input_names));
    TRY(name_outputs(function, session, step->outputs, step->noutputs, arena, &spec->output_names));
    const char **targets = arena_array(arena, const char *, MAX(step->ntargets, 0) + 1);
    if (step->ntargets > 0 && !step->targets)
        return null_refused(function, "target_opers");
    for (int i = 0; i < step->ntargets; i++) {
        TRY(operation_check(function, session->graph, step->targets[i]));
        targets[i] = step->targets[i]->node->name;
    }
    spec->target_names = targets;
    spec->ninputs = step->ninputs;
    spec->noutputs = step->noutputs;
    spec->ntargets = step->ntargets;
    return NULL;
}

struct status *session_step_feed(const char *function, const struct session_step *step,
                                 struct step_spec *spec) {
    if (step->ninputs > 0 && !step->input_values)
        return null_refused(function, "input_values");
    for (int i = 0; i < step->ninputs; i++)
        if (!step->input_values[i])
            return status_invalid("%s: the value of input '%s' is NULL", function,
                                  spec->input_names[i]);
    spec->inputs = step->input_values;
    return NULL;
}

/* Runs a step, or with a handle a part of a partial run. */
static void run(const char *function, TF_Session *session, const TF_Buffer *run_options,
                const char *handle, const struct session_step *step, TF_Tensor **output_values,
                TF_Buffer *run_metadata, TF_Status *status) {
    struct arena arena;
    struct step_spec spec = {.run_options = run_options, .handle = handle};
    arena_init(&arena);
    for (int i = 0; output_values && i < step->noutputs; i++)
        output_values[i] = NULL;
    struct status *st = session_step_name(function, session, step, &arena, &spec);
    if (!st)
        st = session_step_feed(function, step, &spec);
    if (!st && step->noutputs > 0 && !output_values)
        st = null_refused(function, "output_values");
    if (!st)
        st = session_extend(session);
    if (!st)
        st = session_run_step(session->master, &spec, output_values, run_metadata);
    tf_status_set(status, st);
    arena_fini(&arena);
}

void TF_SessionRun(TF_Session *session, const TF_Buffer *run_options, const TF_Output *inputs,
                   TF_Tensor *const *input_values, int ninputs, const TF_Output *outputs,
                   TF_Tensor **output_values, int noutputs, const TF_Operation *const *target_opers,
                   int ntargets, TF_Buffer *run_metadata, TF_Status *status) {
    struct session_step step = {inputs,   input_values, ninputs, outputs,
                                noutputs, target_opers, ntargets};
    run(__func__, session, run_options, NULL, &step, output_values, run_metadata, status);
}

void TF_SessionPRunSetup(TF_Session *session, const TF_Output *inputs, int ninputs,
                         const TF_Output *outputs, int noutputs,
                         const TF_Operation *const *target_opers, int ntargets, const char **handle,
                         TF_Status *status) {
    struct session_step step = {inputs, NULL, ninputs, outputs, noutputs, target_opers, ntargets};
    struct step_spec spec = {.handle = NULL};
    struct arena arena;
    arena_init(&arena);
    if (handle)
        *handle = NULL;
    struct status *st = session_step_name(__func__, session, &step, &arena, &spec);
    if (!st && !handle)
        st = null_refused(__func__, "handle");
    if (!st)
        st = session_extend(session);
    if (!st)
        st = session_set_up_partial_run(session->master, &spec, handle);
    tf_status_set(status, st);
    arena_fini(&arena);
}

void TF_SessionPRun(TF_Session *session, const char *handle, const TF_Output *inputs,
                    TF_Tensor *const *input_values, int ninputs, const TF_Output *outputs,
                    TF_Tensor **output_values, int noutputs,
                    const TF_Operation *const *target_opers, int ntargets, TF_Status *status) {
    struct session_step step = {inputs,   input_values, ninputs, outputs,
                                noutputs, target_opers, ntargets};
    if (handle)
        run(__func__, session, NULL, handle, &step, output_values, NULL, status);
    else
        tf_status_set(status, null_refused(__func__, "handle"));
}

TF_DeviceList *TF_SessionListDevices(TF_Session *session, TF_Status *status) {
    if (session)
        return TF_DeprecatedSessionListDevices(session->master, status);
    tf_status_set(status, null_refused(__func__, "session"));
    return NULL;
}
