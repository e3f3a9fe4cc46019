/* Binds functions of a table to what a step runs on, and makes fresh copies of them. */
#include "worker/executor/function.h"

#include <stdlib.h>

#include "common/graph/function_key.h"
#include "worker/container.h"
#include "worker/executor/executor_internal.h"
#include "worker/executor/function_internal.h"

/* ---- functions ---- */

static void bound_free(struct object *object) {
    struct bound_function *bound = CONTAINER_OF(object, struct bound_function, base.object);
    for (struct function_execution *execution = bound->free_executions, *next; execution;
         execution = next) {
        next = execution->next_free;
        function_execution_free(execution);
    }
    pthread_mutex_destroy(&bound->lock);
    container_table_unref_weak(bound->containers);
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
    bound->row = row;
    bound->table = function_table_ref(table);
    bound->containers = container_table_ref_weak(as->containers);
    bound->free_executions = NULL;
    bound->n_free_executions = 0;
    CHECK(pthread_mutex_init(&bound->lock, NULL) == 0);
    return &bound->base;
}

struct status *function_find(struct kernel_ctx *ctx, const char *attr, struct function **ret) {
    const struct executor *executor = ctx->host_data;
    const struct execution *execution = executor->execution;
    const struct attr_value *value = node_attr(ctx->instance->node, attr);
    struct function_table *table = executor->plan->functions;
    const struct function_row *row = NULL;
    if (!value || value->type != ATTR_FUNC)
        return status_invalid("Node '%s' has no function '%s'", ctx->instance->node->name, attr);
    if (table) {
        struct str key = STR_INIT;
        function_key(value->func, ctx->instance->device, &key);
        row = function_table_find(table, str_text(&key));
        str_fini(&key);
    }
    if (!row)
        return status_not_found("Function %s is not defined.", value->func->name);
    if (execution->depth >= FUNCTION_MAX_DEPTH)
        return status_exhausted("Functions call each other more than %d deep", FUNCTION_MAX_DEPTH);
    const struct bound_function as = {.base = {.host = ctx->host, .pool = execution->pool},
                                      .containers = execution->containers,
                                      .io_pool = execution->io_pool,
                                      .alarms = execution->alarms,
                                      .inline_budget_ns = execution->inline_budget_ns,
                                      .scale = execution->scale,
                                      .depth = execution->depth + 1};
    *ret = bind_row(table, row, &as);
    return NULL;
}

/* ---- fresh copies ---- */

/* The copies of tables that belong to one scope. */
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

static struct status *copy_of(struct scope *scope, struct function_table *from,
                              struct function_table **ret) {
    for (int i = 0; i < scope->n_tables; i++)
        if (scope->tables[i].from == from) {
            *ret = scope->tables[i].to;
            return NULL;
        }
    struct function_table *copy = NULL;
    TRY(function_table_copy(from, &copy));
    scope->tables =
        xreallocarray(scope->tables, (size_t)scope->n_tables + 1, sizeof(*scope->tables));
    scope->tables[scope->n_tables++] = (struct scope_table){function_table_ref(from), copy};
    *ret = copy;
    return NULL;
}

struct status *function_fresh(struct function *function, struct object **scope,
                              struct function **ret) {
    struct bound_function *bound = CONTAINER_OF(function, struct bound_function, base);
    struct function_table *table = NULL;
    if (!function_table_shares_state(bound->table)) {
        object_ref(&function->object);
        *ret = function;
        return NULL;
    }
    if (!*scope) {
        struct scope *made = xcalloc(1, sizeof(*made));
        object_init(&made->object, &scope_type);
        *scope = &made->object;
    }
    TRY(copy_of(CONTAINER_OF(*scope, struct scope, object), bound->table, &table));
    *ret = bind_row(table, function_table_find(table, bound->row->key), bound);
    return NULL;
}
