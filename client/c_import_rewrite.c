/* Rewrites a GraphDef before it is added: names, inputs, colocation groups, devices.
 *
 *   read the nodes ─► choose the prefix and the names ─► write each node again, all else as it is
 *
 * Linear in the message and in the graph, but quadratic in the length of a name, since all prefixes
 * of a name are kept. */
#include "client/c_import_internal.h"

#include <limits.h>

#include "common/tensor/tensor_proto.h"

enum { MAX_NAME_BYTES = 64 * 1024 }; /* of a node in the message */

/* ---- names ---- */

/* Also the prefixes: a node "a/b" takes the name "a". */
static void take_name(struct import *import, const char *name) {
    for (const char *at = strchr(name, '/'); at; at = strchr(at + 1, '/'))
        strmap_put_span(&import->taken, (struct span){name, (size_t)(at - name)}, import);
    strmap_put(&import->taken, name, import);
}

static const char *free_name(struct import *import, const char *name) {
    const char *candidate = name;
    for (int i = 1; strmap_get(&import->taken, candidate) ||
                    (i > 1 && strmap_get(&import->by_name, candidate));
         i++)
        candidate = arena_printf(&import->arena, "%s_%d", name, i);
    return candidate;
}

static struct status *choose_prefix(struct import *import) {
    const char *prefix = import->options->prefix;
    size_t len = strlen(prefix);
    import->prefix = "";
    if (len == 0)
        return NULL;
    if (prefix[len - 1] == '/')
        len--;
    prefix = arena_strndup(&import->arena, prefix, len);
    for (size_t i = 0; i < len; i++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_>./\\-",
                    prefix[i]) ||
            (i == 0 && strchr("_>/\\-", prefix[i])))
            return status_invalid("Imported node name prefix '%s/' would lead to invalid node "
                                  "names",
                                  prefix);
    if (import->options->uniquifies_prefix)
        prefix = free_name(import, prefix);
    import->prefix = arena_printf(&import->arena, "%s/", prefix);
    import->has_new_names = true;
    return NULL;
}

static struct status *choose_name(struct import *import, struct import_node *node) {
    const char *name = arena_printf(&import->arena, "%s%.*s", import->prefix, (int)node->name.len,
                                    node->name.data);
    node->new_name = name;
    bool is_taken = strmap_get(&import->taken, name) != NULL;
    if (is_taken && import->options->uniquifies_names) {
        node->new_name = free_name(import, name);
        import->has_new_names = true;
        take_name(import, node->new_name);
    } else if (is_taken && (!import->prefix[0] || graph_find(&import->graph->graph, name))) {
        return status_invalid("Node name '%s' already exists in the Graph", name);
    }
    return NULL;
}

/* ---- reading ---- */

static struct status *read_node(struct import *import, struct span def) {
    struct import_node *node = &import->nodes[import->n_nodes++];
    struct proto_field field;
    *node = (struct import_node){.name = {"", 0}, .op = {"", 0}, .def = def};
    for (int more; (more = proto_next(&def, &field)) != 0;) {
        if (more < 0)
            return status_invalid("%s: Malformed GraphDef: a node cannot be read",
                                  import->function);
        if (proto_field_is(&field, 1, 2))
            node->name = field.bytes;
        else if (proto_field_is(&field, 2, 2))
            node->op = field.bytes;
    }
    if (node->name.len > MAX_NAME_BYTES)
        return status_invalid("%s: a node name of %zu bytes, more than %d", import->function,
                              node->name.len, MAX_NAME_BYTES);
    if (memchr(node->name.data, '\0', node->name.len))
        return status_invalid("%s: Illegal op name '%.*s'", import->function,
                              (int)MIN(node->name.len, (size_t)256), node->name.data);
    if (strmap_put_span(&import->by_name, node->name, node))
        return status_invalid("%s: Node '%.*s' is not unique", import->function,
                              (int)MIN(node->name.len, (size_t)256), node->name.data);
    return NULL;
}

