/* Reads what a client's ConfigProto asks of its session. docs/compatibility.md says of every field
 * whether it is honoured. Any thread. */
#ifndef MILLRACE_MASTER_REQUEST_SESSION_CONFIG_H
#define MILLRACE_MASTER_REQUEST_SESSION_CONFIG_H

#include "common/base/str.h"
#include "common/graph/device_name.h"

enum { SESSION_MAX_CPU_DEVICES = 64 }; /* per task; the same limit as a worker's */

struct session_config {
    bool allow_soft_placement, log_device_placement;
    bool no_optimizations; /* OptimizerOptions.L0 */
    bool bfloat16_sends;   /* GraphOptions.enable_bfloat16_sendrecv */
    bool is_isolated;      /* isolate_session_state: containers of its own */
    int64_t operation_timeout_ms;
    int cpu_devices; /* device_count["CPU"]; 0: as many as each task has */
    /* device_filters: the session does not use tasks that match none of them; malloc'd */
    struct device_name *filters;
    int n_filters;
    /* Nodes without a device are placed on this task's CPU:0: the task that the client dialled.
     * NULL: the cluster's default task. malloc'd */
    char *default_task;
};

/* Errors: INVALID_ARGUMENT for malformed bytes, for a device filter that is not a device name, and
 * for too many devices. `ret` is set also after an error; free it with session_config_fini. */
struct status *session_config_parse(struct span config_proto, struct session_config *ret) MUST_USE;
void session_config_fini(struct session_config *config);
/* May the session use the task ("/job:ps/replica:0/task:1")? With a NULL config it may use every
 * task. */
bool session_config_has_task(const struct session_config *config, const char *task);

#endif
