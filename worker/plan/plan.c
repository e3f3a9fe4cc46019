/* Builds plans: from a partition's graph to packed nodes, edges, frames and kernels.
 *
 * Nodes are packed in topological order, so an execution walks memory forwards. */
#include "worker/plan/plan.h"

#include <stdlib.h>

#include "kernels/cost.h"
#include "worker/plan/function_table.h"

/* How a node runs when it is not simply a kernel. */
static const struct plan_op {
    const char *op;
    enum plan_kind kind;
    uint8_t flags;
} plan_ops[] = {
    {"NoOp", PLAN_NOOP, 0},
    {"Const", PLAN_CONST, 0},
    {"Identity", PLAN_IDENTITY, 0},
    {"RefIdentity", PLAN_IDENTITY, 0},
    {"IdentityN", PLAN_IDENTITY, 0},
    {"StopGradient", PLAN_IDENTITY, 0},
    {"PreventGradient", PLAN_IDENTITY, 0},
    {"Snapshot", PLAN_IDENTITY, 0},
    {"LoopCond", PLAN_IDENTITY, 0},
    {"Switch", PLAN_SWITCH, 0},
    {"RefSwitch", PLAN_SWITCH, 0},
    {"_SwitchN", PLAN_SWITCH_N, 0},
    {"Merge", PLAN_MERGE, PLAN_TAKES_DEAD},
    {"RefMerge", PLAN_MERGE, PLAN_TAKES_DEAD},
    {"Enter", PLAN_ENTER, PLAN_TAKES_DEAD},
    {"RefEnter", PLAN_ENTER, PLAN_TAKES_DEAD},
    {"Exit", PLAN_EXIT, PLAN_TAKES_DEAD},
    {"RefExit", PLAN_EXIT, PLAN_TAKES_DEAD},
    {"NextIteration", PLAN_NEXT_ITERATION, PLAN_TAKES_DEAD},
    {"RefNextIteration", PLAN_NEXT_ITERATION, PLAN_TAKES_DEAD},
    {"ControlTrigger", PLAN_CONTROL_TRIGGER, PLAN_TAKES_DEAD},
    {"_MrSend", PLAN_SEND, PLAN_TAKES_DEAD},
    {"_MrRecv", PLAN_RECV, 0},
    {"_MrFeed", PLAN_FEED, 0},
    {"_MrFetch", PLAN_FETCH, PLAN_TAKES_DEAD},
};

static const struct plan_op *plan_op_find(const char *op) {
    for (size_t i = 0; i < ARRAY_LEN(plan_ops); i++)
        if (strcmp(plan_ops[i].op, op) == 0)
            return &plan_ops[i];
    return NULL;
}

enum {
    MAX_PLAIN_STATES = 64, /* what does not fit is not shared */
};

/* What the steps of building share. */
struct builder {
    struct plan *plan;
    const struct plan_options *options;
    struct node **order;
    struct plan_frame_map frames;
    uint32_t *index_of; /* by node id: position in plan->nodes */
    bool *is_reference; /* by node id: its values may be references that are read late */
    /* by node id: its outputs belong into memory that peers can map; NULL: none do */
    bool *is_shared;
    struct graph_consumers consumers;
    /* one of each state that instances may share */
    const struct kernel_instance *plain[MAX_PLAIN_STATES];
    int n_plain;
};

/* A session may ask for more CPU devices than the task was started with: they share the first
 * one's memory, under names of their own. */
static const struct device *device_of(const struct builder *b, const struct node *node) {
    struct device_name name;
    for (int i = 0; i < b->options->n_devices; i++)
        if (strcmp(b->options->devices[i].full_name, node->device) == 0)
            return &b->options->devices[i];
    struct status *st = device_name_parse(span_of(node->device), &name);
    bool is_cpu =
        !st && strcmp(name.type, "CPU") == 0 && name.id >= 0 && name.id < PLAN_MAX_CPU_DEVICES;
    status_unref(st);
    for (int i = 0; i < b->options->n_devices && is_cpu; i++) {
        const struct device *device = &b->options->devices[i];
        name.id = device->name.id;
        if (device_name_equal(&device->name, &name))
            return device;
    }
    return NULL;
}

