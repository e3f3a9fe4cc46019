/* Makes datasets of files' records: lines, TFRecords, blocks of equal size.
 *
 * I/O threads read several records at a time, so that not every record needs a change of threads:
 *
 *   poll: records left? ─ yes ─► the next one
 *              └ no: a read starts ─► PENDING ─► (I/O thread) records, the end of the file,
 *                                                or a failure ─► the task is woken */
#include "kernels/host/data/dataset_file.h"

#include <stdlib.h>

#include "kernels/host/data/data_task.h"

extern const struct kernel_list dataset_file_kernels;

enum { READ_RECORDS = 256, READ_BYTES = 1 << 18 }; /* how much one read takes */

struct file_dataset {
    struct dataset base;
    struct tensor names;   /* a vector or a scalar of strings */
    struct tensor offsets; /* int64, for each name: where to begin; 0 for names beyond its end */
    struct record_options options;
};

struct file_iter {
    struct dataset_iter iter;
    int64_t at; /* the index of the file */
    struct record_source *source;
    struct str key, value; /* buffers of the read */
    struct pool_task pool_task;
    struct data_task *task; /* holds a reference while a read is running */
    bool is_reading;
    _Atomic bool is_read;
    /* The results of a read. */
    struct bytes *records[READ_RECORDS];
    int n_records, next;
    bool is_file_end;
    struct status *status;
};

static void file_fini(struct dataset *dataset) {
    tensor_clear(&((struct file_dataset *)dataset)->names);
    tensor_clear(&((struct file_dataset *)dataset)->offsets);
}

static void file_end(struct dataset_iter *iter) {
    struct file_iter *self = (struct file_iter *)iter;
    CHECK(!self->is_reading);
    for (int i = self->next; i < self->n_records; i++)
        if (self->records[i])
            object_unref(&self->records[i]->object);
    record_source_free(self->source);
    status_unref(self->status);
    str_fini(&self->key);
    str_fini(&self->value);
}

/* ---- on an I/O thread ---- */

static struct status *open_file(struct file_iter *self) {
    const struct file_dataset *dataset = (const struct file_dataset *)self->iter.dataset;
    struct record_options options = dataset->options;
    /* there may be fewer or more offsets than names */
    if (tensor_has_value(&dataset->offsets) && self->at < dataset->offsets.n_elements)
        options.start_offset = tensor_index_at(&dataset->offsets, self->at);
    if (options.start_offset < 0)
        return status_invalid("Can only skip forward, not %lld", (long long)options.start_offset);
    return record_source_open(&options, tensor_string(&dataset->names, self->at), &self->source);
}

static struct status *read_records(struct file_iter *self) {
    size_t n_bytes = 0;
    struct status *st = self->source ? NULL : open_file(self);
    /* a file that ends before the offset has no records */
    self->is_file_end = status_code(st) == STATUS_OUT_OF_RANGE;
    if (self->is_file_end) {
        status_unref(st);
        return NULL;
    }
    TRY(st);
    while (self->n_records < READ_RECORDS && n_bytes < READ_BYTES) {
        TRY(record_source_next(self->source, &self->key, &self->value, &self->is_file_end));
        if (self->is_file_end)
            break;
        self->records[self->n_records++] = bytes_new(str_text(&self->value), self->value.len);
        n_bytes += self->value.len;
    }
    return NULL;
}

static void read_on_io(struct pool_task *pool_task) {
    struct file_iter *self = CONTAINER_OF(pool_task, struct file_iter, pool_task);
    struct data_task *task = self->task;
    self->task = NULL;
    self->status = read_records(self);
    /* the fields belong to the poll again */
    atomic_store_explicit(&self->is_read, true, memory_order_release);
    data_task_wake_on_pool(task);
    data_task_unref(task);
}

/* ---- the poll ---- */

static void start_reading(struct file_iter *self, struct data_task *task) {
    self->n_records = self->next = 0;
    self->is_reading = true;
    atomic_store_explicit(&self->is_read, false, memory_order_relaxed);
    task->n_running++;
    self->task = data_task_ref(task);
    self->pool_task.run = read_on_io;
    pool_submit(self->iter.env->io_pool, &self->pool_task);
}

static void leave_file(struct file_iter *self) {
    record_source_free(self->source);
    self->source = NULL;
    self->is_file_end = false;
    self->at++;
}

static enum data_poll file_next(struct dataset_iter *iter, struct data_task *task,
                                struct tensor *out) {
    struct file_iter *self = (struct file_iter *)iter;
    const struct file_dataset *dataset = (const struct file_dataset *)iter->dataset;
    for (;;) {
        if (self->is_reading) {
            if (!atomic_load_explicit(&self->is_read, memory_order_acquire))
                return DATA_PENDING;
            self->is_reading = false;
            task->n_running--;
        }
        if (self->next < self->n_records) {
            struct bytes *record = self->records[self->next++];
            tensor_init_scalar_object(&out[0], DT_STRING, record ? &record->object : NULL);
            return DATA_ELEMENT;
        }
        /* the rest of a damaged file is skipped; a file that cannot be opened is tried again */
        if (self->status) {
            struct status *st = self->status;
            self->status = NULL;
            if (self->source)
                leave_file(self);
            return data_task_fail(task, st);
        }
        if (self->is_file_end)
            leave_file(self);
        if (self->at >= dataset->names.n_elements)
            return DATA_END;
        start_reading(self, task);
    }
}

static const struct dataset_kind file_kind = {.name = "File",
                                              .dataset_size = sizeof(struct file_dataset),
                                              .iter_size = sizeof(struct file_iter),
                                              .next = file_next,
                                              .end = file_end,
                                              .fini = file_fini};

