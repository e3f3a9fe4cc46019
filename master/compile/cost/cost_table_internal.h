/* What cost_table.c (the table) and cost_file.c (its file) share. */
#ifndef MILLRACE_MASTER_COMPILE_COST_COST_TABLE_INTERNAL_H
#define MILLRACE_MASTER_COMPILE_COST_COST_TABLE_INTERNAL_H

#include <pthread.h>

#include "common/base/map.h"
#include "master/compile/cost/cost_table.h"

struct measured_cost {
    double ns;
    int64_t n; /* executions */
    char key[];
};

struct cost_table {
    pthread_mutex_t lock; /* guards the rest */
    struct strmap rows;   /* struct measured_cost by key */
    size_t evicted_to;    /* the cursor in `rows` of the next row to remove */
    uint64_t n_changes;
};

/* May the table have such a row? */
bool cost_row_is_valid(struct span key, double ns, int64_t n);

#endif
