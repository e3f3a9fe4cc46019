/* The partition: one graph per task, and a Send and a Recv where an edge goes from one task to
 * another [WP 3.2.2; OSDI 3.3].
 *
 *   task A            │ task B               task A                    │ task B
 *   a ──────────────────► b                  a ──► _MrSend 0 ┄┄┄┄┄┄┄┄┄┄┄► _MrRecv 0 ──► b
 *     └─────────────────► c           =>                               │            └──► c
 *   a ─ ─ ─ control ─ ─ ► d                  a ─ ─► Const ──► _MrSend 1 ┄► _MrRecv 1 ─ ─► d
 *
 * A partition is a task's share, not a device's: the CPU devices of a task share memory, so
 * edges between them stay, and node->device tells the worker where a node runs. Only edges
 * between tasks are cut:
 *
 *   - one Recv per (tensor, destination task), whatever the number of consumers;
 *   - a control edge becomes a tiny Const behind its source, sent; the Recv is the control source on the other side. Where an output of
 *     the source arrives there anyway, that Recv serves (not for Switch, whose outputs can be
 *     dead while it is live);
 *   - Consts of up to 64 KiB, NoOps and feeds without inputs are not sent but made again on each task that reads them. A Const's
 *     explicit device does not stop that: the value is the same. The master holds a feed's bytes
 *     and sends them to each task;
 *   - an edge that carries a reference into a node that wants its value is cut like any other: the Send reads the variable. When the node
 *     has control inputs, the variable is read after them, by an Identity on its task ("assign,
 *     then read" must hold across tasks too). Edges into reference inputs are never cut:
 *     placement keeps both ends together;
 *   - an edge inside a loop is cut like any other, once in each iteration: see partition_loops.c.
 *
 * Sends and receives stand on CPU:0 of their task, whatever the device of the tensor's producer:
 * transports read host memory. Dead values cross as flags, so a conditional may span tasks.
 * Nodes keep the client's names. */
#include <stdlib.h>

#include "common/graph/internal_ops.h"
#include "master/compile/compile_internal.h"
#include "master/compile/partition.h"
#include "master/compile/place.h"

enum { COPY_MAX_BYTES = 64 << 10 };

uint64_t cut_arrival_key(const struct cut *cut, const struct node *src, int index, int task) {
    return (cut->first_endpoint[src->id] + (uint64_t)(index + 1)) *
               (uint64_t)cut->devices->n_tasks +
           (uint64_t)task;
}

/* ---- copies ---- */

static bool is_copied(const struct node *node) {
    if (node->n_inputs > 0)
        return false;
    int64_t size = const_size_bytes(node);
    return (size >= 0 && size <= COPY_MAX_BYTES) || node_is_op(node, OP_FEED) ||
           node_is_op(node, "NoOp");
}

void cut_note_copy(struct cut *cut, const struct node *copy, struct node *original) {
    if (copy->id >= cut->copied_capacity) {
        int capacity = MAX(2 * cut->copied_capacity, copy->id + 64);
        cut->copied_from = xreallocarray(cut->copied_from, (size_t)capacity, sizeof(struct node *));
        memset(cut->copied_from + cut->copied_capacity, 0,
               (size_t)(capacity - cut->copied_capacity) * sizeof(struct node *));
        cut->copied_capacity = capacity;
    }
    cut->copied_from[copy->id] = original;
}

static struct status *copy_for(struct cut *cut, struct node *src, int task, struct node **ret) {
    struct graph *graph = &cut->c->graph;
    uint64_t key = cut_arrival_key(cut, src, CONTROL_EDGE, task);
    *ret = u64map_get(&cut->arrivals, key);
    if (*ret)
        return NULL;
    struct node *copy;
    TRY(graph_add_node(graph, graph_unique_name(graph, src->name), src->op_name, "", &copy));
    for (int i = 0; i < src->n_attrs; i++)
        node_set_attr(graph, copy, src->attrs[i].name, &src->attrs[i].value);
    TRY(node_finish(graph, copy));
    copy->placed = cut->devices->tasks[task].first_device;
    cut_note_copy(cut, copy, src);
    u64map_put(&cut->arrivals, key, copy);
    *ret = copy;
    return NULL;
}

/* ---- sends and receives ---- */

