/* Reads and writes the file of measured costs. */
#include "master/service/cost_keeper.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/log.h"

enum { WRITE_INTERVAL_MS = 60000 };

struct cost_keeper {
    struct cost_table *table;
    const char *path; /* NULL: none */
    struct pool *pool;
    struct loop_timer timer;
    struct pool_task task;
    _Atomic bool is_writing; /* the pool has `task` */
    uint64_t n_written;      /* the table's changes that the file has; `task`'s while is_writing */
};

static void write_file(struct cost_keeper *keeper) {
    uint64_t n_changes = cost_table_n_changes(keeper->table);
    if (!keeper->path || n_changes == keeper->n_written)
        return;
    struct status *st = cost_file_write(keeper->table, keeper->path);
    if (st)
        log_event(EVENT_COST_FILE_FAILED, "%s", status_message(st));
    else
        keeper->n_written = n_changes;
    status_unref(st);
}

static void write_on_pool(struct pool_task *task) {
    struct cost_keeper *keeper = CONTAINER_OF(task, struct cost_keeper, task);
    write_file(keeper);
    atomic_store_explicit(&keeper->is_writing, false, memory_order_release);
}

static void on_timer(struct loop_timer *timer) {
    struct cost_keeper *keeper = CONTAINER_OF(timer, struct cost_keeper, timer);
    if (atomic_load_explicit(&keeper->is_writing, memory_order_acquire))
        return;
    atomic_store_explicit(&keeper->is_writing, true, memory_order_relaxed);
    pool_submit(keeper->pool, &keeper->task);
}

struct status *cost_keeper_new(struct loop *loop, struct pool *pool, const char *path,
                               struct cost_keeper **ret) {
    struct cost_table *table = cost_table_new();
    struct status *st = path ? cost_file_read(table, path) : NULL;
    if (path && !st) /* who cannot write it hears so now, not when costs are lost */
        st = cost_file_write(table, path);
    if (st) {
        cost_table_free(table);
        return st;
    }
    struct cost_keeper *keeper = xcalloc(1, sizeof *keeper);
    *keeper = (struct cost_keeper){.table = table,
                                   .path = path,
                                   .pool = pool,
                                   .task.run = write_on_pool,
                                   .n_written = cost_table_n_changes(table)};
    if (path)
        log_event(EVENT_COST_FILE_READ, "cost file %s: %d rows", path, cost_table_n_rows(table));
    loop_timer_init(loop, &keeper->timer, on_timer);
    if (path)
        loop_timer_start(&keeper->timer, WRITE_INTERVAL_MS, WRITE_INTERVAL_MS);
    *ret = keeper;
    return NULL;
}

struct cost_table *cost_keeper_table(struct cost_keeper *keeper) {
    return keeper->table;
}

void cost_keeper_close(struct cost_keeper *keeper) {
    if (keeper)
        loop_timer_close(&keeper->timer, NULL);
}

void cost_keeper_free(struct cost_keeper *keeper) {
    if (!keeper)
        return;
    write_file(keeper);
    cost_table_free(keeper->table);
    free(keeper);
}
