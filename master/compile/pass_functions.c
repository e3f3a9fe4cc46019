/* Compiles the functions that kernels call while a step runs (for example the function of a map
 * dataset), together with the step and for the task of the node that names them.
 *
 *   MapDataset {f=g} on task A  =>  g: Placeholder…, call of g ──► cut, inline, fold, cse ──► a
 *                                   flat graph on A's device; the arguments are feeds 0, 1, …,
 *                                   the results are fetches 0, 1, …
 *
 * So a function is a small step, and the worker runs it as one. Functions that its nodes name are
 * compiled too, once per key (function_key.h); so a function may name itself. Nothing in a function
 * is sent to another task: the devices that its nodes ask for are ignored. */
#include <stdlib.h>

#include "common/graph/function_body.h"
#include "common/graph/function_key.h"
#include "common/graph/graph_proto.h"
#include "common/graph/internal_ops.h"
#include "kernels/kernel.h"
#include "master/compile/compile_internal.h"
#include "master/compile/inline.h"

enum {
    MAX_DEPTH = 64,                 /* of functions that name functions */
    MAX_FUNCTIONS = 1 << 16,        /* of one task in one step */
    MAX_FUNCTION_BYTES = INT32_MAX, /* of all their graphs */
};

static const char CALL[] = "call"; /* the node whose body is the function */

struct gatherer {
    struct compilation *c; /* the step's */
    struct partition *partition;
    struct arena *arena; /* the result's */
    struct strmap seen;  /* key → key */
    int capacity;
    size_t n_bytes;
    int depth;
};

/* ---- a graph that calls the function ---- */

struct signature_names {
    const char **feeds, **fetches;
    int n_feeds, n_fetches;
};

static struct status *list_types(struct arena *arena, const struct function_body *body,
                                 const struct op_arg_signature *args, int n_args,
                                 const struct function_attrs *attrs, struct attr_value *ret) {
    int n = 0, count;
    for (int i = 0; i < n_args; i++) {
        TRY(function_arg_count(body, &args[i], attrs, &count));
        n = MIN(n + count, NODE_MAX_ARGS + 1);
    }
    if (n > NODE_MAX_ARGS)
        return status_invalid("Function '%s' has more than %d arguments or results", body->name,
                              NODE_MAX_ARGS);
    struct attr_value *types = arena_array(arena, struct attr_value, n + 1);
    int at = 0;
    for (int i = 0; i < n_args; i++) {
        TRY(function_arg_count(body, &args[i], attrs, &count));
        for (int k = 0; k < count; k++, at++) {
            types[at].type = ATTR_TYPE;
            TRY(function_arg_type(body, &args[i], attrs, k, &types[at].dtype));
        }
    }
    *ret = (struct attr_value){.type = ATTR_LIST_TYPE, .list = {types, n}};
    return NULL;
}

static struct status *add_call(struct graph *graph, struct arena *arena,
                               const struct attr_func *function, const struct attr_value *in,
                               const struct attr_value *out, struct signature_names *names) {
    struct node *call, *arg;
    struct attr_value f = {.type = ATTR_FUNC, .func = (struct attr_func *)(uintptr_t)function};
    names->n_feeds = in->list.n_values;
    names->n_fetches = out->list.n_values;
    names->feeds = arena_array(arena, const char *, names->n_feeds + 1);
    names->fetches = arena_array(arena, const char *, names->n_fetches + 1);
    TRY(graph_add_node(graph, CALL, "PartitionedCall", "", &call));
    node_set_attr(graph, call, "Tin", in);
    node_set_attr(graph, call, "Tout", out);
    node_set_attr(graph, call, "f", &f);
    node_set_attr_b(graph, call, CALLED_BY_KERNEL_ATTR, true);
    for (int i = 0; i < names->n_feeds; i++) {
        names->feeds[i] = arena_printf(arena, "arg_%d", i);
        TRY(graph_add_node(graph, names->feeds[i], "Placeholder", "", &arg));
        node_set_attr_type(graph, arg, "dtype", in->list.values[i].dtype);
        TRY(node_finish(graph, arg));
        node_add_input(graph, call, arg, 0);
    }
    for (int i = 0; i < names->n_fetches; i++)
        names->fetches[i] = arena_printf(arena, "%s:%d", CALL, i);
    return node_finish(graph, call);
}

