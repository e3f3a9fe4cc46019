/* What function.c (functions) and function_call.c (calls) share. */
#ifndef MILLRACE_WORKER_EXECUTOR_FUNCTION_INTERNAL_H
#define MILLRACE_WORKER_EXECUTOR_FUNCTION_INTERNAL_H

#include "worker/executor/executor.h"
#include "worker/executor/function.h"

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
    struct function_table *table;   /* one reference */
    const struct function_row *row; /* the table's */
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
