/* Chooses between a task's CPU and its GPU for groups that nobody asked a type for (place.h).
 *
 * As TensorFlow does: a group whose members all have kernels for GPUs gets the first GPU of the
 * task that was chosen for it. A cluster without GPUs pays nothing for this. */
#include "kernels/kernel.h"
#include "master/compile/compilation.h"
#include "master/compile/place/place.h"

static bool is_gpu(const struct device_info *device) { return strcmp(device->type, "GPU") == 0; }

static bool has_gpu(const struct device_table *devices) {
    for (int i = 0; i < devices->n_devices; i++)
        if (is_gpu(&devices->devices[i]))
            return true;
    return false;
}

void placer_find_types(struct placer *placer) {
    placer->may_use_gpus = kernel_at("GPU", 0) && has_gpu(placer->devices);
    if (!placer->may_use_gpus)
        return;
    for (int id = 0; id < placer->graph->n_nodes; id++) {
        const struct node *node = placer->graph->nodes[id];
        if (!node->is_removed && (node_is_internal(node) || !kernel_find(node, "GPU")))
            placer_group(placer, node)->needs_cpu = true;
    }
}

int placer_best_device(const struct placer *placer, const struct place_group *group, int device) {
    const struct device_table *devices = placer->devices;
    if (!placer->may_use_gpus || group->needs_cpu || group->pinned >= 0 ||
        (group->request && group->request->name.type[0]))
        return device;
    const struct task_info *task = &devices->tasks[devices->devices[device].task];
    for (int i = task->first_device; i < task->first_device + task->n_devices; i++)
        if (is_gpu(&devices->devices[i]))
            return i;
    return device;
}