/* `from`'s library, and the call. */
static struct status *make_graph(const struct graph *from, const struct attr_func *function,
                                 struct arena *arena, struct graph *ret,
                                 struct signature_names *names) {
    bool *keep = xcalloc((size_t)from->n_nodes + 1, sizeof(*keep));
    struct graph_limits limits;
    struct function_body *body = NULL;
    struct attr_value in = {0}, out = {0};
    const struct function_attrs attrs = {function->attrs, function->n_attrs};
    struct status *st = NULL;
    graph_limits_default(&limits);
    graph_fini(ret);
    graph_copy(from, keep, ret, NULL);
    const struct graph_function *row = strmap_get(&ret->functions, function->name);
    if (!row)
        TRY_OUT(status_new(STATUS_FAILED_PRECONDITION,
                           "Could not find required function definition %.256s", function->name));
    TRY_OUT(function_body_read(ret, row, &limits, &body));
    TRY_OUT(list_types(arena, body, body->args, body->n_args, &attrs, &in));
    TRY_OUT(list_types(arena, body, body->rets, body->n_rets, &attrs, &out));
    TRY_OUT(add_call(ret, arena, function, &in, &out, names));
out:
    function_body_fini(body);
    free(keep);
    return st;
}

/* ---- its passes ---- */

static void place_all(struct graph *graph, int device) {
    for (int id = 0; id < graph->n_nodes; id++)
        graph->nodes[id]->placed = device;
}

static struct status *run_passes(struct compilation *c, int device) {
    for (size_t i = 0; i < n_compile_passes; i++) {
        bool changed;
        if (compile_passes[i].run == pass_functions)
            continue;
        if (compile_passes[i].run == pass_place)
            place_all(&c->graph, device);
        else
            TRY(compilation_run_pass(c, &compile_passes[i], &changed));
    }
    return NULL;
}

/* Messages name a node of a body as the body does; and a feed is the argument of its number
 * although unused ones have gone. */
static void name_as_body(struct partition *partition) {
    struct graph *graph = &partition->graph;
    size_t prefix = sizeof(CALL); /* with its '/' */
    for (int id = 0; id < graph->n_nodes; id++) {
        struct node *node = graph->nodes[id];
        if (node->is_removed)
            continue;
        if (node_is_op(node, OP_FEED))
            node_set_attr_i(graph, node, "index", partition->feeds[node_attr(node, "index")->i]);
        if (node_is_op(node, OP_FETCH))
            node_set_attr_i(graph, node, "index", partition->fetches[node_attr(node, "index")->i]);
        if (strncmp(node->name, "call/", prefix) != 0 || node->name[prefix] == '\0' ||
            graph_find(graph, node->name + prefix))
            continue;
        strmap_remove(&graph->by_name, node->name);
        node->name += prefix;
        strmap_put(&graph->by_name, node->name, node);
    }
}

static struct status *gather(struct gatherer *g, const struct graph *graph);

static struct status *keep_graph(struct gatherer *g, struct graph *graph, const char *name,
                                 const char *key) {
    struct partition *partition = g->partition;
    struct str bytes = STR_INIT;
    graph_drop_library(graph);
    graph_to_graphdef(graph, NULL, &bytes);
    g->n_bytes += bytes.len;
    if (partition->n_functions == MAX_FUNCTIONS || g->n_bytes > MAX_FUNCTION_BYTES) {
        str_fini(&bytes);
        return status_exhausted(
            "The functions that a step's kernels call are too many or too large");
    }
    if (partition->n_functions == g->capacity) {
        struct compiled_function *old = partition->functions;
        g->capacity = MAX(2 * g->capacity, 8);
        partition->functions = arena_array(g->arena, struct compiled_function, g->capacity);
        if (old)
            memcpy(partition->functions, old, (size_t)partition->n_functions * sizeof(*old));
    }
    struct span kept = {arena_memdup(g->arena, str_text(&bytes), bytes.len), bytes.len};
    partition->functions[partition->n_functions++] =
        (struct compiled_function){arena_strdup(g->arena, name), key, kept};
    str_fini(&bytes);
    return NULL;
}

