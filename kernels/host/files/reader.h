/* Hands out records of files whose names come from a queue, as a resource [WP 4.5].
 *
 *   queue ──► work (a file's name) ──► record source ──► (key, value) … ──► end of the work
 *     ▲                                                                          │
 *     └───────────────────────────── the next name ─────────────────────────────┘
 *
 * One operation uses a reader at a time; the others wait in its wait room. An operation holds no
 * thread while it waits for the reader or for the queue. Files are read on I/O threads. */
#ifndef MILLRACE_KERNELS_HOST_FILES_READER_H
#define MILLRACE_KERNELS_HOST_FILES_READER_H

#include "common/io/record_source.h"
#include "kernels/support/io_task.h"
#include "kernels/host/resources/queue.h"

/* ---- reader.c ---- */

struct reader {
    struct object object;
    struct wait_room room;
    char *name;
    struct record_options options;
    bool is_busy; /* guarded by room.lock; the operation that set it owns the rest */
    int64_t n_started, n_finished, n_records;
    struct str work; /* the name of the file, also after its end */
    struct record_source *source;
};
extern const struct object_type reader_type;
struct reader *reader_new(const struct record_options *options, const char *name);

/* Computes a reader op: runs `body` on an I/O thread once the op has the reader of input 0. With
 * has_queue input 1 is a queue. When the body sets *wants_work, it runs again with the next file's
 * name in `work`; otherwise the op is done. Returns what the kernel must return. */
struct reader_op;
typedef struct status *reader_body(struct reader_op *op, bool *wants_work);
enum kernel_result reader_run(struct kernel_ctx *ctx, reader_body *body, bool has_queue);

struct reader_op {
    struct kernel_ctx inner; /* replaces ctx in waits, see reader.c; must be first */
    struct kernel_ctx *outer;
    struct reader *reader;
    struct queue *queue;
    reader_body *body;
    struct pool_task task;
    struct tensor work; /* the name that the queue gave */
    bool is_waiting_for_reader;
};

/* ---- record_input.c ---- */

struct status *record_input_init(struct kernel_init *init);
void record_input_fini(void *state);
kernel_fn record_input;

#endif