static void build_frames(struct builder *b) {
    struct plan *plan = b->plan;
    plan->n_frames = (uint32_t)b->frames.n_frames;
    plan->frames = xcalloc(plan->n_frames, sizeof *plan->frames);
    for (uint32_t i = 0; i < plan->n_frames; i++) {
        const struct plan_frame_info *info = &b->frames.frames[i];
        struct plan_frame *frame = &plan->frames[i];
        frame->name = info->name;
        frame->parent = info->parent;
        frame->parallel_iterations = info->parallel_iterations;
        frame->name_hash = hash_bytes(frame->name, strlen(frame->name), 0x6d72);
        if (info->parent >= 0)
            frame->number = plan->frames[info->parent].n_children++;
    }
}

/* The master says a shape only where the value is certain to come. A hint, so what makes no
 * sense counts for nothing. */
static void build_slot(struct builder *b, const struct node *node, struct plan_channel *channel) {
    const struct attr_value *attr = node_attr(node, "_shape");
    int64_t n, size_bytes;
    if (!attr || attr->type != ATTR_SHAPE || !shape_is_full(attr->shape) ||
        b->frames.frame_of[node->id] != 0 || !dtype_in(channel->dtype, DTYPES_PLAIN))
        return;
    struct status *st = shape_n_elements(attr->shape, &n);
    if (!st && !mul_overflows_i64(n, (int64_t)dtype_size(channel->dtype), &size_bytes) &&
        size_bytes > PLAN_PUSH_LIMIT_BYTES) {
        channel->shape = shape_dup(attr->shape, &b->plan->graph.arena);
        channel->slot_bytes = (size_t)size_bytes;
    }
    status_unref(st);
}

static struct status *build_channel(struct builder *b, const struct node *node, bool is_send,
                                    uint32_t *ret_index) {
    struct plan *plan = b->plan;
    struct plan_channel *channel = &plan->channels[plan->n_channels];
    struct span src, dst, tensor_name;
    int64_t edge;
    struct device_name peer;
    struct str task = STR_INIT;
    TRY(node_get_i(node, "edge", &edge));
    TRY(node_get_s(node, "src_device", &src));
    TRY(node_get_s(node, "dst_device", &dst));
    TRY(node_get_s(node, "tensor_name", &tensor_name));
    TRY(node_get_type(node, "T", &channel->dtype));
    TRY(device_name_parse(is_send ? dst : src, &peer));
    if (edge < 0 || edge > UINT32_MAX)
        return status_invalid("{{node %s}} has edge number %lld", node->name, (long long)edge);
    device_name_print_task(&peer, &task);
    channel->peer_task = arena_strdup(&plan->graph.arena, str_text(&task));
    str_fini(&task);
    channel->edge = (uint32_t)edge;
    channel->src_device = arena_strndup(&plan->graph.arena, src.data, src.len);
    channel->dst_device = arena_strndup(&plan->graph.arena, dst.data, dst.len);
    channel->tensor_name = arena_strndup(&plan->graph.arena, tensor_name.data, tensor_name.len);
    if (!is_send)
        build_slot(b, node, channel);
    *ret_index = plan->n_channels++;
    return NULL;
}

static struct status *build_position(const struct node *node, uint32_t *n, uint32_t *ret_index) {
    int64_t index;
    TRY(node_get_i(node, "index", &index));
    if (index < 0 || index >= 1 << 20)
        return status_invalid("{{node %s}} has position %lld", node->name, (long long)index);
    *n = MAX(*n, (uint32_t)index + 1);
    *ret_index = (uint32_t)index;
    return NULL;
}

/* A thousand additions read one state, which stays in the cache, instead of a thousand equal
 * ones. */
