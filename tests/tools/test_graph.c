/* The evaluator of test_host.h: nodes one after the other in topological order. */
#include <stdlib.h>

#include "kernels/infer_eval.h"
#include "kernels/support/variant_copy.h"
#include "kernels/variable.h"
#include "tests/tools/test_device.h"
#include "tests/tools/test_host.h"

enum { NODE_TIMEOUT_MS = 20000 };

void test_graph_init(struct test_graph *graph, struct test_host *host) {
    memset(graph, 0, sizeof(*graph));
    graph_init(&graph->graph);
    graph->host = host;
    graph->allocator = allocator_host();
}

struct status *test_graph_prepare(struct test_graph *graph) {
    graph->n_instances = graph->graph.n_nodes;
    graph->instances = xcalloc((size_t)graph->n_instances + 1, sizeof(*graph->instances));
    if (test_device()) {
        graph->is_on_device = xcalloc((size_t)graph->n_instances + 1, sizeof(bool));
        test_device_place(&graph->graph, graph->is_on_device);
    }
    return graph_topological_order(&graph->graph, &graph->order);
}

void test_graph_fini(struct test_graph *graph) {
    for (int i = 0; i < graph->n_instances; i++)
        kernel_instance_fini(&graph->instances[i]);
    free(graph->instances);
    free(graph->order);
    free(graph->is_on_device);
    graph_fini(&graph->graph);
}

/* The state of one run, by node id. */
struct run {
    struct test_graph *graph;
    struct test_step step;
    bool *is_needed;
    bool *is_dead;
    struct tensor **values; /* n_outputs each; NULL until known */
    struct tensor **fed;    /* likewise; TENSOR_NONE where not fed */
};

static struct tensor *node_tensors(const struct node *node) {
    size_t size = (size_t)(node->n_outputs + 1) * sizeof(struct tensor);
    struct tensor *tensors = aligned_alloc(_Alignof(struct tensor), size);
    CHECK(tensors);
    memset(tensors, 0, size);
    return tensors;
}

static struct status *find_endpoint(const struct graph *graph, const char *endpoint,
                                    struct node **ret_node, int *ret_index) {
    struct span name;
    int index;
    struct node *node = NULL;
    if (endpoint_parse(span_of(endpoint), &name, &index))
        node = graph_find_span(graph, name);
    if (!node || index >= node->n_outputs || index < 0)
        return status_not_found("There is no output %s", endpoint);
    *ret_node = node;
    *ret_index = index;
    return NULL;
}

static bool is_fed(const struct run *run, const struct node *node, int index) {
    return index >= 0 && run->fed[node->id] && run->fed[node->id][index].storage != TENSOR_NONE;
}

/* Marks what must run, without recursion: graphs may be deep. */
static void mark_needed(struct run *run, struct node *node) {
    struct node **stack = xcalloc((size_t)run->graph->graph.n_nodes + 1, sizeof(*stack));
    int n = 0;
    if (!run->is_needed[node->id]) {
        run->is_needed[node->id] = true;
        stack[n++] = node;
    }
    while (n > 0) {
        struct node *top = stack[--n];
        for (int i = 0; i < top->n_inputs; i++) {
            struct node_input in = top->inputs[i];
            if (run->is_needed[in.src->id] || is_fed(run, in.src, in.index))
                continue;
            run->is_needed[in.src->id] = true;
            stack[n++] = in.src;
        }
    }
    free(stack);
}

/* An input as its consumer takes it: a reference is read where a value is wanted. */
static struct status *take_input(struct run *run, const struct node *node, int i,
                                 struct tensor *ret) {
    struct node_input in = node->inputs[i];
    const struct tensor *value = is_fed(run, in.src, in.index) ? &run->fed[in.src->id][in.index]
                                                               : &run->values[in.src->id][in.index];
    if (value->storage == TENSOR_REF && !dtype_is_ref((enum dtype)node->in_types[i]))
        return variable_read(variable_of(value->ref), ret);
    tensor_copy(ret, value);
    return NULL;
}