static void set_edge_attrs(struct cut *cut, struct node *node, enum dtype type,
                           const struct node *src, int task, const char *tensor_name) {
    struct graph *graph = &cut->c->graph;
    node_set_attr_type(graph, node, "T", type);
    node_set_attr_i(graph, node, "edge", cut->n_edges);
    node_set_attr_s(graph, node, "src_device",
                    cut->devices->devices[device_host(cut->devices, src->placed)].full_name);
    node_set_attr_s(graph, node, "dst_device",
                    cut->devices->devices[cut->devices->tasks[task].first_device].full_name);
    node_set_attr_s(graph, node, "tensor_name", tensor_name);
}

struct status *cut_add_pair(struct cut *cut, struct node *from, int index, const struct node *src,
                            int frame, const char *tensor_name, int task, struct node **ret_recv) {
    struct graph *graph = &cut->c->graph;
    struct arena *arena = &cut->c->arena;
    enum dtype type = dtype_base((enum dtype)from->out_types[index]);
    struct node *send, *recv;
    TRY(graph_add_node(
        graph,
        graph_unique_name(graph, arena_printf(arena, "%s/_send_%d", src->name, cut->n_edges)),
        OP_SEND, "", &send));
    set_edge_attrs(cut, send, type, src, task, tensor_name);
    node_add_input(graph, send, from, index);
    TRY(node_finish(graph, send));
    send->placed = device_host(cut->devices, src->placed);
    TRY(graph_add_node(
        graph,
        graph_unique_name(graph, arena_printf(arena, "%s/_recv_%d", src->name, cut->n_edges)),
        OP_RECV, "", &recv));
    set_edge_attrs(cut, recv, type, src, task, tensor_name);
    struct node *pulse = frame != 0 ? cut_pulse(cut, frame, task) : NULL;
    if (frame != 0 && !pulse)
        return status_internal("{{node %s}} is wanted on '%s', which has no part in its loop",
                               src->name, cut->devices->tasks[task].name);
    if (pulse)
        node_add_control(graph, recv, pulse);
    TRY(node_finish(graph, recv));
    recv->placed = cut->devices->tasks[task].first_device;
    cut->exchanges[cut_task(cut, src) * cut->devices->n_tasks + task] = true;
    cut->n_edges++;
    *ret_recv = recv;
    return NULL;
}

struct status *cut_arrive(struct cut *cut, struct node *src, int index, int task, struct node **ret,
                          int *ret_index) {
    *ret_index = 0;
    if (cut_task(cut, src) == task || is_copied(src)) {
        *ret = src;
        *ret_index = index;
        return cut_task(cut, src) == task ? NULL : copy_for(cut, src, task, ret);
    }
    uint64_t key = cut_arrival_key(cut, src, index, task);
    *ret = u64map_get(&cut->arrivals, key);
    if (*ret)
        return NULL;
    const char *tensor_name = arena_printf(&cut->c->arena, "%s:%d", src->name, index);
    if (cut_is_step_of_loop(src)) {
        TRY(cut_repeat_step(cut, src, task, ret));
    } else if (cut_is_narrowed(cut, src, index)) {
        TRY(cut_add_narrow_pair(cut, src, index, tensor_name, task, ret));
    } else {
        TRY(cut_add_pair(cut, src, index, src, cut->frames.out[src->id], tensor_name, task, ret));
        cut_say_shape(cut, src, index, *ret);
    }
    u64map_put(&cut->arrivals, key, *ret);
    return NULL;
}

static struct status *cut_data_edge(struct cut *cut, struct node *node, int position) {
    struct node *src = node->inputs[position].src, *arrival;
    int index;
    if (dtype_is_ref((enum dtype)node->in_types[position]))
        return status_internal(
            "{{node %s}} was placed apart from {{node %s}}, whose reference it takes", node->name,
            src->name);
    TRY(cut_check_regular(cut, src, node));
    TRY(cut_arrive(cut, src, node->inputs[position].index, cut_task(cut, node), &arrival, &index));
    node_set_input(node, position, arrival, index);
    return NULL;
}

/* An output that arrives on the task anyway. */
static struct node *any_arrival(const struct cut *cut, const struct node *src, int task) {
    for (int i = 0; i < src->n_outputs && i < 8 && !node_is_switch(src); i++) {
        struct node *arrival = u64map_get(&cut->arrivals, cut_arrival_key(cut, src, i, task));
        if (arrival)
            return arrival;
    }
    return NULL;
}

