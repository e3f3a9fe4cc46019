/* Counts saves, and logs those that fail. */
#include "kernels/host/files/checkpoint_saves.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"

static struct metric saves_total =
    METRIC_COUNTER_INIT("millrace_saves_total", "SaveV2 and MergeV2Checkpoints that ended");
static struct metric saves_failed_total = METRIC_COUNTER_INIT(
    "millrace_saves_failed_total", "SaveV2 and MergeV2Checkpoints that ended with an error");

static struct metric last_save = METRIC_GAUGE_INIT(
    "millrace_last_save_timestamp_seconds",
    "When a save last ended well, in seconds of Unix time; 0: none has since the start");

void checkpoint_count_save(const char *what, const char *prefix, const struct status *st) {
    metric_add(&saves_total, 1);
    if (!st) {
        metric_set(&last_save, clock_wall_us() / 1000000);
        return;
    }
    metric_add(&saves_failed_total, 1);
    log_event(EVENT_SAVE_FAILED, "%s to %s failed; the checkpoint before it is intact: %s", what,
              prefix, status_message(st));
}

void checkpoint_register_metrics(void) {
    metrics_register(&saves_total);
    metrics_register(&saves_failed_total);
    metrics_register(&last_save);
}