static bool run_switch(const struct node *node, struct tensor *inputs, struct tensor *outputs) {
    if (!node_is_op(node, "Switch") && !node_is_op(node, "RefSwitch"))
        return false;
    bool taken = *(const bool *)tensor_cdata(&inputs[1]);
    tensor_init_dead(&outputs[!taken]);
    tensor_move(&outputs[taken], &inputs[0]);
    return true;
}

static bool run_merge(const struct node *node, struct tensor *inputs, struct tensor *outputs) {
    if (!node_is_op(node, "Merge") && !node_is_op(node, "RefMerge"))
        return false;
    for (int i = 0; i < node->n_data; i++) {
        if (inputs[i].storage == TENSOR_DEAD)
            continue;
        tensor_move(&outputs[0], &inputs[i]);
        tensor_init_scalar_i32(&outputs[1], i);
        return true;
    }
    tensor_init_dead(&outputs[0]);
    tensor_init_dead(&outputs[1]);
    return true;
}

/* Tells the device that its step has nothing else to run, as an execution does. */
static void flush_device(struct run *run) {
    struct device *device = test_device();
    if (device && device->ops->flush)
        status_unref(device->ops->flush(device, &run->step));
}

/* The node's row on the device; NULL: it runs on the CPU. */
static const struct kernel_def *device_row(const struct run *run, const struct node *node) {
    const bool *is_on_device = run->graph->is_on_device;
    return is_on_device && is_on_device[node->id] ? kernel_find(node, "GPU") : NULL;
}

static struct status *init_kernel(struct run *run, const struct node *node,
                                  const struct kernel_def *def, struct kernel_instance *instance) {
    bool is_of_cpu = !def || (def->flags & KERNEL_OF_CPU), makes_host_values = node->n_outputs > 0;
    for (int i = 0; def && i < node->n_outputs; i++)
        makes_host_values &= kernel_output_is_on_host(def, node, i);
    struct allocator *allocator =
        def && !(is_of_cpu && makes_host_values) ? test_device()->allocator : run->graph->allocator;
    return kernel_instance_init(instance, node, is_of_cpu ? "CPU" : "GPU", TEST_DEVICE, allocator,
                                &run->graph->host->host);
}

static struct status *copy_there(bool is_upload, const struct tensor *from, struct tensor *ret) {
    return is_upload ? test_device_upload(test_device(), from, ret)
                     : test_device_download(test_device(), from, ret);
}

/* Moves the tensors of lists in a variant to one memory. */
static struct status *move_variant(bool is_wanted, struct tensor *input) {
    struct variant_places places;
    struct tensor made = TENSOR_INIT;
    struct status *st =
        variant_copy_begin(input, is_wanted ? test_device()->allocator : NULL, &made, &places);
    for (int64_t i = 0; !st && i < places.n; i++) {
        struct tensor there = TENSOR_INIT;
        st = copy_there(is_wanted, places.items[i], &there);
        tensor_clear(places.items[i]);
        tensor_move(places.items[i], &there);
    }
    tensor_clear(input);
    tensor_move(input, &made);
    variant_places_fini(&places);
    return st;
}

/* Copies input i to the memory where the kernel wants it. */
static struct status *move_input(const struct node *node, const struct kernel_def *def, int i,
                                 struct tensor *input) {
    struct tensor there = TENSOR_INIT;
    enum dtype dtype = (enum dtype)node->in_types[i];
    bool is_wanted = def && !dtype_is_ref(dtype) && !kernel_input_is_on_host(def, node, i) &&
                     dtype_in(dtype, DTYPES_PLAIN | DTYPE_BIT(DT_VARIANT));
    if (tensor_has_value(input) && dtype == DT_VARIANT)
        return move_variant(is_wanted, input);
    if (!tensor_has_value(input) || input->n_elements == 0 ||
        is_wanted == tensor_is_on_device(input))
        return NULL;
    if (is_wanted && (def->flags & KERNEL_TAKES_INLINE) && input->storage == TENSOR_INLINE)
        return NULL;
    TRY(copy_there(is_wanted, input, &there));
    tensor_clear(input);
    tensor_move(input, &there);
    return NULL;
}

