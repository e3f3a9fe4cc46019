/* Watches tensors for a debugger: RunOptions.debug_options of TensorFlow's tfdbg.
 *
 *   a ──► b           watch a:0 with DebugIdentity          a ──────────────► b
 *                                                           └► __dbg_a_0 ┄┄┄► b   (control edge)
 *
 * A debug node writes what it sees to the watch's URLs (kernels/host/text/debug_kernels.c). The
 * consumers on the same task wait for it, because the debugger checks that a tensor was written
 * before those that are computed from it. A Merge cannot wait for one of its inputs, so there the
 * tensor itself waits, in an Identity. What an Enter hands on is not waited for, as in TensorFlow.
 *
 * A signature with watches is compiled without optional passes, so that the client's nodes are
 * still there. This pass runs behind `place`, so nothing removes, merges or fuses what it adds.
 * Nodes that the step does not need are not watched.
 *
 * With URLs of servers (grpc://), a node _MrDebugOpen of the first task tells them what the step
 * runs, and gets the gates that they have opened. Each task with debug nodes takes the gates in a
 * node _MrDebugGates (kernels/host/debug/debug_hub.h).
 *
 * pass_debug_graphs runs last: a node _MrDebugGraph of each device writes its graph. */
#include <limits.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "common/graph/graph_controls.h"
#include "common/graph/graph_proto.h"
#include "common/graph/internal_ops.h"
#include "common/tensor/tensor_proto.h"
#include "kernels/kernel.h"
#include "master/compile/compilation.h"
#include "master/compile/partition/device_graphs.h"
#include "master/compile/place/place.h"

enum { ANY_SLOT = -1, MAX_DEBUG_NODES = 1 << 20, MAX_DEBUG_URLS = 8, MAX_URL_BYTES = 4096 };

/* Fields of DebugTensorWatch. */
enum { WATCH_NODE = 1, WATCH_SLOT, WATCH_OPS, WATCH_URLS, WATCH_TOLERATES };

struct watch {
    struct span node; /* "*": any */
    int slot;         /* or ANY_SLOT */
    bool tolerates;   /* a debug op without a kernel for the tensor's type is left out */
    struct attr_value *ops, *urls;
    int n_ops, n_urls;
    struct watch *next; /* of the same node and slot */
};

struct debugger {
    struct compilation *c;
    struct strmap watches; /* "NODE:SLOT" → struct watch, the last one */
    struct strmap urls;    /* those of all watches */
    struct str key;
    struct graph_consumers consumers;
    struct strmap servers; /* those of `urls` that debug nodes send to */
    int n_added;
};

static struct status *malformed(void) {
    return status_invalid("RunOptions.debug_options: a watch is cut short");
}

static struct attr_value string_value(struct span text) {
    return (struct attr_value){.type = ATTR_STRING, .s = text};
}

static bool begins_with(struct span url, const char *scheme) {
    size_t len = strlen(scheme);
    return url.len > len && memcmp(url.data, scheme, len) == 0;
}

static struct status *check_url(struct span url) {
    if (!begins_with(url, "file://") && !begins_with(url, "grpc://"))
        return status_unimplemented("RunOptions.debug_options: tensors are written to file:// and "
                                    "grpc:// only, and not to %.*s",
                                    (int)MIN(url.len, (size_t)200), url.data);
    if (url.len > MAX_URL_BYTES)
        return status_invalid("RunOptions.debug_options: a URL has %zu bytes, but at most %d are "
                              "allowed",
                              url.len, MAX_URL_BYTES);
    return NULL;
}

static bool has_url(const struct watch *watch, struct span url) {
    for (int i = 0; i < watch->n_urls; i++)
        if (span_equal(watch->urls[i].s, url))
            return true;
    return false;
}

static struct status *add_url(struct debugger *d, struct watch *watch, struct span url) {
    TRY(check_url(url));
    if (has_url(watch, url))
        return NULL;
    strmap_put_span(&d->urls, url, d);
    if (d->urls.n_entries > MAX_DEBUG_URLS)
        return status_exhausted("RunOptions.debug_options: the watches have more than %d different "
                                "URLs",
                                MAX_DEBUG_URLS);
    watch->urls[watch->n_urls++] = string_value(url);
    return NULL;
}

