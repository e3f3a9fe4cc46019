/* Computes RecordInput: batches of records of TFRecord files, in random order, without end.
 *
 *   files that match ── shuffled again each epoch ──► one after the other ──► a buffer
 *   a buffer ── a random record of it ──► the batch
 *
 * All records of an epoch are read before those of the next. The stream belongs to the node in its
 * session. Executions take turns, on I/O threads. */
#include <pthread.h>
#include <stdlib.h>

#include "common/io/file_root.h"
#include "common/io/record_source.h"
#include "kernels/support/cancel.h"
#include "kernels/support/io_task.h"
#include "kernels/support/philox.h"
#include "kernels/host/files/reader.h"

struct record_input {
    char *pattern;
    struct record_options options;
    int64_t batch_size, buffer_size;
    double shift;         /* by which part of the files each epoch's order is rotated */
    pthread_mutex_t lock; /* guards the fields below */
    struct philox random;
    char **files; /* in the epoch's order */
    size_t n_files, next_file;
    struct record_source *source;
    struct str *buffer; /* has up to buffer_size records */
    int64_t n_buffered, capacity, n_in_epoch, n_epochs;
};

void record_input_fini(void *arg) {
    struct record_input *input = arg;
    if (!input)
        return;
    record_source_free(input->source);
    file_match_free(input->files, input->n_files);
    for (int64_t i = 0; i < input->capacity; i++)
        str_fini(&input->buffer[i]);
    free(input->buffer);
    free(input->pattern);
    pthread_mutex_destroy(&input->lock);
    free(input);
}

struct status *record_input_init(struct kernel_init *init) {
    struct record_input *input = init->state = xcalloc(1, sizeof(*input));
    struct span pattern, coding;
    int64_t seed;
    float shift;
    pthread_mutex_init(&input->lock, NULL);
    TRY(node_get_s(init->node, "file_pattern", &pattern));
    TRY(node_get_s(init->node, "compression_type", &coding));
    TRY(node_get_i(init->node, "file_random_seed", &seed));
    TRY(node_get_f(init->node, "file_shuffle_shift_ratio", &shift));
    TRY(node_get_i(init->node, "file_buffer_size", &input->buffer_size));
    TRY(node_get_i(init->node, "batch_size", &input->batch_size));
    input->pattern = xstrndup(pattern.data, pattern.len);
    input->shift = (double)shift;
    input->random = (struct philox){.key = (uint64_t)seed};
    input->options.format = RECORD_TFRECORD;
    input->options.coding = span_is(coding, "ZLIB")   ? CODING_ZLIB
                            : span_is(coding, "GZIP") ? CODING_GZIP
                                                      : CODING_NONE;
    if (input->batch_size < 1 || input->buffer_size < 1)
        return status_invalid("batch_size and file_buffer_size must be positive, got %lld and %lld",
                              (long long)input->batch_size, (long long)input->buffer_size);
    return NULL;
}

/* A random number below n. */
static uint64_t random_below(struct record_input *input, uint64_t n) {
    uint32_t words[PHILOX_BLOCK];
    philox_next(&input->random, words);
    return philox_u64(words[0], words[1]) % n;
}

static struct status *start_epoch(struct record_input *input) {
    file_match_free(input->files, input->n_files);
    input->files = NULL;
    input->n_files = input->next_file = 0;
    TRY(file_match((struct span){input->pattern, strlen(input->pattern)}, &input->files,
                   &input->n_files));
    if (input->n_files == 0)
        return status_not_found("Found no files at %s", input->pattern);
    if (input->n_epochs > 0 && input->n_in_epoch == 0)
        return status_not_found("Found no records in the files at %s", input->pattern);
    for (size_t i = input->n_files - 1; i > 0; i--) {
        size_t at = random_below(input, i + 1);
        char *file = input->files[i];
        input->files[i] = input->files[at];
        input->files[at] = file;
    }
    double share = input->shift - (double)(int64_t)input->shift;
    input->next_file = share > 0 ? (size_t)(share * (double)input->n_files) : 0;
    /* rotates the order: the first files become the last */
    for (size_t i = 0; i < input->next_file; i++) {
        char *first = input->files[0];
        memmove(input->files, input->files + 1, (input->n_files - 1) * sizeof(*input->files));
        input->files[input->n_files - 1] = first;
    }
    input->next_file = 0;
    input->n_in_epoch = 0;
    input->n_epochs++;
    return NULL;
}

static struct str *free_place(struct record_input *input) {
    if (input->n_buffered == input->capacity) {
        int64_t capacity = MIN(input->buffer_size, MAX((int64_t)16, 2 * input->capacity));
        input->buffer = xreallocarray(input->buffer, (size_t)capacity, sizeof(*input->buffer));
        for (int64_t i = input->capacity; i < capacity; i++)
            input->buffer[i] = STR_INIT;
        input->capacity = capacity;
    }
    return &input->buffer[input->n_buffered];
}

/* Reads until the buffer is full or the epoch's files have ended. */
static struct status *fill(struct kernel_ctx *ctx, struct record_input *input) {
    struct str key = STR_INIT;
    struct status *st = NULL;
    while (!st && input->n_buffered < input->buffer_size &&
           (input->source || input->next_file < input->n_files)) {
        bool is_end = false;
        if (!input->source) {
            const char *name = input->files[input->next_file++];
            st = record_source_open(&input->options, (struct span){name, strlen(name)},
                                    &input->source);
            continue;
        }
        struct str *place = free_place(input);
        st = record_source_next(input->source, &key, place, &is_end);
        if (st || is_end) {
            record_source_free(input->source);
            input->source = NULL;
        } else {
            input->n_buffered++;
            input->n_in_epoch++;
        }
        if (!st && input->n_in_epoch % 256 == 0)
            st = kernel_check_cancelled(ctx);
    }
    str_fini(&key);
    return st;
}

static struct status *take_one(struct kernel_ctx *ctx, struct record_input *input, int64_t i) {
    TRY(fill(ctx, input));
    while (input->n_buffered == 0) {
        TRY(kernel_check_cancelled(ctx));
        TRY(start_epoch(input));
        TRY(fill(ctx, input));
    }
    int64_t at = (int64_t)random_below(input, (uint64_t)input->n_buffered);
    struct str record = input->buffer[at];
    tensor_set_string(&ctx->outputs[0], i, str_text(&record), record.len);
    input->buffer[at] = input->buffer[--input->n_buffered];
    input->buffer[input->n_buffered] = record;
    return NULL;
}

static struct status *record_body(struct kernel_ctx *ctx) {
    struct record_input *input = ctx->instance->state;
    struct status *st = kernel_alloc(ctx, 0, DT_STRING, (struct shape){1, &input->batch_size});
    pthread_mutex_lock(&input->lock);
    for (int64_t i = 0; i < input->batch_size && !st; i++)
        st = take_one(ctx, input, i);
    pthread_mutex_unlock(&input->lock);
    return st;
}

/* RecordInput
 *   records  string [batch_size]
 * Errors   NOT_FOUND           no files, or no records in them
 *          PERMISSION_DENIED   files outside of the roots
 *          DATA_LOSS           damaged files */
enum kernel_result record_input(struct kernel_ctx *ctx) { return io_run(ctx, record_body); }
