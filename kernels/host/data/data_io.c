/* Hands the work of an iterator to an I/O thread, and wakes its task when the work has ended. */
#include "kernels/host/data/data_io.h"

static void work_on_io(struct pool_task *pool_task) {
    struct data_io *io = CONTAINER_OF(pool_task, struct data_io, pool_task);
    struct data_task *task = io->task;
    io->task = NULL;
    io->status = io->work(io);
    atomic_store_explicit(&io->is_done, true, memory_order_release); /* the poll's again */
    data_task_wake_on_pool(task);
    data_task_unref(task);
}

enum data_poll data_io_start(struct data_io *io, struct pool *io_pool, struct data_task *task,
                             struct status *(*work)(struct data_io *io)) {
    if (!io_pool)
        return data_task_fail(task, status_unimplemented("Files can be used on workers only"));
    CHECK(!io->is_busy);
    io->is_busy = true;
    io->work = work;
    atomic_store_explicit(&io->is_done, false, memory_order_relaxed);
    task->n_running++;
    io->task = data_task_ref(task);
    io->pool_task.run = work_on_io;
    pool_submit(io_pool, &io->pool_task);
    return DATA_PENDING;
}

enum data_poll data_io_poll(struct data_io *io, struct data_task *task) {
    if (!io->is_busy)
        return DATA_ELEMENT;
    if (!atomic_load_explicit(&io->is_done, memory_order_acquire))
        return DATA_PENDING;
    io->is_busy = false;
    task->n_running--;
    struct status *st = io->status;
    io->status = NULL;
    return st ? data_task_fail(task, st) : DATA_ELEMENT;
}

void data_io_fini(struct data_io *io) {
    CHECK(!io->is_busy);
    status_unref(io->status);
}
