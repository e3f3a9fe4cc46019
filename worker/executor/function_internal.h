/* What function.c (functions) and function_call.c (calls) share. */
#ifndef MILLRACE_WORKER_EXECUTOR_FUNCTION_INTERNAL_H
#define MILLRACE_WORKER_EXECUTOR_FUNCTION_INTERNAL_H

#include "worker/executor/executor.h"
#include "worker/executor/function.h"

/* One call on its way. */
struct function_execution {
    struct execution execution;
    struct function_call *call;
    struct function_execution *next_free;
    _Atomic int phase;
};

/* A function of a table with what it runs on. */
struct bound_function {
    struct function base;
    struct function_table *table;       /* one reference */
    const struct function_row *row;     /* the table's */
    struct container_table *containers; /* a weak reference: resources hold functions */
    struct pool *io_pool;
    struct alarm_clock *alarms;
    int64_t inline_budget_ns;
    double scale;
    uint32_t depth;
    pthread_mutex_t lock; /* guards what follows */
    struct function_execution *free_executions;
    int n_free_executions;
};

void function_execution_free(struct function_execution *nested);

#endif