static struct status *run_kernel(struct run *run, const struct node *node, struct tensor *inputs,
                                 struct tensor *outputs) {
    struct kernel_instance *instance = &run->graph->instances[node->id];
    const struct kernel_def *def = device_row(run, node);
    if (!instance->def)
        TRY(init_kernel(run, node, def, instance));
    for (int i = 0; test_device() && i < node->n_data; i++)
        TRY(move_input(node, def, i, &inputs[i]));
    struct test_call call;
    test_call_start(&call, &run->step, instance, inputs);
    test_call_skip_time(&call);
    flush_device(run);
    struct status *st = test_call_wait(&call, NODE_TIMEOUT_MS);
    for (int i = 0; !st && i < node->n_outputs; i++) {
        CHECK(call.ctx.outputs[i].storage != TENSOR_NONE); /* a kernel that forgot an output */
        if (call.ctx.outputs[i].storage != TENSOR_REF && call.ctx.outputs[i].storage != TENSOR_DEAD)
            CHECK(call.ctx.outputs[i].dtype == dtype_base((enum dtype)node->out_types[i]));
        tensor_move(&outputs[i], &call.ctx.outputs[i]);
    }
    test_call_fini(&call);
    return status_suffix_take(st, "\n\t [[{{node %s}}]]", node->name);
}

static struct status *run_node(struct run *run, struct node *node) {
    struct tensor *outputs = run->values[node->id] = node_tensors(node);
    struct tensor *inputs =
        aligned_alloc(_Alignof(struct tensor), (size_t)(node->n_data + 1) * sizeof(*inputs));
    CHECK(inputs);
    memset(inputs, 0, (size_t)(node->n_data + 1) * sizeof(*inputs));
    struct status *st = NULL;
    bool any_dead = false, is_merge = node_is_op(node, "Merge") || node_is_op(node, "RefMerge");
    for (int i = 0; i < node->n_inputs && !st; i++) {
        if (i < node->n_data)
            st = take_input(run, node, i, &inputs[i]);
        any_dead |= i < node->n_data ? inputs[i].storage == TENSOR_DEAD
                                     : run->is_dead[node->inputs[i].src->id];
    }
    if (!st && (node_is_op(node, "Switch") || node_is_op(node, "RefSwitch")) && !any_dead)
        st = move_input(node, NULL, 1, &inputs[1]);
    if (!st && any_dead && !is_merge) {
        run->is_dead[node->id] = true;
        for (int i = 0; i < node->n_outputs; i++)
            tensor_init_dead(&outputs[i]);
    } else if (!st && !run_switch(node, inputs, outputs) && !run_merge(node, inputs, outputs)) {
        st = run_kernel(run, node, inputs, outputs);
    }
    if (!st && is_merge)
        run->is_dead[node->id] = outputs[0].storage == TENSOR_DEAD;
    for (int i = 0; i < node->n_data; i++)
        tensor_clear(&inputs[i]);
    free(inputs);
    return st;
}

static struct status *fetch(struct run *run, const char *endpoint, struct tensor *ret) {
    struct node *node;
    int index;
    TRY(find_endpoint(&run->graph->graph, endpoint, &node, &index));
    const struct tensor *value =
        is_fed(run, node, index) ? &run->fed[node->id][index] : &run->values[node->id][index];
    struct tensor read = TENSOR_INIT;
    if (value->storage == TENSOR_DEAD)
        return status_invalid("Retval[0] does not have value: %s is dead", endpoint);
    if (value->storage == TENSOR_REF)
        TRY(variable_read(variable_of(value->ref), &read));
    else
        tensor_copy(&read, value);
    struct status *st = NULL;
    if (test_device() && read.dtype == DT_VARIANT)
        st = move_variant(false, &read);
    if (!st && tensor_is_on_device(&read))
        st = test_device_download(test_device(), &read, ret);
    else if (!st)
        tensor_move(ret, &read);
    tensor_clear(&read);
    return st;
}

