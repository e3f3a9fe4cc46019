/* Sessions of a graph: sends the master what the graph has grown by, and names feeds, fetches and
 * targets for the calls of c_api_session.c. */
#include "client/c_session.h"

#include <stdlib.h>

#include "client/c_graph_internal.h"

struct TF_Session {
    TF_DeprecatedSession *master;
    TF_Graph *graph;
    pthread_mutex_t lock; /* held while the graph is sent; guards what follows */
    int n_nodes_sent;     /* nodes with ids below are at the master */
    int n_functions_sent;
    bool is_created;
};

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

void TF_ExtendSession(TF_Session *session, TF_Status *status) {
    struct str growth = STR_INIT;
    int n_nodes, n_functions;
    tf_status_set(status, session ? NULL : null_refused(__func__, "session"));
    if (!session)
        return;
    pthread_mutex_lock(&session->lock);
    if (write_growth(session, &growth, &n_nodes, &n_functions)) {
        TF_ExtendGraph(session->master, str_text(&growth), growth.len, status);
        if (TF_GetCode(status) == TF_OK) {
            session->n_nodes_sent = n_nodes;
            session->n_functions_sent = n_functions;
            session->is_created = true;
        }
    }
    pthread_mutex_unlock(&session->lock);
    str_fini(&growth);
}

/* ---- steps ---- */

/* The names of one call; in the arena. */
struct call_names {
    struct arena arena;
    const char **inputs, **outputs, **targets;
};

static struct status *name_outputs(const char *function, const TF_Session *session,
                                   const TF_Output *outputs, int n, struct arena *arena,
                                   const char ***ret) {
    *ret = arena_array(arena, const char *, MAX(n, 0) + 1);
    if (n > 0 && !outputs)
        return null_refused(function, "an array of outputs");
    for (int i = 0; i < n; i++) {
        TRY(output_check(function, session->graph, outputs[i]));
        (*ret)[i] = arena_printf(arena, "%s:%d", outputs[i].oper->node->name, outputs[i].index);
    }
    return NULL;
}

static struct status *name_all(const char *function, const TF_Session *session,
                               const TF_Output *inputs, int ninputs, const TF_Output *outputs,
                               int noutputs, const TF_Operation *const *targets, int ntargets,
                               struct call_names *names) {
    if (!session)
        return null_refused(function, "session");
    TRY(name_outputs(function, session, inputs, ninputs, &names->arena, &names->inputs));
    TRY(name_outputs(function, session, outputs, noutputs, &names->arena, &names->outputs));
    names->targets = arena_array(&names->arena, const char *, MAX(ntargets, 0) + 1);
    if (ntargets > 0 && !targets)
        return null_refused(function, "target_opers");
    for (int i = 0; i < ntargets; i++) {
        TRY(operation_check(function, session->graph, targets[i]));
        names->targets[i] = targets[i]->node->name;
    }
    return NULL;
}

static struct status *check_values(const char *function, const TF_Output *inputs,
                                   TF_Tensor *const *values, int n, TF_Tensor **results,
                                   int n_results) {
    if (n_results > 0 && !results)
        return null_refused(function, "output_values");
    if (n > 0 && !values)
        return null_refused(function, "input_values");
    for (int i = 0; i < n; i++)
        if (!values[i])
            return status_invalid("%s: the value of input '%s:%d' is NULL", function,
                                  inputs[i].oper->node->name, inputs[i].index);
    return NULL;
}

/* Runs a step, or with a handle a part of a partial run. */
static void run(const char *function, TF_Session *session, const TF_Buffer *run_options,
                const char *handle, const TF_Output *inputs, TF_Tensor *const *input_values,
                int ninputs, const TF_Output *outputs, TF_Tensor **output_values, int noutputs,
                const TF_Operation *const *target_opers, int ntargets, TF_Buffer *run_metadata,
                TF_Status *status) {
    struct call_names names = {0};
    arena_init(&names.arena);
    for (int i = 0; output_values && i < noutputs; i++)
        output_values[i] = NULL;
    struct status *st = name_all(function, session, inputs, ninputs, outputs, noutputs,
                                 target_opers, ntargets, &names);
    if (!st)
        st = check_values(function, inputs, input_values, ninputs, output_values, noutputs);
    tf_status_set(status, st);
    if (!st)
        TF_ExtendSession(session, status);
    /* TF_Run does not change the array of feeds */
    TF_Tensor **feeds = (TF_Tensor **)(uintptr_t)input_values;
    if (TF_GetCode(status) == TF_OK && handle)
        TF_PRun(session->master, handle, names.inputs, feeds, ninputs, names.outputs, output_values,
                noutputs, names.targets, ntargets, status);
    else if (TF_GetCode(status) == TF_OK)
        TF_Run(session->master, run_options, names.inputs, feeds, ninputs, names.outputs,
               output_values, noutputs, names.targets, ntargets, run_metadata, status);
    arena_fini(&names.arena);
}

void TF_SessionRun(TF_Session *session, const TF_Buffer *run_options, const TF_Output *inputs,
                   TF_Tensor *const *input_values, int ninputs, const TF_Output *outputs,
                   TF_Tensor **output_values, int noutputs, const TF_Operation *const *target_opers,
                   int ntargets, TF_Buffer *run_metadata, TF_Status *status) {
    run(__func__, session, run_options, NULL, inputs, input_values, ninputs, outputs, output_values,
        noutputs, target_opers, ntargets, run_metadata, status);
}

void TF_SessionPRunSetup(TF_Session *session, const TF_Output *inputs, int ninputs,
                         const TF_Output *outputs, int noutputs,
                         const TF_Operation *const *target_opers, int ntargets, const char **handle,
                         TF_Status *status) {
    struct call_names names = {0};
    arena_init(&names.arena);
    if (handle)
        *handle = NULL;
    struct status *st = name_all(__func__, session, inputs, ninputs, outputs, noutputs,
                                 target_opers, ntargets, &names);
    if (!st && !handle)
        st = null_refused(__func__, "handle");
    tf_status_set(status, st);
    if (!st)
        TF_ExtendSession(session, status);
    if (TF_GetCode(status) == TF_OK)
        TF_PRunSetup(session->master, names.inputs, ninputs, names.outputs, noutputs, names.targets,
                     ntargets, handle, status);
    arena_fini(&names.arena);
}

void TF_SessionPRun(TF_Session *session, const char *handle, const TF_Output *inputs,
                    TF_Tensor *const *input_values, int ninputs, const TF_Output *outputs,
                    TF_Tensor **output_values, int noutputs,
                    const TF_Operation *const *target_opers, int ntargets, TF_Status *status) {
    if (handle)
        run(__func__, session, NULL, handle, inputs, input_values, ninputs, outputs, output_values,
            noutputs, target_opers, ntargets, NULL, status);
    else
        tf_status_set(status, null_refused(__func__, "handle"));
}

TF_DeviceList *TF_SessionListDevices(TF_Session *session, TF_Status *status) {
    if (session)
        return TF_DeprecatedSessionListDevices(session->master, status);
    tf_status_set(status, null_refused(__func__, "session"));
    return NULL;
}
