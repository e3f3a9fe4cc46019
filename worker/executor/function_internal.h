/* What function.c (tables, functions) and function_call.c (calls) share. */
#ifndef MILLRACE_WORKER_EXECUTOR_FUNCTION_INTERNAL_H
#define MILLRACE_WORKER_EXECUTOR_FUNCTION_INTERNAL_H

#include "common/base/map.h"
#include "worker/executor/executor.h"
#include "worker/executor/function.h"

struct function_row {
    const char *key, *name;
    struct plan *plan;
    uint8_t *arg_types, *ret_types; /* by feed and fetch */
    struct span graphdef;           /* kept where the table has state */
};

/* Immutable once made. */
struct function_table {
    _Atomic uint32_t n_refs;
    struct plan_options options;
    struct function_row *rows;
    int n_rows;
    struct strmap by_key; /* → struct function_row */
    struct arena arena;
    bool has_state;
    bool is_fresh; /* made by function_fresh: nobody else's state */
};

/* One call on its way. */
struct nested_run {
    struct step_run run;
    struct function_call *call;
    struct nested_run *next_free;
    _Atomic int phase;
};

/* A function of a table with what it runs on. */
struct bound_function {
    struct function base;
    struct function_table *table; /* one reference */
    struct plan *plan;            /* the table's */
    struct container_table *containers;
    struct pool *io_pool;
    struct alarm_clock *alarms;
    int64_t inline_budget_ns;
    uint32_t depth;
    pthread_mutex_t lock; /* guards what follows */
    struct nested_run *free_runs;
    int n_free_runs;
};

void nested_run_free(struct nested_run *run);

#endif
