/* Fuzzes gradients: graphs of loops and conditionals of any form are differentiated or refused, and
 * what was added keeps a graph's invariants. Each node is two or three bytes: its op, and which
 * earlier nodes are its inputs. */
#include <stdlib.h>

#include "common/gradients/backprop.h"
#include "common/tensor/tensor.h"
#include "tests/fuzz/input_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_ADDED = 400, MAX_GRADIENT_NODES = 20000, MAX_ENDS = 4 };

/* f: a float, b: a bool */
struct node_kind {
    const char *op, *inputs, *outputs;
};
static const struct node_kind kinds[] = {
    {"Const", "", "f"},           {"Const", "", "b"},        {"Identity", "f", "f"},
    {"Identity", "b", "b"},       {"Mul", "ff", "f"},        {"AddV2", "ff", "f"},
    {"Tanh", "f", "f"},           {"Less", "ff", "b"},       {"Switch", "fb", "ff"},
    {"Switch", "bb", "bb"},       {"Merge", "ff", "f"},      {"Enter", "f", "f"},
    {"Enter", "b", "b"},          {"LoopCond", "b", "b"},    {"NextIteration", "f", "f"},
    {"Exit", "f", "f"},           {"_SwitchN", "fi", "fff"}, {"Const", "", "i"},
    {"ReadVariableOp", "r", "f"}, {"VarHandleOp", "", "r"},
};

struct world {
    struct graph graph;
    /* outputs by type, to choose inputs from */
    struct node_input values[4][4 * MAX_ADDED];
    int n_values[4], n_nodes;
};

static int type_index(char type) { return (int)(strchr("fbir", type) - "fbir"); }

static bool choose(const struct world *w, char type, struct node_input *ret) {
    int t = type_index(type);
    unsigned at = take_byte();
    if (w->n_values[t] == 0)
        return false;
    /* mostly one of the last */
    *ret = w->values[t][at < 192 ? w->n_values[t] - 1 - (int)at % MIN(w->n_values[t], 16)
                                 : (int)at % w->n_values[t]];
    return true;
}

static void set_value(struct world *w, struct node *node, char type) {
    struct tensor value = TENSOR_INIT;
    if (type == 'f')
        tensor_init_scalar_f32(&value, 2);
    else if (type == 'b')
        tensor_init_scalar_bool(&value, true);
    else
        tensor_init_scalar_i32(&value, 1);
    node_set_attr_type(&w->graph, node, "dtype", (enum dtype)value.dtype);
    node_set_attr_tensor(&w->graph, node, "value", &value);
}

static void set_attrs(struct world *w, struct node *node, const struct node_kind *kind) {
    static const enum dtype dtypes[] = {DT_FLOAT, DT_BOOL, DT_INT32, DT_RESOURCE};
    if (strcmp(kind->op, "Const") == 0)
        set_value(w, node, kind->outputs[0]);
    else if (op_signature_attr(node->op, "T"))
        node_set_attr_type(&w->graph, node, "T", dtypes[type_index(kind->inputs[0])]);
    if (op_signature_attr(node->op, "dtype") && strcmp(kind->op, "Const") != 0)
        node_set_attr_type(&w->graph, node, "dtype", DT_FLOAT);
    if (op_signature_attr(node->op, "N"))
        node_set_attr_i(&w->graph, node, "N", 2);
    if (op_signature_attr(node->op, "num_outs"))
        node_set_attr_i(&w->graph, node, "num_outs", 3);
    if (op_signature_attr(node->op, "frame_name")) {
        const char name[] = {(char)('a' + take_byte() % 4), '\0'};
        node_set_attr_s(&w->graph, node, "frame_name", name);
        node_set_attr_b(&w->graph, node, "is_constant", take_byte() % 2);
    }
}

