/* Adds, finds, changes and removes nodes and edges. node_attrs.c has attrs, node_check.c checks,
 * graph_walk.c walks. */
#include "common/graph/graph.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>

#include "common/graph/graph_controls.h"
#include "common/graph/graph_internal.h"
#include "common/graph/internal_ops.h"

void graph_init(struct graph *graph) {
    memset(graph, 0, sizeof(*graph));
    arena_init(&graph->arena);
    strmap_init(&graph->by_name);
    strmap_init(&graph->functions);
    strmap_init(&graph->name_counters);
    u64map_init(&graph->ops);
}

void graph_fini(struct graph *graph) {
    if (!graph)
        return;
    for (int i = 0; i < graph->n_tensors; i++)
        tensor_clear(graph->tensors[i]);
    free(graph->tensors);
    free(graph->nodes);
    strmap_fini(&graph->by_name);
    strmap_fini(&graph->functions);
    strmap_fini(&graph->name_counters);
    u64map_fini(&graph->ops);
    arena_fini(&graph->arena);
    graph_init(graph);
}

/* ---- ops ---- */

const struct op_signature *graph_op_lookup_span(struct graph *graph, struct span name) {
    const struct op_signature *op = op_signature_find_n(name.data, name.len);
    if (!op)
        op = internal_op_find(name);
    if (op)
        return op;
    struct graph_function *function = strmap_get_span(&graph->functions, name);
    return function ? function->signature : NULL;
}

const struct op_signature *graph_op_lookup(struct graph *graph, const char *name) {
    return graph_op_lookup_span(graph, span_of(name));
}

struct status *op_not_registered(struct span op) {
    return status_not_found("Op type not registered '%.*s' in binary running on this host. "
                            "Millrace knows the ops of TensorFlow 2.21 and the "
                            "functions of the graph's own library.",
                            (int)MIN(op.len, (size_t)256), op.data);
}

/* ---- nodes ---- */

bool node_name_is_valid(struct span name, bool is_internal) {
    if (name.len == 0 || !(isalnum((unsigned char)name.data[0]) || name.data[0] == '.' ||
                           (is_internal && name.data[0] == '_')))
        return false;
    for (size_t i = 1; i < name.len; i++)
        if (!isalnum((unsigned char)name.data[i]) &&
            (name.data[i] == '\0' || !strchr("_>./-", name.data[i])))
            return false;
    return true;
}

struct status *node_name_refused(struct span name) {
    int shown = (int)MIN(name.len, (size_t)256);
    return status_invalid("Illegal op name '%.*s'\n\t [[{{node %.*s}}]]", shown, name.data, shown,
                          name.data);
}

static const char *device_text(struct graph *graph, struct span device) {
    if (device.len == 0)
        return "";
    const char *before = graph->n_nodes > 0 ? graph->nodes[graph->n_nodes - 1]->device : "";
    return span_is(device, before) ? before : arena_strndup(&graph->arena, device.data, device.len);
}

struct node *graph_new_node(struct graph *graph, struct span name, const struct op_signature *op,
                            struct span device, int attrs_capacity) {
    if (graph->n_nodes == graph->capacity) {
        graph->capacity = graph->capacity ? 2 * graph->capacity : 64;
        graph->nodes =
            xreallocarray(graph->nodes, (size_t)graph->capacity, sizeof(graph->nodes[0]));
    }
    struct node *node = arena_new(&graph->arena, struct node);
    node->id = graph->n_nodes;
    node->name = arena_strndup(&graph->arena, name.data, name.len);
    node->op_name = op->name;
    node->op = op;
    node->device = device_text(graph, device);
    node->placed = -1;
    node->attrs_capacity = attrs_capacity;
    node->attrs = arena_alloc(&graph->arena, (size_t)attrs_capacity * sizeof(node->attrs[0]));
    graph->nodes[graph->n_nodes++] = node;
    graph->n_live++;
    strmap_put_span(&graph->by_name, (struct span){node->name, name.len}, node);
    return node;
}

struct status *graph_add_node(struct graph *graph, const char *name, const char *op,
                              const char *device, struct node **ret_node) {
    if (!node_name_is_valid(span_of(name), true))
        return node_name_refused(span_of(name));
    if (graph_find(graph, name))
        return status_invalid("Node '%s' is not unique", name);
    const struct op_signature *signature = graph_op_lookup(graph, op);
    if (!signature)
        return op_not_registered(span_of(op));
    struct node *node =
        graph_new_node(graph, span_of(name), signature, span_of(device), signature->n_attrs + 1);
    node_fill_defaults(graph, node);
    *ret_node = node;
    return NULL;
}

void graph_drop_newest(struct graph *graph, int n_nodes) {
    while (graph->n_nodes > n_nodes) {
        struct node *node = graph->nodes[--graph->n_nodes];
        if (node->is_removed)
            continue;
        strmap_remove(&graph->by_name, node->name);
        graph->n_live--;
    }
}

