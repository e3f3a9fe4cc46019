/* Splits a graph into one graph per task, with a Send and a Recv for each edge between tasks [WP
 * 3.2.2; OSDI 3.3].
 *
 *   task A            │ task B               task A                    │ task B
 *   a ──────────────────► b                  a ──► _MrSend 0 ┄┄┄┄┄┄┄┄┄┄┄► _MrRecv 0 ──► b
 *     └─────────────────► c           =>                               │            └──► c
 *   a ─ ─ ─ control ─ ─ ► d                  a ─ ─► Const ──► _MrSend 1 ┄► _MrRecv 1 ─ ─► d
 *
 * A partition is a task's share, not a device's. The CPU devices of a task share memory, so edges
 * between them stay, and node->device tells the worker where a node runs. Rules for edges between
 * tasks:
 *
 *   - There is one Recv per tensor and destination task, whatever the number of consumers.
 *   - For a control edge, a tiny Const after its source is sent, and its Recv is the source of
 *     control edges there. If an output of the source is received there anyway, that Recv serves
 *     instead (not for a Switch, whose outputs can be dead while it runs).
 *   - Consts of up to 64 KiB, NoOps, and feeds without inputs are not sent. Each task that reads
 *     one gets a copy, also of a Const with an explicit device, since the value is the same. The
 *     master holds a feed's bytes and sends them to each task.
 *   - If an edge carries a reference into a node that wants its value, the Send reads the variable.
 *     If that node has control inputs, an Identity on the variable's task reads the variable after
 *     them, because "assign, then read" must also hold between tasks. An edge into a reference
 *     input never crosses: placement keeps both ends together.
 *   - An edge inside a loop sends a value in each iteration: see partition_loops.c.
 *
 * Sends and receives run on CPU:0 of their task, whatever the device of the tensor's producer:
 * transports read host memory. A dead value crosses as a flag, so a conditional may span tasks.
 * Nodes keep the client's names. */
#include <stdlib.h>

#include "common/graph/graph_controls.h"
#include "common/graph/internal_ops.h"
#include "master/compile/compilation.h"
#include "master/compile/cost/cost_rows.h"
#include "master/compile/cost/expected_shapes.h"
#include "master/compile/partition/partition_model.h"
#include "master/compile/place/placement.h"
#include "master/compile/place/place.h"

enum { COPY_MAX_BYTES = 64 << 10 };

/* The key of an endpoint on a task in p->arrivals. */
static uint64_t arrival_key(const struct partitioner *p, const struct node *src, int index,
                            int task) {
    return (p->first_endpoint[src->id] + (uint64_t)(index + 1)) * (uint64_t)p->devices->n_tasks +
           (uint64_t)task;
}

/* ---- copies ---- */

bool partitioner_is_copied(const struct node *node) {
    if (node->n_inputs > 0)
        return false;
    int64_t size = const_size_bytes(node);
    return (size >= 0 && size <= COPY_MAX_BYTES) || node_is_op(node, OP_FEED) ||
           node_is_op(node, "NoOp");
}

void partitioner_note_copy(struct partitioner *p, const struct node *copy, struct node *original) {
    if (copy->id >= p->copied_capacity) {
        int capacity = MAX(2 * p->copied_capacity, copy->id + 64);
        p->copied_from = xreallocarray(p->copied_from, (size_t)capacity, sizeof(struct node *));
        memset(p->copied_from + p->copied_capacity, 0,
               (size_t)(capacity - p->copied_capacity) * sizeof(struct node *));
        p->copied_capacity = capacity;
    }
    p->copied_from[copy->id] = original;
}

static struct status *copy_for(struct partitioner *p, struct node *src, int task,
                               struct node **ret) {
    struct graph *graph = &p->c->graph;
    uint64_t key = arrival_key(p, src, CONTROL_EDGE, task);
    *ret = u64map_get(&p->arrivals, key);
    if (*ret)
        return NULL;
    struct node *copy;
    TRY(graph_add_node(graph, graph_unique_name(graph, src->name), src->op_name, "", &copy));
    for (int i = 0; i < src->n_attrs; i++)
        node_set_attr(graph, copy, src->attrs[i].name, &src->attrs[i].value);
    TRY(node_finish(graph, copy));
    copy->placed = p->devices->tasks[task].first_device;
    partitioner_note_copy(p, copy, src);
    u64map_put(&p->arrivals, key, copy);
    *ret = copy;
    return NULL;
}

