/* Runs an iterator's work on files on an I/O thread, while its task waits without a thread.
 *
 *   poll: data_io_start ─► PENDING ─► (I/O thread) work ─► the task is woken ─► data_io_poll: done
 *
 * What the work uses belongs to the I/O thread from data_io_start until data_io_poll says that the
 * work has ended. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATA_IO_H
#define MILLRACE_KERNELS_HOST_DATA_DATA_IO_H

#include "kernels/host/data/data_task.h"

/* Part of the struct of an iterator or of a run; zeroed at first. */
struct data_io {
    struct pool_task pool_task;
    struct data_task *task; /* a reference while the work is under way */
    struct status *(*work)(struct data_io *io);
    bool is_busy;
    _Atomic bool is_done;
    struct status *status; /* of the work */
};
/* Starts `work`, which may block. Returns DATA_PENDING. For polls, when no work is under way. */
enum data_poll data_io_start(struct data_io *io, struct pool *io_pool, struct data_task *task,
                             struct status *(*work)(struct data_io *io));
/* DATA_ELEMENT: no work is under way. DATA_PENDING: one is. DATA_FAILED: one has just failed. */
enum data_poll data_io_poll(struct data_io *io, struct data_task *task);
void data_io_fini(struct data_io *io); /* no work may be under way; accepts a zeroed one */

#endif