/* Counts the nodes of the message and refuses what exceeds the limits before memory is taken. */
static struct status *count_nodes(const struct import *import, struct span graph_def, int *ret) {
    struct proto_field field;
    struct graph_limits limits;
    int n = 0;
    if (graph_def.len > INT_MAX)
        return status_invalid("%s: Invalid GraphDef: %zu bytes, more than %d", import->function,
                              graph_def.len, INT_MAX);
    if (!proto_is_message(graph_def))
        return status_invalid("%s: Invalid GraphDef", import->function);
    while (proto_next(&graph_def, &field) > 0)
        n += proto_field_is(&field, 1, 2);
    graph_limits_default(&limits);
    if (n > limits.max_nodes - import->graph->graph.n_live)
        return status_exhausted("%s: a graph with more than %d nodes", import->function,
                                limits.max_nodes);
    *ret = n;
    return NULL;
}

static struct status *read_nodes(struct import *import, struct span graph_def) {
    struct proto_field field;
    int n;
    TRY(count_nodes(import, graph_def, &n));
    import->nodes = arena_array(&import->arena, struct import_node, n + 1);
    for (struct span in = graph_def; proto_next(&in, &field) > 0;)
        if (proto_field_is(&field, 1, 2))
            TRY(read_node(import, field.bytes));
    const struct graph *graph = &import->graph->graph;
    for (int id = 0; id < graph->n_nodes; id++)
        if (!graph->nodes[id]->is_removed)
            take_name(import, graph->nodes[id]->name);
    TRY(choose_prefix(import));
    for (int i = 0; i < import->n_nodes; i++)
        TRY(choose_name(import, &import->nodes[i]));
    return NULL;
}

/* ---- inputs ---- */

const struct input_mapping *import_find_mapping(const struct import *import, struct span name,
                                                int index, int *ret_at) {
    for (int i = 0; i < import->options->n_mappings; i++) {
        const struct input_mapping *mapping = &import->options->mappings[i];
        if (mapping->src_index == index && span_is(name, mapping->src_name)) {
            *ret_at = i;
            return mapping;
        }
    }
    return NULL;
}

static void add_endpoint(struct str *out, const char *name, int index) {
    struct str text = STR_INIT;
    if (index == CONTROL_EDGE)
        str_add_char(&text, '^');
    str_add(&text, name);
    if (index > 0)
        str_addf(&text, ":%d", index);
    proto_add_bytes(out, 3, str_text(&text), text.len);
    str_fini(&text);
}

/* Writes an input. *ret_src is the node of the message that it comes from, or NULL. */
static struct status *rewrite_input(struct import *import, const struct import_node *node,
                                    struct span input, const struct import_node **ret_src) {
    struct span name;
    int index, at;
    *ret_src = NULL;
    if (!endpoint_parse(input, &name, &index))
        return status_invalid("%s: Illegal op input name '%.*s' of node '%s'", import->function,
                              (int)MIN(input.len, (size_t)256), input.data, node->new_name);
    const struct input_mapping *mapping = import_find_mapping(import, name, index, &at);
    if (mapping) {
        import->is_used[at] = true;
        add_endpoint(&import->out, mapping->dst.oper->node->name, mapping->dst.index);
        return NULL;
    }
    *ret_src = strmap_get_span(&import->by_name, name);
    if (!*ret_src)
        return status_invalid("%s: Node '%s': Unknown input node '%.*s'", import->function,
                              node->new_name, (int)MIN(input.len, (size_t)256), input.data);
    add_endpoint(&import->out, (*ret_src)->new_name, index);
    return NULL;
}

static bool is_back_edge(const struct import_node *node, const struct import_node *src) {
    return (span_is(node->op, "Merge") || span_is(node->op, "RefMerge")) &&
           (span_is(src->op, "NextIteration") || span_is(src->op, "RefNextIteration"));
}

/* A node that has an input from the message waits for the control dependencies through it. */
static struct status *rewrite_inputs(struct import *import, const struct import_node *node) {
    struct span def = node->def;
    struct proto_field field;
    bool inherits = false;
    while (proto_next(&def, &field) > 0) {
        const struct import_node *src;
        if (!proto_field_is(&field, 3, 2))
            continue;
        TRY(rewrite_input(import, node, field.bytes, &src));
        inherits = inherits || (src && !is_back_edge(node, src));
    }
    for (int i = 0; !inherits && i < import->options->n_controls; i++)
        add_endpoint(&import->out, import->options->controls[i]->node->name, CONTROL_EDGE);
    return NULL;
}

