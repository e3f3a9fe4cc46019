/* Readers: resources that hand out records of files whose names come from a queue [WP 4.5].
 *
 *   queue ──► work (a file's name) ──► record source ──► (key, value) … ──► end of the work ──► the next name
 *
 * One operation has a reader at a time, the others wait in its room; nobody holds a thread while waiting, for the reader or for the queue.
 * Files are read on I/O threads. */
#ifndef MILLRACE_KERNELS_CPU_READER_H
#define MILLRACE_KERNELS_CPU_READER_H

#include "kernels/cpu/io_internal.h"
#include "kernels/cpu/queue.h"

/* ---- record_source.c: a file's records, front to back ---- */

enum record_format { RECORD_IDENTITY, RECORD_WHOLE_FILE, RECORD_LINES, RECORD_FIXED, RECORD_TFRECORD };
enum record_coding { CODING_NONE, CODING_ZLIB, CODING_GZIP };
enum { RECORD_MAX_BYTES = 1 << 30 }; /* of one record */

struct record_options {
    enum record_format format;
    enum record_coding coding;
    int64_t skip_lines;
    int64_t header_bytes, record_bytes, footer_bytes, hop_bytes; /* RECORD_FIXED */
};
struct record_source;
/* Opens a file below --file-root. Blocks. Errors: NOT_FOUND, PERMISSION_DENIED. */
struct status *record_source_open(const struct record_options *options, struct span name, struct record_source **ret) MUST_USE;
void record_source_free(struct record_source *source); /* accepts NULL */
/* The next record, replacing what is in key and value; *ret_is_end at the end. Blocks.
 * Errors: DATA_LOSS for what is damaged, RESOURCE_EXHAUSTED for a record beyond RECORD_MAX_BYTES. */
struct status *record_source_next(struct record_source *source, struct str *key, struct str *value, bool *ret_is_end) MUST_USE;

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

/* Runs `body` on an I/O thread while it has the reader of input 0, as a kernel's whole answer; input 1 is a queue when has_queue. The body
 * asks for another work name by *wants_work (after which it runs again, with `work` set), and is done otherwise. */
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

#endif