static struct status *read_slot(struct watch *watch, int64_t slot) {
    if (slot > INT_MAX)
        return status_invalid("RunOptions.debug_options: %.*s has no output %lld",
                              (int)MIN(watch->node.len, (size_t)200), watch->node.data,
                              (long long)slot);
    watch->slot = (int)MAX(slot, (int64_t)ANY_SLOT);
    return NULL;
}

static struct status *read_watch(struct debugger *d, struct span bytes, struct watch **ret) {
    struct arena *arena = &d->c->arena;
    struct watch *watch = arena_alloc(arena, sizeof *watch);
    struct span in = bytes;
    struct proto_field field;
    int more, n = 0;
    while ((more = proto_next(&in, &field)) > 0)
        n++;
    if (more < 0)
        return malformed();
    *watch = (struct watch){.node = {"", 0},
                            .ops = arena_array(arena, struct attr_value, n + 1),
                            .urls = arena_array(arena, struct attr_value, n + 1)};
    while (proto_next(&bytes, &field) > 0) {
        if (proto_field_is(&field, WATCH_NODE, 2))
            watch->node = field.bytes;
        else if (proto_field_is(&field, WATCH_SLOT, 0))
            TRY(read_slot(watch, (int64_t)field.value));
        else if (proto_field_is(&field, WATCH_OPS, 2))
            watch->ops[watch->n_ops++] = string_value(field.bytes);
        else if (proto_field_is(&field, WATCH_URLS, 2))
            TRY(add_url(d, watch, field.bytes));
        else if (proto_field_is(&field, WATCH_TOLERATES, 0))
            watch->tolerates = field.value != 0;
    }
    *ret = watch;
    return NULL;
}

static struct status *read_watches(struct debugger *d) {
    for (int i = 0; i < d->c->signature->n_watches; i++) {
        struct watch *watch;
        TRY(read_watch(d, d->c->signature->watches[i], &watch));
        const char *key = arena_printf(&d->c->arena, "%.*s:%d", (int)watch->node.len,
                                       watch->node.data, watch->slot);
        watch->next = strmap_put(&d->watches, key, watch);
    }
    return NULL;
}

/* ---- the attrs of a debug op: "DebugNumericSummary(lower_bound=-1;mute_if_healthy=true)" ---- */

static struct status *set_attr(struct debugger *d, struct node *node, const char *text) {
    char *name = arena_strdup(&d->c->arena, text), *value = strchr(name, '='), *end;
    if (!value)
        return status_invalid("'%s' is not NAME=VALUE", text);
    *value++ = '\0';
    if (strcmp(name, "tensor_name") == 0 || strcmp(name, "device_name") == 0)
        return status_invalid("%s's attr '%s' cannot be set by a watch", node->op_name, name);
    const struct attr_value *old = node_attr(node, name);
    if (!old)
        return status_invalid("%s has no attr '%s'", node->op_name, name);
    struct attr_value new = {.type = old->type};
    bool is_read = false;
    if (old->type == ATTR_FLOAT) {
        new.f = strtof(value, &end);
        is_read = end != value && *end == '\0';
    } else if (old->type == ATTR_INT) {
        new.i = strtoll(value, &end, 10);
        is_read = end != value && *end == '\0';
    } else if (old->type == ATTR_BOOL) {
        new.b = strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0;
        is_read = new.b || strcasecmp(value, "false") == 0 || strcmp(value, "0") == 0;
    } else if (old->type == ATTR_STRING) {
        new.s = span_of(value);
        is_read = true;
    }
    if (!is_read)
        return status_invalid("'%s' is no value of %s's attr '%s'", value, node->op_name, name);
    node_set_attr(&d->c->graph, node, name, &new);
    return NULL;
}

static struct status *set_attrs(struct debugger *d, struct node *node, char *list) {
    for (char *part; (part = strsep(&list, ";")) != NULL;) {
        part += strspn(part, " ");
        if (*part)
            TRY(set_attr(d, node, part));
    }
    return NULL;
}

