/* Builds the nodes of a plan: their kernels, constants, channels and copies.
 *
 * A node is either special (plan_ops below), so that the executor runs it itself, or a kernel of
 * its device. */
#include <stdlib.h>

#include "kernels/cost.h"
#include "worker/plan/plan_internal.h"

/* How a node runs, unless it is only a kernel. */
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
    {"_MrCopy", PLAN_COPY, 0},
};

static const struct plan_op *plan_op_find(const char *op) {
    for (size_t i = 0; i < ARRAY_LEN(plan_ops); i++)
        if (strcmp(plan_ops[i].op, op) == 0)
            return &plan_ops[i];
    return NULL;
}

/* Writes a device's name as this task knows it, where the graph calls the task otherwise. */
static void add_own_name(const struct plan_options *options, const char *device, struct str *out) {
    size_t n = options->task ? strlen(options->task) : 0;
    const char *own = options->n_devices > 0 ? options->devices[0].full_name : "";
    const char *own_end = strstr(own, "/device:");
    if (n > 0 && own_end && strncmp(device, options->task, n) == 0 && device[n] == '/') {
        str_add_bytes(out, own, (size_t)(own_end - own));
        device += n;
    }
    str_add(out, device);
}

int plan_device_index(const struct plan_options *options, const char *device) {
    struct str own = STR_INIT;
    int found = -1;
    if (options->task)
        add_own_name(options, device, &own);
    const char *name = options->task ? str_text(&own) : device;
    for (int i = 0; i < options->n_devices && found < 0; i++)
        if (strcmp(options->devices[i].full_name, name) == 0)
            found = i;
    str_fini(&own);
    return found;
}

/* A session may ask for more CPU devices than the task has. The further ones share the memory of
 * the first one, under names of their own. */
static struct device *device_of(const struct plan_builder *b, const struct node *node) {
    struct device_name name;
    int index = plan_device_index(b->options, node->device);
    if (index >= 0)
        return &b->options->devices[index];
    struct str own = STR_INIT;
    add_own_name(b->options, node->device, &own);
    struct status *st = device_name_parse(span_of(str_text(&own)), &name);
    str_fini(&own);
    bool is_cpu =
        !st && strcmp(name.type, "CPU") == 0 && name.id >= 0 && name.id < PLAN_MAX_CPU_DEVICES;
    status_unref(st);
    for (int i = 0; i < b->options->n_devices && is_cpu; i++) {
        struct device *device = &b->options->devices[i];
        name.id = device->name.id;
        if (device_name_equal(&device->name, &name))
            return device;
    }
    return NULL;
}

/* The master states a shape only if the value is certain to be sent. It is a hint, so an invalid
 * one is ignored. */
