/* Adds copies between memories to a partition's graph, before it becomes a plan.
 *
 * Each output of a node, and each input as its kernel wants it, is in the host's memory or in a
 * device's. Where an edge leads from one memory to another, a node _MrCopy is put in between:
 *
 *   a (GPU:0) ──► b (CPU:0)            a ──► _MrCopy ──► b
 *          └────► c (CPU:0)                        └───► c
 *
 *   - One copy serves all consumers that want an output in the same memory.
 *   - A constant is not copied: a second Const is made, whose value is in the other memory from the
 *     start.
 *   - What enters a loop is copied before it enters, so that an invariant is copied once; and what
 *     goes on to the next iteration is copied before it does. A Merge sees the Enter and the
 *     NextIteration itself, whose dead values mean more than others'.
 *   - A reference is no value: its consumers that want the variable itself get no copy, and one
 *     that wants the value gets a copy of its own, which waits for all other inputs of the
 *     consumer, so that it reads the variable as late as the consumer would. (TensorFlow's client
 *     gives a node no control input that one of its data inputs has.) For a consumer that takes
 *     variables without a value, it hands on the reference to such a variable.
 *   - A small host value is not copied for a kernel that takes it along with its launch, if the
 *     value is known to be small; else the copy decides when it sees the value ("keeps_inline").
 *   - A fetched reference is read at the end of the step, by the executor.
 *   - A view (Reshape) is in the memory of its value. What only hands a predicate or a list on is
 *     where its neighbours are (plan_carriers.c). */
#include <stdlib.h>

#include "common/graph/fused.h"
#include "common/graph/internal_ops.h"
#include "worker/plan/plan_internal.h"

struct copies {
    struct graph *graph;
    const struct plan_options *options;
    const bool *is_reference;
    const char *host;   /* the name of the task's first CPU */
    struct u64map made; /* copy_key → struct node: what holds a value in another memory */
    struct node_input *entering; /* by node id: what a frame op took before any input changed */
    int *device_of;              /* by node id: index in options->devices, or PLAN_HOST */
    bool *has_twin;              /* by node id: a Const that some consumer has left */
};

bool plan_has_device_memory(const struct plan_options *options) {
    for (int i = 0; i < options->n_devices; i++)
        if (options->devices[i].ops)
            return true;
    return false;
}

/* ---- where values are ---- */

static int device_index(const struct plan_options *options, const struct node *node) {
    int index = plan_device_index(options, node->device);
    return index >= 0 && options->devices[index].ops ? index : PLAN_HOST;
}

static const struct kernel_def *row_of(const struct plan_options *options, const struct node *node,
                                       int device) {
    return kernel_find(node, options->devices[device].type);
}

/* The ends of edges between tasks, of feeds and of fetches are the host's. */
static bool is_host_node(const struct node *node) {
    return internal_op_find(span_of(node->op_name)) && !node_is_either(node, OP_COPY, OP_FUSED);
}

static bool is_plain(uint8_t dtype) {
    return dtype_in(dtype_base((enum dtype)dtype), DTYPES_PLAIN);
}

/* Can a value of the type be in a device's memory? A list's tensors can. A constant list is made in
 * host memory. */
static bool has_memory(const struct node *node, uint8_t dtype) {
    return is_plain(dtype) || (dtype == DT_VARIANT && !node_is_op(node, "Const"));
}

/* Gives a value another shape, in whatever memory it is, though its row asks for host memory. (The
 * row is TensorFlow's, for int32.) */
static bool is_view(const struct node *node) {
    return node_is_op(node, "Reshape") || node_is_op(node, "ExpandDims") ||
           node_is_op(node, "Squeeze");
}

int plan_output_memory(const struct plan_options *options, const struct node *node, int output) {
    int device = device_index(options, node);
    if (device == PLAN_HOST || is_host_node(node) || !has_memory(node, node->out_types[output]))
        return PLAN_HOST;
    const struct kernel_def *def = row_of(options, node, device);
    if (def && !kernel_output_is_on_host(def, node, output))
        return device;
    return def && is_view(node)
               ? plan_output_memory(options, node->inputs[0].src, node->inputs[0].index)
               : PLAN_HOST;
}

