/* Placing what has no state, per signature [WP 3.2.1]. The simple rule:
 *
 *   1. groups that somebody constrained go where the constraint leads (place.c);
 *   2. free nodes of a loop go to the task of the loop's constrained nodes, if those agree: a loop
 *      must stay on one task;
 *   3. other free nodes go to the session's default device;
 *   4. what only looks at a tensor's shape follows its producer: the tensor need not travel; what
 *      only waits (a group's NoOp) goes to the task where most of what it waits for is, so that a
 *      step on the parameter servers needs no worker to end;
 *   5. what has no inputs (constants, feeds) follows its consumers, if they are on one task:
 *      nothing travels at all. With consumers on several tasks it stays with one of them, and the
 *      partition makes copies or sends;
 *   6. fetches follow what they fetch.
 *
 * With placement by cost the cost model (place_cost.c) chooses for groups that are still open after
 * 2. */
#include <stdlib.h>

#include "common/graph/internal_ops.h"
#include "master/compile/compilation.h"
#include "master/compile/cost/cost_rows.h"
#include "master/compile/place/place.h"
#include "master/compile/place/placement.h"

enum { NO_TASK = -1, SEVERAL_TASKS = -2 };

static bool is_fetch(const struct node *node) { return node_is_op(node, OP_FETCH); }
static bool is_feed(const struct node *node) { return node_is_op(node, OP_FEED); }

/* Uses only the shape of its input. */
static bool is_metadata(const struct node *node) {
    return node->n_data > 0 && (node_is_op(node, "Shape") || node_is_op(node, "ShapeN") ||
                                node_is_op(node, "Rank") || node_is_op(node, "Size"));
}

/* Waits for other nodes, and does nothing else. */
static bool is_join(const struct node *node) {
    return node->n_inputs > 0 && node_is_op(node, "NoOp");
}

static bool is_generator(const struct node *node) {
    return is_feed(node) || (node->n_data == 0 && node->n_outputs == 1 && !node_is_stateful(node));
}

static bool follows_others(const struct node *node) {
    return is_fetch(node) || is_metadata(node) || is_join(node) || is_generator(node);
}

struct step_placer {
    struct compilation *c;
    struct placer placer;
    struct node **order;
    struct graph_consumers consumers;
    struct loop_frames frames;
    int *frame_task; /* by outermost frame */
    uint8_t *why;    /* enum place_why, by node id */
};

static int task_of(const struct step_placer *p, const struct node *node) {
    return p->c->devices->devices[node->placed].task;
}

/* Returns the outermost loop that a node is in or enters; 0: none. */
static int loop_of(const struct step_placer *p, const struct node *node) {
    int frame = p->frames.in[node->id] ? p->frames.in[node->id] : p->frames.out[node->id];
    return p->frames.outermost[frame];
}

static void find_loop_tasks(struct step_placer *p) {
    p->frame_task = arena_array(&p->c->arena, int, p->frames.n_frames);
    for (int i = 0; i < p->frames.n_frames; i++)
        p->frame_task[i] = NO_TASK;
    for (int i = 0; i < p->c->graph.n_live; i++) {
        const struct node *node = p->order[i];
        int loop = loop_of(p, node), device = placer_group(&p->placer, node)->device;
        if (loop == 0 || device < 0)
            continue;
        int task = p->c->devices->devices[device].task;
        if (p->frame_task[loop] == NO_TASK)
            p->frame_task[loop] = task;
        else if (p->frame_task[loop] != task)
            p->frame_task[loop] = SEVERAL_TASKS;
    }
}

/* A free group is on one device. If a member is in a loop with a task, that is the task. */
static void place_loops(struct step_placer *p) {
    for (int i = 0; i < p->c->graph.n_live; i++) {
        struct place_group *group = placer_group(&p->placer, p->order[i]);
        int loop = loop_of(p, p->order[i]);
        if (loop == 0 || p->frame_task[loop] < 0)
            continue;
        if (group->device < 0)
            group->device = p->c->devices->tasks[p->frame_task[loop]].first_device;
        p->why[p->order[i]->id] = WHY_LOOP;
    }
}

static void place_groups(struct step_placer *p) {
    for (int i = 0; i < p->c->graph.n_live; i++) {
        struct node *node = p->order[i];
        struct place_group *group = placer_group(&p->placer, node);
        if (group->device < 0 && group->n_members == 1 && follows_others(node))
            continue;
        int device = group->device >= 0 ? group->device : p->c->devices->default_device;
        node->placed = group->is_chosen ? device : placer_best_device(&p->placer, group, device);
    }
}

/* Returns CPU:0 of the task that has most of a node's placed sources. Among equals it is the
 * default task, or the first one. -1: no source is placed. */
