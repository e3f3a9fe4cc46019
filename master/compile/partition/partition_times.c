/* When the nodes of a step run, and what they may wait for, before the graph is cut: by a
 * simulation of the step on its devices (schedule.h). For the scheduling of receives, and of nodes
 * with large values.
 *
 * The nodes have an order, by start and then topological, in which every edge leads forwards but
 * those from a loop's NextIteration. */
#include <stdlib.h>

#include "kernels/kernel.h"
#include "master/compile/partition/partition_model.h"

enum { MAX_WAITERS = 63 };
_Static_assert(NODE_TIME_LOST == UINT64_C(1) << MAX_WAITERS, "a bit for each, and one more");

/* ---- when nodes run ---- */

/* Starts and ends of all nodes. A start is at least that of each input, whatever the simulation and
 * its rounding say, because the order of the nodes depends on it. */
static void simulate(struct partitioner *p, struct node *const *order) {
    const struct schedule_problem *problem = &p->model->problem;
    struct schedule *schedule = p->model->schedule;
    schedule_run(schedule, p->model->device_of_unit);
    for (int i = 0; i < problem->n_units; i++) {
        const struct node *node = order[i];
        struct node_time *time = &p->times[node->id];
        time->order = i;
        time->end_ns = schedule_ends_ns(schedule)[i];
        time->start_ns = time->end_ns - problem->cost_ns[i];
        for (int k = 0; k < node->n_inputs; k++)
            if (!node_is_way_back(node->inputs[k].src))
                time->start_ns = MAX(time->start_ns, p->times[node->inputs[k].src->id].start_ns);
    }
}

/* ---- waiting for what the graph does not show ---- */

/* Kernels do not block, so only an asynchronous one can wait for more than its inputs. */
static bool is_waiter(const struct partitioner *p, const struct node *node) {
    const struct kernel_def *def = kernel_find(node, p->devices->devices[node->placed].type);
    return !node_is_internal(node) &&
           (!def || (def->flags & KERNEL_ASYNC) || node_uses_functions(node));
}

/* A Merge waits for one of its data inputs only. */
static uint64_t must_of_inputs(const struct node *node, const struct node_time *times) {
    bool is_merge = node_is_either(node, "Merge", "RefMerge");
    uint64_t all = 0, common = is_merge && node->n_data > 0 ? ~UINT64_C(0) : 0;
    for (int i = 0; i < node->n_inputs; i++) {
        const struct node *src = node->inputs[i].src;
        if (is_merge && i < node->n_data)
            common &= node_is_way_back(src) ? 0 : times[src->id].must;
        else if (!node_is_way_back(src))
            all |= times[src->id].must;
    }
    return all | common;
}

static void find_waits(const struct partitioner *p, struct node *const *order,
                       struct node_time *times) {
    int n_waiters = 0;
    for (int i = 0; i < p->c->graph.n_live; i++) {
        const struct node *node = order[i];
        struct node_time *time = &times[node->id];
        for (int k = 0; k < node->n_inputs; k++)
            if (!node_is_way_back(node->inputs[k].src))
                time->may |= times[node->inputs[k].src->id].may;
        time->must = must_of_inputs(node, times);
        if (node_is_either(node, "Exit", "RefExit"))
            time->may |= NODE_TIME_LOST;
        if (!is_waiter(p, node))
            continue;
        uint64_t bit = n_waiters < MAX_WAITERS ? UINT64_C(1) << n_waiters++ : NODE_TIME_LOST;
        time->may |= bit;
        time->must |= bit & ~NODE_TIME_LOST;
    }
}

struct status *partitioner_time_nodes(struct partitioner *p) {
    struct node **order;
    TRY(graph_topological_order(&p->c->graph, &order));
    p->times = arena_array(&p->c->arena, struct node_time, p->c->graph.n_nodes + 1);
    p->model = step_model_new(p, order);
    simulate(p, order);
    find_waits(p, order, p->times);
    free(order);
    return NULL;
}
