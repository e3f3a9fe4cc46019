/* Clients of a run: programs on the C client library, each with a session and variables of its
 * own, that check every answer. */
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

    /* The call that is under way. */
    const char *call; /* NULL: none */
    int64_t began_ns;
    uint64_t began_changes[CLUSTER_MAX_NODES]; /* of the nodes, when it began */

    /* What is known of each ps task. */
    struct model counters[CLUSTER_MAX_PS], large[CLUSTER_MAX_PS];
    uint64_t model_changes[CLUSTER_MAX_PS]; /* of the task, when they were last looked at */
    /* The process of each node that this session used last, or was told about;
     * CLIENT_KNOWS_NONE, CLIENT_MAY_KNOW. */
    uint64_t known_starts[CLUSTER_MAX_NODES], session_starts[CLUSTER_MAX_NODES];
    int64_t next_value;
};

#define CLIENT_KNOWS_NONE 0u
#define CLIENT_MAY_KNOW UINT64_MAX /* the session may have been told, or not */

extern struct sim_client clients[CLIENT_MAX];
extern int n_clients;

void clients_begin(void); /* draws how many, and starts them */
bool clients_are_done(void);
/* Faults are over: from then on each makes sure that its steps flow, and ends. */
void clients_settle(void);
extern int64_t clients_settled_ns; /* 0: not yet */

/* ---- calls: client_call.c ---- */

/* One step: `x` is fed where x_name is not NULL. True: done well, with the fetched scalars in
 * *ret_values. False: client->status says why, and it has been checked that the reason is
 * allowed now. */
struct client_step {
    const char *label;
    bool has_feed;
    int64_t feed;
    const char *fetches[CLIENT_MAX_VALUES], *targets[CLIENT_MAX_VALUES];
    int n_fetches, n_targets;
    int64_t timeout_ms; /* of the step; 0: none */
    uint32_t tasks;     /* that it uses, by node: a bit each */
    double values[CLIENT_MAX_VALUES];
};
bool client_run(struct sim_client *client, struct client_step *step);
/* The same as a partial run: each call brings one feed and asks for one fetch. Only the first
 * n_calls of the two are made: with one, the run is left open, and ends with its session.
 * client_partial.c */
bool client_run_partial(struct sim_client *client, struct client_step *step,
                        const char *const *feeds, const int64_t *values, int n_calls);
/* For who makes a call by himself: before it; and after it, with its outcome in client->status,
 * of which the same is asked. */
void client_begin_call(struct sim_client *client, const char *label);
bool client_end_step(struct sim_client *client, const struct client_step *step);
/* Makes the session, or a new one, and its graph. */
bool client_ensure_session(struct sim_client *client);
bool client_extend(struct sim_client *client);
void client_close_session(struct sim_client *client);
/* Has a node's process ended or begun since the call began? */
bool client_saw_change(const struct sim_client *client, const struct cluster_node *node);

/* ---- client_graph.c ---- */
/* A serialized GraphDef: the nodes that every client has; or one more node. */
void client_graph(const struct sim_client *client, struct str *out);
void client_graph_extension(const struct sim_client *client, struct str *out);

#endif
