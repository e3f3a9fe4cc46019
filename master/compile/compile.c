/* The compiler's driver: the table of passes, and the way from a session's graph to partitions
 * (compile.h).
 *
 * Reading order: this file, pass_cut.c, pass_prune.c, pass_inline.c, pass_simplify.c,
 * pass_invariants.c, pass_fold.c, pass_branches.c, pass_cse.c, pass_pads.c, pass_transposes.c,
 * pass_waits.c, pass_controls.c, pass_datasets.c, place.h, pass_place.c, pass_debug.c, pass_fuse.c,
 * pass_contract.c, pass_gathers.c, pass_delays.c, pass_partition.c, pass_functions.c. */
#include "master/compile/compile.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/graph/graph_text.h"
#include "kernels/infer_eval.h"
#include "master/compile/compilation.h"

/* ---- the table ---- */

// clang-format off
const struct pass compile_passes[] = {
    {"cut",        pass_cut,        "WP 4.2 partial execution",                  false, false},
    {"prune",      pass_prune,      "WP 4.2; OSDI 3.2",                          false, true},
    {"inline",     pass_inline,     "WP 4.4, CF 3: functions, If, While",        false, false},
    {"simplify",   pass_simplify,   "what changes nothing, pairs that cancel",   true,  true},
    {"invariants", pass_invariants, "CF 4.1: loop invariants",                   true,  true},
    {"fold",       pass_fold,       "OSDI 3.3 constant folding",                 true,  false},
    {"branches",   pass_branches,   "CF 3.2: dead branches of constants",        true,  true},
    {"cse",        pass_cse,        "WP 5.1 common subexpressions",              true,  false},
    {"pads",       pass_pads,       "Pad into Conv2D",                           true, false, true},
    {"transposes", pass_transposes, "Transpose into products",                   true, true, true},
    {"waits",      pass_waits,      "what only waits is not computed",           true,  false},
    {"controls",   pass_controls,   "control edges that say nothing new",        true,  true},
    {"datasets",   pass_datasets,   "datasets as graphs, for clients",           false, false},
    {"sweep",      pass_prune,      "what the passes before it left unused",     false, true},
    {"place",      pass_place,      "WP 3.2.1 node placement",                   false, true},
    {"debug",      pass_debug,      "tensors that a debugger watches",           false, false},
    {"fuse",       pass_fuse,       "WP 5.1: elementwise nodes as one",          true,  false},
    {"contract",   pass_contract,   "WP 5.1: products with what follows",        true,  false},
    {"gathers",    pass_gathers,    "WP 5.1: gathered rows with their reduction", true, false},
    {"delays",     pass_delays,     "WP 5.2: large values made late",            true,  true},
    {"partition",  pass_partition,  "WP 3.2.2 cross-device communication",       false, false},
    {"functions",  pass_functions,  "CF 3: functions that kernels call",         false, false},
    {"graphs",     pass_debug_graphs, "the graphs that a debugger gets",         false, false},
};
// clang-format on
const size_t n_compile_passes = ARRAY_LEN(compile_passes);

const struct pass *pass_find(const char *name) {
    for (size_t i = 0; i < n_compile_passes; i++)
        if (strcmp(compile_passes[i].name, name) == 0)
            return &compile_passes[i];
    return NULL;
}

#ifdef __OPTIMIZE__
enum { VERIFY_BY_DEFAULT = false };
#else
enum { VERIFY_BY_DEFAULT = true };
#endif

void compile_options_default(struct compile_options *options) {
    *options = (struct compile_options){
        .max_inlined_nodes = 1000 * 1000,
        .fold_max_bytes = 10 << 20,
        .debug_max_bytes = DEBUG_MAX_BYTES,
        .fold_budget_ns = 200 * INT64_C(1000000),
        .verify = VERIFY_BY_DEFAULT,
    };
}

/* ---- running passes ---- */

static bool is_listed(const char *const *names, const char *pass) {
    for (; names && *names; names++)
        if (strcmp(*names, pass) == 0)
            return true;
    return false;
}