/* The tiny value that is sent for a control edge: made once its source is done, dead if that is. */
static struct status *add_token(struct cut *cut, struct node *src, struct node **ret) {
    struct graph *graph = &cut->c->graph;
    struct tensor zero = TENSOR_INIT;
    tensor_init_scalar_f32(&zero, 0);
    TRY(graph_add_node(graph,
                       graph_unique_name(graph, arena_printf(&cut->c->arena, "%s/_done_%d",
                                                             src->name, cut->n_edges)),
                       "Const", "", ret));
    node_set_attr_type(graph, *ret, "dtype", DT_FLOAT);
    node_set_attr_tensor(graph, *ret, "value", &zero);
    TRY(node_finish(graph, *ret));
    node_add_control(graph, *ret, src);
    (*ret)->placed = device_host(cut->devices, src->placed);
    return NULL;
}

struct status *cut_arrive_control(struct cut *cut, struct node *src, int task, struct node **ret) {
    struct node *token;
    if (cut_task(cut, src) == task) {
        *ret = src;
        return NULL;
    }
    if (is_copied(src))
        return copy_for(cut, src, task, ret);
    uint64_t key = cut_arrival_key(cut, src, CONTROL_EDGE, task);
    *ret = u64map_get(&cut->arrivals, key);
    if (!*ret)
        *ret = any_arrival(cut, src, task);
    if (*ret)
        return NULL;
    if (cut_is_step_of_loop(src)) {
        TRY(cut_repeat_step(cut, src, task, ret));
    } else {
        TRY(add_token(cut, src, &token));
        TRY(cut_add_pair(cut, token, 0, src, cut->frames.out[src->id],
                         arena_printf(&cut->c->arena, "^%s", src->name), task, ret));
    }
    u64map_put(&cut->arrivals, key, *ret);
    return NULL;
}

static struct status *cut_control_edge(struct cut *cut, struct node *node, int position) {
    struct node *src = node->inputs[position].src, *arrival;
    TRY(cut_check_regular(cut, src, node));
    TRY(cut_arrive_control(cut, src, cut_task(cut, node), &arrival));
    node_set_input(node, position, arrival, CONTROL_EDGE);
    return NULL;
}

/* ---- reads of variables ---- */

/* A Merge is not dead where a control input is, and a read would be: it is left alone. */
static bool waits_to_read(const struct node *node) {
    return !node->is_removed && node->n_inputs > node->n_data && !node_is_op(node, "Merge");
}

/* Puts an Identity between a variable and its reader on another task; it waits for what the
 * reader waits for. */
static struct status *read_late(struct compilation *c, struct node *node, int position) {
    struct graph *graph = &c->graph;
    const struct node_input from = node->inputs[position];
    struct node *read;
    TRY(graph_add_node(graph,
                       graph_unique_name(graph, arena_printf(&c->arena, "%s/_read", node->name)),
                       "Identity", "", &read));
    node_set_attr_type(graph, read, "T", dtype_base((enum dtype)from.src->out_types[from.index]));
    node_add_input(graph, read, from.src, from.index);
    for (int i = node->n_data; i < node->n_inputs; i++)
        node_add_control(graph, read, node->inputs[i].src);
    TRY(node_finish(graph, read));
    read->placed = device_host(c->devices, from.src->placed);
    node_set_input(node, position, read, 0);
    return NULL;
}

static struct status *read_variables_late(struct cut *cut) {
    struct graph *graph = &cut->c->graph;
    for (int id = 0, n_ids = graph->n_nodes; id < n_ids; id++) {
        struct node *node = graph->nodes[id];
        for (int i = 0; waits_to_read(node) && i < node->n_data; i++) {
            const struct node_input *in = &node->inputs[i];
            bool is_read = dtype_is_ref((enum dtype)in->src->out_types[in->index]) &&
                           !dtype_is_ref((enum dtype)node->in_types[i]);
            if (is_read && cut_task(cut, in->src) != cut_task(cut, node))
                TRY(read_late(cut->c, node, i));
        }
    }
    return NULL;
}

/* ---- cutting ---- */

/* Data edges of all nodes first: what arrives by them can serve for control edges. */
static struct status *cut_edges(struct cut *cut, bool is_control_round) {
    for (int id = 0; id < cut->n_ids; id++) {
        struct node *node = cut->c->graph.nodes[id];
        if (node->is_removed)
            continue;
        int from = is_control_round ? node->n_data : 0,
            to = is_control_round ? node->n_inputs : node->n_data;
        for (int i = from; i < to; i++) {
            if (cut_task(cut, node->inputs[i].src) == cut_task(cut, node))
                continue;
            TRY(is_control_round ? cut_control_edge(cut, node, i) : cut_data_edge(cut, node, i));
        }
    }
    return NULL;
}

