/* The flags of a task's devices and files, which tf-worker has, and tf-master for the task that
 * --with-worker puts into its process. Rows: worker/task_flag_rows.inc. */
#ifndef MILLRACE_WORKER_TASK_FLAGS_H
#define MILLRACE_WORKER_TASK_FLAGS_H

#include "worker/worker_task.h"

struct task_flags {
    int64_t cpu_devices, memory_limit_bytes, gpu_memory_bytes, gpu_hang_ms, max_feed_bytes;
    int64_t gpu_copy_threads;
    int gpu_mode;   /* enum gpu_mode */
    int gpu_graphs; /* enum task_graphs */
    int gpu_trace;  /* enum task_trace */
    const char *gpu_plugin, *cuda_libs, *file_root;
    bool gpu_tf32, file_root_all, in_place, fused_code;
};

enum task_graphs { TASK_GRAPHS_OFF, TASK_GRAPHS_AUTO };
enum task_trace { TASK_TRACE_EVENTS, TASK_TRACE_AUTO };

extern const char *const task_gpu_modes[]; /* in the order of enum gpu_mode */
extern const char *const task_graphs[];    /* in the order of enum task_graphs */
extern const char *const task_trace[];     /* in the order of enum task_trace */

/* Checks the flags, and sets the roots of files (common/io/file_root.h). Errors:
 * INVALID_ARGUMENT, which names the flag. */
struct status *task_flags_check(const struct task_flags *flags) MUST_USE;
/* Sets what the whole process has from these flags, and logs which files it may use. */
void task_flags_apply(const struct task_flags *flags);
/* Fills n_cpu_devices, memory_limit_bytes, gpu_mode and gpu; the flags are borrowed. */
void task_flags_fill(const struct task_flags *flags, struct worker_task_options *options);

#endif