/* ---- adding debug nodes ---- */

/* Notes the servers among the URLs of a watch. True: it has some. */
static bool add_servers(struct debugger *d, const struct watch *watch) {
    bool has_some = false;
    for (int i = 0; i < watch->n_urls; i++)
        if (begins_with(watch->urls[i].s, "grpc://")) {
            strmap_put_span(&d->servers, watch->urls[i].s, d);
            has_some = true;
        }
    return has_some;
}

/* Makes the node of one debug op. *ret_node is set once the node exists, also on failure. */
static struct status *make_node(struct debugger *d, struct node *src, int slot,
                                const struct watch *watch, int i, struct node **ret_node) {
    struct compilation *c = d->c;
    struct graph *graph = &c->graph;
    struct span text = watch->ops[i].s;
    char *op = arena_strndup(&c->arena, text.data, text.len), *attrs = strchr(op, '(');
    if (attrs) {
        size_t len = strlen(attrs);
        if (attrs[len - 1] != ')')
            return status_invalid("'%s' does not end with ')'", op);
        attrs[len - 1] = '\0';
        *attrs++ = '\0';
    }
    struct node *node;
    TRY(graph_add_node(graph,
                       graph_unique_name(graph, arena_printf(&c->arena, "__dbg_%s_%d_%d_%s",
                                                             src->name, slot, i, op)),
                       op, "", &node));
    *ret_node = node;
    struct attr_value urls = {.type = ATTR_LIST_STRING,
                              .list = {.values = watch->urls, .n_values = watch->n_urls}};
    if (!node_attr(node, "debug_urls") || !node_attr(node, "tensor_name"))
        return status_invalid("%s is no debug op", op);
    node_set_attr_type(graph, node, "T", dtype_base((enum dtype)src->out_types[slot]));
    node_set_attr_s(graph, node, "tensor_name", arena_printf(&c->arena, "%s:%d", src->name, slot));
    node_set_attr_s(graph, node, "device_name", c->devices->devices[src->placed].full_name);
    node_set_attr(graph, node, "debug_urls", &urls);
    if (add_servers(d, watch))
        node_set_attr_b(graph, node, DEBUG_WAITS_ATTR, true);
    TRY(set_attrs(d, node, attrs));
    node_add_input(graph, node, src, slot);
    TRY(node_finish(graph, node));
    node->placed = device_host(c->devices, src->placed);
    if (!kernel_find(node, "CPU"))
        return status_invalid("Failed to find kernel definition for debug op %s on watched tensor "
                              "%s:%d",
                              op, src->name, slot);
    return NULL;
}

static struct status *add_node(struct debugger *d, struct node *src, int slot,
                               const struct watch *watch, int i, struct node **ret_node) {
    struct node *node = NULL;
    *ret_node = NULL;
    if (d->n_added++ >= MAX_DEBUG_NODES)
        return status_exhausted("more than %d tensors are watched", MAX_DEBUG_NODES);
    struct status *st = make_node(d, src, slot, watch, i, &node);
    if (!st) {
        *ret_node = node;
        return NULL;
    }
    if (node)
        graph_remove_node(&d->c->graph, node);
    if (watch->tolerates) {
        status_unref(st);
        return NULL;
    }
    struct status *failure = status_failed_precondition(
        "Failed to create debug node %.*s for tensor %s:%d, due to: %s", (int)watch->ops[i].s.len,
        watch->ops[i].s.data, src->name, slot, status_message(st));
    status_unref(st);
    return failure;
}

/* Makes the tensor itself wait for the debug nodes, on its way to a Merge. */
static struct status *delay(struct debugger *d, struct node *src, int slot,
                            struct node *const *nodes, int n, struct node **copy) {
    struct graph *graph = &d->c->graph;
    if (*copy)
        return NULL;
    TRY(graph_add_node(
        graph,
        graph_unique_name(graph, arena_printf(&d->c->arena, "__copy_%s_%d", src->name, slot)),
        "Identity", "", copy));
    node_set_attr_type(graph, *copy, "T", dtype_base((enum dtype)src->out_types[slot]));
    node_add_input(graph, *copy, src, slot);
    node_add_controls(graph, *copy, nodes, n);
    TRY(node_finish(graph, *copy));
    (*copy)->placed = src->placed;
    return NULL;
}