/* ---- colocation ---- */

static void rewrite_group(struct import *import, struct span group, struct str *out) {
    static const char begin[] = "loc:@";
    size_t skip = strlen(begin);
    if (group.len < skip || memcmp(group.data, begin, skip) != 0) {
        proto_add_bytes(out, 2, group.data, group.len);
        return;
    }
    struct span name = {group.data + skip, group.len - skip};
    const struct import_node *node = strmap_get_span(&import->by_name, name);
    const char *text = node ? arena_printf(&import->arena, "%s%s", begin, node->new_name)
                            : arena_printf(&import->arena, "%s%s%.*s", begin, import->prefix,
                                           (int)name.len, name.data);
    proto_add_bytes(out, 2, text, strlen(text));
}

/* Writes the entry of the attr "_class" with the new names of its groups. */
static void rewrite_class(struct import *import, struct span value) {
    struct proto_field field, element;
    struct str *out = &import->out;
    size_t entry = proto_begin(out, 5, 0);
    proto_add_bytes(out, 1, "_class", 6);
    size_t message = proto_begin(out, 2, 0), list = proto_begin(out, 1, 0);
    while (proto_next(&value, &field) > 0)
        while (proto_field_is(&field, 1, 2) && proto_next(&field.bytes, &element) > 0)
            if (proto_field_is(&element, 2, 2))
                rewrite_group(import, element.bytes, out);
    proto_end(out, list, 0);
    proto_end(out, message, 0);
    proto_end(out, entry, 0);
}

static void rewrite_attr(struct import *import, struct span entry) {
    struct span key = {"", 0}, value = {"", 0};
    struct proto_field field;
    for (struct span in = entry; proto_next(&in, &field) > 0;) {
        if (proto_field_is(&field, 1, 2))
            key = field.bytes;
        else if (proto_field_is(&field, 2, 2))
            value = field.bytes;
    }
    if (import->has_new_names && span_is(key, "_class"))
        rewrite_class(import, value);
    else
        proto_add_bytes(&import->out, 5, entry.data, entry.len);
}

/* ---- nodes ---- */

static struct status *rewrite_node(struct import *import, const struct import_node *node) {
    struct str *out = &import->out;
    struct proto_field field;
    const char *device = import->options->device;
    size_t begin = proto_begin(out, 1, node->def.len);
    proto_add_bytes(out, 1, node->new_name, strlen(node->new_name));
    proto_add_bytes(out, 2, node->op.data, node->op.len);
    TRY(rewrite_inputs(import, node));
    struct span own_device = {device, strlen(device)};
    for (struct span in = node->def; proto_next(&in, &field) > 0;)
        if (proto_field_is(&field, 4, 2) && field.bytes.len > 0)
            own_device = field.bytes;
        else if (proto_field_is(&field, 5, 2))
            rewrite_attr(import, field.bytes);
    if (own_device.len > 0)
        proto_add_bytes(out, 4, own_device.data, own_device.len);
    proto_end(out, begin, node->def.len);
    return NULL;
}

/* States the producer also where it is 0: a message without versions is one of version 0, not of
 * the graph's version. */
static void rewrite_versions(struct import *import, struct span versions) {
    size_t begin = proto_begin(&import->out, 4, 0);
    proto_add_tag(&import->out, 1, 0);
    proto_add_varint(&import->out, 0);
    str_add_bytes(&import->out, versions.data, versions.len);
    proto_end(&import->out, begin, 0);
}

struct status *import_rewrite(struct import *import, struct span graph_def) {
    struct proto_field field;
    TRY(read_nodes(import, graph_def));
    for (int i = 0; i < import->n_nodes; i++)
        TRY(rewrite_node(import, &import->nodes[i]));
    struct span versions = {"", 0};
    while (proto_next(&graph_def, &field) > 0)
        if (proto_field_is(&field, 2, 2))
            proto_add_bytes(&import->out, 2, field.bytes.data, field.bytes.len);
        else if (proto_field_is(&field, 4, 2))
            versions = field.bytes;
    rewrite_versions(import, versions);
    return NULL;
}
