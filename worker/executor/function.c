/* Tables of functions: worker/executor/function.h. */
#include "worker/executor/function.h"

#include <stdlib.h>

#include "common/graph/function_key.h"
#include "common/graph/graph_proto.h"
#include "worker/container.h"
#include "worker/executor/executor_internal.h"
#include "worker/executor/function_internal.h"

/* ---- tables ---- */

/* State that a fresh copy must not share: random streams, resources of nodes. */
static bool has_state(const struct plan *plan) {
    for (uint32_t i = 0; i < plan->n_instances; i++)
        if ((plan->instances[i].def->flags & KERNEL_SESSION_STATE) && plan->instances[i].state)
            return true;
    return false;
}

static uint8_t *feed_types(const struct plan *plan) {
    uint8_t *types = xcalloc((size_t)plan->n_feeds + 1, 1);
    for (uint32_t i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == PLAN_FEED && plan->nodes[i].node->n_outputs > 0)
            types[plan->nodes[i].aux] =
                (uint8_t)dtype_base((enum dtype)plan->nodes[i].node->out_types[0]);
    return types;
}

static uint8_t *fetch_types(const struct plan *plan) {
    uint8_t *types = xcalloc((size_t)plan->n_fetches + 1, 1);
    for (uint32_t i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == PLAN_FETCH && plan->nodes[i].node->n_data > 0)
            types[plan->nodes[i].aux] =
                (uint8_t)dtype_base((enum dtype)plan->nodes[i].node->in_types[0]);
    return types;
}

static struct status *build_row(struct function_table *table, const struct function_source *source,
                                struct function_row *row) {
    struct graph graph;
    struct graph_limits limits;
    struct plan_options options = table->options;
    graph_init(&graph);
    graph_limits_default(&limits);
    limits.is_internal = true;
    options.session_state = NULL; /* names of nodes are unique within one function only */
    options.functions = table;
    options.is_function = true;
    struct status *st = graph_add_graphdef(&graph, source->graphdef, &limits);
    if (!st)
        st = plan_new(&graph, &options, &row->plan);
    graph_fini(&graph);
    if (st)
        return st;
    row->arg_types = feed_types(row->plan);
    row->ret_types = fetch_types(row->plan);
    if (row->plan->n_channels > 0)
        return status_invalid("function '%s' sends or receives", row->name);
    table->has_state = table->has_state || has_state(row->plan);
    return NULL;
}

static void table_free(struct function_table *table) {
    for (int i = 0; i < table->n_rows; i++) {
        plan_unref(table->rows[i].plan);
        free(table->rows[i].arg_types);
        free(table->rows[i].ret_types);
    }
    strmap_fini(&table->by_key);
    arena_fini(&table->arena);
    free(table->rows);
    free(table);
}

struct function_table *function_table_ref(struct function_table *table) {
    atomic_fetch_add_explicit(&table->n_refs, 1, memory_order_relaxed);
    return table;
}

void function_table_unref(struct function_table *table) {
    if (table && atomic_fetch_sub_explicit(&table->n_refs, 1, memory_order_acq_rel) == 1)
        table_free(table);
}

int function_table_n_functions(const struct function_table *table) {
    return table ? table->n_rows : 0;
}

struct status *function_table_new(const struct plan_options *options,
                                  const struct function_source *sources, int n_sources,
                                  struct function_table **ret) {
    struct function_table *table = xcalloc(1, sizeof(*table));
    struct status *st = NULL;
    atomic_init(&table->n_refs, 1);
    table->options = *options;
    arena_init(&table->arena);
    strmap_init(&table->by_key);
    table->rows = xcalloc((size_t)n_sources + 1, sizeof(*table->rows));
    for (int i = 0; i < n_sources && !st; i++) {
        struct function_row *row = &table->rows[table->n_rows++];
        row->key = arena_strdup(&table->arena, sources[i].key);
        row->name = arena_strdup(&table->arena, sources[i].name);
        strmap_put(&table->by_key, row->key, row);
        st = build_row(table, &sources[i], row);
    }
    for (int i = 0; i < n_sources && !st && table->has_state; i++) { /* to be made again */
        struct span graphdef = sources[i].graphdef;
        table->rows[i].graphdef =
            (struct span){arena_memdup(&table->arena, graphdef.data, graphdef.len), graphdef.len};
    }
    if (st)
        function_table_unref(table);
    else
        *ret = table;
    return st;
}

/* ---- functions ---- */

static void bound_free(struct object *object) {
    struct bound_function *bound = CONTAINER_OF(object, struct bound_function, base.object);
    for (struct nested_run *run = bound->free_runs, *next; run; run = next) {
        next = run->next_free;
        nested_run_free(run);
    }
    pthread_mutex_destroy(&bound->lock);
    container_table_free(bound->containers);
    function_table_unref(bound->table);
    free(bound);
}

