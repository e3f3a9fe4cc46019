/* Reads the flags of a task's devices and files. */
#include "worker/task_flags.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/io/file_root.h"
#include "kernels/cpu/emit/emit.h"

enum { MAX_FILE_ROOTS = 64 };

const char *const task_gpu_modes[] = {
    [GPU_OFF] = "off", [GPU_AUTO] = "auto", [GPU_REQUIRE] = "require", NULL};

const char *const task_graphs[] = {[TASK_GRAPHS_OFF] = "off", [TASK_GRAPHS_AUTO] = "auto", NULL};
const char *const task_trace[] = {[TASK_TRACE_EVENTS] = "events", [TASK_TRACE_AUTO] = "auto", NULL};

/* DIR:DIR… */
static struct status *set_file_roots(const char *list) {
    const char *dirs[MAX_FILE_ROOTS];
    char *text = xstrdup(list), *rest = text, *dir;
    int n = 0;
    while ((dir = strsep(&rest, ":")) && n < MAX_FILE_ROOTS)
        dirs[n++] = dir;
    struct status *st =
        dir ? status_invalid("more than %d directories", MAX_FILE_ROOTS) : file_roots_set(dirs, n);
    free(text);
    return status_prefix_take(st, "file-root: ");
}

struct status *task_flags_check(const struct task_flags *flags) {
    if (flags->gpu_plugin && !*flags->gpu_plugin)
        return status_invalid("gpu-plugin: the path is empty; without the flag the plugin of this "
                              "build is used, and with --gpu=off none");
    if (flags->file_root_all)
        file_roots_set_whole();
    else if (flags->file_root)
        return set_file_roots(flags->file_root);
    return NULL;
}

void task_flags_apply(const struct task_flags *flags) {
    struct str roots = STR_INIT;
    kernel_set_in_place(flags->in_place);
    emit_set_on(flags->fused_code);
    file_roots_describe(&roots);
    log_event(EVENT_FILE_ROOTS, "file ops may use %s",
              roots.len > 0 ? str_text(&roots) : "no directory");
    str_fini(&roots);
}

void task_flags_fill(const struct task_flags *flags, struct worker_task_options *options) {
    options->n_cpu_devices = (int)flags->cpu_devices;
    options->memory_limit_bytes = flags->memory_limit_bytes;
    options->gpu_mode = (enum gpu_mode)flags->gpu_mode;
    options->gpu =
        (struct gpu_plugin_options){.plugin = flags->gpu_plugin,
                                    .libraries = flags->cuda_libs,
                                    .memory_limit_bytes = flags->gpu_memory_bytes,
                                    .n_copy_threads = (int)flags->gpu_copy_threads,
                                    .allow_tf32 = flags->gpu_tf32,
                                    .has_graphs = flags->gpu_graphs == TASK_GRAPHS_AUTO,
                                    .has_activities = flags->gpu_trace == TASK_TRACE_AUTO};
}