static bool is_switched_off(const struct pass *pass, const struct compile_options *options) {
    return pass->is_optional &&
           (options->no_optimizations || is_listed(options->disabled_passes, pass->name) ||
            (pass->is_opt_in && !is_listed(options->enabled_passes, pass->name)));
}

static void dump_graph(const struct graph *graph, const char *pass, const char *where) {
    struct str text = STR_INIT;
    graph_print(graph, &text);
    log_event(EVENT_GRAPH_DUMP, "graph after %s%s: %d nodes", pass, where, graph->n_live);
    for (const char *line = str_text(&text), *end; *line; line = *end ? end + 1 : end) {
        end = strchrnul(line, '\n');
        log_event(EVENT_GRAPH_DUMP, "  %.*s", (int)MIN(end - line, 4096), line);
    }
    str_fini(&text);
}

static bool is_dumped(const struct compile_options *options, const struct pass *pass) {
    return options->dump_after && (strcmp(options->dump_after, "all") == 0 ||
                                   strcmp(options->dump_after, pass->name) == 0);
}

/* Before the partition there is one graph, afterwards there are several. */
static struct status *look_at(const struct compilation *c, const struct pass *pass,
                              const struct graph *graph, const char *where, bool changed) {
    if (c->options->verify && changed) {
        struct status *st = graph_verify(graph);
        if (st)
            return status_prefix_take(st, "after pass '%s'%s: ", pass->name, where);
    }
    if (is_dumped(c->options, pass))
        dump_graph(graph, pass->name, where);
    return NULL;
}

struct status *compilation_run_pass(struct compilation *c, const struct pass *pass,
                                    bool *ret_changed) {
    *ret_changed = false;
    if (is_switched_off(pass, c->options) || (pass->is_optional && c->signature->n_watches > 0))
        return NULL;
    TRY(pass->run(c, ret_changed));
    if (*ret_changed && !pass->keeps_shapes)
        compilation_drop_shapes(c);
    if (!c->result)
        return look_at(c, pass, &c->graph, "", *ret_changed);
    for (int i = 0; i < c->result->n_partitions; i++) {
        const struct partition *partition = &c->result->partitions[i];
        const char *where =
            arena_printf(&c->arena, " on %s", c->devices->tasks[partition->task].name);
        TRY(look_at(c, pass, &partition->graph, where, *ret_changed));
    }
    return NULL;
}

void compilation_init(struct compilation *c, const struct signature *signature,
                      const struct device_table *devices, const struct compile_options *options,
                      struct pool *pool) {
    *c = (struct compilation){
        .signature = signature, .devices = devices, .options = options, .pool = pool};
    graph_init(&c->graph);
    graph_shapes_init(&c->shapes);
    graph_shapes_init(&c->expected);
    arena_init(&c->arena);
}

void compilation_fini(struct compilation *c) {
    graph_shapes_fini(&c->shapes);
    graph_shapes_fini(&c->expected);
    graph_fini(&c->graph);
    arena_fini(&c->arena);
    compiled_free(c->result);
    c->result = NULL;
}

/* ---- static shapes ---- */

const struct graph_shapes *compilation_shapes(struct compilation *c) {
    struct infer_options options;
    infer_options_with_kernels(&options);
    if (c->shapes.n_nodes < c->graph.n_nodes) {
        struct status *st = graph_infer_shapes(&c->graph, &c->shapes, &options);
        status_unref(st); /* a cycle, which each pass that needs an order reports */
    }
    return &c->shapes;
}

void compilation_drop_shapes(struct compilation *c) {
    if (c->shapes.n_nodes == 0)
        return;
    graph_shapes_fini(&c->shapes);
    graph_shapes_init(&c->shapes);
    graph_shapes_fini(&c->expected);
    graph_shapes_init(&c->expected);
}

/* ---- the part of the session's graph that a step can need ---- */

