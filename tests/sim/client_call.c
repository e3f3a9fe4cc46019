/* A client's calls, and what their answers may be: docs/failure.md as code. */
#include <stdio.h>

#include "client/c_api_internal.h"
#include "common/tensor/tensor_proto.h"
#include "tests/sim/client.h"
#include "tests/sim/faults.h"

/* What happened to a task longer ago is no reason any more. */
static const int64_t TROUBLE_LASTS_NS = 15000000000;

static int host_of(const struct sim_client *client) {
    return CLUSTER_FIRST_CLIENT_HOST + client->index;
}

/* ---- a call's beginning and end ---- */

void client_begin_call(struct sim_client *client, const char *label) {
    client->call = label;
    client->began_ns = sim_now_ns();
    client->n_calls++;
    for (int i = 0; i < cluster.n_nodes; i++)
        client->began_changes[i] = cluster.nodes[i].n_changes;
}

static void end_call(struct sim_client *client) {
    sim_trace("%s: %d %s", client->call, (int)TF_GetCode(client->status),
              TF_GetCode(client->status) ? TF_Message(client->status) : "");
    client->call = NULL;
}

bool client_saw_change(const struct sim_client *client, const struct cluster_node *node) {
    return client->began_changes[node - cluster.nodes] != node->n_changes;
}

/* ---- what an error may say ---- */

static bool is_in_trouble(int host) { return faults_disturbed(host, TROUBLE_LASTS_NS); }

/* A message that names tasks has to name one that something has happened to. */
static bool names_a_reason(const struct sim_client *client, const char *message) {
    bool names_task = false;
    for (int i = 0; i < cluster.n_nodes; i++) {
        const struct cluster_node *node = &cluster.nodes[i];
        if (!node->job || !strstr(message, node->name))
            continue;
        names_task = true;
        if (is_in_trouble(node->host))
            return true;
    }
    /* A master that was away is given up by its tasks, and then tells which of them has. */
    return is_in_trouble(cluster_master()->host) || cluster_master_vanished_lately() ||
           (!names_task && is_in_trouble(host_of(client)));
}

static void check_aborted(struct sim_client *client, const struct client_step *step,
                          const char *message) {
    if (strstr(message, "Session") && strstr(message, "not found")) {
        if (client->session_starts[0] == cluster_master()->n_starts)
            sim_fail("%s: %s: the master has lost a session: %s", client->name, client->call,
                     message);
        return;
    }
    for (int i = 1; i < cluster.n_nodes; i++) {
        const struct cluster_node *node = &cluster.nodes[i];
        uint64_t *known = &client->known_starts[i];
        char subject[80];
        snprintf(subject, sizeof(subject), "Task %s has", node->name);
        bool is_named = strstr(message, subject) && strstr(message, "restarted");
        bool has_changed =
            client_saw_change(client, node) || *known == CLIENT_MAY_KNOW ||
            node->n_starts != (*known == CLIENT_KNOWS_NONE ? client->session_starts[i] : *known);
        if (is_named && !has_changed)
            sim_fail("%s: %s: ABORTED again, or without a restart: %s", client->name, client->call,
                     message);
        if (is_named)
            *known = client_saw_change(client, node) ? CLIENT_MAY_KNOW : node->n_starts;
        else if (step->tasks & (1u << i))
            *known = CLIENT_MAY_KNOW;
    }
    if (!strstr(message, "restarted"))
        sim_fail("%s: %s: an ABORTED for an unknown reason: %s", client->name, client->call,
                 message);
}

static void check_error(struct sim_client *client, const struct client_step *step) {
    const char *message = TF_Message(client->status);
    switch (TF_GetCode(client->status)) {
    case TF_UNAVAILABLE:
        if (names_a_reason(client, message))
            return;
        break;
    case TF_ABORTED:
        check_aborted(client, step, message);
        return;
    case TF_DEADLINE_EXCEEDED:
        if (step->timeout_ms > 0)
            return;
        break;
    case TF_FAILED_PRECONDITION:
        if (strstr(message, "uninitialized"))
            return; /* the model knows whether that can be */
        break;
    case TF_INVALID_ARGUMENT:
        if (strcmp(step->label, "bad") == 0)
            return;
        break;
    default:
        break;
    }
    sim_fail("%s: %s: an answer that nothing explains: %d %s", client->name, client->call,
             (int)TF_GetCode(client->status), message);
}

/* ---- sessions ---- */

