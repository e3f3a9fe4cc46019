/* Reads and writes GraphDef. Reading has five linear rounds. When one fails, everything that the
 * message added is removed:
 *
 *   functions ─► nodes with attrs ─► types of inputs and outputs
 *             ─► edges, checked against these types ─► no cycle but through NextIteration */
#include "common/graph/graph_proto.h"

#include <limits.h>
#include <stdlib.h>

#include "common/graph/graph_internal.h"
#include "common/graph/internal_ops.h"
#include "common/tensor/tensor_proto.h"

/* Nesting levels above an AttrValue: GraphDef, NodeDef, map entry. */
enum { NODE_ATTR_DEPTH = 3 };

void graph_limits_default(struct graph_limits *limits) {
    *limits = (struct graph_limits){
        .max_nodes = 1000 * 1000,
        .max_depth = 100,
        .max_list_elements = 1 << 24,
        .max_tensor_bytes = 2ll << 30,
    };
}

/* ---- depth ---- */

/* `message` must be a sequence of well-formed fields: a decoder does not descend into anything
 * else. Each byte is visited at most max_depth times. */
static bool nests_too_deep(struct span message, int max_depth) {
    struct proto_field field;
    while (proto_next(&message, &field) > 0)
        if (field.wire_type == 2 && field.bytes.len > 0 && proto_is_message(field.bytes) &&
            (max_depth == 0 || nests_too_deep(field.bytes, max_depth - 1)))
            return true;
    return false;
}

bool proto_is_too_deep(struct span message, int max_depth) {
    return !proto_is_message(message) || max_depth <= 0 || nests_too_deep(message, max_depth - 1);
}

/* ---- reading ---- */

/* A node of the message, from one round to the next. */
struct new_node {
    struct node *node;
    struct span def;
    int n_inputs;
};

struct reader {
    struct graph *graph;
    const struct graph_limits *limits;
    struct attr_reader attrs;
    struct new_node *nodes;
    int n_nodes;
    int n_nodes_before, n_gradient_defs_before, producer, min_consumer;
    const char **functions; /* added by this message */
    int n_functions;
    struct strmap gradients; /* the graph's gradient_defs, once one has come */
};

static COLD struct status *malformed(const char *what) {
    return status_invalid("Malformed GraphDef: %s", what);
}

static struct status *read_versions(struct reader *reader, struct span proto) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&proto, &field)) > 0) {
        if (field.number == 1 && field.wire_type == 0)
            reader->producer = (int)MIN(field.value, (uint64_t)INT_MAX);
        else if (field.number == 2 && field.wire_type == 0)
            reader->min_consumer = (int)MIN(field.value, (uint64_t)INT_MAX);
    }
    return more < 0 ? malformed("its versions cannot be read") : NULL;
}

static struct status *read_top(struct reader *reader, struct span graphdef, int *ret_n_nodes) {
    struct proto_field field;
    int more, n_nodes = 0;
    reader->producer = reader->graph->producer;
    while ((more = proto_next(&graphdef, &field)) > 0) {
        n_nodes += field.number == 1 && field.wire_type == 2;
        if (field.number == 4 && field.wire_type == 2)
            TRY(read_versions(reader, field.bytes));
        if (n_nodes > reader->limits->max_nodes - reader->graph->n_live)
            return status_exhausted("A graph with more than %d nodes", reader->limits->max_nodes);
    }
    if (more < 0)
        return malformed("its fields cannot be read");
    if (reader->min_consumer > GRAPH_DEF_VERSION)
        return status_invalid(
            "GraphDef min consumer version %d above current version %d, TensorFlow 2.21's.",
            reader->min_consumer, GRAPH_DEF_VERSION);
    *ret_n_nodes = n_nodes;
    return NULL;
}

/* ---- round 1: functions ---- */

/* Takes a definition once. */
static void add_gradient_def(struct reader *reader, struct span def) {
    struct graph *graph = reader->graph;
    int n = graph->n_gradient_defs;
    for (int i = (int)reader->gradients.n_entries; i < n; i++)
        strmap_put_span(&reader->gradients, graph->gradient_defs[i], graph);
    if (strmap_get_span(&reader->gradients, def))
        return;
    if ((n & (n - 1)) == 0) {
        struct span *defs = arena_array(&graph->arena, struct span, 2 * n + 1);
        if (n > 0)
            memcpy(defs, graph->gradient_defs, (size_t)n * sizeof(defs[0]));
        graph->gradient_defs = defs;
    }
    graph->gradient_defs[n] =
        (struct span){arena_memdup(&graph->arena, def.data, def.len), def.len};
    strmap_put_span(&reader->gradients, graph->gradient_defs[n], graph);
    graph->n_gradient_defs++;
}