/* ---- kernels ---- */

static struct status *take_names(struct kernel_ctx *ctx, struct file_dataset *self) {
    static const uint8_t types[] = {DT_STRING};
    static const struct shape shapes[] = {{0, NULL}};
    if (ctx->inputs[0].rank > 1)
        return status_invalid("`filenames` must be a scalar or a vector.");
    tensor_copy(&self->names, &ctx->inputs[0]);
    dataset_set_components(&self->base, 1, types, shapes);
    return NULL;
}

struct status *file_take_compression(struct kernel_ctx *ctx, int input,
                                     struct record_options *options) {
    const struct tensor *t = kernel_input(ctx, input);
    if (t->rank != 0)
        return status_invalid("compression_type must be a scalar");
    struct span type = tensor_string(t, 0);
    if (type.len > 0 && !span_is(type, "ZLIB") && !span_is(type, "GZIP"))
        return status_invalid("Unsupported compression_type: %.*s.",
                              (int)MIN(type.len, (size_t)100), type.data);
    options->coding = type.len == 0           ? CODING_NONE
                      : span_is(type, "ZLIB") ? CODING_ZLIB
                                              : CODING_GZIP;
    return NULL;
}

/* The value itself is only a hint, and is not used. */
static struct status *check_buffer_size(struct kernel_ctx *ctx, int input, int64_t least) {
    int64_t size;
    TRY(dataset_scalar_i64(ctx, input, "buffer_size", &size));
    return size >= least ? NULL : status_invalid("`buffer_size` must be >= 0 (0 == default)");
}

static struct status *lines_take(struct kernel_ctx *ctx, struct file_dataset *self) {
    self->options.format = RECORD_LINES;
    TRY(take_names(ctx, self));
    TRY(file_take_compression(ctx, 1, &self->options));
    return check_buffer_size(ctx, 2, 0);
}

static struct status *records_take(struct kernel_ctx *ctx, struct file_dataset *self) {
    const struct tensor *compression = kernel_input(ctx, 1);
    self->options.format = RECORD_TFRECORD;
    TRY(take_names(ctx, self));
    if (compression->rank != 0)
        return status_invalid("compression_type must be a scalar");
    self->options.coding = record_coding_named(tensor_string(compression, 0));
    TRY(check_buffer_size(ctx, 2, -1));
    if (ctx->instance->n_inputs < 4 || ctx->inputs[3].n_elements == 0)
        return NULL;
    const struct tensor *offsets = &ctx->inputs[3];
    if (offsets->rank != self->names.rank)
        return status_invalid("`byte_offsets` must be of same size as `filenames`");
    tensor_copy(&self->offsets, offsets);
    return NULL;
}

static struct status *blocks_take(struct kernel_ctx *ctx, struct file_dataset *self) {
    struct record_options *options = &self->options;
    options->format = RECORD_FIXED;
    options->must_divide = true;
    TRY(take_names(ctx, self));
    TRY(dataset_scalar_i64(ctx, 1, "header_bytes", &options->header_bytes));
    TRY(dataset_scalar_i64(ctx, 2, "record_bytes", &options->record_bytes));
    TRY(dataset_scalar_i64(ctx, 3, "footer_bytes", &options->footer_bytes));
    if (options->header_bytes < 0)
        return status_invalid("`header_bytes` must be >= 0");
    if (options->record_bytes <= 0)
        return status_invalid("`record_bytes` must be > 0");
    if (options->footer_bytes < 0)
        return status_invalid("`footer_bytes` must be >= 0");
    if (options->record_bytes > RECORD_MAX_BYTES)
        return status_exhausted("`record_bytes` is %lld, at most %d is supported",
                                (long long)options->record_bytes, RECORD_MAX_BYTES);
    TRY(check_buffer_size(ctx, 4, 0));
    return ctx->instance->n_inputs > 5 ? file_take_compression(ctx, 5, options) : NULL;
}

struct status *file_dataset_new(struct kernel_ctx *ctx, const struct record_options *options,
                                struct dataset **ret) {
    struct dataset *dataset = dataset_new_bare(&file_kind, 1);
    struct file_dataset *self = (struct file_dataset *)dataset;
    self->options = *options;
    struct status *st = take_names(ctx, self);
    if (st)
        dataset_unref(dataset);
    else
        *ret = dataset;
    return st;
}

static enum kernel_result file_make(struct kernel_ctx *ctx,
                                    struct status *(*take)(struct kernel_ctx *ctx,
                                                           struct file_dataset *self)) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &file_kind, 0, &dataset));
    return dataset_finish(ctx, dataset, take(ctx, (struct file_dataset *)dataset));
}

static enum kernel_result lines_compute(struct kernel_ctx *ctx) {
    return file_make(ctx, lines_take);
}
static enum kernel_result records_compute(struct kernel_ctx *ctx) {
    return file_make(ctx, records_take);
}
static enum kernel_result blocks_compute(struct kernel_ctx *ctx) {
    return file_make(ctx, blocks_take);
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("TextLineDataset", lines_compute),
    DATASET_KERNEL("TFRecordDataset", records_compute),
    DATASET_KERNEL("TFRecordDatasetV2", records_compute),
    DATASET_KERNEL("FixedLengthRecordDataset", blocks_compute),
    DATASET_KERNEL("FixedLengthRecordDatasetV2", blocks_compute),
};
// clang-format on

const struct kernel_list dataset_file_kernels = {rows, ARRAY_LEN(rows)};
