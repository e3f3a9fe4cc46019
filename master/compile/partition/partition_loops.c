/* Lets a loop span tasks [WP 4.4; CF 4.4].
 *
 * A task that runs a part of a loop must know of each iteration and of the end. So it gets a small
 * loop of its own in the loop's frame, which is controlled by the loop's predicate. The predicate
 * is sent by the task of its LoopCond like any other value, once per iteration:
 *
 *   Const ─► Enter ─► Merge ─► Switch ─► NextIteration ┐
 *                       ▲         ▲                    │
 *                       └─────────│────────────────────┘
 *                              predicate (LoopCond, received)
 *
 * The Merge is the task's pulse: every Recv of the frame on that task waits for it, so it receives
 * once in each iteration. If the sender's value is dead, a flag is sent. In a frame without
 * NextIteration, which a client has made with Enter and Exit, the Enter is the pulse.
 *
 * Tasks wait for each other only through values. Each begins its next iteration when its predicate
 * has arrived, as far ahead as parallel_iterations allows; the master takes no part. In nested
 * loops, a task of the inner loop also gets a small loop of the outer one, whose pulse starts the
 * inner one.
 *
 * The outputs of Enter and NextIteration belong to another frame or iteration than their inputs,
 * and are not sent. A task that needs such an output receives the input instead, in the input's
 * iteration, and repeats the node. So a loop's constants are sent once per loop, not in each
 * iteration. */
#include <stdlib.h>
#include <string.h>

#include "master/compile/partition/partition.h"

/* ---- which loops, which tasks ---- */

static bool is_enter(const struct node *node) { return node_is_op(node, "Enter"); }

struct spans {
    struct partitioner *p;
    int n_frames, n_tasks;
    bool *is_on;        /* frame * n_tasks + task */
    bool *does_span;    /* by frame */
    struct node **cond; /* by frame: its LoopCond */
    struct node **some_enter;
};

static void note_node(struct spans *spans, struct node *node) {
    const struct loop_frames *frames = &spans->p->frames;
    int frame = frames->in[node->id];
    if (frame != 0)
        spans->is_on[frame * spans->n_tasks + partitioner_task(spans->p, node)] = true;
    if (frame != 0 && node_is_op(node, "LoopCond"))
        spans->cond[frame] = node;
    if (frames->out[node->id] != frame && (is_enter(node) || node_is_op(node, "RefEnter"))) {
        spans->some_enter[frames->out[node->id]] = node;
        if (dtype_is_ref((enum dtype)node->out_types[0])) /* it stays on its task */
            spans
                ->is_on[frames->out[node->id] * spans->n_tasks + partitioner_task(spans->p, node)] =
                true;
    }
}

/* Frames are numbered parents first. A task of an inner loop is also one of the outer loop. */
static void find_spans(struct spans *spans) {
    struct graph *graph = &spans->p->c->graph;
    for (int id = 0; id < graph->n_nodes; id++)
        if (!graph->nodes[id]->is_removed)
            note_node(spans, graph->nodes[id]);
    for (int frame = spans->n_frames - 1; frame > 0; frame--) {
        int parent = spans->p->frames.parent[frame], n_on = 0;
        for (int task = 0; task < spans->n_tasks; task++)
            n_on += spans->is_on[frame * spans->n_tasks + task];
        spans->does_span[frame] = n_on > 1;
        for (int task = 0; task < spans->n_tasks && parent > 0; task++)
            spans->is_on[parent * spans->n_tasks + task] |=
                spans->is_on[frame * spans->n_tasks + task];
    }
}

/* ---- the small loop ---- */

static struct status *add_node(struct spans *spans, int frame, int task, const char *what,
                               const char *op, struct node **ret) {
    struct graph *graph = &spans->p->c->graph;
    const struct node *of = spans->cond[frame] ? spans->cond[frame] : spans->some_enter[frame];
    const char *name = arena_printf(&spans->p->c->arena, "%s/_%s_%d", of->name, what, task);
    TRY(graph_add_node(graph, graph_unique_name(graph, name), op, "", ret));
    (*ret)->placed = spans->p->devices->tasks[task].first_device;
    if (strcmp(op, "Const") != 0)
        node_set_attr_type(graph, *ret, "T", DT_INT32);
    return NULL;
}

