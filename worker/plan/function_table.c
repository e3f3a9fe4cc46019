/* Makes the plans of the functions that come with a partition, and keeps them by key. */
#include "worker/plan/function_table.h"

#include <stdlib.h>

#include "common/base/map.h"
#include "common/graph/graph_proto.h"

struct function_table {
    _Atomic uint32_t n_refs;
    struct plan_options options;
    struct function_row *rows;
    int n_rows;
    struct strmap by_key; /* → struct function_row */
    struct arena arena;
    bool has_state;
    bool is_copy; /* made by function_table_copy */
};

/* State that two callers must not share: random streams, and resources of nodes. */
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

const struct function_row *function_table_find(const struct function_table *table,
                                               const char *key) {
    return strmap_get(&table->by_key, key);
}

bool function_table_shares_state(const struct function_table *table) {
    return table->has_state && !table->is_copy;
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
    for (int i = 0; i < n_sources && !st && table->has_state; i++) { /* kept for copies */
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

struct status *function_table_copy(const struct function_table *table,
                                   struct function_table **ret) {
    CHECK(function_table_shares_state(table));
    struct function_source *sources = xcalloc((size_t)table->n_rows + 1, sizeof(*sources));
    for (int i = 0; i < table->n_rows; i++)
        sources[i] = (struct function_source){table->rows[i].key, table->rows[i].name,
                                              table->rows[i].graphdef};
    struct function_table *copy = NULL;
    struct status *st = function_table_new(&table->options, sources, table->n_rows, &copy);
    free(sources);
    TRY(st);
    copy->is_copy = true;
    *ret = copy;
    return NULL;
}