/* ---- sends and receives ---- */

static void set_edge_attrs(struct partitioner *p, struct node *node, enum dtype type,
                           const struct node *src, int task, const char *tensor_name) {
    struct graph *graph = &p->c->graph;
    node_set_attr_type(graph, node, "T", type);
    node_set_attr_i(graph, node, "edge", p->n_edges);
    node_set_attr_s(graph, node, "src_device",
                    p->devices->devices[device_host(p->devices, src->placed)].full_name);
    node_set_attr_s(graph, node, "dst_device",
                    p->devices->devices[p->devices->tasks[task].first_device].full_name);
    node_set_attr_s(graph, node, "tensor_name", tensor_name);
}

struct status *partitioner_add_pair(struct partitioner *p, struct node *from, int index,
                                    const struct node *src, int frame, const char *tensor_name,
                                    int task, struct node **ret_recv) {
    struct graph *graph = &p->c->graph;
    struct arena *arena = &p->c->arena;
    enum dtype type = dtype_base((enum dtype)from->out_types[index]);
    struct node *send, *recv;
    TRY(graph_add_node(
        graph, graph_unique_name(graph, arena_printf(arena, "%s/_send_%d", src->name, p->n_edges)),
        OP_SEND, "", &send));
    set_edge_attrs(p, send, type, src, task, tensor_name);
    node_add_input(graph, send, from, index);
    TRY(node_finish(graph, send));
    send->placed = device_host(p->devices, src->placed);
    TRY(graph_add_node(
        graph, graph_unique_name(graph, arena_printf(arena, "%s/_recv_%d", src->name, p->n_edges)),
        OP_RECV, "", &recv));
    set_edge_attrs(p, recv, type, src, task, tensor_name);
    struct node *pulse = frame != 0 ? partitioner_pulse(p, frame, task) : NULL;
    if (frame != 0 && !pulse)
        return status_invalid("{{node %s}} is in a loop of which '%s' has no part, where its value "
                              "is wanted: a node's inputs must come from one frame\n\t [[{{node "
                              "%s}}]]",
                              src->name, p->devices->tasks[task].name, src->name);
    if (pulse)
        node_add_control(graph, recv, pulse);
    TRY(node_finish(graph, recv));
    recv->placed = p->devices->tasks[task].first_device;
    p->exchanges[partitioner_task(p, src) * p->devices->n_tasks + task] = true;
    p->n_edges++;
    *ret_recv = recv;
    return NULL;
}

struct status *partitioner_arrive(struct partitioner *p, struct node *src, int index, int task,
                                  struct node **ret, int *ret_index) {
    *ret_index = 0;
    if (partitioner_task(p, src) == task || partitioner_is_copied(src)) {
        *ret = src;
        *ret_index = index;
        return partitioner_task(p, src) == task ? NULL : copy_for(p, src, task, ret);
    }
    uint64_t key = arrival_key(p, src, index, task);
    *ret = u64map_get(&p->arrivals, key);
    if (*ret)
        return NULL;
    const char *tensor_name = arena_printf(&p->c->arena, "%s:%d", src->name, index);
    if (partitioner_is_step_of_loop(src)) {
        TRY(partitioner_repeat_step(p, src, task, ret));
    } else if (partitioner_is_narrowed(p, src, index)) {
        TRY(partitioner_add_narrow_pair(p, src, index, tensor_name, task, ret));
    } else {
        TRY(partitioner_add_pair(p, src, index, src, p->frames.out[src->id], tensor_name, task,
                                 ret));
        partitioner_say_shape(p, src, index, *ret);
        partitioner_note_receive(p, src, index, task, *ret);
    }
    u64map_put(&p->arrivals, key, *ret);
    return NULL;
}

static struct status *partition_data_edge(struct partitioner *p, struct node *node, int position) {
    struct node *src = node->inputs[position].src, *arrival;
    int index;
    if (dtype_is_ref((enum dtype)node->in_types[position]))
        return status_invalid("{{node %s}} takes a reference to {{node %s}}, and was placed on "
                              "another task: '%s', '%s'\n\t [[{{node %s}}]]",
                              node->name, src->name,
                              p->devices->tasks[partitioner_task(p, node)].name,
                              p->devices->tasks[partitioner_task(p, src)].name, node->name);
    TRY(partitioner_check_regular(p, src, node));
    TRY(partitioner_arrive(p, src, node->inputs[position].index, partitioner_task(p, node),
                           &arrival, &index));
    node_set_input(node, position, arrival, index);
    return NULL;
}