static const struct object_type function_type = {.name = "function", .free = bound_free};

static struct function *bind_row(struct function_table *table, const struct function_row *row,
                                 const struct bound_function *as) {
    struct bound_function *bound = xcalloc(1, sizeof(*bound));
    *bound = *as;
    object_init(&bound->base.object, &function_type);
    bound->base.name = row->name;
    bound->base.arg_types = row->arg_types;
    bound->base.ret_types = row->ret_types;
    bound->base.n_args = (int)row->plan->n_feeds;
    bound->base.n_rets = (int)row->plan->n_fetches;
    bound->plan = row->plan;
    bound->table = function_table_ref(table);
    bound->containers = container_table_ref(as->containers);
    bound->free_runs = NULL;
    bound->n_free_runs = 0;
    CHECK(pthread_mutex_init(&bound->lock, NULL) == 0);
    return &bound->base;
}

struct status *function_find(struct kernel_ctx *ctx, const char *attr, struct function **ret) {
    const struct step *step = ctx->step;
    const struct step_run *run = step->run;
    const struct attr_value *value = node_attr(ctx->instance->node, attr);
    struct function_table *table = step->plan->functions;
    const struct function_row *row = NULL;
    if (!value || value->type != ATTR_FUNC)
        return status_invalid("Node '%s' has no function '%s'", ctx->instance->node->name, attr);
    if (table) {
        struct str key = STR_INIT;
        function_key(value->func, ctx->instance->device, &key);
        row = strmap_get(&table->by_key, str_text(&key));
        str_fini(&key);
    }
    if (!row)
        return status_not_found("Function %s is not defined.", value->func->name);
    if (run->depth >= FUNCTION_MAX_DEPTH)
        return status_exhausted("Functions call each other more than %d deep", FUNCTION_MAX_DEPTH);
    const struct bound_function as = {.base = {.host = ctx->host, .pool = run->pool},
                                      .containers = run->containers,
                                      .io_pool = run->io_pool,
                                      .alarms = run->alarms,
                                      .inline_budget_ns = run->inline_budget_ns,
                                      .depth = run->depth + 1};
    *ret = bind_row(table, row, &as);
    return NULL;
}

/* ---- fresh copies ---- */

/* The tables that have been made again, by the ones they come from. */
struct scope {
    struct object object;
    struct scope_table {
        struct function_table *from, *to;
    } * tables;
    int n_tables;
};

static void scope_free(struct object *object) {
    struct scope *scope = CONTAINER_OF(object, struct scope, object);
    for (int i = 0; i < scope->n_tables; i++) {
        function_table_unref(scope->tables[i].from);
        function_table_unref(scope->tables[i].to);
    }
    free(scope->tables);
    free(scope);
}

static const struct object_type scope_type = {.name = "function scope", .free = scope_free};

static struct status *make_again(struct scope *scope, struct function_table *from,
                                 struct function_table **ret) {
    for (int i = 0; i < scope->n_tables; i++)
        if (scope->tables[i].from == from) {
            *ret = scope->tables[i].to;
            return NULL;
        }
    struct function_source *sources = xcalloc((size_t)from->n_rows + 1, sizeof(*sources));
    for (int i = 0; i < from->n_rows; i++)
        sources[i] =
            (struct function_source){from->rows[i].key, from->rows[i].name, from->rows[i].graphdef};
    struct function_table *made = NULL;
    struct status *st = function_table_new(&from->options, sources, from->n_rows, &made);
    free(sources);
    TRY(st);
    made->is_fresh = true;
    scope->tables =
        xreallocarray(scope->tables, (size_t)scope->n_tables + 1, sizeof(*scope->tables));
    scope->tables[scope->n_tables++] = (struct scope_table){function_table_ref(from), made};
    *ret = made;
    return NULL;
}

struct status *function_fresh(struct function *function, struct object **scope,
                              struct function **ret) {
    struct bound_function *bound = CONTAINER_OF(function, struct bound_function, base);
    struct function_table *table = NULL;
    if (!bound->table->has_state || bound->table->is_fresh) {
        object_ref(&function->object);
        *ret = function;
        return NULL;
    }
    if (!*scope) {
        struct scope *made = xcalloc(1, sizeof(*made));
        object_init(&made->object, &scope_type);
        *scope = &made->object;
    }
    TRY(make_again(CONTAINER_OF(*scope, struct scope, object), bound->table, &table));
    ptrdiff_t at = 0;
    while (bound->table->rows[at].plan != bound->plan)
        at++;
    *ret = bind_row(table, &table->rows[at], bound);
    return NULL;
}