static struct status *order_consumers(struct debugger *d, struct node *src, int slot,
                                      struct node *const *nodes, int n) {
    struct compilation *c = d->c;
    const struct device_info *devices = c->devices->devices;
    struct node *copy = NULL;
    for (int i = d->consumers.first[src->id]; i < d->consumers.first[src->id + 1]; i++) {
        const struct node_output_edge *edge = &d->consumers.edges[i];
        if (edge->index != slot || devices[edge->dst->placed].task != devices[src->placed].task)
            continue;
        if (!node_is_either(edge->dst, "Merge", "RefMerge")) {
            node_add_controls(&c->graph, edge->dst, nodes, n);
            continue;
        }
        if (dtype_is_ref((enum dtype)src->out_types[slot]))
            continue;
        TRY(delay(d, src, slot, nodes, n, &copy));
        node_set_input(edge->dst, edge->position, copy, 0);
    }
    return NULL;
}

/* `watch` is the first of those of one key. */
static struct status *watch_slot(struct debugger *d, struct node *src, int slot,
                                 const struct watch *watch) {
    int n = 0, n_ops = 0;
    for (const struct watch *w = watch; w; w = w->next)
        n_ops += w->n_ops;
    struct node **nodes = arena_array(&d->c->arena, struct node *, n_ops + 1);
    for (const struct watch *w = watch; w; w = w->next)
        for (int i = 0; i < w->n_ops; i++) {
            TRY(add_node(d, src, slot, w, i, &nodes[n]));
            n += nodes[n] != NULL;
        }
    bool is_waited_for = n > 0 && !node_is_either(src, "Enter", "RefEnter");
    return is_waited_for ? order_consumers(d, src, slot, nodes, n) : NULL;
}

static const struct watch *find_watch(struct debugger *d, const char *node, int slot) {
    str_clear(&d->key);
    str_addf(&d->key, "%s:%d", node, slot);
    return strmap_get(&d->watches, str_text(&d->key));
}

/* A watch of the node's own name goes before one of any node. What NextIteration hands on can only
 * be seen in the next iteration, as the output of its Merge. */
static struct status *watch_node(struct debugger *d, struct node *node) {
    if (node_is_either(node, "NextIteration", "RefNextIteration"))
        return NULL;
    for (int slot = 0; slot < node->n_outputs; slot++) {
        const struct watch *watch = find_watch(d, node->name, slot);
        watch = watch ? watch : find_watch(d, node->name, ANY_SLOT);
        watch = watch ? watch : find_watch(d, "*", slot);
        watch = watch ? watch : find_watch(d, "*", ANY_SLOT);
        if (watch)
            TRY(watch_slot(d, node, slot, watch));
    }
    return NULL;
}

/* ---- servers ---- */

static void add_names(struct str *out, const char *key, const char *const *names, int n) {
    str_addf(out, "\"%s\":[", key);
    for (int i = 0; i < n; i++) {
        str_add(out, i > 0 ? ",\"" : "\"");
        str_add_json_escaped(out, names[i], strlen(names[i]));
        str_add_char(out, '"');
    }
    str_add_char(out, ']');
}

/* The names in what TensorFlow calls core metadata. */
static void add_step_names(const struct signature *signature, struct str *out) {
    add_names(out, "input_names", signature->feeds, signature->n_feeds);
    str_add_char(out, ',');
    add_names(out, "output_names", signature->fetches, signature->n_fetches);
    str_add_char(out, ',');
    add_names(out, "target_nodes", signature->targets, signature->n_targets);
}