static struct status *read_library(struct reader *reader, struct span library) {
    enum { MAX_GRADIENT_DEFS = 10000 };
    struct graph *graph = reader->graph;
    struct proto_field field;
    int more;
    while ((more = proto_next(&library, &field)) > 0) {
        if (field.wire_type != 2 || field.number > 2)
            continue;
        if (field.number == 2) {
            if (graph->n_gradient_defs >= MAX_GRADIENT_DEFS)
                return status_exhausted("A function library with more than %d gradients",
                                        MAX_GRADIENT_DEFS);
            add_gradient_def(reader, field.bytes);
            continue;
        }
        struct graph_function *added;
        TRY(graph_new_function(graph, field.bytes, reader->limits, &added));
        if (!added)
            continue;
        /* full when n is a power of two */
        if ((reader->n_functions & (reader->n_functions - 1)) == 0)
            reader->functions =
                xreallocarray(reader->functions, 2 * (size_t)reader->n_functions + 1,
                              sizeof(reader->functions[0]));
        reader->functions[reader->n_functions++] = added->name;
        if (op_signature_find(added->name))
            return status_invalid(
                "Cannot add function '%s' because an op with the same name already exists.",
                added->name);
    }
    return more < 0 ? malformed("its library cannot be read") : NULL;
}

/* ---- round 2: nodes ---- */

struct node_parts {
    struct span name, op, device;
    int n_inputs, n_attrs;
};

static struct status *read_node_parts(struct span def, struct node_parts *parts) {
    struct proto_field field;
    int more;
    *parts = (struct node_parts){.name = {"", 0}, .op = {"", 0}, .device = {"", 0}};
    while ((more = proto_next(&def, &field)) > 0) {
        if (field.wire_type != 2)
            continue;
        if (field.number == 1)
            parts->name = field.bytes;
        else if (field.number == 2)
            parts->op = field.bytes;
        else if (field.number == 3)
            parts->n_inputs++;
        else if (field.number == 4)
            parts->device = field.bytes;
        else if (field.number == 5)
            parts->n_attrs++;
    }
    return more < 0 ? malformed("a node cannot be read") : NULL;
}

static struct status *find_op(struct reader *reader, struct span name,
                              const struct op_signature **ret) {
    const struct op_signature *op = graph_op_lookup_span(reader->graph, name);
    if (unlikely(!op || (!reader->limits->is_internal && internal_op_find(name))))
        return op_not_registered(name);
    if (unlikely(op->deprecated_at_version && reader->producer >= op->deprecated_at_version))
        return status_unimplemented(
            "Op %s is not available in GraphDef version %d. It has been removed in version "
            "%d.%s%s%s",
            op->name, reader->producer, op->deprecated_at_version, op->replaced_by ? " Use " : "",
            op->replaced_by ? op->replaced_by : "", op->replaced_by ? "." : "");
    *ret = op;
    return NULL;
}

static struct status *read_attrs(struct reader *reader, struct node *node, struct span def) {
    struct proto_field field;
    while (proto_next(&def, &field) > 0) {
        bool is_set;
        if (field.number != 5 || field.wire_type != 2)
            continue;
        TRY(attr_read_entry(&reader->attrs, field.bytes, node->op, NODE_ATTR_DEPTH,
                            &node->attrs[node->n_attrs], &is_set));
        node->n_attrs += is_set;
    }
    node->n_attrs = attrs_sort(node->attrs, node->n_attrs);
    node_fill_defaults(reader->graph, node);
    return NULL;
}

static struct status *read_node(struct reader *reader, struct span def) {
    struct node_parts parts;
    const struct op_signature *op = NULL;
    TRY(read_node_parts(def, &parts));
    if (unlikely(!node_name_is_valid(parts.name, reader->limits->is_internal)))
        return node_name_refused(parts.name);
    const struct node *twin = graph_find_span(reader->graph, parts.name);
    if (unlikely(twin && twin->id >= reader->n_nodes_before))
        return status_invalid("Node '%s' is not unique", twin->name);
    if (unlikely(twin))
        return status_invalid("GraphDef argument to Extend includes node '%s', which was created "
                              "by a previous call to Create or Extend in this "
                              "session.",
                              twin->name);
    TRY(find_op(reader, parts.op, &op));
    if (unlikely(parts.n_attrs > NODE_MAX_ATTRS))
        return status_invalid("Node '%.*s' states %d attrs, more than %d", (int)parts.name.len,
                              parts.name.data, parts.n_attrs, NODE_MAX_ATTRS);
    struct node *node =
        graph_new_node(reader->graph, parts.name, op, parts.device, parts.n_attrs + op->n_attrs);
    reader->nodes[reader->n_nodes++] = (struct new_node){node, def, parts.n_inputs};
    return status_suffix_take(read_attrs(reader, node, def), "\n\t [[{{node %s}}]]", node->name);
}