static void share_plain_state(struct builder *b, struct kernel_instance *instance) {
    for (int i = 0; i < b->n_plain; i++) {
        const struct kernel_instance *first = b->plain[i];
        if (first->def != instance->def ||
            memcmp(first->state, instance->state, instance->plain_state_bytes) != 0)
            continue;
        free(instance->state);
        instance->state = first->state;
        instance->is_state_shared = true;
        return;
    }
    if (b->n_plain < MAX_PLAIN_STATES)
        b->plain[b->n_plain++] = instance;
}

static struct status *build_kernel(struct builder *b, const struct node *node,
                                   struct plan_node *out) {
    struct plan *plan = b->plan;
    const struct device *device = device_of(b, node);
    if (!device)
        return status_invalid("{{node %s}} is placed on '%s', which is not a device of this task",
                              node->name, node->device);
    struct kernel_instance *instance = &plan->instances[plan->n_instances];
    bool is_shared = b->is_shared && b->is_shared[node->id] && device->shared_allocator;
    struct allocator *allocator = is_shared ? device->shared_allocator : device->allocator;
    TRY(kernel_instance_init(instance, node, device->type, node->device, allocator,
                             b->options->host));
    plan->n_instances++;
    if (instance->plain_state_bytes > 0)
        share_plain_state(b, instance);
    if ((instance->def->flags & KERNEL_SESSION_STATE) && instance->state && plan->session_state)
        session_state_share(plan->session_state, instance);
    out->kind = instance->def->flags & KERNEL_ASYNC ? PLAN_KERNEL_ASYNC : PLAN_KERNEL;
    out->instance = instance;
    out->compute = instance->compute;
    out->cheap_elements = cost_cheap_elements(instance->cost);
    return NULL;
}

/* A large one that other tasks get lies where they can see it. */
static struct status *build_constant(struct builder *b, const struct node *node,
                                     const struct tensor *value) {
    struct tensor *to = &b->plan->constants[b->plan->n_constants];
    const struct device *device =
        b->is_shared && b->is_shared[node->id] ? device_of(b, node) : NULL;
    if (device && device->shared_allocator && value->storage == TENSOR_BUFFER &&
        !allocator_likes(device->shared_allocator, value->buffer))
        return tensor_clone(device->shared_allocator, value, to);
    tensor_copy(to, value);
    return NULL;
}

static struct status *build_special(struct builder *b, const struct node *node,
                                    struct plan_node *out) {
    struct plan *plan = b->plan;
    const struct tensor *value;
    switch (out->kind) {
    case PLAN_CONST:
        TRY(node_get_tensor(node, "value", &value));
        if (value->dtype != node->out_types[0]) /* kernels that consume it trust its type */
            return status_invalid(
                "Inconsistent values for attr 'dtype' %s vs. %s of the value\n\t [[{{node %s}}]]",
                dtype_name((enum dtype)node->out_types[0]), dtype_name((enum dtype)value->dtype),
                node->name);
        TRY(build_constant(b, node, value));
        out->aux = plan->n_constants++;
        return NULL;
    case PLAN_ENTER: {
        bool is_constant = false;
        TRY(node_get_b(node, "is_constant", &is_constant));
        if (is_constant)
            out->flags |= PLAN_CONSTANT_ENTER;
        out->aux = (uint32_t)b->frames.output_frame_of[node->id];
        plan->frames[out->aux].n_enters++;
        return NULL;
    }
    case PLAN_EXIT:
        out->aux = plan->frames[b->frames.frame_of[node->id]].n_exits++;
        return NULL;
    case PLAN_SEND:
    case PLAN_RECV:
        return build_channel(b, node, out->kind == PLAN_SEND, &out->aux);
    case PLAN_FEED:
        return build_position(node, &plan->n_feeds, &out->aux);
    case PLAN_FETCH:
        if (b->frames.frame_of[node->id] != 0) /* a value per iteration, and one place for it */
            return status_invalid("{{node %s}} cannot be fetched: it is inside a loop",
                                  node->n_data ? node->inputs[0].src->name : node->name);
        return build_position(node, &plan->n_fetches, &out->aux);
    default:
        return NULL;
    }
}