int plan_input_memory(const struct plan_options *options, const struct node *node, int input) {
    int device = device_index(options, node);
    if (device == PLAN_HOST || is_host_node(node) || !has_memory(node, node->in_types[input]))
        return PLAN_HOST;
    const struct kernel_def *def = row_of(options, node, device);
    return def && !kernel_input_is_on_host(def, node, input) ? device : PLAN_HOST;
}

bool plan_takes_any_memory(const struct plan_options *options, const struct node *node, int input) {
    if (node->in_types[input] == DT_VARIANT)
        return node_is_op(node, "TensorListLength") || node_is_op(node, "TensorListElementShape");
    return input == 0 && is_view(node) && device_index(options, node) != PLAN_HOST &&
           plan_input_memory(options, node, input) == PLAN_HOST;
}

static bool takes_inline(const struct copies *copies, const struct node *node) {
    int device = copies->device_of[node->id];
    const struct kernel_def *def =
        device == PLAN_HOST ? NULL : row_of(copies->options, node, device);
    return def && (def->flags & KERNEL_TAKES_INLINE);
}

static bool is_small_constant(const struct node *node) {
    const struct tensor *value;
    if (!node_is_op(node, "Const"))
        return false;
    struct status *st = node_get_tensor(node, "value", &value);
    bool is_small = !st && value->storage == TENSOR_INLINE;
    status_unref(st);
    return is_small;
}

/* ---- what holds a value in another memory ---- */

static uint64_t copy_key(const struct node_input *from, int memory, bool keeps_inline) {
    return (uint64_t)from->src->id << 32 | (uint64_t)from->index << 12 |
           (uint64_t)(memory + 1) << 1 | keeps_inline;
}

static const char *memory_device(const struct copies *copies, int memory) {
    return memory == PLAN_HOST ? copies->host : copies->options->devices[memory].full_name;
}

static struct status *add_node(struct copies *copies, const char *prefix, const char *op,
                               const char *device, struct node **ret) {
    return graph_add_node(copies->graph, graph_unique_name(copies->graph, prefix), op, device, ret);
}

static struct status *add_copy(struct copies *copies, const struct node_input *from, int to,
                               bool keeps_inline, struct node **ret) {
    int at = plan_output_memory(copies->options, from->src, from->index);
    struct node *copy;
    TRY(add_node(copies, "_copy", OP_COPY, memory_device(copies, to == PLAN_HOST ? at : to),
                 &copy));
    enum dtype dtype = dtype_base((enum dtype)from->src->out_types[from->index]);
    node_set_attr_type(copies->graph, copy, "T", dtype);
    node_set_attr_s(copies->graph, copy, "src_device",
                    at == PLAN_HOST ? "" : memory_device(copies, at));
    node_set_attr_s(copies->graph, copy, "dst_device",
                    to == PLAN_HOST ? "" : memory_device(copies, to));
    if (keeps_inline)
        node_set_attr_b(copies->graph, copy, "_keeps_inline", true);
    node_add_input(copies->graph, copy, from->src, from->index);
    TRY(node_finish(copies->graph, copy));
    *ret = copy;
    return NULL;
}

/* May the value change between the time at which it arrives and the time at which it is used? */
static bool is_late(const struct copies *copies, const struct node_input *from) {
    return dtype_is_ref((enum dtype)from->src->out_types[from->index]) ||
           copies->is_reference[from->src->id];
}

/* Does the kernel, which is a debugger's, take a reference to a variable that has no value? */
static bool takes_uninitialized(const struct node *node) {
    const struct kernel_def *def = kernel_find(node, "CPU");
    return def && (def->flags & KERNEL_TAKES_UNINITIALIZED);
}