static void add_node(struct world *w) {
    const struct node_kind *kind = &kinds[take_byte() % ARRAY_LEN(kinds)];
    struct node_input inputs[2];
    struct node *node;
    int n = (int)strlen(kind->inputs);
    for (int i = 0; i < n; i++)
        if (!choose(w, kind->inputs[i], &inputs[i]))
            return;
    status_unref(graph_add_node(&w->graph, graph_unique_name(&w->graph, "n"), kind->op, "", &node));
    set_attrs(w, node, kind);
    for (int i = 0; i < n; i++)
        node_add_input(&w->graph, node, inputs[i].src, inputs[i].index);
    struct status *st = node_finish(&w->graph, node);
    if (st) {
        graph_remove_node(&w->graph, node);
        status_unref(st);
        return;
    }
    for (int i = 0; kind->outputs[i]; i++) {
        int t = type_index(kind->outputs[i]);
        w->values[t][w->n_values[t]++] = (struct node_input){node, i};
    }
    w->n_nodes++;
}

/* Lets a Merge take a NextIteration that came later. */
static void close_loops(struct world *w) {
    for (int id = 0; id < w->graph.n_nodes; id++) {
        struct node *node = w->graph.nodes[id];
        struct node_input next;
        if (node->is_removed || !node_is_op(node, "Merge") || take_byte() % 2 == 0 ||
            !choose(w, 'f', &next))
            continue;
        if (node_is_op(next.src, "NextIteration"))
            node_set_input(node, (int)take_byte() % 2, next.src, next.index);
    }
}

static void check(const struct world *w, int first_id) {
    CHECK(!graph_order_from(&w->graph, 0, NULL));
    for (int id = first_id; id < w->graph.n_nodes; id++) {
        const struct node *node = w->graph.nodes[id];
        for (int i = 0; i < node->n_data; i++)
            CHECK(!node->inputs[i].src->is_removed &&
                  node->inputs[i].index < node->inputs[i].src->n_outputs);
    }
}

static void differentiate(struct world *w) {
    struct node_input xs[MAX_ENDS], ys[MAX_ENDS], dys[MAX_ENDS], dxs[MAX_ENDS];
    int n_xs = 0, n_ys = 0;
    for (int i = 0; i < 1 + (int)take_byte() % MAX_ENDS; i++)
        n_ys += choose(w, 'f', &ys[n_ys]);
    for (int i = 0; i < 1 + (int)take_byte() % MAX_ENDS; i++)
        if (choose(w, take_byte() % 8 ? 'f' : 'r', &xs[n_xs])) {
            bool is_new = true;
            for (int k = 0; k < n_xs; k++)
                is_new = is_new && (xs[k].src != xs[n_xs].src || xs[k].index != xs[n_xs].index);
            n_xs += is_new;
        }
    for (int i = 0; i < n_ys; i++)
        dys[i] = ys[i];
    int first_id = w->graph.n_nodes;
    const struct backprop backprop = {.graph = &w->graph,
                                      .xs = xs,
                                      .n_xs = n_xs,
                                      .ys = ys,
                                      .dys = dys,
                                      .n_ys = n_ys,
                                      .max_nodes = MAX_GRADIENT_NODES,
                                      .prefix = "gradients"};
    struct status *st = backprop_run(&backprop, dxs);
    CHECK(status_code(st) != STATUS_INTERNAL);
    if (!st)
        check(w, first_id);
    status_unref(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct world w;
    in = (struct span){(const char *)data, size};
    memset(w.n_values, 0, sizeof(w.n_values));
    w.n_nodes = 0;
    graph_init(&w.graph);
    unsigned n = take_byte() | take_byte() << 8;
    for (unsigned i = 0; i < n % MAX_ADDED && in.len > 0; i++)
        add_node(&w);
    close_loops(&w);
    struct status *cycle = graph_order_from(&w.graph, 0, NULL);
    if (!cycle)
        differentiate(&w);
    status_unref(cycle);
    graph_fini(&w.graph);
    return 0;
}