static void build_slot(struct plan_builder *b, const struct node *node,
                       struct plan_channel *channel) {
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

/* Adds the edge of a late Recv, in order. */
static void add_late_edge(struct plan *plan, uint32_t edge) {
    struct plan_edges *late = &plan->late_edges;
    late->edges = xreallocarray(late->edges, (size_t)late->n + 1, sizeof(*late->edges));
    uint32_t at = late->n++;
    for (; at > 0 && late->edges[at - 1] > edge; at--)
        late->edges[at] = late->edges[at - 1];
    late->edges[at] = edge;
}

static bool is_late(const struct node *node) {
    const struct attr_value *attr = node_attr(node, "_late");
    return attr && attr->type == ATTR_BOOL && attr->b;
}

static struct status *build_channel(struct plan_builder *b, const struct node *node, bool is_send,
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
    if (!is_send && is_late(node))
        add_late_edge(plan, channel->edge);
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

/* A thousand additions use one state, which stays in the cache, instead of a thousand equal
 * ones. */
static void share_plain_state(struct plan_builder *b, struct kernel_instance *instance) {
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
    if (b->n_plain < PLAN_MAX_PLAIN_STATES)
        b->plain[b->n_plain++] = instance;
}

/* A function that kernels call has no session: only the nodes of its own that come from one node of
 * an inlined function share a state. */
static void share_session_state(struct plan *plan, struct kernel_instance *instance) {
    if (plan->session_state) {
        session_state_share(plan->session_state, instance);
    } else if (node_attr(instance->node, NODE_STATE_ATTR)) {
        if (!plan->own_state)
            plan->own_state = session_state_new();
        session_state_share(plan->own_state, instance);
    }
}

static void use_device(struct plan_builder *b, struct device *device) {
    struct plan *plan = b->plan;
    if (!device->ops)
        return;
    for (uint32_t i = 0; i < plan->n_used_devices; i++)
        if (plan->used_devices[i] == device)
            return;
    plan->used_devices[plan->n_used_devices++] = device;
}

struct device *plan_first_cpu(const struct plan_options *options) {
    for (int i = 0; i < options->n_devices; i++)
        if (!options->devices[i].ops)
            return &options->devices[i];
    return NULL;
}

static struct allocator *allocator_of(const struct plan_builder *b, const struct device *device,
                                      const struct node *node) {
    bool is_shared = b->is_shared && b->is_shared[node->id] && device->shared_allocator;
    return is_shared ? device->shared_allocator : device->allocator;
}

/* Are all its outputs in host memory? Of an op with some there and some on the device
 * (TensorArrayConcatV3) the kernel makes those in host memory itself. */
static bool makes_host_values(const struct kernel_def *def, const struct node *node) {
    for (int i = 0; i < node->n_outputs; i++)
        if (!kernel_output_is_on_host(def, node, i))
            return false;
    return node->n_outputs > 0;
}

static struct status *build_kernel(struct plan_builder *b, const struct node *node,
                                   struct plan_node *out) {
    struct plan *plan = b->plan;
    struct device *device = device_of(b, node);
    if (!device)
        return status_invalid("{{node %s}} is placed on '%s', which is not a device of this task",
                              node->name, node->device);
    struct kernel_instance *instance = &plan->instances[plan->n_instances];
    const struct kernel_def *def = device->ops ? kernel_find(node, device->type) : NULL;
    bool is_of_cpu = def && (def->flags & KERNEL_OF_CPU) && b->has_device_memory;
    const struct device *owner =
        is_of_cpu && makes_host_values(def, node) ? plan_first_cpu(b->options) : device;
    TRY(kernel_instance_init(instance, node, is_of_cpu ? "CPU" : device->type, node->device,
                             allocator_of(b, owner, node), b->options->host));
    if (owner == device)
        use_device(b, device);
    if (owner == device && device->ops)
        out->flags |= PLAN_ENQUEUES;
    plan->n_instances++;
    if (instance->plain_state_bytes > 0)
        share_plain_state(b, instance);
    if ((instance->def->flags & KERNEL_SESSION_STATE) && instance->state)
        share_session_state(plan, instance);
    uint32_t flags = instance->def->flags | (is_of_cpu ? def->flags : 0);
    if (flags & KERNEL_TAKES_UNINITIALIZED)
        out->flags |= PLAN_TAKES_UNINITIALIZED;
    out->kind = flags & KERNEL_ASYNC ? PLAN_KERNEL_ASYNC : PLAN_KERNEL;
    out->instance = instance;
    out->compute = instance->compute;
    out->cheap_elements = cost_cheap_elements(instance->cost);
    return NULL;
}

/* A constant of a device with a memory of its own is uploaded once. A large one that other tasks
 * get is put where they can see it. */
static struct status *place_constant(struct plan_builder *b, const struct node *node,
                                     const struct tensor *value) {
    struct tensor *to = &b->plan->constants[b->plan->n_constants];
    int memory = b->has_device_memory ? plan_output_memory(b->options, node, 0) : PLAN_HOST;
    if (memory != PLAN_HOST && value->n_elements > 0) {
        struct device *owner = &b->options->devices[memory];
        use_device(b, owner);
        return owner->ops->upload(owner, value, to);
    }
    const struct device *device =
        b->is_shared && b->is_shared[node->id] ? device_of(b, node) : NULL;
    if (device && device->shared_allocator && value->storage == TENSOR_BUFFER &&
        !allocator_likes(device->shared_allocator, value->buffer))
        return tensor_clone(device->shared_allocator, value, to);
    tensor_copy(to, value);
    return NULL;
}

static struct status *build_constant(struct plan_builder *b, const struct node *node,
                                     const struct tensor *value) {
    return status_suffix_take(place_constant(b, node, value), "\n\t [[{{node %s}}]]", node->name);
}

/* The device that a copy's attr names; NULL for the host's memory. */
static struct status *copy_end(struct plan_builder *b, const struct node *node, const char *attr,
                               struct device **ret) {
    struct span name;
    TRY(node_get_s(node, attr, &name));
    *ret = NULL;
    if (name.len == 0)
        return NULL;
    for (int i = 0; i < b->options->n_devices; i++)
        if (span_is(name, b->options->devices[i].full_name) && b->options->devices[i].ops)
            *ret = &b->options->devices[i];
    if (!*ret)
        return status_invalid("{{node %s}} names '%.*s', which has no memory of its own here",
                              node->name, (int)name.len, name.data);
    use_device(b, *ret);
    return NULL;
}

static struct status *build_copy(struct plan_builder *b, const struct node *node,
                                 struct plan_node *out) {
    struct plan *plan = b->plan;
    struct plan_copy *copy = &plan->copies[plan->n_copies];
    TRY(copy_end(b, node, "src_device", &copy->src));
    TRY(copy_end(b, node, "dst_device", &copy->dst));
    if (!copy->src && !copy->dst)
        return status_invalid("{{node %s}} copies from the host's memory to the host's memory",
                              node->name);
    copy->allocator = allocator_of(b, copy->dst ? copy->dst : plan_first_cpu(b->options), node);
    copy->keeps_inline = node_attr(node, "_keeps_inline") != NULL;
    if (node_attr(node, "_takes_uninitialized"))
        out->flags |= PLAN_TAKES_UNINITIALIZED;
    copy->trace_device = arena_printf(&plan->graph.arena, "%s/memcpy",
                                      (copy->src ? copy->src : copy->dst)->full_name);
    out->aux = plan->n_copies++;
    return NULL;
}

static struct status *build_special(struct plan_builder *b, const struct node *node,
                                    struct plan_node *out) {
    struct plan *plan = b->plan;
    const struct tensor *value;
    switch (out->kind) {
    case PLAN_CONST:
        TRY(node_get_tensor(node, "value", &value));
        if (value->dtype != node->out_types[0]) /* kernels that use it trust its type */
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
    case PLAN_COPY:
        return build_copy(b, node, out);
    case PLAN_FEED:
        return build_position(node, &plan->n_feeds, &out->aux);
    case PLAN_FETCH:
        /* it has one value per iteration, but there is one place for it */
        if (b->frames.frame_of[node->id] != 0)
            return status_invalid("{{node %s}} cannot be fetched: it is inside a loop",
                                  node->n_data ? node->inputs[0].src->name : node->name);
        return build_position(node, &plan->n_fetches, &out->aux);
    default:
        return NULL;
    }
}

struct status *plan_build_node(struct plan_builder *b, const struct node *node, uint32_t index) {
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
