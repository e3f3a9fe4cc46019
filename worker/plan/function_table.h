/* A table of functions: the plans of the graphs that kernels of one partition call
 * (kernels/host.h). A registered graph arrives with its functions; each becomes a row.
 *
 * A table lives as long as the registered graph's plan, or anybody else who holds a reference: an
 * iterator may outlive the graph that made it. The rows' plans borrow the table, since their
 * kernels may call functions of the same table, so nobody may keep such a plan without a
 * reference to the table. Immutable once made. Threads: any. */
#ifndef MILLRACE_WORKER_PLAN_FUNCTION_TABLE_H
#define MILLRACE_WORKER_PLAN_FUNCTION_TABLE_H

#include "worker/plan/plan.h"

/* A function as it arrives. */
struct function_source {
    const char *key; /* common/graph/function_key.h */
    const char *name;
    struct span graphdef;
};

struct function_row {
    const char *key, *name;
    struct plan *plan;    /* the table's */
    uint8_t *arg_types;   /* enum dtype, plan->n_feeds of them; DT_INVALID: no node reads it */
    uint8_t *ret_types;   /* enum dtype, plan->n_fetches of them */
    struct span graphdef; /* empty where no copy of the table is ever made */
};

/* Makes the plans. Copies of `sources` whatever it needs later. `options` is copied; what it points
 * to (devices, host) must outlive the table. Errors: those of plan_new, and of a function that
 * sends or receives; they name the function's node. Cost: linear. */
struct status *function_table_new(const struct plan_options *options,
                                  const struct function_source *sources, int n_sources,
                                  struct function_table **ret) MUST_USE;
struct function_table *function_table_ref(struct function_table *table);
void function_table_unref(struct function_table *table);            /* accepts NULL */
int function_table_n_functions(const struct function_table *table); /* 0 for NULL */

/* NULL: the table has no such function. */
const struct function_row *function_table_find(const struct function_table *table, const char *key);

/* Do callers share state by way of this table, such as a random stream or the resource of a node?
 * False for a table that function_table_copy made, since its maker has it alone. */
bool function_table_shares_state(const struct function_table *table);
/* Makes the same functions again, with state of their own. Only for tables that share state.
 * Errors: as function_table_new. Cost: linear, as making it was. */
struct status *function_table_copy(const struct function_table *table,
                                   struct function_table **ret) MUST_USE;

#endif
