/* Compiles the functions that kernels call while a step runs (for example the function of a map
 * dataset), together with the step and for the task of the node that names them.
 *
 *   MapDataset {f=g} on task A  =>  g: Placeholder…, call of g ──► cut, inline, fold, cse ──► a
 *                                   flat graph on A's device; the arguments are feeds 0, 1, …,
 *                                   the results are fetches 0, 1, …
 *
 * So a function is a small step, and the worker runs it as one. Functions that its nodes name are
 * compiled too, once per instance (function_key.h); so a function may name itself. Nothing in a
 * function is sent to another task, and the tasks that its nodes ask for are ignored. On a GPU's
 * device, nodes that ask for a CPU, or that GPUs do not compute, are on the task's CPU. */
#include <stdlib.h>

#include "common/graph/device_name.h"
#include "common/graph/function_body.h"
#include "common/graph/function_key.h"
#include "common/graph/fused.h"
#include "common/graph/graph_proto.h"
#include "common/graph/internal_ops.h"
#include "kernels/kernel.h"
#include "master/compile/compilation.h"
#include "master/compile/inline/inline.h"

enum {
    MAX_DEPTH = 64,                 /* how deep functions may name functions */
    MAX_FUNCTIONS = 1 << 16,        /* how many in one task and one step */
    MAX_FUNCTION_BYTES = INT32_MAX, /* the size of all their graphs */
};

static const char CALL[] = "call"; /* the node whose body is the function */

/* A function that is compiled already, for one device, with the attrs of one call. */
struct instance {
    struct attr_value function; /* a copy in the gatherer's arena */
    uint64_t hash;
    int number; /* among those of its name and device */
    struct instance *next;
};

struct gatherer {
    struct compilation *c; /* the step's */
    struct partition *partition;
    struct arena *arena;     /* the result's */
    struct strmap instances; /* function_key of instance 0 → struct instance, the newest */
    struct arena own;        /* of the instances */
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

/* The library of `from`, and the call. */
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

/* A resource's ops stay where its handle is. */
static bool takes_resource(const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        if (node->in_types[i] == DT_RESOURCE || dtype_is_ref((enum dtype)node->in_types[i]))
            return true;
    return false;
}

static bool asks_for_cpu(const struct node *node) {
    struct device_name name;
    struct status *st = device_name_parse(span_of(node->device), &name);
    bool asks = !st && strcmp(name.type, "CPU") == 0;
    status_unref(st);
    return asks;
}

static void place_all(struct compilation *c, int device) {
    const struct device_info *info = &c->devices->devices[device];
    int host = c->devices->tasks[info->task].first_device;
    bool is_host = strcmp(info->type, "CPU") == 0;
    for (int id = 0; id < c->graph.n_nodes; id++) {
        struct node *node = c->graph.nodes[id];
        if (node->is_removed)
            continue;
        bool is_there = is_host || (kernel_find(node, info->type) &&
                                    (takes_resource(node) || !asks_for_cpu(node)));
        node->placed = is_there ? device : host;
    }
}

static struct status *run_passes(struct compilation *c, int device) {
    for (size_t i = 0; i < n_compile_passes; i++) {
        bool changed;
        if (compile_passes[i].run == pass_functions)
            continue;
        if (compile_passes[i].run == pass_place)
            place_all(c, device);
        else
            TRY(compilation_run_pass(c, &compile_passes[i], &changed));
    }
    return NULL;
}

/* Takes the prefix from the names that a fused program remembers. */
static void name_instructions(struct graph *graph, struct node *node, size_t prefix) {
    struct attr_value names = *node_attr(node, "names");
    int n = names.list.n_values;
    struct attr_value *values = arena_array(&graph->arena, struct attr_value, n + 1);
    for (int i = 0; i < n; i++) {
        struct span name = names.list.values[i].s;
        values[i] = names.list.values[i];
        if (name.len > prefix && memcmp(name.data, "call/", prefix) == 0)
            values[i].s = (struct span){name.data + prefix, name.len - prefix};
    }
    names.list.values = values;
    node_set_attr(graph, node, "names", &names);
}

/* Restores the names that messages use: a node of a body has its name in the body, and a feed has
 * the number of its argument although unused arguments were removed. */
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
        if (node_is_op(node, OP_FUSED))
            name_instructions(graph, node, prefix);
        if (strncmp(node->name, "call/", prefix) != 0 || node->name[prefix] == '\0' ||
            graph_find(graph, node->name + prefix))
            continue;
        strmap_remove(&graph->by_name, node->name);
        node->name += prefix;
        strmap_put(&graph->by_name, node->name, node);
    }
}

static struct status *gather(struct gatherer *g, struct graph *graph);

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
                                   .targets = &target, /* effects happen in any case */
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

/* ---- instances ---- */

