/* Reads what a client's ConfigProto asks of its session. docs/compatibility.md says of every field
 * whether it is honoured. Any thread. */
#ifndef MILLRACE_MASTER_REQUEST_SESSION_CONFIG_H
#define MILLRACE_MASTER_REQUEST_SESSION_CONFIG_H

#include "common/base/str.h"
#include "common/graph/device_name.h"
#include "master/request/placement.h"
#include "rpc/membership/cluster.h"

enum {
    SESSION_MAX_CPU_DEVICES = 64,    /* per task; the same limit as a worker's */
    SESSION_MAX_CLUSTER_TASKS = 512, /* of a cluster_def */
};

struct session_config {
    bool allow_soft_placement, log_device_placement;
    bool no_optimizations; /* OptimizerOptions.L0 */
    bool bfloat16_sends;   /* GraphOptions.enable_bfloat16_sendrecv */
    bool recv_scheduling;  /* GraphOptions.enable_recv_scheduling */
    bool is_isolated;      /* isolate_session_state: containers of its own */
    int64_t build_cost_model, build_cost_model_after; /* of GraphOptions */
    int64_t operation_timeout_ms;
    bool has_placement; /* the client chose one: custom_optimizers, see session_config_parse */
    enum placement placement;
    int cpu_devices; /* device_count["CPU"]; 0: as many as each task has */
    /* device_filters: the session does not use tasks that match none of them; malloc'd */
    struct device_name *filters;
    int n_filters;
    /* Nodes without a device are placed on this task's CPU:0: the task that the client dialled.
     * NULL: the cluster's default task. malloc'd */
    char *default_task;
    /* cluster_def: the session's own cluster. Its tasks are as the client listed them, with valid
     * names and addresses. NULL: the session uses the master's cluster. malloc'd */
    struct cluster_spec *cluster;
};

/* An entry named "millrace" of GraphOptions.rewrite_options.custom_optimizers has the session's
 * wishes for the master in its parameter_map: "placement" (a string).
 * Errors: INVALID_ARGUMENT for malformed bytes, for an unknown wish, for a device filter that is no
 * device name, for too many devices, and for a cluster_def with more than
 * SESSION_MAX_CLUSTER_TASKS tasks or with a name or an address that is invalid or listed twice.
 * `ret` is set also after an error; free it with session_config_fini. */
struct status *session_config_parse(struct span config_proto, struct session_config *ret) MUST_USE;
void session_config_fini(struct session_config *config);
/* May the session use the task ("/job:ps/replica:0/task:1")? With a NULL config it may use every
 * task. */
bool session_config_has_task(const struct session_config *config, const char *task);

#endif