static struct status *build_node(struct builder *b, const struct node *node, uint32_t index) {
    struct plan *plan = b->plan;
    struct plan_node *out = &plan->nodes[index];
    struct plan_frame *frame = &plan->frames[b->frames.frame_of[node->id]];
    const struct plan_op *op = plan_op_find(node->op_name);
    if (node->n_data > UINT16_MAX || node->n_outputs > UINT16_MAX)
        return status_invalid("{{node %s}} has %d inputs and %d outputs; at most %d are supported",
                              node->name, node->n_data, node->n_outputs, UINT16_MAX);
    out->node = node;
    out->frame = (uint16_t)b->frames.frame_of[node->id];
    out->n_inputs = (uint16_t)node->n_data;
    out->n_outputs = (uint16_t)node->n_outputs;
    out->state = frame->n_nodes++;
    out->first_slot = frame->n_slots;
    frame->n_slots += (uint32_t)node->n_data;
    plan->max_outputs = MAX(plan->max_outputs, out->n_outputs);
    if (plan_wants_values(node, b->is_reference))
        out->flags |= PLAN_DEREF;
    if (plan_reads_late(node, b->is_reference))
        out->flags |= PLAN_LATE_READ;
    if (!op)
        return build_kernel(b, node, out);
    out->kind = (uint8_t)op->kind;
    out->flags |= op->flags;
    return build_special(b, node, out);
}

/* Is the value there when the step begins, and never dead? What takes dead inputs looks at them
 * as they come. */
static bool is_preset(const struct plan_node *src, const struct plan_node *dst) {
    return (src->kind == PLAN_CONST || src->kind == PLAN_FEED) && src->node->n_inputs == 0 &&
           src->frame == 0 && dst->frame == 0 && !(dst->flags & PLAN_TAKES_DEAD);
}

static void build_presets(struct builder *b) {
    struct plan *plan = b->plan;
    plan->presets = xcalloc((size_t)plan->frames[0].n_slots + 1, sizeof *plan->presets);
    for (uint32_t i = 0; i < plan->n_nodes; i++) {
        struct plan_node *dst = &plan->nodes[i];
        dst->first_preset = plan->n_presets;
        for (uint16_t k = 0; k < dst->n_inputs; k++) {
            const struct plan_node *src = &plan->nodes[b->index_of[dst->node->inputs[k].src->id]];
            if (is_preset(src, dst))
                plan->presets[plan->n_presets++] =
                    (struct plan_preset){k, src->kind == PLAN_FEED, src->aux};
        }
        dst->n_presets = (uint16_t)(plan->n_presets - dst->first_preset);
    }
}

/* Pending counts that an iteration starts from. */
static void build_initial_states(struct plan *plan) {
    for (uint32_t i = 0; i < plan->n_frames; i++)
        plan->frames[i].initial = xcalloc(plan->frames[i].n_nodes + 1, sizeof(struct node_state));
    for (uint32_t i = 0; i < plan->n_nodes; i++) {
        const struct plan_node *node = &plan->nodes[i];
        int n_control = node->node->n_inputs - node->node->n_data;
        struct node_state *state = &plan->frames[node->frame].initial[node->state];
        state->pending =
            node->kind == PLAN_MERGE ? 1 + 2 * n_control : node->node->n_inputs - node->n_presets;
    }
    for (uint32_t i = 0; i < plan->n_nodes; i++)
        for (uint32_t k = 0; k < plan->nodes[i].n_presets; k++) {
            if (!plan->presets[plan->nodes[i].first_preset + k].is_feed)
                continue;
            if (!plan->partial_initial) {
                size_t size = plan->frames[0].n_nodes * sizeof(struct node_state);
                plan->partial_initial = memcpy(xmalloc(size), plan->frames[0].initial, size);
            }
            plan->partial_initial[plan->nodes[i].state].pending++;
        }
}