/* Returns an output that arrives on the task in any case. */
static struct node *any_arrival(const struct partitioner *p, const struct node *src, int task) {
    for (int i = 0; i < src->n_outputs && i < 8 && !node_is_switch(src); i++) {
        struct node *arrival = u64map_get(&p->arrivals, arrival_key(p, src, i, task));
        if (arrival)
            return arrival;
    }
    return NULL;
}

/* Makes the small value that is sent for a control edge. It is made when its source has ended, and
 * is dead if the source is dead. */
static struct status *add_token(struct partitioner *p, struct node *src, struct node **ret) {
    struct graph *graph = &p->c->graph;
    struct tensor zero = TENSOR_INIT;
    tensor_init_scalar_f32(&zero, 0);
    TRY(graph_add_node(
        graph,
        graph_unique_name(graph, arena_printf(&p->c->arena, "%s/_done_%d", src->name, p->n_edges)),
        "Const", "", ret));
    node_set_attr_type(graph, *ret, "dtype", DT_FLOAT);
    node_set_attr_tensor(graph, *ret, "value", &zero);
    TRY(node_finish(graph, *ret));
    node_add_control(graph, *ret, src);
    (*ret)->placed = device_host(p->devices, src->placed);
    return NULL;
}

struct status *partitioner_arrive_control(struct partitioner *p, struct node *src, int task,
                                          struct node **ret) {
    struct node *token;
    if (partitioner_task(p, src) == task) {
        *ret = src;
        return NULL;
    }
    if (partitioner_is_copied(src))
        return copy_for(p, src, task, ret);
    uint64_t key = arrival_key(p, src, CONTROL_EDGE, task);
    *ret = u64map_get(&p->arrivals, key);
    if (!*ret)
        *ret = any_arrival(p, src, task);
    if (*ret)
        return NULL;
    if (partitioner_is_step_of_loop(src)) {
        TRY(partitioner_repeat_step(p, src, task, ret));
    } else {
        TRY(add_token(p, src, &token));
        TRY(partitioner_add_pair(p, token, 0, src, p->frames.out[src->id],
                                 arena_printf(&p->c->arena, "^%s", src->name), task, ret));
    }
    u64map_put(&p->arrivals, key, *ret);
    return NULL;
}

static struct status *partition_control_edge(struct partitioner *p, struct node *node,
                                             int position) {
    struct node *src = node->inputs[position].src, *arrival;
    TRY(partitioner_check_regular(p, src, node));
    TRY(partitioner_arrive_control(p, src, partitioner_task(p, node), &arrival));
    node_set_input(node, position, arrival, CONTROL_EDGE);
    return NULL;
}

/* ---- reads of variables ---- */

/* A Merge is not dead when a control input is, but a read would be. So its reference is not read
 * early. */
static bool waits_to_read(const struct node *node) {
    return !node->is_removed && node->n_inputs > node->n_data && !node_is_op(node, "Merge");
}

/* Puts an Identity between a variable and its reader on another task. The Identity waits for what
 * the reader waits for. */
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

static struct status *read_variables_late(struct partitioner *p) {
    struct graph *graph = &p->c->graph;
    for (int id = 0, n_ids = graph->n_nodes; id < n_ids; id++) {
        struct node *node = graph->nodes[id];
        for (int i = 0; waits_to_read(node) && i < node->n_data; i++) {
            const struct node_input *in = &node->inputs[i];
            bool is_read = dtype_is_ref((enum dtype)in->src->out_types[in->index]) &&
                           !dtype_is_ref((enum dtype)node->in_types[i]);
            if (is_read && partitioner_task(p, in->src) != partitioner_task(p, node))
                TRY(read_late(p->c, node, i));
        }
    }
    return NULL;
}

/* ---- cutting ---- */

/* The data edges of all nodes come first, because what arrives by them can serve for control
 * edges. */