static struct status *add_open_node(struct debugger *d, struct node **ret) {
    struct compilation *c = d->c;
    struct attr_value *values = arena_array(&c->arena, struct attr_value, MAX_DEBUG_URLS);
    struct attr_value urls = {.type = ATTR_LIST_STRING, .list = {.values = values}};
    struct str names = STR_INIT;
    struct span url;
    void *unused;
    size_t cursor = 0;
    while (strmap_next(&d->servers, &cursor, &url, &unused))
        values[urls.list.n_values++] = string_value(url);
    add_step_names(c->signature, &names);
    struct status *st = graph_add_node(&c->graph, graph_unique_name(&c->graph, "_debug_open"),
                                       OP_DEBUG_OPEN, "", ret);
    if (!st) {
        node_set_attr(&c->graph, *ret, "debug_urls", &urls);
        node_set_attr_s(&c->graph, *ret, "names", str_text(&names));
        st = node_finish(&c->graph, *ret);
        (*ret)->placed = c->devices->tasks[0].first_device;
    }
    str_fini(&names);
    return st;
}

static struct status *add_gates_node(struct debugger *d, struct node *open, int placed) {
    struct graph *graph = &d->c->graph;
    struct node *gates;
    TRY(graph_add_node(graph, graph_unique_name(graph, "_debug_gates"), OP_DEBUG_GATES, "",
                       &gates));
    node_add_input(graph, gates, open, 0);
    gates->placed = placed;
    return node_finish(graph, gates);
}

/* Opens the streams to servers, on the first task, and lets the debug nodes of each task wait for
 * what the servers say. */
static struct status *add_server_nodes(struct debugger *d, int n_nodes) {
    struct compilation *c = d->c;
    const struct device_info *devices = c->devices->devices;
    bool *has_gates = arena_array(&c->arena, bool, c->devices->n_tasks);
    struct node *open;
    int end = c->graph.n_nodes;
    if (d->servers.n_entries == 0)
        return NULL;
    TRY(add_open_node(d, &open));
    for (int i = n_nodes; i < end; i++) {
        const struct node *node = c->graph.nodes[i];
        if (node->is_removed || !node_attr(node, DEBUG_WAITS_ATTR))
            continue;
        int task = devices[node->placed].task;
        if (!has_gates[task])
            TRY(add_gates_node(d, open, c->devices->tasks[task].first_device));
        has_gates[task] = true;
    }
    return NULL;
}

struct status *pass_debug(struct compilation *c, bool *ret_changed) {
    struct debugger d = {.c = c};
    struct status *st = NULL;
    int n_nodes = c->graph.n_nodes;
    if (c->signature->n_watches == 0)
        return NULL;
    strmap_init(&d.watches);
    strmap_init(&d.urls);
    strmap_init(&d.servers);
    graph_consumers_init(&d.consumers, &c->graph);
    TRY_OUT(read_watches(&d));
    for (int i = 0; i < n_nodes; i++)
        if (!c->graph.nodes[i]->is_removed)
            TRY_OUT(watch_node(&d, c->graph.nodes[i]));
    TRY_OUT(add_server_nodes(&d, n_nodes));
    *ret_changed = true;
out:
    graph_consumers_fini(&d.consumers);
    str_fini(&d.key);
    strmap_fini(&d.watches);
    strmap_fini(&d.urls);
    strmap_fini(&d.servers);
    return st;
}

/* ---- the graphs ---- */

/* Core metadata. The indices of steps are not known here. */
static void add_metadata(const struct signature *signature, struct str *out) {
    str_add(out, "{\"global_step\":-1,\"session_run_index\":0,\"executor_step_index\":0,");
    add_step_names(signature, out);
    str_add_char(out, '}');
}

static bool is_debug_node(const struct node *node) {
    return !node->is_removed && strncmp(node->name, "__dbg_", 6) == 0 &&
           node_attr(node, "debug_urls") && node_attr(node, "device_name");
}

/* The nodes that write graphs, of all partitions. */
struct graph_writers {
    struct compilation *c;
    struct str metadata;
    struct strmap seen;     /* "DEVICE URL" */
    struct strmap has_core; /* URLs whose core metadata a node writes */
    int64_t n_bytes;        /* of the graphs and metadata in the nodes */
};