static const struct client_step session_step = {.label = "session"};

void client_close_session(struct sim_client *client) {
    if (!client->session)
        return;
    client_begin_call(client, "close");
    TF_CloseDeprecatedSession(client->session, client->status);
    end_call(client);
    TF_DeleteDeprecatedSession(client->session, client->status);
    client->session = NULL;
    client->has_graph = false;
}

bool client_ensure_session(struct sim_client *client) {
    struct str def = STR_INIT;
    if (client->has_graph)
        return true;
    client_close_session(client);
    client->session = TF_NewDeprecatedSession(client->options, client->status);
    client_graph(client, &def);
    client_begin_call(client, "create");
    for (int i = 0; i < cluster.n_nodes; i++) {
        client->known_starts[i] = CLIENT_KNOWS_NONE;
        client->session_starts[i] = cluster.nodes[i].n_starts;
    }
    TF_ExtendGraph(client->session, def.data, def.len, client->status);
    str_fini(&def);
    client->has_graph = TF_GetCode(client->status) == TF_OK;
    client->n_sessions++;
    if (!client->has_graph)
        check_error(client, &session_step);
    end_call(client);
    return client->has_graph;
}

bool client_extend(struct sim_client *client) {
    struct str def = STR_INIT;
    client->n_extensions++;
    client_graph_extension(client, &def);
    client_begin_call(client, "extend");
    TF_ExtendGraph(client->session, def.data, def.len, client->status);
    str_fini(&def);
    bool is_ok = TF_GetCode(client->status) == TF_OK;
    if (!is_ok) {
        check_error(client, &session_step);
        /* done or not: its version is not known, so a new session is made */
        client->has_graph = false;
    }
    end_call(client);
    return is_ok;
}

/* ---- steps ---- */

static double scalar_of(const TF_Tensor *tensor) {
    return tensor->value.dtype == DT_FLOAT ? (double)*(const float *)TF_TensorData(tensor)
                                           : (double)*(const int64_t *)TF_TensorData(tensor);
}

/* Which process of each task the session has used now, without a word about a restart. */
static void note_used(struct sim_client *client, const struct client_step *step) {
    for (int i = 1; i < cluster.n_nodes; i++) {
        const struct cluster_node *node = &cluster.nodes[i];
        uint64_t *known = &client->known_starts[i];
        if (!(step->tasks & (1u << i)))
            continue;
        if (client_saw_change(client, node)) {
            *known = CLIENT_MAY_KNOW;
            continue;
        }
        if (*known != CLIENT_KNOWS_NONE && *known != CLIENT_MAY_KNOW && *known != node->n_starts)
            sim_fail("%s: %s: used the restarted %s, and was never told ABORTED", client->name,
                     step->label, node->name);
        *known = node->n_starts;
    }
}

bool client_end_step(struct sim_client *client, const struct client_step *step) {
    bool is_ok = TF_GetCode(client->status) == TF_OK;
    if (is_ok) {
        client->n_done_well++;
        note_used(client, step);
    } else {
        check_error(client, step);
        if (TF_GetCode(client->status) == TF_ABORTED &&
            strstr(TF_Message(client->status), "not found"))
            client->has_graph = false;
    }
    end_call(client);
    return is_ok;
}

bool client_run(struct sim_client *client, struct client_step *step) {
    TF_Tensor *feed = TF_NewTensor(TF_INT64, NULL, 0, &step->feed, sizeof(step->feed), NULL, NULL),
              *fetched[CLIENT_MAX_VALUES];
    const char *feed_name = "x";
    struct str options = STR_INIT;
    proto_add_int(&options, 2, (uint64_t)step->timeout_ms);
    TF_Buffer *run_options = TF_NewBufferFromString(options.data, options.len);
    str_fini(&options);
    client_begin_call(client, step->label);
    TF_Run(client->session, step->timeout_ms ? run_options : NULL, &feed_name, &feed,
           step->has_feed, step->fetches, fetched, step->n_fetches, step->targets, step->n_targets,
           NULL, client->status);
    bool is_ok = TF_GetCode(client->status) == TF_OK;
    for (int i = 0; is_ok && i < step->n_fetches; i++) {
        step->values[i] = scalar_of(fetched[i]);
        TF_DeleteTensor(fetched[i]);
    }
    TF_DeleteBuffer(run_options);
    TF_DeleteTensor(feed);
    return client_end_step(client, step);
}