const char *graph_unique_name(struct graph *graph, const char *prefix) {
    if (!graph_find(graph, prefix))
        return arena_strdup(&graph->arena, prefix);
    uintptr_t next = (uintptr_t)strmap_get(&graph->name_counters, prefix);
    bool is_new = next == 0;
    const char *name;
    do
        name = arena_printf(&graph->arena, "%s_%lu", prefix, (unsigned long)++next);
    while (graph_find(graph, name));
    strmap_put(&graph->name_counters, is_new ? arena_strdup(&graph->arena, prefix) : prefix,
               (void *)next);
    return name;
}

struct node *graph_find(const struct graph *graph, const char *name) {
    return strmap_get(&graph->by_name, name);
}

struct node *graph_find_span(const struct graph *graph, struct span name) {
    return strmap_get_span(&graph->by_name, name);
}

void graph_remove_node(struct graph *graph, struct node *node) {
    if (node->is_removed)
        return;
    strmap_remove(&graph->by_name, node->name);
    node->is_removed = true;
    graph->n_live--;
}

/* ---- edges ---- */

static void append_input(struct graph *graph, struct node *node, struct node_input input) {
    if (node->n_inputs == node->inputs_capacity) {
        int capacity = node->inputs_capacity ? 2 * node->inputs_capacity : 2;
        struct node_input *inputs =
            arena_alloc(&graph->arena, (size_t)capacity * sizeof(inputs[0]));
        if (node->n_inputs > 0)
            memcpy(inputs, node->inputs, (size_t)node->n_inputs * sizeof(inputs[0]));
        node->inputs = inputs;
        node->inputs_capacity = capacity;
    }
    node->inputs[node->n_inputs++] = input;
}

void node_add_input(struct graph *graph, struct node *node, struct node *src, int index) {
    CHECK(node->n_data == node->n_inputs && index >= 0);
    append_input(graph, node, (struct node_input){src, index});
    node->n_data++;
}

void node_add_control(struct graph *graph, struct node *node, struct node *src) {
    for (int i = node->n_data; i < node->n_inputs; i++)
        if (node->inputs[i].src == src)
            return;
    append_input(graph, node, (struct node_input){src, CONTROL_EDGE});
}

void node_add_controls(struct graph *graph, struct node *node, struct node *const *srcs, int n) {
    enum { FEW = 64 };
    struct u64map seen;
    if (n + node->n_inputs - node->n_data <= FEW) {
        for (int i = 0; i < n; i++)
            if (srcs[i])
                node_add_control(graph, node, srcs[i]);
        return;
    }
    u64map_init(&seen);
    for (int i = node->n_data; i < node->n_inputs; i++)
        u64map_put(&seen, (uint64_t)node->inputs[i].src->id, node);
    for (int i = 0; i < n; i++)
        if (srcs[i] && !u64map_put(&seen, (uint64_t)srcs[i]->id, node))
            append_input(graph, node, (struct node_input){srcs[i], CONTROL_EDGE});
    u64map_fini(&seen);
}

void node_drop_doubled_controls(struct node *node, int *last_seen) {
    int kept = node->n_inputs;
    for (int i = node->n_inputs - 1; i >= node->n_data; i--) {
        int src = node->inputs[i].src->id;
        if (last_seen[src] != node->id + 1)
            node->inputs[--kept] = node->inputs[i];
        last_seen[src] = node->id + 1;
    }
    if (kept == node->n_data)
        return;
    memmove(&node->inputs[node->n_data], &node->inputs[kept],
            (size_t)(node->n_inputs - kept) * sizeof(node->inputs[0]));
    node->n_inputs -= kept - node->n_data;
}

void node_set_input(struct node *node, int position, struct node *src, int index) {
    CHECK(position >= 0 && position < node->n_inputs && (position < node->n_data) == (index >= 0));
    node->inputs[position] = (struct node_input){src, index};
}

void node_remove_input(struct node *node, int position) {
    CHECK(position >= 0 && position < node->n_inputs);
    if (position < node->n_data)
        node->n_data--;
    node->n_inputs--;
    memmove(&node->inputs[position], &node->inputs[position + 1],
            (size_t)(node->n_inputs - position) * sizeof(node->inputs[0]));
}

bool node_is_op(const struct node *node, const char *op_name) {
    return strcmp(node->op_name, op_name) == 0;
}

bool node_is_either(const struct node *node, const char *op_name, const char *other_name) {
    return node_is_op(node, op_name) || node_is_op(node, other_name);
}

bool node_is_stateful(const struct node *node) { return node->op->is_stateful; }

bool endpoint_parse(struct span text, struct span *ret_name, int *ret_index) {
    int64_t index = 0;
    size_t len = text.len;
    if (len > 0 && text.data[0] == '^') {
        *ret_name = (struct span){text.data + 1, len - 1};
        *ret_index = CONTROL_EDGE;
        return len > 1 && !memchr(text.data, ':', len);
    }
    const char *colon = len > 0 ? memchr(text.data, ':', len) : NULL;
    if (colon) {
        size_t digits = len - (size_t)(colon - text.data) - 1;
        if (digits == 0)
            return false;
        for (size_t i = 1; i <= digits; i++) {
            if (!isdigit((unsigned char)colon[i]))
                return false;
            index = MIN(index * 10 + (colon[i] - '0'), INT_MAX);
        }
        len = (size_t)(colon - text.data);
    }
    if (len == 0)
        return false;
    *ret_name = (struct span){text.data, len};
    *ret_index = (int)index;
    return true;
}