static struct status *compile_function(struct gatherer *g, const struct graph *from,
                                       const struct attr_func *function, int device,
                                       const char *key) {
    struct compilation c;
    struct signature_names names = {0};
    struct signature signature = {0};
    const char *target = CALL;
    struct status *st = NULL;
    compilation_init(&c, &signature, g->c->devices, g->c->options, g->c->pool);
    TRY_OUT(make_graph(from, function, &c.arena, &c.graph, &names));
    signature = (struct signature){.feeds = names.feeds,
                                   .n_feeds = names.n_feeds,
                                   .fetches = names.fetches,
                                   .n_fetches = names.n_fetches,
                                   .targets = &target, /* effects happen anyway */
                                   .n_targets = names.n_fetches == 0};
    TRY_OUT(run_passes(&c, device));
    if (c.result->n_partitions != 1)
        TRY_OUT(status_internal("function '%s' has %d partitions", function->name,
                                c.result->n_partitions));
    name_as_body(&c.result->partitions[0]);
    TRY_OUT(gather(g, &c.result->partitions[0].graph));
    TRY_OUT(keep_graph(g, &c.result->partitions[0].graph, function->name, key));
out:
    compilation_fini(&c);
    return st;
}

/* ---- who names functions ---- */

static struct status *want(struct gatherer *g, const struct graph *graph, const struct node *node,
                           const struct attr_func *function) {
    struct str text = STR_INIT;
    function_key(function, node->device, &text);
    bool is_new = !strmap_get(&g->seen, str_text(&text));
    const char *key = is_new ? arena_strdup(g->arena, str_text(&text)) : NULL;
    str_fini(&text);
    if (!is_new)
        return NULL;
    if (g->depth == MAX_DEPTH)
        return status_exhausted("Functions name each other more than %d deep\n\t [[{{node %s}}]]",
                                MAX_DEPTH, node->name);
    strmap_put(&g->seen, key, (void *)(uintptr_t)key);
    g->depth++;
    struct status *st = compile_function(g, graph, function, node->placed, key);
    g->depth--;
    return status_suffix_take(st, "\n\t [[{{node %s}}]]", node->name);
}

/* A node without a kernel will be refused by name; its functions are of no use. */
static bool names_functions(const struct node *node) {
    return !node->is_removed && op_signature_is_known(node->op) && node_uses_functions(node) &&
           kernel_op_is_supported(node->op_name, "CPU");
}

static struct status *gather(struct gatherer *g, const struct graph *graph) {
    for (int id = 0; id < graph->n_nodes; id++) {
        const struct node *node = graph->nodes[id];
        for (int i = 0; names_functions(node) && i < node->n_attrs; i++) {
            const struct attr_value *value = &node->attrs[i].value;
            if (value->type == ATTR_FUNC && !value->is_placeholder)
                TRY(want(g, graph, node, value->func));
            for (int k = 0; value->type == ATTR_LIST_FUNC && k < value->list.n_values; k++)
                TRY(want(g, graph, node, value->list.values[k].func));
        }
    }
    return NULL;
}

struct status *pass_functions(struct compilation *c, bool *ret_changed) {
    struct status *st = NULL;
    for (int i = 0; i < c->result->n_partitions && !st; i++) {
        struct gatherer g = {
            .c = c, .partition = &c->result->partitions[i], .arena = &c->result->arena};
        strmap_init(&g.seen);
        st = gather(&g, &g.partition->graph);
        strmap_fini(&g.seen);
        *ret_changed = *ret_changed || g.partition->n_functions > 0;
    }
    for (int i = 0; i < c->result->n_partitions && !st; i++)
        graph_drop_library(&c->result->partitions[i].graph);
    return st;
}
