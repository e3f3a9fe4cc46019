/* The evaluator's GPU; see test_device.h. */
#include "tests/tools/test_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/rows/gpu_plugin.h"
#include "tests/tools/test_host.h"

static struct device devices[GPU_MAX_DEVICES];

static struct device *device_open(const char *plugin_path) {
    struct gpu_plugin_options options = {.plugin = plugin_path,
                                         .has_graphs = getenv("GRAPH_EVAL_GRAPHS") != NULL};
    const struct gpu_plugin *plugin;
    int n = 0;
    for (int i = 0; i < GPU_MAX_DEVICES; i++)
        devices[i].full_name = xstrdup(TEST_DEVICE);
    struct status *st = gpu_plugin_open(&options, devices, &n, &plugin);
    if (st || n == 0) {
        fprintf(stderr, "GRAPH_EVAL_GPU: %s\n", st ? status_message(st) : "there is no device");
        exit(1);
    }
    return &devices[0];
}

struct device *test_device(void) {
    static struct device *device;
    const char *plugin = getenv("GRAPH_EVAL_GPU");
    if (!device && plugin && *plugin)
        device = device_open(plugin);
    return device;
}

/* ---- placement ---- */

static bool shares_state(const struct node *node, int input) {
    enum dtype dtype = (enum dtype)node->in_types[input];
    return dtype_is_ref(dtype) || dtype_base(dtype) == DT_RESOURCE;
}

void test_device_place(const struct graph *graph, bool *ret_is_on_device) {
    bool has_changed = true;
    for (int id = 0; id < graph->n_nodes; id++)
        ret_is_on_device[id] = graph->nodes[id] && kernel_find(graph->nodes[id], "GPU");
    while (has_changed) {
        has_changed = false;
        for (int id = 0; id < graph->n_nodes; id++) {
            const struct node *node = graph->nodes[id];
            for (int i = 0; node && i < node->n_data; i++) {
                int source = node->inputs[i].src->id;
                if (!shares_state(node, i) || ret_is_on_device[id] == ret_is_on_device[source])
                    continue;
                ret_is_on_device[id] = ret_is_on_device[source] = false;
                has_changed = true;
            }
        }
    }
}

/* ---- copies ---- */

/* What a thread of the device tells that something has ended. */
struct ending {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_ended;
    union {
        struct device_copy copy;
        struct device_wait wait;
    };
};

static void ending_init(struct ending *ending) {
    memset(ending, 0, sizeof *ending);
    pthread_mutex_init(&ending->lock, NULL);
    pthread_cond_init(&ending->changed, NULL);
}

static void end(struct ending *ending) {
    pthread_mutex_lock(&ending->lock);
    ending->has_ended = true;
    pthread_cond_broadcast(&ending->changed);
    pthread_mutex_unlock(&ending->lock);
}

static void copy_done(struct device_copy *copy) { end(CONTAINER_OF(copy, struct ending, copy)); }
static void wait_done(struct device_wait *wait) { end(CONTAINER_OF(wait, struct ending, wait)); }

static void ending_wait(struct ending *ending, bool has_ended) {
    pthread_mutex_lock(&ending->lock);
    while (!has_ended && !ending->has_ended)
        pthread_cond_wait(&ending->changed, &ending->lock);
    pthread_mutex_unlock(&ending->lock);
    pthread_mutex_destroy(&ending->lock);
    pthread_cond_destroy(&ending->changed);
}

static struct status *copy_to(struct device *device, bool is_upload, const struct tensor *from,
                              struct tensor *ret) {
    struct ending ending;
    ending_init(&ending);
    ending.copy.src = is_upload ? NULL : device;
    ending.copy.dst = is_upload ? device : NULL;
    ending.copy.allocator = is_upload ? device->allocator : allocator_host();
    ending.copy.ret = ret;
    ending.copy.on_done = copy_done;
    tensor_copy(&ending.copy.from, from);
    ending_wait(&ending, device->ops->copy_start(device, &ending.copy));
    return ending.copy.status;
}

struct status *test_device_upload(struct device *device, const struct tensor *from,
                                  struct tensor *ret) {
    return copy_to(device, true, from, ret);
}

struct status *test_device_download(struct device *device, const struct tensor *from,
                                    struct tensor *ret) {
    return copy_to(device, false, from, ret);
}

struct status *test_device_wait(struct device *device) {
    struct ending ending;
    ending_init(&ending);
    ending.wait.on_done = wait_done;
    ending_wait(&ending, device->ops->wait_start(device, &ending.wait));
    return ending.wait.status;
}