static struct status *partition_edges(struct partitioner *p, bool is_control_round) {
    for (int id = 0; id < p->n_ids; id++) {
        struct node *node = p->c->graph.nodes[id];
        if (node->is_removed)
            continue;
        int from = is_control_round ? node->n_data : 0,
            to = is_control_round ? node->n_inputs : node->n_data;
        for (int i = from; i < to; i++) {
            if (partitioner_task(p, node->inputs[i].src) == partitioner_task(p, node))
                continue;
            TRY(is_control_round ? partition_control_edge(p, node, i)
                                 : partition_data_edge(p, node, i));
        }
    }
    return NULL;
}

/* Two control inputs may now come from one Recv, which serves for both. */
static void drop_doubled_controls(struct partitioner *p) {
    int *last_seen = arena_array(&p->c->arena, int, p->c->graph.n_nodes + 1);
    for (int id = 0; id < p->n_ids; id++)
        if (!p->c->graph.nodes[id]->is_removed)
            node_drop_doubled_controls(p->c->graph.nodes[id], last_seen);
}

/* An original whose copies serve all its consumers would run without need. */
static void drop_copied_originals(struct partitioner *p) {
    struct graph *graph = &p->c->graph;
    bool *is_used = arena_array(&p->c->arena, bool, graph->n_nodes + 1);
    for (int id = 0; id < graph->n_nodes; id++)
        for (int i = 0; !graph->nodes[id]->is_removed && i < graph->nodes[id]->n_inputs; i++)
            is_used[graph->nodes[id]->inputs[i].src->id] = true;
    for (int i = 0; i < p->c->n_targets; i++)
        is_used[p->c->target_nodes[i]->id] = true;
    for (int id = p->n_ids; id < graph->n_nodes && id < p->copied_capacity; id++) {
        struct node *original = p->copied_from[id];
        if (original && !is_used[original->id])
            graph_remove_node(graph, original);
    }
}

static struct status *partitioner_graph(struct partitioner *p) {
    struct graph *graph = &p->c->graph;
    TRY(read_variables_late(p));
    TRY(partitioner_add_loops(p));
    p->n_ids = graph->n_nodes;
    TRY(partitioner_find_slots(p));
    if (p->c->options->recv_scheduling && p->slots)
        TRY(partitioner_time_nodes(p));
    p->first_endpoint = arena_array(&p->c->arena, uint64_t, graph->n_nodes + 1);
    p->step_inputs = arena_array(&p->c->arena, struct node_input, graph->n_nodes + 1);
    for (int id = 0; id < graph->n_nodes; id++)
        if (!graph->nodes[id]->is_removed && partitioner_is_step_of_loop(graph->nodes[id]) &&
            graph->nodes[id]->n_data > 0)
            p->step_inputs[id] = graph->nodes[id]->inputs[0];
    for (int id = 0; id < graph->n_nodes; id++)
        p->first_endpoint[id + 1] =
            p->first_endpoint[id] + 1 + (uint64_t)graph->nodes[id]->n_outputs;
    TRY(partition_edges(p, false));
    TRY(partition_edges(p, true));
    drop_doubled_controls(p);
    drop_copied_originals(p);
    partitioner_delay_receives(p);
    return NULL;
}

/* ---- one graph per task ---- */

