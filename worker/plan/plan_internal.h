/* Shared by the files that build plans, and visible to them only. */
#ifndef MILLRACE_WORKER_PLAN_PLAN_INTERNAL_H
#define MILLRACE_WORKER_PLAN_PLAN_INTERNAL_H

#include "worker/plan/plan.h"

enum { PLAN_MAX_PLAIN_STATES = 64 /* a larger one is not shared */ };

/* The data that the steps of building share. */
struct plan_builder {
    struct plan *plan;
    const struct plan_options *options;
    struct node **order;
    struct plan_frame_map frames;
    uint32_t *index_of; /* by node id: position in plan->nodes */
    bool *is_reference; /* by node id: its values may be references that are read late */
    /* by node id: its outputs are allocated in memory that peers can map; NULL: no node's are */
    bool *is_shared;
    bool has_device_memory; /* some device of the task has a memory of its own */
    struct graph_consumers consumers;
    /* one of each state that instances may share */
    const struct kernel_instance *plain[PLAN_MAX_PLAIN_STATES];
    int n_plain;
};

/* Fills in plan->nodes[index], with the node's kernel, constant, channel or copy. Errors name the
 * node. */
struct status *plan_build_node(struct plan_builder *b, const struct node *node,
                               uint32_t index) MUST_USE;
/* The index of the device of that full name in options->devices; -1: there is none. The name may be
 * that of a session's cluster (plan_options.task). */
int plan_device_index(const struct plan_options *options, const char *device);
/* The task's first device whose memory is the host's; NULL: none. */
struct device *plan_first_cpu(const struct plan_options *options);

/* ---- plan_saves.c ---- */
/* Fills in plan->saves, once the nodes and edges are there. Cost: for each SaveV2, a look at all
 * copies. */
void plan_find_saves(struct plan *plan);

/* ---- plan_copies.c ---- */
/* Where an input's kernel wants it, as plan_output_memory. */
int plan_input_memory(const struct plan_options *options, const struct node *node, int input);
/* Does the node take the input from any memory, because it touches no element? */
bool plan_takes_any_memory(const struct plan_options *options, const struct node *node, int input);

/* ---- plan_carriers.c ---- */
/* Moves nodes that only hand a predicate or a list on to the task's CPU, where that saves copies.
 * Cost: linear. */
void plan_place_carriers(struct graph *graph, const struct plan_options *options);

#endif
