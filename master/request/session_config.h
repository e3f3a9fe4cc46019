/* What a client's ConfigProto asks of its session; docs/compatibility.md says of every field
 * what becomes of it. */
#ifndef MILLRACE_MASTER_REQUEST_SESSION_CONFIG_H
#define MILLRACE_MASTER_REQUEST_SESSION_CONFIG_H

#include "common/base/str.h"
#include "common/graph/device_name.h"

enum { SESSION_MAX_CPU_DEVICES = 64 }; /* of a task: as many as a worker gives */

struct session_config {
    bool allow_soft_placement, log_device_placement;
    bool no_optimizations; /* OptimizerOptions.L0 */
    bool bfloat16_sends;   /* GraphOptions.enable_bfloat16_sendrecv */
    bool is_isolated;      /* isolate_session_state: containers of its own */
    int64_t operation_timeout_ms;
    int cpu_devices; /* device_count["CPU"]; 0: as many as each task has */
    /* device_filters: tasks that match none are not the session's; malloc'd */
    struct device_name *filters;
    int n_filters;
    /* whose CPU:0 takes nodes that say nothing: the task that the client dialled; NULL: the
     * cluster's. malloc'd */
    char *default_task;
};

/* Errors: INVALID_ARGUMENT for malformed bytes, a device filter that is no device name, too many
 * devices. `ret` is set either way; end it by session_config_fini. */
struct status *session_config_parse(struct span config_proto, struct session_config *ret) MUST_USE;
void session_config_fini(struct session_config *config);
/* Is the task ("/job:ps/replica:0/task:1") one that the session may use? NULL config: every one
 * is. */
bool session_config_has_task(const struct session_config *config, const char *task);

#endif