/* Two control inputs may now come from one Recv, which serves for two edges. */
static void drop_doubled_controls(struct cut *cut) {
    int *last_seen = arena_array(&cut->c->arena, int, cut->c->graph.n_nodes + 1);
    for (int id = 0; id < cut->n_ids; id++) {
        struct node *node = cut->c->graph.nodes[id];
        for (int i = node->n_inputs - 1; !node->is_removed && i >= node->n_data; i--) {
            int src = node->inputs[i].src->id;
            if (last_seen[src] == id + 1)
                node_remove_input(node, i);
            last_seen[src] = id + 1;
        }
    }
}

/* An original whose copies serve all its consumers would run for nobody. */
static void drop_copied_originals(struct cut *cut) {
    struct graph *graph = &cut->c->graph;
    bool *is_used = arena_array(&cut->c->arena, bool, graph->n_nodes + 1);
    for (int id = 0; id < graph->n_nodes; id++)
        for (int i = 0; !graph->nodes[id]->is_removed && i < graph->nodes[id]->n_inputs; i++)
            is_used[graph->nodes[id]->inputs[i].src->id] = true;
    for (int i = 0; i < cut->c->n_targets; i++)
        is_used[cut->c->target_nodes[i]->id] = true;
    for (int id = cut->n_ids; id < graph->n_nodes && id < cut->copied_capacity; id++) {
        struct node *original = cut->copied_from[id];
        if (original && !is_used[original->id])
            graph_remove_node(graph, original);
    }
}

static struct status *cut_graph(struct cut *cut) {
    struct graph *graph = &cut->c->graph;
    TRY(read_variables_late(cut));
    TRY(cut_add_loops(cut));
    cut->n_ids = graph->n_nodes;
    TRY(cut_find_slots(cut));
    cut->first_endpoint = arena_array(&cut->c->arena, uint64_t, graph->n_nodes + 1);
    cut->step_inputs = arena_array(&cut->c->arena, struct node_input, graph->n_nodes + 1);
    for (int id = 0; id < graph->n_nodes; id++)
        if (!graph->nodes[id]->is_removed && cut_is_step_of_loop(graph->nodes[id]) &&
            graph->nodes[id]->n_data > 0)
            cut->step_inputs[id] = graph->nodes[id]->inputs[0];
    for (int id = 0; id < graph->n_nodes; id++)
        cut->first_endpoint[id + 1] =
            cut->first_endpoint[id] + 1 + (uint64_t)graph->nodes[id]->n_outputs;
    TRY(cut_edges(cut, false));
    TRY(cut_edges(cut, true));
    drop_doubled_controls(cut);
    drop_copied_originals(cut);
    return NULL;
}

/* ---- one graph per task ---- */

/* A copy is called what its original is called, now that they are in graphs of their own. */
static void rename_copy(const struct cut *cut, struct graph *graph, const struct node *whole,
                        struct node *node) {
    const struct node *original =
        whole->id < cut->copied_capacity ? cut->copied_from[whole->id] : NULL;
    if (!original || graph_find(graph, original->name))
        return;
    strmap_remove(&graph->by_name, node->name);
    node->name = original->name;
    strmap_put(&graph->by_name, node->name, node);
}

static int *add_position(struct arena *arena, int *positions, int *n, int capacity, int position) {
    if (!positions)
        positions = arena_array(arena, int, capacity);
    positions[(*n)++] = position;
    return positions;
}

/* Feeds and fetches are numbered anew within the partition. */
static void number_slots(struct compilation *c, struct partition *partition, struct node *node) {
    bool is_feed = node_is_op(node, OP_FEED);
    if (!is_feed && !node_is_op(node, OP_FETCH))
        return;
    struct arena *arena = &c->result->arena;
    int position = (int)node_attr(node, "index")->i;
    if (is_feed)
        partition->feeds = add_position(arena, partition->feeds, &partition->n_feeds,
                                        c->signature->n_feeds, position);
    else
        partition->fetches = add_position(arena, partition->fetches, &partition->n_fetches,
                                          c->signature->n_fetches, position);
    node_set_attr_i(&partition->graph, node, "index",
                    (is_feed ? partition->n_feeds : partition->n_fetches) - 1);
}

static void find_peers(const struct cut *cut, struct partition *partition, struct arena *arena) {
    int n_tasks = cut->devices->n_tasks, task = partition->task;
    for (int other = 0; other < n_tasks; other++)
        if (cut->exchanges[task * n_tasks + other] || cut->exchanges[other * n_tasks + task])
            partition->peers =
                add_position(arena, partition->peers, &partition->n_peers, n_tasks, other);
}