static int edge_order(const void *a, const void *b) {
    const struct plan_edge *x = a, *y = b;
    int x_class = x->flags & (EDGE_CONTROL | EDGE_PRESET),
        y_class = y->flags & (EDGE_CONTROL | EDGE_PRESET);
    if (x_class != y_class)
        return x_class - y_class;
    if (x->output != y->output)
        return x->output < y->output ? -1 : 1;
    return x->dst < y->dst ? -1 : x->dst > y->dst ? 1 : x->slot < y->slot ? -1 : x->slot > y->slot;
}

static void build_edges(struct builder *b) {
    struct plan *plan = b->plan;
    const struct graph_consumers *consumers = &b->consumers;
    plan->edges = xcalloc((size_t)consumers->first[plan->graph.n_nodes] + 1, sizeof *plan->edges);
    uint32_t n_edges = 0;
    for (uint32_t i = 0; i < plan->n_nodes; i++) {
        struct plan_node *node = &plan->nodes[i];
        node->first_edge = n_edges;
        for (int k = consumers->first[node->node->id]; k < consumers->first[node->node->id + 1];
             k++) {
            const struct node_output_edge *from = &consumers->edges[k];
            const struct plan_node *dst = &plan->nodes[b->index_of[from->dst->id]];
            struct plan_edge *edge = &plan->edges[n_edges++];
            edge->dst = b->index_of[from->dst->id];
            edge->state = dst->state;
            edge->flags = dst->kind != PLAN_MERGE    ? 0
                          : node->kind == PLAN_ENTER ? EDGE_TO_MERGE | EDGE_FROM_ENTER
                                                     : EDGE_TO_MERGE;
            if (from->index == CONTROL_EDGE) {
                edge->flags |= EDGE_CONTROL;
            } else {
                edge->output = (uint16_t)from->index;
                edge->slot = dst->first_slot + (uint32_t)from->position;
                if (is_preset(node, dst))
                    edge->flags |= EDGE_PRESET;
            }
        }
        struct plan_edge *edges = &plan->edges[node->first_edge];
        qsort(edges, n_edges - node->first_edge, sizeof *edges, edge_order);
        while (node->first_edge + node->n_edges < n_edges &&
               !(edges[node->n_edges].flags & EDGE_PRESET))
            node->n_edges++;
        for (uint32_t k = 0; k < node->n_edges; k++)
            if (!(edges[k].flags & EDGE_CONTROL) &&
                (k + 1 == node->n_edges || (edges[k + 1].flags & EDGE_CONTROL) ||
                 edges[k + 1].output != edges[k].output))
                edges[k].flags |= EDGE_MOVE;
        if (node->kind == PLAN_KERNEL && node->n_outputs == 1 && node->n_edges == 1 &&
            edges[0].flags == EDGE_MOVE)
            node->flags |= PLAN_DIRECT;
    }
}

/* Roots: nodes that wait for nothing. The ready stack is last in, first out, so what should
 * start first comes last: the Recvs. */
static void build_roots(struct plan *plan) {
    plan->roots = xcalloc(plan->n_nodes + 1, sizeof *plan->roots);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = plan->n_nodes; i-- > 0;) {
            const struct plan_node *node = &plan->nodes[i];
            bool waits = node->frame != 0 || plan->frames[0].initial[node->state].pending != 0;
            if (!waits && (node->kind == PLAN_RECV) == (pass == 1))
                plan->roots[plan->n_roots++] = i;
        }
}

