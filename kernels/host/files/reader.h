/* Readers: resources that hand out records of files whose names come from a queue [WP 4.5].
 *
 *   queue ──► work (a file's name) ──► record source ──► (key, value) … ──► end of the work ──► the next name
 *
 * One operation has a reader at a time, the others wait in its room; nobody holds a thread while
 * waiting, for the reader or for the queue. Files are read on I/O threads. */
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
    bool is_busy; /* guarded by room.lock; who made it busy owns the rest */
    int64_t n_started, n_finished, n_records;
    struct str work; /* its name, also after its end */
    struct record_source *source;
};
extern const struct object_type reader_type;
struct reader *reader_new(const struct record_options *options, const char *name);

/* Runs `body` on an I/O thread while it has the reader of input 0, as a kernel's whole answer;
 * input 1 is a queue when has_queue. The body asks for another work name by *wants_work (after
 * which it runs again, with `work` set), and is done otherwise. */
struct reader_op;
typedef struct status *reader_body(struct reader_op *op, bool *wants_work);
enum kernel_result reader_run(struct kernel_ctx *ctx, reader_body *body, bool has_queue);

struct reader_op {
    struct kernel_ctx inner; /* stands in for the execution in waits: see reader.c. First */
    struct kernel_ctx *outer;
    struct reader *reader;
    struct queue *queue;
    reader_body *body;
    struct pool_task task;
    struct tensor work; /* the queue's answer */
    bool is_waiting_for_reader;
};

/* ---- record_input.c ---- */

struct status *record_input_init(struct kernel_init *init);
void record_input_fini(void *state);
kernel_fn record_input;

#endif