/* ---- round 4: edges ---- */

static struct status *resolve_input(struct reader *reader, struct node *node, struct span text,
                                    struct node_input *ret) {
    struct span name;
    int index;
    int shown = (int)MIN(text.len, (size_t)256);
    if (unlikely(!endpoint_parse(text, &name, &index)))
        return status_invalid("Illegal op input name '%.*s'\n\t [[{{node %s}}]]", shown, text.data,
                              node->name);
    struct node *src = graph_find_span(reader->graph, name);
    if (unlikely(!src))
        return status_invalid("Node '%s': Unknown input node '%.*s'", node->name, shown, text.data);
    *ret = (struct node_input){src, index};
    return NULL;
}

/* Drops repeated control edges by marking their producers, since a node may have very many. */
static void drop_doubled_controls(struct node *node) {
    int n = node->n_data;
    for (int i = node->n_data; i < node->n_inputs; i++)
        node->inputs[i].src->user = 0;
    for (int i = node->n_data; i < node->n_inputs; i++) {
        if (node->inputs[i].src->user)
            continue;
        node->inputs[i].src->user = 1;
        node->inputs[n++] = node->inputs[i];
    }
    node->n_inputs = n;
}

static struct status *read_inputs(struct reader *reader, const struct new_node *new_node) {
    struct node *node = new_node->node;
    struct span def = new_node->def;
    struct proto_field field;
    if (new_node->n_inputs > 0) {
        node->inputs = arena_alloc(&reader->graph->arena,
                                   (size_t)new_node->n_inputs * sizeof(node->inputs[0]));
        node->inputs_capacity = new_node->n_inputs;
    }
    while (node->n_inputs < new_node->n_inputs && proto_next(&def, &field) > 0) {
        if (field.number != 3 || field.wire_type != 2)
            continue;
        struct node_input *input = &node->inputs[node->n_inputs];
        TRY(resolve_input(reader, node, field.bytes, input));
        if (input->index != CONTROL_EDGE && unlikely(node->n_data < node->n_inputs))
            return status_invalid(
                "All control inputs must follow all data inputs\n\t [[{{node %s}}]]", node->name);
        node->n_inputs++;
        node->n_data += input->index != CONTROL_EDGE;
    }
    if (node->n_inputs - node->n_data > 1)
        drop_doubled_controls(node);
    return NULL;
}

/* ---- all of it ---- */

static struct status *read_rounds(struct reader *reader, struct span graphdef) {
    struct graph *graph = reader->graph;
    struct proto_field field;
    int n_nodes = 0;
    TRY(read_top(reader, graphdef, &n_nodes));
    reader->nodes = xmalloc(((size_t)n_nodes + 1) * sizeof(reader->nodes[0]));
    for (struct span in = graphdef; proto_next(&in, &field) > 0;)
        if (field.number == 2 && field.wire_type == 2)
            TRY(read_library(reader, field.bytes));
    for (struct span in = graphdef; proto_next(&in, &field) > 0;)
        if (field.number == 1 && field.wire_type == 2)
            TRY(read_node(reader, field.bytes));
    for (int i = 0; i < reader->n_nodes; i++)
        TRY(node_work_out_types(graph, reader->nodes[i].node));
    for (int i = 0; i < reader->n_nodes; i++) {
        TRY(read_inputs(reader, &reader->nodes[i]));
        TRY(node_check_edges(graph, reader->nodes[i].node));
    }
    return graph_order_from(graph, reader->n_nodes_before, NULL);
}

static void take_back(struct reader *reader) {
    graph_drop_newest(reader->graph, reader->n_nodes_before);
    for (int i = 0; i < reader->n_functions; i++)
        strmap_remove(&reader->graph->functions, reader->functions[i]);
    reader->graph->n_gradient_defs = reader->n_gradient_defs_before;
}

struct status *graph_add_graphdef(struct graph *graph, struct span graphdef,
                                  const struct graph_limits *limits) {
    struct reader reader = {
        .graph = graph,
        .limits = limits,
        .n_nodes_before = graph->n_nodes,
        .n_gradient_defs_before = graph->n_gradient_defs,
    };
    attr_reader_init(&reader.attrs, graph, limits);
    strmap_init(&reader.gradients);
    struct status *st = read_rounds(&reader, graphdef);
    if (st) {
        take_back(&reader);
    } else {
        graph->producer = reader.producer;
        graph->min_consumer = MAX(graph->min_consumer, reader.min_consumer);
    }
    attr_reader_fini(&reader.attrs);
    strmap_fini(&reader.gradients);
    free(reader.nodes);
    free(reader.functions);
    return st;
}