/* `whole` by id are the nodes before the split; `map` says where each is in the partition's
 * graph, NULL where it is the same. */
static void fill_partition(struct cut *cut, struct partition *partition, const struct graph *whole,
                           struct node *const *map) {
    for (int id = 0; id < whole->n_nodes; id++) {
        struct node *node = map ? map[id] : whole->nodes[id];
        if (!node || node->is_removed)
            continue;
        rename_copy(cut, &partition->graph, whole->nodes[id], node);
        node->device = cut->c->result->devices->devices[node->placed].full_name;
        number_slots(cut->c, partition, node);
    }
    find_peers(cut, partition, &cut->c->result->arena);
}

/* All is on one task: the whole graph, as it is. */
static void take_whole_graph(struct cut *cut, struct partition *partition) {
    partition->graph = cut->c->graph;
    graph_init(&cut->c->graph);
    fill_partition(cut, partition, &partition->graph, NULL);
}

static void copy_partition(struct cut *cut, struct partition *partition, bool *keep) {
    struct graph *graph = &cut->c->graph;
    struct node **map;
    for (int id = 0; id < graph->n_nodes; id++)
        keep[id] =
            !graph->nodes[id]->is_removed && cut_task(cut, graph->nodes[id]) == partition->task;
    graph_copy(graph, keep, &partition->graph, &map);
    fill_partition(cut, partition, graph, map);
    free(map);
}

static struct compiled *new_compiled(struct cut *cut) {
    struct compilation *c = cut->c;
    struct compiled *compiled = xcalloc(1, sizeof(*compiled));
    arena_init(&compiled->arena);
    graph_init(&compiled->graph);
    /* the count is all that changes */
    compiled->devices = device_table_ref((struct device_table *)c->devices);
    compiled->n_edges = cut->n_edges;
    compiled->feed_types = arena_memdup(&compiled->arena, c->feed_types,
                                        (size_t)c->signature->n_feeds * sizeof(enum dtype));
    compiled->fetch_types = arena_memdup(&compiled->arena, c->fetch_types,
                                         (size_t)c->signature->n_fetches * sizeof(enum dtype));
    return compiled;
}

static void keep_saves(const struct compilation *c, struct compiled *compiled) {
    compiled->n_cut_saves = c->n_cut_saves;
    compiled->cut_tasks = arena_array(&compiled->arena, int, c->devices->n_tasks + 1);
    for (int task = 0; c->n_cut_saves > 0 && task < c->devices->n_tasks; task++)
        if (c->is_cut_task[task])
            compiled->cut_tasks[compiled->n_cut_tasks++] = task;
}

static void make_partitions(struct cut *cut) {
    struct compilation *c = cut->c;
    struct compiled *compiled = c->result = new_compiled(cut);
    keep_saves(c, compiled);
    int n_tasks = cut->devices->n_tasks;
    bool *has_nodes = arena_array(&c->arena, bool, n_tasks + 1);
    for (int id = 0; id < c->graph.n_nodes; id++)
        if (!c->graph.nodes[id]->is_removed)
            has_nodes[cut_task(cut, c->graph.nodes[id])] = true;
    compiled->partitions = arena_array(&compiled->arena, struct partition, n_tasks);
    for (int task = 0; task < n_tasks; task++)
        if (has_nodes[task])
            compiled->partitions[compiled->n_partitions++].task = task;
    if (compiled->n_partitions == 1) {
        take_whole_graph(cut, &compiled->partitions[0]);
        return;
    }
    bool *keep = arena_array(&c->arena, bool, c->graph.n_nodes + 1);
    for (int i = 0; i < compiled->n_partitions; i++)
        copy_partition(cut, &compiled->partitions[i], keep);
    compiled->graph = c->graph;
    graph_init(&c->graph);
}

struct status *pass_partition(struct compilation *c, bool *ret_changed) {
    struct cut cut = {.c = c, .devices = c->devices};
    u64map_init(&cut.arrivals);
    u64map_init(&cut.pulses);
    cut.exchanges =
        arena_array(&c->arena, bool, (size_t)c->devices->n_tasks *(size_t)c->devices->n_tasks + 1);
    compile_find_saves(c);
    struct status *st = cut_graph(&cut);
    if (!st)
        make_partitions(&cut);
    *ret_changed = !st;
    loop_frames_fini(&cut.frames);
    cut_slots_free(cut.slots);
    u64map_fini(&cut.arrivals);
    u64map_fini(&cut.pulses);
    free(cut.copied_from);
    return st;
}
