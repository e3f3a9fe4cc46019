/* Makes the devices and pools of a task. */
#include "worker/worker_task.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "kernels/host/files/checkpoint_peer.h"
#include "kernels/support/swap.h"

enum { IO_THREADS = 4 };

static int64_t host_memory_bytes(void) {
    return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

/* When the system refuses the arena, tensors are sent as bytes. */
static void make_arena(struct worker_task *task) {
    struct status *st = shm_arena_new(0, &task->arena);
    if (st)
        log_event(EVENT_NO_SHM, "no %s: large tensors are sent over sockets", status_message(st));
    else
        allocator_host_set_arena(task->arena);
    status_unref(st);
}

static void name_device(const struct worker_task *task, struct device *device, const char *type,
                        int index) {
    struct str name = STR_INIT;
    str_addf(&name, "%s/device:%s:%d", task->name, type, index);
    device->full_name = str_detach(&name);
    device->type = type;
    struct status *st = device_name_parse(span_of(device->full_name), &device->name);
    CHECK(!st);
    device->incarnation = random_u64();
}

static void make_cpu_devices(struct worker_task *task, const struct worker_task_options *options) {
    task->n_devices = task->n_cpu_devices = options->n_cpu_devices;
    for (int i = 0; i < task->n_devices; i++) {
        struct device *device = &task->devices[i];
        name_device(task, device, "CPU", i);
        device->allocator = allocator_host_new(device->full_name, options->memory_limit_bytes);
        device->shared_allocator = task->arena ? allocator_host_shared(device->allocator) : NULL;
        device->memory_limit_bytes =
            options->memory_limit_bytes > 0 ? options->memory_limit_bytes : host_memory_bytes();
    }
}

/* The GPUs that have been opened. Adds why the others have not. */
static int count_working(struct device *gpus, int n, struct str *why) {
    int n_working = 0;
    for (int i = 0; i < n; i++) {
        const struct status *failure = device_failure(&gpus[i]);
        n_working += failure == NULL;
        if (failure)
            str_addf(why, "%s%s", why->len ? "; " : "", status_message(failure));
    }
    return n_working;
}

static void log_gpus(struct device *gpus, int n) {
    for (int i = 0; i < n; i++) {
        struct str text = STR_INIT;
        if (device_failure(&gpus[i]))
            continue; /* its failure has been logged */
        gpus[i].ops->describe(&gpus[i], &text);
        log_event(EVENT_GPU, "%s: %s", gpus[i].full_name, str_text(&text));
        str_fini(&text);
    }
}

static void describe_gpus(struct worker_task *task, const struct status *st) {
    struct str about = STR_INIT;
    if (task->gpu_plugin)
        task->gpu_plugin->describe(&about);
    else
        str_addf(&about, "none: %s", status_message(st));
    task->gpu_text = str_detach(&about);
}

/* Errors: none of the required GPUs works. */
static struct status *open_gpus(struct worker_task *task,
                                const struct worker_task_options *options) {
    struct device *gpus = &task->devices[task->n_cpu_devices];
    int n = 0;
    if (options->gpu_mode == GPU_OFF) {
        task->gpu_text = xstrdup("switched off");
        return NULL;
    }
    for (int i = 0; i < GPU_MAX_DEVICES; i++)
        name_device(task, &gpus[i], "GPU", i);
    struct status *st = gpu_plugin_open(&options->gpu, gpus, &n, &task->gpu_plugin);
    for (int i = n; i < GPU_MAX_DEVICES; i++)
        free(gpus[i].full_name);
    task->n_devices += n;
    for (int i = 0; i < n; i++)
        if (!device_failure(&gpus[i]))
            swap_add_device(&gpus[i]);
    struct str why = STR_INIT;
    if (count_working(gpus, n, &why) == 0 && !st && options->gpu_mode == GPU_REQUIRE)
        st = status_unavailable("no GPU works: %s", str_text(&why));
    str_fini(&why);
    if (st && options->gpu_mode == GPU_REQUIRE)
        return status_prefix_take(st, "gpu: required, but ");
    describe_gpus(task, st);
    log_gpus(gpus, n);
    status_unref(st);
    return NULL;
}

struct status *worker_task_init(struct worker_task *task,
                                const struct worker_task_options *options) {
    struct str name = STR_INIT;
    *task = (struct worker_task){.n_devices = 0};
    str_addf(&name, "/job:%s/replica:0/task:%d", options->job, options->index);
    task->name = str_detach(&name);
    task->is_pool_borrowed = options->pool != NULL;
    task->pool = options->pool ? options->pool : pool_new(options->n_threads);
    task->io_pool = pool_new_io(IO_THREADS);
    if (options->has_arena)
        make_arena(task);
    make_cpu_devices(task, options);
    return open_gpus(task, options);
}

void worker_task_fill(struct worker_task *task, struct worker_options *options) {
    options->task = task->name;
    options->devices = task->devices;
    options->n_devices = task->n_devices;
    options->pool = task->pool;
    options->io_pool = task->io_pool;
    options->gpu_text = task->gpu_text;
    options->gpu_describe = task->gpu_plugin ? task->gpu_plugin->describe : NULL;
    options->serve_peer_call = checkpoint_serve;
}

void worker_task_stop(struct worker_task *task) {
    pool_free(task->io_pool); /* what ends there may continue on the pool */
    if (!task->is_pool_borrowed)
        pool_free(task->pool);
    task->io_pool = task->pool = NULL;
}

void worker_task_fini(struct worker_task *task) {
    if (task->io_pool)
        worker_task_stop(task);
    for (int i = task->n_cpu_devices; i < task->n_devices; i++)
        swap_remove_device(&task->devices[i]);
    if (task->gpu_plugin)
        task->gpu_plugin->close(&task->devices[task->n_cpu_devices],
                                task->n_devices - task->n_cpu_devices);
    for (int i = 0; i < task->n_cpu_devices; i++)
        allocator_host_free(task->devices[i].allocator);
    for (int i = 0; i < task->n_devices; i++)
        free(task->devices[i].full_name);
    free(task->gpu_text);
    free(task->name);
}