/* Of an input that is a copy, its source is waited for, so copies do not wait for each other. A
 * Merge runs when its first input arrives. */
static void wait_as_consumer(struct copies *copies, struct node *copy, const struct node *consumer,
                             int input) {
    bool is_merge = node_is_op(consumer, "Merge") || node_is_op(consumer, "RefMerge");
    for (int i = is_merge ? consumer->n_data : 0; i < consumer->n_inputs; i++) {
        struct node *src = consumer->inputs[i].src;
        if (node_is_op(src, OP_COPY))
            src = src->inputs[0].src;
        if (i != input && src != copy->inputs[0].src)
            node_add_control(copies->graph, copy, src);
    }
}

static struct status *convert_reference(struct copies *copies, struct node *node, int input,
                                        int to) {
    struct node *copy;
    TRY(add_copy(copies, &node->inputs[input], to, false, &copy));
    if (to == PLAN_HOST && takes_uninitialized(node))
        node_set_attr_b(copies->graph, copy, "_takes_uninitialized", true);
    wait_as_consumer(copies, copy, node, input);
    node_set_input(node, input, copy, 0);
    return NULL;
}

/* The same op for a value in another memory, without its inputs. */
static struct status *add_twin(struct copies *copies, const struct node *node, int memory,
                               struct node **ret) {
    struct node *twin;
    const char *op = node->op_name;
    if (strncmp(op, "Ref", 3) == 0) /* RefEnter, RefNextIteration: the twin passes a value */
        op += 3;
    TRY(add_node(copies, node->name, op, memory_device(copies, memory), &twin));
    for (int i = 0; i < node->n_attrs; i++)
        node_set_attr(copies->graph, twin, node->attrs[i].name, &node->attrs[i].value);
    *ret = twin;
    return NULL;
}

static struct status *converted(struct copies *copies, const struct node_input *from, int to,
                                bool keeps_inline, struct node_input *ret);

static struct status *add_constant(struct copies *copies, const struct node *node, int to,
                                   struct node **ret) {
    TRY(add_twin(copies, node, to, ret));
    for (int i = 0; i < node->n_inputs; i++)
        node_add_control(copies->graph, *ret, node->inputs[i].src);
    copies->has_twin[node->id] = true;
    return node_finish(copies->graph, *ret);
}

static bool is_frame_op(const struct node *node) {
    return node_is_op(node, "Enter") || node_is_op(node, "RefEnter") ||
           node_is_op(node, "NextIteration") || node_is_op(node, "RefNextIteration");
}

/* An Enter or NextIteration of the value in the memory `to`. Its own input may be a copy by now, or
 * a constant's twin, in a third memory. */
static struct status *add_frame_op(struct copies *copies, const struct node *node, int to,
                                   bool keeps_inline, struct node **ret) {
    struct node_input input = copies->entering[node->id];
    bool has_to_move = plan_output_memory(copies->options, input.src, input.index) != to;
    bool is_variable = is_late(copies, &input) && !is_frame_op(input.src);
    if (has_to_move && !is_variable)
        TRY(converted(copies, &copies->entering[node->id], to, keeps_inline, &input));
    TRY(add_twin(copies, node, to, ret));
    node_add_input(copies->graph, *ret, input.src, input.index);
    for (int i = 1; i < node->n_inputs; i++)
        node_add_control(copies->graph, *ret, node->inputs[i].src);
    TRY(node_finish(copies->graph, *ret));
    return has_to_move && is_variable ? convert_reference(copies, *ret, 0, to) : NULL;
}

/* Can the op be on the device of that memory with its output there? */
static bool may_be_in(const struct copies *copies, const struct node *node, int memory) {
    if (memory == PLAN_HOST)
        return true;
    const struct kernel_def *def = row_of(copies->options, node, memory);
    return def && !kernel_output_is_on_host(def, node, 0);
}

