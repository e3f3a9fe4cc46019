/* A training step for a task with one GPU: compiled as a master does, with the copies that a worker
 * adds when it makes a plan. One thread. */
#ifndef MILLRACE_TESTS_TOOLS_STEP_PLAN_H
#define MILLRACE_TESTS_TOOLS_STEP_PLAN_H

#include "master/compile/compile.h"
#include "worker/plan/plan.h"

struct step_plan {
    struct graph *graph; /* the partition, with its copies */
    /* private */
    struct graph client;
    struct compiled *compiled;
    struct device_table *table;
};

extern const struct plan_options step_plan_options; /* the devices: one CPU, one GPU */
static inline bool step_plan_is_on_gpu(const struct node *node) {
    return strcmp(node->device, step_plan_options.devices[1].full_name) == 0;
}

/* The step of a client's graph that fetches "loss:0" and runs the node "step". The rows of GPUs
 * (gpu_add_device_type) must be there. Call step_plan_fini after a failure, too. */
struct status *step_plan_init(struct step_plan *plan, struct span graphdef) MUST_USE;
void step_plan_fini(struct step_plan *plan);

/* Is an output of a node in the GPU's memory? A copy's output is where it leads. */
bool step_plan_output_is_on_gpu(const struct node *node, int output);

#endif