static struct status *build(struct builder *b) {
    struct plan *plan = b->plan;
    struct graph *graph = &plan->graph;
    TRY(graph_topological_order(graph, &b->order));
    TRY(plan_find_frames(graph, &b->frames));
    if (b->frames.n_frames > UINT16_MAX)
        return status_invalid("the graph has %d loop frames; at most %d are supported",
                              b->frames.n_frames, UINT16_MAX);
    build_frames(b);
    plan->n_nodes = (uint32_t)graph->n_live;
    size_t n = plan->n_nodes + 1;
    plan->nodes = aligned_alloc(64, n * sizeof *plan->nodes);
    if (!plan->nodes)
        return status_exhausted("no memory for a plan of %u nodes", plan->n_nodes);
    memset(plan->nodes, 0, n * sizeof *plan->nodes);
    plan->instances = xcalloc(n, sizeof *plan->instances);
    plan->channels = xcalloc(n, sizeof *plan->channels);
    plan->constants = aligned_alloc(64, n * sizeof *plan->constants);
    CHECK(plan->constants);
    memset(plan->constants, 0, n * sizeof *plan->constants);
    b->index_of = xcalloc((size_t)graph->n_nodes + 1, sizeof *b->index_of);
    graph_consumers_init(&b->consumers, graph);
    b->is_reference = plan_find_references(graph, &b->consumers);
    if (b->options->n_devices > 0 && b->options->devices[0].shared_allocator)
        b->is_shared = plan_find_shared(graph);
    for (uint32_t i = 0; i < plan->n_nodes; i++) {
        b->index_of[b->order[i]->id] = i;
        TRY(build_node(b, b->order[i], i));
    }
    build_presets(b);
    build_initial_states(plan);
    build_edges(b);
    /* where the last node's edges end */
    plan->nodes[plan->n_nodes].first_edge = (uint32_t)b->consumers.first[graph->n_nodes];
    build_roots(plan);
    return NULL;
}

struct status *plan_new(struct graph *graph_take, const struct plan_options *options,
                        struct plan **ret_plan) {
    struct plan *plan = xcalloc(1, sizeof *plan);
    struct builder b = {.plan = plan, .options = options};
    atomic_init(&plan->n_refs, 1);
    pthread_mutex_init(&plan->lock, NULL);
    plan->client = options->client ? client_state_ref(options->client) : NULL;
    plan->session_state = options->session_state ? session_state_ref(options->session_state) : NULL;
    plan->is_function = options->is_function;
    plan->functions = options->functions && !plan->is_function
                          ? function_table_ref(options->functions)
                          : options->functions;
    plan->graph = *graph_take;
    graph_init(graph_take);
    struct status *st = build(&b);
    free(b.order);
    plan_frame_map_fini(&b.frames);
    free(b.index_of);
    free(b.is_reference);
    free(b.is_shared);
    graph_consumers_fini(&b.consumers);
    if (st) {
        plan_unref(plan);
        return st;
    }
    *ret_plan = plan;
    return NULL;
}

struct plan *plan_ref(struct plan *plan) {
    atomic_fetch_add_explicit(&plan->n_refs, 1, memory_order_relaxed);
    return plan;
}

void plan_unref(struct plan *plan) {
    if (!plan || atomic_fetch_sub_explicit(&plan->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    if (plan->free_executors)
        plan->executors_free(plan->free_executors);
    for (uint32_t i = 0; i < plan->n_instances; i++)
        kernel_instance_fini(&plan->instances[i]);
    session_state_unref(plan->session_state);
    client_state_unref(plan->client);
    if (!plan->is_function)
        function_table_unref(plan->functions);
    for (uint32_t i = 0; i < plan->n_constants; i++)
        tensor_clear(&plan->constants[i]);
    for (uint32_t i = 0; plan->frames && i < plan->n_frames; i++)
        free(plan->frames[i].initial);
    free(plan->instances);
    free(plan->constants);
    free(plan->channels);
    free(plan->frames);
    free(plan->partial_initial);
    free(plan->presets);
    free(plan->nodes);
    free(plan->edges);
    free(plan->roots);
    pthread_mutex_destroy(&plan->lock);
    graph_fini(&plan->graph);
    free(plan);
}