/* An output that has the same value in the memory `to`. */
static struct status *converted(struct copies *copies, const struct node_input *from, int to,
                                bool keeps_inline, struct node_input *ret) {
    uint64_t key = copy_key(from, to, keeps_inline);
    struct node *node = u64map_get(&copies->made, key);
    if (!node) {
        if (node_is_op(from->src, "Const") && is_plain(from->src->out_types[0]) &&
            may_be_in(copies, from->src, to))
            TRY(add_constant(copies, from->src, to, &node));
        else if (is_frame_op(from->src))
            TRY(add_frame_op(copies, from->src, to, keeps_inline, &node));
        else
            TRY(add_copy(copies, from, to, keeps_inline, &node));
        u64map_put(&copies->made, key, node);
    }
    *ret = (struct node_input){node, 0};
    return NULL;
}

/* ---- edges ---- */

static struct status *convert_input(struct copies *copies, struct node *node, int input) {
    const struct node_input *from = &node->inputs[input];
    if (dtype_is_ref((enum dtype)node->in_types[input]) ||
        plan_takes_any_memory(copies->options, node, input))
        return NULL;
    int to = plan_input_memory(copies->options, node, input);
    if (plan_output_memory(copies->options, from->src, from->index) == to)
        return NULL;
    if (is_late(copies, from) && node_is_op(node, OP_FETCH))
        return NULL;
    if (is_late(copies, from) && !is_frame_op(from->src))
        return convert_reference(copies, node, input, to);
    bool keeps_inline = to != PLAN_HOST && takes_inline(copies, node);
    if (keeps_inline && is_small_constant(from->src))
        to = PLAN_HOST;
    struct node_input value = *from;
    if (plan_output_memory(copies->options, from->src, from->index) != to)
        TRY(converted(copies, from, to, keeps_inline && to != PLAN_HOST, &value));
    node_set_input(node, input, value.src, value.index);
    return NULL;
}

/* A constant that all its consumers have left for a twin is of no use. */
static void remove_unused_constants(struct copies *copies, int n_before) {
    struct graph *graph = copies->graph;
    bool *is_used = xcalloc((size_t)graph->n_nodes + 1, sizeof *is_used);
    for (int id = 0; id < graph->n_nodes; id++)
        for (int i = 0; !graph->nodes[id]->is_removed && i < graph->nodes[id]->n_inputs; i++)
            is_used[graph->nodes[id]->inputs[i].src->id] = true;
    for (int id = 0; id < n_before; id++) {
        struct node *node = graph->nodes[id];
        if (copies->has_twin[id] && !is_used[id])
            graph_remove_node(graph, node);
    }
    free(is_used);
}

struct status *plan_add_copies(struct graph *graph, const struct plan_options *options,
                               const bool *is_reference) {
    struct copies copies = {.graph = graph,
                            .options = options,
                            .is_reference = is_reference,
                            .host = plan_first_cpu(options)->full_name};
    int n_before = graph->n_nodes;
    struct status *st = NULL;
    u64map_init(&copies.made);
    copies.device_of = xcalloc((size_t)n_before + 1, sizeof *copies.device_of);
    copies.has_twin = xcalloc((size_t)n_before + 1, sizeof *copies.has_twin);
    copies.entering = xcalloc((size_t)n_before + 1, sizeof *copies.entering);
    plan_place_carriers(graph, options);
    for (int id = 0; id < n_before; id++) {
        copies.device_of[id] = device_index(options, graph->nodes[id]);
        if (!graph->nodes[id]->is_removed && is_frame_op(graph->nodes[id]))
            copies.entering[id] = graph->nodes[id]->inputs[0];
    }
    for (int id = 0; id < n_before && !st; id++)
        for (int i = 0; !st && !graph->nodes[id]->is_removed && i < graph->nodes[id]->n_data; i++)
            st = convert_input(&copies, graph->nodes[id], i);
    if (!st)
        remove_unused_constants(&copies, n_before);
    free(copies.device_of);
    free(copies.has_twin);
    free(copies.entering);
    u64map_fini(&copies.made);
    return st;
}