/* A copy has the name of its original, because they are in different graphs now. */
static void rename_copy(const struct partitioner *p, struct graph *graph, const struct node *whole,
                        struct node *node) {
    const struct node *original = whole->id < p->copied_capacity ? p->copied_from[whole->id] : NULL;
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

/* Feeds and fetches get new numbers within the partition. */
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

static void find_peers(const struct partitioner *p, struct partition *partition,
                       struct arena *arena) {
    int n_tasks = p->devices->n_tasks, task = partition->task;
    for (int other = 0; other < n_tasks; other++)
        if (p->exchanges[task * n_tasks + other] || p->exchanges[other * n_tasks + task])
            partition->peers =
                add_position(arena, partition->peers, &partition->n_peers, n_tasks, other);
}

/* `whole` lists the nodes before the split by id. `map` says where each is in the partition's
 * graph; NULL: at the same id. */
static void fill_partition(struct partitioner *p, struct partition *partition,
                           const struct graph *whole, struct node *const *map) {
    for (int id = 0; id < whole->n_nodes; id++) {
        struct node *node = map ? map[id] : whole->nodes[id];
        if (!node || node->is_removed)
            continue;
        rename_copy(p, &partition->graph, whole->nodes[id], node);
        node->device = p->c->result->devices->devices[node->placed].full_name;
        number_slots(p->c, partition, node);
    }
    find_peers(p, partition, &p->c->result->arena);
}

/* Everything is on one task: the whole graph is the partition. */
static void take_whole_graph(struct partitioner *p, struct partition *partition) {
    partition->graph = p->c->graph;
    graph_init(&p->c->graph);
    fill_partition(p, partition, &partition->graph, NULL);
}

static void copy_partition(struct partitioner *p, struct partition *partition, bool *keep) {
    struct graph *graph = &p->c->graph;
    struct node **map;
    for (int id = 0; id < graph->n_nodes; id++)
        keep[id] = !graph->nodes[id]->is_removed &&
                   partitioner_task(p, graph->nodes[id]) == partition->task;
    graph_copy(graph, keep, &partition->graph, &map);
    fill_partition(p, partition, graph, map);
    free(map);
}

static struct compiled *new_compiled(struct partitioner *p) {
    struct compilation *c = p->c;
    struct compiled *compiled = xcalloc(1, sizeof(*compiled));
    arena_init(&compiled->arena);
    graph_init(&compiled->graph);
    /* only the count changes */
    compiled->devices = device_table_ref((struct device_table *)c->devices);
    compiled->n_edges = p->n_edges;
    compiled->feed_types = arena_memdup(&compiled->arena, c->feed_types,
                                        (size_t)c->signature->n_feeds * sizeof(enum dtype));
    compiled->fetch_types = arena_memdup(&compiled->arena, c->fetch_types,
                                         (size_t)c->signature->n_fetches * sizeof(enum dtype));
    return compiled;
}

static void keep_saves(const struct compilation *c, struct compiled *compiled) {
    compiled->n_barrier_saves = c->n_barrier_saves;
    compiled->saved_tasks = arena_array(&compiled->arena, int, c->devices->n_tasks + 1);
    for (int task = 0; c->n_barrier_saves > 0 && task < c->devices->n_tasks; task++)
        if (c->is_saved_task[task])
            compiled->saved_tasks[compiled->n_saved_tasks++] = task;
}

static void make_partitions(struct partitioner *p) {
    struct compilation *c = p->c;
    struct compiled *compiled = c->result = new_compiled(p);
    keep_saves(c, compiled);
    cost_rows_keep(c, compiled);
    expected_sizes_keep(c, compiled);
    placement_keep_in_result(c, compiled);
    int n_tasks = p->devices->n_tasks;
    bool *has_nodes = arena_array(&c->arena, bool, n_tasks + 1);
    for (int id = 0; id < c->graph.n_nodes; id++)
        if (!c->graph.nodes[id]->is_removed)
            has_nodes[partitioner_task(p, c->graph.nodes[id])] = true;
    compiled->partitions = arena_array(&compiled->arena, struct partition, n_tasks);
    for (int task = 0; task < n_tasks; task++)
        if (has_nodes[task])
            compiled->partitions[compiled->n_partitions++].task = task;
    if (compiled->n_partitions == 1) {
        take_whole_graph(p, &compiled->partitions[0]);
        return;
    }
    bool *keep = arena_array(&c->arena, bool, c->graph.n_nodes + 1);
    for (int i = 0; i < compiled->n_partitions; i++)
        copy_partition(p, &compiled->partitions[i], keep);
    compiled->graph = c->graph;
    graph_init(&c->graph);
}

struct status *pass_partition(struct compilation *c, bool *ret_changed) {
    struct partitioner p = {.c = c, .devices = c->devices};
    u64map_init(&p.arrivals);
    u64map_init(&p.pulses);
    p.exchanges =
        arena_array(&c->arena, bool, (size_t)c->devices->n_tasks *(size_t)c->devices->n_tasks + 1);
    compile_find_saves(c);
    struct status *st = partitioner_graph(&p);
    if (!st)
        make_partitions(&p);
    *ret_changed = !st;
    loop_frames_fini(&p.frames);
    partitioner_receives_free(p.receives);
    step_model_free(p.model);
    partitioner_slots_free(p.slots);
    u64map_fini(&p.arrivals);
    u64map_fini(&p.pulses);
    free(p.copied_from);
    return st;
}
