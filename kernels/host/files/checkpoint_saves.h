/* Counts saves for /metrics, and logs those that fail: the client may be the only one that hears of
 * a failed step, and it may be gone. */
#ifndef MILLRACE_KERNELS_HOST_FILES_CHECKPOINT_SAVES_H
#define MILLRACE_KERNELS_HOST_FILES_CHECKPOINT_SAVES_H

#include "common/base/status.h"

/* Counts one SaveV2 or MergeV2Checkpoints (`what`) to `prefix`. `st` is borrowed; NULL: it has
 * succeeded. Any thread. */
void checkpoint_count_save(const char *what, const char *prefix, const struct status *st);
/* Adds the metrics to the registry. A second call has no effect. */
void checkpoint_register_metrics(void);

#endif