static void run_fini(struct run *run) {
    for (int id = 0; id < run->graph->graph.n_nodes; id++) {
        for (int i = 0; run->values[id] && i < run->graph->graph.nodes[id]->n_outputs; i++)
            tensor_clear(&run->values[id][i]);
        for (int i = 0; run->fed[id] && i < run->graph->graph.nodes[id]->n_outputs; i++)
            tensor_clear(&run->fed[id][i]);
        free(run->values[id]);
        free(run->fed[id]);
    }
    free(run->values);
    free(run->fed);
    free(run->is_needed);
    free(run->is_dead);
    test_step_fini(&run->step);
}

struct status *test_graph_run(struct test_graph *graph, const struct test_feed *feeds, int n_feeds,
                              const char *const *fetches, int n_fetches, const char *const *targets,
                              int n_targets, struct tensor *ret) {
    size_t n = (size_t)graph->graph.n_nodes + 1;
    struct run run = {.graph = graph,
                      .is_needed = xcalloc(n, sizeof(bool)),
                      .is_dead = xcalloc(n, sizeof(bool)),
                      .values = xcalloc(n, sizeof(void *)),
                      .fed = xcalloc(n, sizeof(void *))};
    test_step_init(&run.step, graph->host);
    struct status *st = NULL;
    struct node *node;
    int index, n_fetched = 0;
    for (int i = 0; i < n_feeds; i++) {
        TRY_OUT(find_endpoint(&graph->graph, feeds[i].endpoint, &node, &index));
        if (!run.fed[node->id])
            run.fed[node->id] = node_tensors(node);
        tensor_clear(&run.fed[node->id][index]);
        tensor_copy(&run.fed[node->id][index], &feeds[i].value);
    }
    for (int i = 0; i < n_fetches; i++) {
        TRY_OUT(find_endpoint(&graph->graph, fetches[i], &node, &index));
        if (!is_fed(&run, node, index))
            mark_needed(&run, node);
    }
    for (int i = 0; i < n_targets; i++) {
        node = graph_find(&graph->graph, targets[i]);
        if (!node) {
            st = status_not_found("There is no node %s", targets[i]);
            goto out;
        }
        mark_needed(&run, node);
    }
    for (int i = 0; i < graph->graph.n_live; i++) {
        if (run.is_needed[graph->order[i]->id])
            TRY_OUT(run_node(&run, graph->order[i]));
    }
    if (test_device())
        TRY_OUT(test_device_wait(test_device()));
    for (; n_fetched < n_fetches; n_fetched++)
        TRY_OUT(fetch(&run, fetches[n_fetched], &ret[n_fetched]));
out:
    for (int i = 0; st && i < n_fetched; i++)
        tensor_clear(&ret[i]);
    run_fini(&run);
    return st;
}

/* ---- static shapes ---- */

static void print_shapes(const struct graph_shapes *shapes, const struct node *node, int index,
                         char **ret_text) {
    struct str text = STR_INIT;
    shape_print(graph_shapes_of(shapes, node, index), &text);
    *ret_text = str_detach(&text);
}

struct status *test_graph_infer(struct test_graph *graph, const char *const *fetches, int n_fetches,
                                char **ret_texts) {
    struct graph_shapes shapes;
    struct infer_options options;
    struct node *node;
    int index;
    struct status *st = NULL;
    graph_shapes_init(&shapes);
    infer_options_with_kernels(&options);
    options.refuses = true;
    TRY_OUT(graph_infer_shapes(&graph->graph, &shapes, &options));
    for (int i = 0; i < n_fetches; i++)
        TRY_OUT(find_endpoint(&graph->graph, fetches[i], &node, &index));
    for (int i = 0; i < n_fetches; i++) {
        TRY_OUT(find_endpoint(&graph->graph, fetches[i], &node, &index));
        print_shapes(&shapes, node, index, &ret_texts[i]);
    }
out:
    graph_shapes_fini(&shapes);
    return st;
}