/* ---- writing ---- */

static size_t node_size_hint(const struct node *node) {
    size_t hint = 0;
    for (int i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].value.type == ATTR_TENSOR && !node->attrs[i].value.is_placeholder)
            hint += tensor_size_bytes(node->attrs[i].value.tensor);
    return hint;
}

static void add_input(const struct node_input *input, struct str *text, struct str *out) {
    str_clear(text);
    if (input->index == CONTROL_EDGE)
        str_add_char(text, '^');
    str_add(text, input->src->name);
    if (input->index > 0)
        str_addf(text, ":%d", input->index);
    proto_add_bytes(out, 3, text->data, text->len);
}

static void add_node_fields(const struct node *node, const char *device, size_t hint,
                            struct str *text, struct str *out) {
    proto_add_bytes(out, 1, node->name, strlen(node->name));
    proto_add_bytes(out, 2, node->op_name, strlen(node->op_name));
    for (int i = 0; i < node->n_inputs; i++)
        add_input(&node->inputs[i], text, out);
    if (device[0])
        proto_add_bytes(out, 4, device, strlen(device));
    for (int i = 0; i < node->n_attrs; i++) {
        const struct attr *attr = &node->attrs[i];
        bool is_tensor = attr->value.type == ATTR_TENSOR;
        size_t entry = proto_begin(out, 5, is_tensor ? hint : 0);
        proto_add_bytes(out, 1, attr->name, strlen(attr->name));
        size_t value = proto_begin(out, 2, is_tensor ? hint : 0);
        attr_value_to_proto(&attr->value, out);
        proto_end(out, value, is_tensor ? hint : 0);
        proto_end(out, entry, is_tensor ? hint : 0);
    }
}

static void node_to_proto(const struct node *node, const char *device, struct str *text,
                          struct str *out) {
    size_t hint = node_size_hint(node), begin = proto_begin(out, 1, hint);
    add_node_fields(node, device, hint, text, out);
    proto_end(out, begin, hint);
}

void node_to_nodedef(const struct node *node, struct str *out) {
    struct str text = STR_INIT;
    add_node_fields(node, node->device, node_size_hint(node), &text, out);
    str_fini(&text);
}

static void library_to_proto(const struct graph *graph, struct str *out) {
    size_t begin = proto_begin(out, 2, 0), cursor = 0;
    struct span name;
    void *value;
    while (strmap_next(&graph->functions, &cursor, &name, &value)) {
        const struct graph_function *function = value;
        proto_add_bytes(out, 1, function->def.data, function->def.len);
    }
    for (int i = 0; i < graph->n_gradient_defs; i++)
        proto_add_bytes(out, 2, graph->gradient_defs[i].data, graph->gradient_defs[i].len);
    proto_end(out, begin, 0);
}

void graph_versions_to_proto(const struct graph *graph, struct str *out) {
    proto_add_int(out, 1, (uint64_t)graph->producer);
    proto_add_int(out, 2, (uint64_t)graph->min_consumer);
}

static void add_library_and_versions(const struct graph *graph, bool with_library,
                                     struct str *out) {
    if (with_library && (graph->functions.n_entries > 0 || graph->n_gradient_defs > 0))
        library_to_proto(graph, out);
    size_t begin = proto_begin(out, 4, 0);
    graph_versions_to_proto(graph, out);
    proto_end(out, begin, 0);
}

void graph_to_graphdef(const struct graph *graph, const char *const *device_names,
                       struct str *out) {
    struct str text = STR_INIT;
    for (int id = 0; id < graph->n_nodes; id++) {
        const struct node *node = graph->nodes[id];
        if (!node->is_removed)
            node_to_proto(
                node, device_names && node->placed >= 0 ? device_names[node->placed] : node->device,
                &text, out);
    }
    add_library_and_versions(graph, true, out);
    str_fini(&text);
}

void graph_to_graphdef_from(const struct graph *graph, int first_id, bool with_library,
                            struct str *out) {
    struct str text = STR_INIT;
    for (int id = first_id; id < graph->n_nodes; id++)
        if (!graph->nodes[id]->is_removed)
            node_to_proto(graph->nodes[id], graph->nodes[id]->device, &text, out);
    add_library_and_versions(graph, with_library, out);
    str_fini(&text);
}