/* The function with its instance's number, which no client chooses. 0 needs no attr. */
static const struct attr_func *number_function(struct arena *arena, const struct attr_func *from,
                                               int number) {
    struct attr_func *func = arena_memdup(arena, from, sizeof(*from));
    func->attrs = arena_array(arena, struct attr, from->n_attrs + 1);
    func->n_attrs = 0;
    int before = 0; /* attrs are sorted by name */
    for (int i = 0; i < from->n_attrs; i++) {
        int order = strcmp(from->attrs[i].name, FUNCTION_INSTANCE_ATTR);
        if (order != 0)
            func->attrs[func->n_attrs++] = from->attrs[i];
        before += order < 0;
    }
    if (number == 0)
        return func;
    memmove(func->attrs + before + 1, func->attrs + before,
            (size_t)(func->n_attrs - before) * sizeof(func->attrs[0]));
    func->attrs[before] = (struct attr){FUNCTION_INSTANCE_ATTR, {.type = ATTR_INT, .i = number}};
    func->n_attrs++;
    return func;
}

/* The instance that the node means, or a new one. */
static struct instance *find_instance(struct gatherer *g, const struct node *node,
                                      const struct attr_value *function, bool *ret_is_new) {
    struct str text = STR_INIT;
    struct attr_func plain = {.name = function->func->name};
    struct attr_value asked = *function; /* without a number, if a client gave one */
    asked.func = (struct attr_func *)(uintptr_t)number_function(&g->own, function->func, 0);
    uint64_t hash = attr_value_hash(&asked);
    function_key(&plain, node->device, &text);
    struct instance *newest = strmap_get(&g->instances, str_text(&text)), *found = newest;
    while (found && !(found->hash == hash &&
                      function_is_same_instance(found->function.func, function->func)))
        found = found->next;
    *ret_is_new = !found;
    if (!found) {
        found = arena_new(&g->own, struct instance);
        *found = (struct instance){
            .hash = hash, .number = newest ? newest->number + 1 : 0, .next = newest};
        attr_value_copy(&asked, &g->own, &found->function);
        strmap_put(&g->instances, arena_strdup(&g->own, str_text(&text)), found);
    }
    str_fini(&text);
    return found;
}

static void instances_fini(struct gatherer *g) {
    size_t cursor = 0;
    struct span name;
    void *newest;
    while (strmap_next(&g->instances, &cursor, &name, &newest))
        for (struct instance *instance = newest; instance; instance = instance->next)
            attr_value_clear(&instance->function);
    strmap_fini(&g->instances);
    arena_fini(&g->own);
}

/* ---- who names functions ---- */

/* Compiles what the value names, if that is new, and writes the instance's number into it. */
static struct status *want(struct gatherer *g, struct graph *graph, const struct node *node,
                           struct attr_value *value) {
    bool is_new;
    struct instance *instance = find_instance(g, node, value, &is_new);
    const struct attr_func *function =
        number_function(&graph->arena, value->func, instance->number);
    value->func = (struct attr_func *)(uintptr_t)function;
    if (!is_new)
        return NULL;
    if (g->depth == MAX_DEPTH)
        return status_exhausted("Functions name each other more than %d deep\n\t [[{{node %s}}]]",
                                MAX_DEPTH, node->name);
    struct str key = STR_INIT;
    function_key(function, node->device, &key);
    g->depth++;
    struct status *st = compile_function(g, graph, instance->function.func, node->placed,
                                         arena_strdup(g->arena, str_text(&key)));
    g->depth--;
    str_fini(&key);
    return status_suffix_take(st, "\n\t [[{{node %s}}]]", node->name);
}

/* A node without a kernel will be refused by name, so its functions are not needed. */
static bool names_functions(const struct node *node) {
    return !node->is_removed && op_signature_is_known(node->op) && node_uses_functions(node) &&
           kernel_op_is_supported(node->op_name, "CPU");
}

/* The node's attr gets a value of its own, since nodes share the values of the session's graph. */
static struct status *want_attr(struct gatherer *g, struct graph *graph, struct node *node,
                                struct attr *attr) {
    struct attr_value value = attr->value;
    if (value.is_placeholder)
        return NULL;
    if (value.type == ATTR_FUNC) {
        TRY(want(g, graph, node, &value));
    } else if (value.type == ATTR_LIST_FUNC) {
        int n = value.list.n_values;
        struct attr_value *values = arena_array(&graph->arena, struct attr_value, n + 1);
        for (int i = 0; i < n; i++) {
            values[i] = value.list.values[i];
            TRY(want(g, graph, node, &values[i]));
        }
        value.list.values = values;
    } else {
        return NULL;
    }
    attr->value = value;
    return NULL;
}

static struct status *gather(struct gatherer *g, struct graph *graph) {
    for (int id = 0; id < graph->n_nodes; id++) {
        struct node *node = graph->nodes[id];
        for (int i = 0; names_functions(node) && i < node->n_attrs; i++)
            TRY(want_attr(g, graph, node, &node->attrs[i]));
    }
    return NULL;
}

struct status *pass_functions(struct compilation *c, bool *ret_changed) {
    struct status *st = NULL;
    for (int i = 0; i < c->result->n_partitions && !st; i++) {
        struct gatherer g = {
            .c = c, .partition = &c->result->partitions[i], .arena = &c->result->arena};
        strmap_init(&g.instances);
        arena_init(&g.own);
        st = gather(&g, &g.partition->graph);
        instances_fini(&g);
        *ret_changed = *ret_changed || g.partition->n_functions > 0;
    }
    for (int i = 0; i < c->result->n_partitions && !st; i++)
        graph_drop_library(&c->result->partitions[i].graph);
    return st;
}