static struct status *add_writer(struct graph_writers *w, struct graph *graph, int placed,
                                 const struct attr_value *watched, struct span url,
                                 const struct str *graphdef) {
    struct compilation *c = w->c;
    bool writes_core = !begins_with(url, "grpc://") && !strmap_put_span(&w->has_core, url, w);
    struct attr_value url_value = string_value(url),
                      graph_value = string_value((struct span){graphdef->data, graphdef->len});
    struct node *writer;
    w->n_bytes += (int64_t)(graphdef->len + (writes_core ? w->metadata.len : 0));
    if (w->n_bytes > c->options->debug_max_bytes)
        return status_exhausted("RunOptions.debug_options: the graphs for the debugger, one for "
                                "each device and URL, take more than %lld bytes",
                                (long long)c->options->debug_max_bytes);
    TRY(graph_add_node(graph, graph_unique_name(graph, "_debug_graph"), OP_DEBUG_GRAPH,
                       c->devices->devices[placed].full_name, &writer));
    node_set_attr(graph, writer, "device_name", watched);
    node_set_attr(graph, writer, "debug_url", &url_value);
    node_set_attr(graph, writer, "graph", &graph_value);
    node_set_attr_s(graph, writer, "metadata", writes_core ? str_text(&w->metadata) : "");
    TRY(node_finish(graph, writer));
    writer->placed = placed;
    return NULL;
}

/* Clients take a debug node's name apart, which is "__dbg_NODE:SLOT_…" to them. Our graphs have no
 * ":" in names. */
static const char *name_for_clients(struct arena *arena, const struct node *node) {
    struct span tensor = node_attr(node, "tensor_name")->s;
    const char *colon = memrchr(tensor.data, ':', tensor.len);
    char *name = arena_strdup(arena, node->name);
    name[strlen("__dbg_") + (size_t)(colon - tensor.data)] = ':';
    return name;
}

/* Writes the graph of a device as clients of a debugger want it. */
static void write_graph(struct arena *arena, struct graph *graph, struct span device,
                        struct str *out) {
    const char **names = arena_array(arena, const char *, graph->n_nodes);
    for (int i = 0; i < graph->n_nodes; i++) {
        names[i] = graph->nodes[i]->name;
        if (is_debug_node(graph->nodes[i]))
            graph->nodes[i]->name = name_for_clients(arena, graph->nodes[i]);
    }
    device_graph_write(graph, device, out);
    for (int i = 0; i < graph->n_nodes; i++)
        graph->nodes[i]->name = names[i];
}

/* One for each pair of a device and a URL of the partition's debug nodes. */
static struct status *add_graph_nodes(struct graph_writers *w, struct graph *graph, int placed) {
    struct str graphdef = STR_INIT;
    struct status *st = NULL;
    int n_nodes = graph->n_nodes;
    for (int i = 0; i < n_nodes; i++) {
        const struct node *node = graph->nodes[i];
        if (!is_debug_node(node))
            continue;
        const struct attr_value *urls = node_attr(node, "debug_urls"),
                                *watched = node_attr(node, "device_name");
        for (int u = 0; u < urls->list.n_values; u++) {
            struct span url = urls->list.values[u].s;
            char *key = arena_printf(&w->c->arena, "%.*s %.*s", (int)watched->s.len,
                                     watched->s.data, (int)url.len, url.data);
            if (strmap_put(&w->seen, key, key))
                continue;
            str_clear(&graphdef);
            write_graph(&w->c->arena, graph, watched->s, &graphdef);
            TRY_OUT(add_writer(w, graph, placed, watched, url, &graphdef));
        }
    }
out:
    str_fini(&graphdef);
    return st;
}

struct status *pass_debug_graphs(struct compilation *c, bool *ret_changed) {
    struct graph_writers w = {.c = c, .metadata = STR_INIT};
    struct status *st = NULL;
    if (c->signature->n_watches == 0)
        return NULL;
    strmap_init(&w.seen);
    strmap_init(&w.has_core);
    add_metadata(c->signature, &w.metadata);
    for (int i = 0; i < c->result->n_partitions; i++) {
        struct partition *partition = &c->result->partitions[i];
        TRY_OUT(add_graph_nodes(&w, &partition->graph,
                                c->devices->tasks[partition->task].first_device));
    }
    *ret_changed = true;
out:
    strmap_fini(&w.seen);
    strmap_fini(&w.has_core);
    str_fini(&w.metadata);
    return st;
}