static struct status *add_small_loop(struct spans *spans, int frame, int task) {
    struct graph *graph = &spans->p->c->graph;
    struct node *start, *enter, *merge, *by, *next;
    struct tensor zero = TENSOR_INIT;
    const struct node *like = spans->some_enter[frame];
    int parent = spans->p->frames.parent[frame];
    tensor_init_scalar_i32(&zero, 0);
    TRY(add_node(spans, frame, task, "start", "Const", &start));
    node_set_attr_type(graph, start, "dtype", DT_INT32);
    node_set_attr_tensor(graph, start, "value", &zero);
    if (parent > 0)
        node_add_control(graph, start, partitioner_pulse(spans->p, parent, task));
    TRY(node_finish(graph, start));
    TRY(add_node(spans, frame, task, "enter", "Enter", &enter));
    node_set_attr(graph, enter, "frame_name", node_attr(like, "frame_name"));
    if (node_attr(like, "parallel_iterations"))
        node_set_attr(graph, enter, "parallel_iterations", node_attr(like, "parallel_iterations"));
    node_add_input(graph, enter, start, 0);
    TRY(node_finish(graph, enter));
    uint64_t key = (uint64_t)frame * (uint64_t)spans->n_tasks + (uint64_t)task;
    if (!spans->cond[frame]) { /* the frame runs once, without NextIteration */
        u64map_put(&spans->p->pulses, key, enter);
        return NULL;
    }
    TRY(add_node(spans, frame, task, "pulse", "Merge", &merge));
    TRY(add_node(spans, frame, task, "goes_on", "Switch", &by));
    TRY(add_node(spans, frame, task, "next", "NextIteration", &next));
    node_set_attr_i(graph, merge, "N", 2);
    node_add_input(graph, merge, enter, 0);
    node_add_input(graph, merge, next, 0);
    node_add_input(graph, by, merge, 0);
    node_add_input(graph, by, spans->cond[frame], 0);
    node_add_input(graph, next, by, 1);
    TRY(node_finish(graph, merge));
    TRY(node_finish(graph, by));
    TRY(node_finish(graph, next));
    u64map_put(&spans->p->pulses, key, merge);
    return NULL;
}

static struct status *add_small_loops(struct spans *spans) {
    for (int frame = 1; frame < spans->n_frames; frame++) {
        if (!spans->does_span[frame])
            continue;
        if (!spans->cond[frame] && !spans->p->runs_once[frame])
            return status_invalid(
                "A loop that spans tasks must have a LoopCond: frame '%.*s'\n\t [[{{node %s}}]]",
                (int)node_attr(spans->some_enter[frame], "frame_name")->s.len,
                node_attr(spans->some_enter[frame], "frame_name")->s.data,
                spans->some_enter[frame]->name);
        for (int task = 0; task < spans->n_tasks; task++)
            if (spans->is_on[frame * spans->n_tasks + task])
                TRY(add_small_loop(spans, frame, task));
    }
    return NULL;
}

struct node *partitioner_pulse(const struct partitioner *p, int frame, int task) {
    return u64map_get(&p->pulses, (uint64_t)frame * (uint64_t)p->devices->n_tasks + (uint64_t)task);
}

/* ---- values that do not arrive in every iteration ---- */

static bool is_constant_enter(const struct node *node) {
    const struct attr_value *value = node_attr(node, "is_constant");
    return value && value->b;
}

static bool is_irregular_source(const struct partitioner *p, const struct node *src) {
    bool is_next = node_is_op(src, "NextIteration") || node_is_op(src, "RefNextIteration");
    bool is_once = (is_enter(src) || node_is_op(src, "RefEnter")) && !is_constant_enter(src) &&
                   !p->runs_once[p->frames.out[src->id]];
    return is_next || is_once || p->is_irregular[src->id];
}

/* A Merge of a loop's variable gets two values: the first one and the next ones. */
static void find_irregular(struct partitioner *p, struct node *const *order) {
    struct graph *graph = &p->c->graph;
    p->is_irregular = arena_array(&p->c->arena, bool, graph->n_nodes + 1);
    for (int i = 0; i < graph->n_live; i++) {
        const struct node *node = order[i];
        int n_irregular = 0;
        if (p->frames.in[node->id] == 0)
            continue;
        for (int k = 0; k < node->n_inputs; k++)
            n_irregular += is_irregular_source(p, node->inputs[k].src);
        /* it leaves the loop once, at any time */
        if (node_is_op(node, "Exit") || node_is_op(node, "RefExit"))
            continue;
        bool is_merge = node_is_op(node, "Merge") || node_is_op(node, "RefMerge");
        p->is_irregular[node->id] =
            is_merge ? n_irregular == 1 && node->n_inputs == 1 : n_irregular > 0;
    }
}

struct status *partitioner_check_regular(const struct partitioner *p, const struct node *src,
                                         const struct node *dst) {
    if (!p->is_irregular || p->frames.out[src->id] == 0 || src->id >= p->n_ids ||
        partitioner_is_step_of_loop(src))
        return NULL;
    if (!is_irregular_source(p, src))
        return NULL;
    return status_unimplemented("{{node %s}} does not run in every iteration of its loop, and "
                                "{{node %s}}, which takes its value, is on "
                                "another task: '%s', '%s'\n\t [[{{node %s}}]]",
                                src->name, dst->name,
                                p->devices->tasks[partitioner_task(p, src)].name,
                                p->devices->tasks[partitioner_task(p, dst)].name, dst->name);
}