static int majority_device(const struct step_placer *p, const struct node *node, int *n_on_task) {
    const struct device_table *devices = p->c->devices;
    int best = -1, default_task = devices->devices[devices->default_device].task;
    for (int i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i].src->placed < 0)
            continue;
        int task = task_of(p, node->inputs[i].src);
        n_on_task[task]++;
        if (best < 0 || n_on_task[task] > n_on_task[best] ||
            (n_on_task[task] == n_on_task[best] && task == default_task))
            best = task;
    }
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i].src->placed >= 0)
            n_on_task[task_of(p, node->inputs[i].src)] = 0;
    return best < 0 ? -1 : devices->tasks[best].first_device;
}

/* Returns where the first placed source of a node is. A generator has no device yet: it will follow
 * the node. -1: no source is placed. */
static int source_device(const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        if (node->inputs[i].src->placed >= 0)
            return node->inputs[i].src->placed;
    return -1;
}

static void place_followers(struct step_placer *p) {
    int *n_on_task = arena_array(&p->c->arena, int, p->c->devices->n_tasks);
    for (int i = 0; i < p->c->graph.n_live; i++) {
        struct node *node = p->order[i];
        if (node->placed >= 0 || !(is_metadata(node) || is_join(node)))
            continue;
        int device = is_join(node) ? majority_device(p, node, n_on_task) : source_device(node);
        p->why[node->id] = is_join(node) ? WHY_WAITS : WHY_SHAPE;
        if (device < 0)
            device = p->c->devices->default_device;
        node->placed =
            placer_group(&p->placer, node)->needs_cpu ? device_host(p->c->devices, device) : device;
    }
}

/* Returns the best device for a node without inputs: that of its consumers, without fetches, which
 * follow the node. If the consumers are on several tasks, it is the default one. */
static int generator_device(const struct step_placer *p, const struct node *node) {
    const struct device_table *devices = p->c->devices;
    int default_task = devices->devices[devices->default_device].task;
    const struct node *best = NULL;
    for (int i = p->consumers.first[node->id]; i < p->consumers.first[node->id + 1]; i++) {
        const struct node *consumer = p->consumers.edges[i].dst;
        if (consumer->placed >= 0 &&
            (!best || (task_of(p, consumer) == default_task && task_of(p, best) != default_task)))
            best = consumer;
    }
    return best ? best->placed : devices->default_device;
}

/* From the end of the order, because a constant may have another one that waits for it. */
static void place_generators(struct step_placer *p) {
    for (int i = p->c->graph.n_live - 1; i >= 0; i--) {
        struct node *node = p->order[i];
        if (node->placed >= 0 || !is_generator(node))
            continue;
        int device = generator_device(p, node);
        p->why[node->id] = WHY_CONSUMERS;
        bool needs_cpu = is_feed(node) || placer_group(&p->placer, node)->needs_cpu ||
                         node_lacks_kernel(node, p->c->devices, device);
        node->placed = needs_cpu ? device_host(p->c->devices, device) : device;
    }
}

static void place_fetches(struct step_placer *p) {
    for (int i = 0; i < p->c->graph.n_live; i++)
        if (is_fetch(p->order[i]))
            p->order[i]->placed = device_host(p->c->devices, p->order[i]->inputs[0].src->placed);
}

struct status *pass_place(struct compilation *c, bool *ret_changed) {
    struct step_placer p = {.c = c};
    struct status *st = NULL;
    bool had_choice = false;
    TRY_OUT(graph_topological_order(&c->graph, &p.order));
    placement_pin_state(c);
    TRY_OUT(placer_init(&p.placer, &c->graph, c->devices, c->options, &c->arena));
    TRY_OUT(placer_settle(&p.placer, false));
    loop_frames_init(&p.frames, &c->graph, p.order, c->graph.n_live);
    p.why = arena_array(&c->arena, uint8_t, c->graph.n_nodes + 1);
    graph_consumers_init(&p.consumers, &c->graph);
    find_loop_tasks(&p);
    place_loops(&p);
    if (c->options->placement != PLACEMENT_SIMPLE)
        had_choice = place_by_cost(c, &p.placer, &p.frames, p.order);
    place_groups(&p);
    place_followers(&p);
    place_generators(&p);
    place_fetches(&p);
    cost_rows_find(c);
    if (had_choice)
        placement_keep(c);
    if (c->options->placement_log)
        place_explain(&p.placer, p.order, p.why, c->options->placement_log);
    if (c->options->placed_graph)
        place_report(c, &p.placer, p.order, p.why);
    *ret_changed = true;
out:
    placer_fini(&p.placer);
    loop_frames_fini(&p.frames);
    graph_consumers_fini(&p.consumers);
    free(p.order);
    return st;
}