static void seed(const struct graph *graph, const char *const *names, int n_names, bool *is_needed,
                 struct node **stack, int *n_stack) {
    for (int i = 0; i < n_names; i++) {
        struct span name;
        int index;
        struct node *node =
            endpoint_parse(span_of(names[i]), &name, &index) ? graph_find_span(graph, name) : NULL;
        if (!node || is_needed[node->id])
            continue;
        is_needed[node->id] = true;
        stack[(*n_stack)++] = node;
    }
}

/* A session's graph may have far more nodes than one step runs (savers, initialisers, other
 * towers), so only the nodes that the signature's names reach backwards are copied. The walk does
 * not stop at feeds, because a copy must have all inputs of its nodes; the prune after the cut
 * removes what feeds replace. Names that do not exist are reported by the cut. */
static void copy_reachable(const struct graph *from, const struct signature *signature,
                           struct graph *ret) {
    bool *is_needed = xcalloc((size_t)from->n_nodes + 1, sizeof(*is_needed));
    struct node **stack = xcalloc((size_t)from->n_nodes + 1, sizeof(*stack));
    int n_stack = 0;
    seed(from, signature->feeds, signature->n_feeds, is_needed, stack, &n_stack);
    seed(from, signature->fetches, signature->n_fetches, is_needed, stack, &n_stack);
    seed(from, signature->targets, signature->n_targets, is_needed, stack, &n_stack);
    seed(from, signature->connect_from, signature->n_connections, is_needed, stack, &n_stack);
    seed(from, signature->connect_to, signature->n_connections, is_needed, stack, &n_stack);
    while (n_stack > 0) {
        const struct node *node = stack[--n_stack];
        for (int i = 0; i < node->n_inputs; i++) {
            struct node *src = node->inputs[i].src;
            if (is_needed[src->id])
                continue;
            is_needed[src->id] = true;
            stack[n_stack++] = src;
        }
    }
    graph_fini(ret);
    graph_copy(from, is_needed, ret, NULL);
    free(is_needed);
    free(stack);
}

static bool uses_devices(const struct graph *graph) {
    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i]->device && *graph->nodes[i]->device &&
            !strstr(graph->nodes[i]->device, "/device:CPU:"))
            return true;
    return false;
}

static bool reads_peer_files(const struct graph *graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct node *node = graph->nodes[i];
        if (!node->is_removed && (strcmp(node->op_name, "RestoreV2") == 0 ||
                                  strcmp(node->op_name, "MergeV2Checkpoints") == 0))
            return true;
    }
    return false;
}

struct status *compile_step(const struct graph *session_graph, const struct signature *signature,
                            const struct device_table *devices,
                            const struct compile_options *options, struct pool *pool,
                            struct compiled **ret) {
    struct compilation c;
    struct status *st = NULL;
    compilation_init(&c, signature, devices, options, pool);
    copy_reachable(session_graph, signature, &c.graph);
    for (size_t i = 0; i < n_compile_passes; i++) {
        bool changed;
        TRY_OUT(compilation_run_pass(&c, &compile_passes[i], &changed));
    }
    if (c.feed_needs)
        c.result->feed_needs =
            arena_memdup(&c.result->arena, c.feed_needs,
                         (size_t)signature->n_fetches * FEED_SET_WORDS(signature->n_feeds) *
                             sizeof(*c.feed_needs));
    for (int i = 0; i < c.result->n_partitions; i++) {
        struct partition *partition = &c.result->partitions[i];
        partition->uses_devices = uses_devices(&partition->graph);
        partition->reads_peer_files = reads_peer_files(&partition->graph);
    }
    *ret = c.result;
    c.result = NULL;
out:
    compilation_fini(&c);
    return st;
}

void compiled_free(struct compiled *compiled) {
    if (!compiled)
        return;
    for (int i = 0; i < compiled->n_partitions; i++)
        graph_fini(&compiled->partitions[i].graph);
    graph_fini(&compiled->graph);
    device_table_unref(compiled->devices);
    arena_fini(&compiled->arena);
    free(compiled);
}