/* ---- Enter and NextIteration, repeated ---- */

bool partitioner_is_step_of_loop(const struct node *node) {
    return is_enter(node) || node_is_op(node, "NextIteration");
}

/* Returns the input for the repeated node, after what the original waits for. The original's own
 * edges may have been replaced already. */
static struct status *input_of_step(struct partitioner *p, struct node *src, int task,
                                    struct node **ret, int *ret_index) {
    struct graph *graph = &p->c->graph;
    struct node_input in = p->step_inputs[src->id];
    struct node *wait, *from;
    int home = partitioner_task(p, src), index;
    if (src->n_inputs == src->n_data)
        return partitioner_arrive(p, in.src, in.index, task, ret, ret_index);
    TRY(partitioner_arrive(p, in.src, in.index, home, &from, &index));
    TRY(graph_add_node(graph,
                       graph_unique_name(graph, arena_printf(&p->c->arena, "%s/_input", src->name)),
                       "Identity", "", &wait));
    node_set_attr_type(graph, wait, "T", dtype_base((enum dtype)in.src->out_types[in.index]));
    node_add_input(graph, wait, from, index);
    for (int i = src->n_data; i < src->n_inputs; i++) {
        TRY(partitioner_arrive_control(p, src->inputs[i].src, home, &from));
        node_add_control(graph, wait, from);
    }
    TRY(node_finish(graph, wait));
    wait->placed = src->placed;
    *ret_index = 0;
    return partitioner_add_pair(p, wait, 0, src, p->frames.in[src->id],
                                arena_printf(&p->c->arena, "%s:input", src->name), task, ret);
}

struct status *partitioner_repeat_step(struct partitioner *p, struct node *src, int task,
                                       struct node **ret) {
    struct graph *graph = &p->c->graph;
    struct node *input, *step;
    int index;
    TRY(input_of_step(p, src, task, &input, &index));
    TRY(graph_add_node(graph, graph_unique_name(graph, src->name), src->op_name, "", &step));
    for (int i = 0; i < src->n_attrs; i++)
        node_set_attr(graph, step, src->attrs[i].name, &src->attrs[i].value);
    node_add_input(graph, step, input, index);
    TRY(node_finish(graph, step));
    step->placed = p->devices->tasks[task].first_device;
    partitioner_note_copy(p, step, src);
    *ret = step;
    return NULL;
}

/* ---- all of it ---- */

static struct status *find_frames(struct partitioner *p, struct node ***ret_order) {
    TRY(graph_topological_order(&p->c->graph, ret_order));
    loop_frames_fini(&p->frames);
    loop_frames_init(&p->frames, &p->c->graph, *ret_order, p->c->graph.n_live);
    p->runs_once = arena_array(&p->c->arena, bool, p->frames.n_frames);
    memset(p->runs_once, true, (size_t)p->frames.n_frames);
    for (int i = 0; i < p->c->graph.n_live; i++) {
        const struct node *node = (*ret_order)[i];
        if (node_is_op(node, "NextIteration") || node_is_op(node, "RefNextIteration"))
            p->runs_once[p->frames.in[node->id]] = false;
    }
    return NULL;
}

/* The new nodes have frames too, and the numbers of frames may have changed. */
static struct status *find_frames_again(struct partitioner *p) {
    struct u64map pulses = p->pulses;
    size_t cursor = 0;
    uint64_t key;
    void *value;
    struct node **order;
    struct status *st = find_frames(p, &order);
    u64map_init(&p->pulses);
    while (!st && u64map_next(&pulses, &cursor, &key, &value)) {
        uint64_t n_tasks = (uint64_t)p->devices->n_tasks;
        u64map_put(&p->pulses,
                   (uint64_t)p->frames.out[((struct node *)value)->id] * n_tasks + key % n_tasks,
                   value);
    }
    u64map_fini(&pulses);
    if (st)
        return st;
    find_irregular(p, order);
    free(order);
    return NULL;
}

struct status *partitioner_add_loops(struct partitioner *p) {
    struct node **order;
    TRY(find_frames(p, &order));
    free(order);
    struct arena *arena = &p->c->arena;
    int n_frames = p->frames.n_frames, n_tasks = p->devices->n_tasks;
    if (n_frames <= 1 || n_tasks <= 1)
        return NULL;
    struct spans spans = {.p = p, .n_frames = n_frames, .n_tasks = n_tasks};
    spans.is_on = arena_array(arena, bool, (size_t)n_frames *(size_t)n_tasks);
    spans.does_span = arena_array(arena, bool, n_frames);
    spans.cond = arena_array(arena, struct node *, n_frames);
    spans.some_enter = arena_array(arena, struct node *, n_frames);
    find_spans(&spans);
    TRY(add_small_loops(&spans));
    return p->pulses.n_entries > 0 ? find_frames_again(p) : NULL;
}
