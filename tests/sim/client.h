/* The clients of a run: programs that use the C client library. Each has a session and variables of
 * its own, and checks every reply. */
#ifndef MILLRACE_TESTS_SIM_CLIENT_H
#define MILLRACE_TESTS_SIM_CLIENT_H

#include "client/c_api.h"
#include "tests/sim/cluster.h"
#include "tests/sim/model.h"

enum { CLIENT_MAX = 6, CLIENT_MAX_VALUES = 4, CLIENT_LARGE_ELEMENTS = 60000 };

struct sim_client {
    int index;
    char name[32];
    struct sim_process *process;
    TF_SessionOptions *options;
    TF_DeprecatedSession *session; /* NULL: none */
    TF_Status *status;
    bool has_graph, is_done, is_closed;
    uint64_t n_extensions, n_calls, n_done_well, n_sessions;

    /* the running call */
    const char *call; /* NULL: none */
    int64_t began_ns;
    uint64_t began_changes[CLUSTER_MAX_NODES]; /* of the nodes, when it began */

    /* what the client knows of each ps task */
    struct model counters[CLUSTER_MAX_PS], large[CLUSTER_MAX_PS];
    uint64_t model_changes[CLUSTER_MAX_PS]; /* the task's, at the last check */
    /* The start of each node's process that this session used last or has heard of;
     * CLIENT_KNOWS_NONE, CLIENT_MAY_KNOW. */
    uint64_t known_starts[CLUSTER_MAX_NODES], session_starts[CLUSTER_MAX_NODES];
    int64_t next_value;
};

#define CLIENT_KNOWS_NONE 0u
#define CLIENT_MAY_KNOW UINT64_MAX /* it is unknown whether the session has heard of it */

extern struct sim_client clients[CLIENT_MAX];
extern int n_clients;

void clients_begin(void); /* draws a number of clients and starts them */
bool clients_are_done(void);
/* After the last fault: each client checks that its steps succeed, and ends. */
void clients_settle(void);
extern int64_t clients_settled_ns; /* 0: not yet */

/* ---- calls: client_call.c ---- */

/* One step. client_run returns true on success and sets `values` to the fetched scalars. Otherwise
 * client->status has the error, and client_run has checked that the error is allowed now. */
struct client_step {
    const char *label;
    bool has_feed;
    int64_t feed;
    const char *fetches[CLIENT_MAX_VALUES], *targets[CLIENT_MAX_VALUES];
    int n_fetches, n_targets;
    int64_t timeout_ms; /* of the step; 0: none */
    uint32_t tasks;     /* a bit for each node that the step uses */
    double values[CLIENT_MAX_VALUES];
};
bool client_run(struct sim_client *client, struct client_step *step);
/* Runs the step as a partial run (client_partial.c): each call has one feed and one fetch. Of the
 * two calls only the first n_calls are made. With one call the partial run stays open, and ends
 * with its session. */
bool client_run_partial(struct sim_client *client, struct client_step *step,
                        const char *const *feeds, const int64_t *values, int n_calls);
/* For callers that use the C library directly: call the first one before the call. The second one
 * checks the result in client->status as client_run does. */
void client_begin_call(struct sim_client *client, const char *label);
bool client_end_step(struct sim_client *client, const struct client_step *step);
/* Makes a session and its graph, unless the client has one. */
bool client_ensure_session(struct sim_client *client);
bool client_extend(struct sim_client *client);
void client_close_session(struct sim_client *client);
/* Has a node's process ended or begun since the call began? */
bool client_saw_change(const struct sim_client *client, const struct cluster_node *node);

/* ---- client_graph.c ---- */
/* Writes a serialized GraphDef: the nodes that every client has, or one further node. */
void client_graph(const struct sim_client *client, struct str *out);
void client_graph_extension(const struct sim_client *client, struct str *out);

#endif
