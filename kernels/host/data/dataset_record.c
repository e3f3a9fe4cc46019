/* Computes DatasetToTFRecord: writes a dataset's elements, a string each, as the records of a
 * file. */
#include <stdlib.h>

#include "common/io/file_root.h"
#include "common/io/record_sink.h"
#include "kernels/host/data/data_io.h"
#include "kernels/host/data/iterator.h"

extern const struct kernel_list dataset_record_kernels;

enum { BLOCK_RECORDS = 256, BLOCK_BYTES = 1 << 18 }; /* what one visit of an I/O thread writes */

struct record_run {
    struct pipeline_run run;
    struct data_io io;
    struct dataset *dataset;
    struct dataset_iter *iter;
    struct str path;
    enum record_coding coding;
    struct record_sink *sink;
    struct tensor *records; /* BLOCK_RECORDS */
    int n_records;
    size_t n_bytes;
    bool has_ended, is_finished;
    struct status *failure; /* of the dataset: the records before it are written */
};

static void record_fini(struct pipeline_run *run) {
    struct record_run *self = (struct record_run *)run;
    dataset_iter_free(self->iter);
    dataset_unref(self->dataset);
    record_sink_free(self->sink);
    element_free(self->records, BLOCK_RECORDS);
    data_io_fini(&self->io);
    status_unref(self->failure);
    str_fini(&self->path);
    free(self);
}

static struct status *write_records(struct data_io *io) {
    struct record_run *self = CONTAINER_OF(io, struct record_run, io);
    if (!self->sink)
        TRY(record_sink_open(str_text(&self->path), self->coding, &self->sink));
    for (int i = 0; i < self->n_records; i++)
        TRY(record_sink_add(self->sink, tensor_string(&self->records[i], 0)));
    element_clear(self->records, self->n_records);
    self->n_records = 0;
    self->n_bytes = 0;
    self->is_finished = self->has_ended;
    return self->has_ended ? record_sink_finish(self->sink) : NULL;
}

/* Collects records until there is a block of them, or the dataset has ended. */
static enum data_poll collect(struct record_run *self, struct data_task *task) {
    while (!self->has_ended && self->n_records < BLOCK_RECORDS && self->n_bytes < BLOCK_BYTES) {
        struct tensor *record = &self->records[self->n_records];
        enum data_poll result = dataset_iter_next(self->iter, task, record);
        if (result == DATA_PENDING || (result == DATA_FAILED && atomic_load(&task->is_cancelled)))
            return result;
        if (result == DATA_FAILED) {
            self->failure = task->status;
            task->status = NULL;
        }
        self->has_ended = result != DATA_ELEMENT;
        if (self->has_ended)
            break;
        self->n_records++;
        if (record->rank != 0)
            return data_task_fail(task, status_invalid("The records of a dataset must be scalars, "
                                                       "but one has the shape %s",
                                                       TENSOR_SHAPE_TEXT(record)));
        self->n_bytes += tensor_string(record, 0).len;
    }
    return DATA_ELEMENT;
}

static enum data_poll record_poll(struct pipeline_run *run, struct data_task *task) {
    struct record_run *self = (struct record_run *)run;
    enum data_poll result = data_io_poll(&self->io, task);
    if (result == DATA_ELEMENT && self->is_finished && self->failure)
        return data_task_fail(task, status_ref(self->failure));
    if (result != DATA_ELEMENT || self->is_finished)
        return result;
    if (!self->iter) {
        struct status *st = dataset_iter_new(self->dataset, run->env, &self->iter);
        if (st)
            return data_task_fail(task, st);
    }
    result = collect(self, task);
    return result == DATA_ELEMENT ? data_io_start(&self->io, run->env->io_pool, task, write_records)
                                  : result;
}

static struct status *record_take(struct kernel_ctx *ctx, struct record_run *self) {
    const struct tensor *name = kernel_input(ctx, 1);
    struct dataset *dataset = NULL;
    if (name->rank != 0)
        return status_invalid("filename must be a scalar");
    const struct tensor *compression = kernel_input(ctx, 2);
    if (compression->rank != 0)
        return status_invalid("compression_type must be a scalar");
    self->coding = record_coding_named(tensor_string(compression, 0));
    TRY(dataset_of(kernel_input(ctx, 0), &dataset));
    if (dataset->n_components != 1 || dataset->types[0] != DT_STRING)
        return status_invalid("The dataset must have one component of type string");
    self->dataset = dataset_ref(dataset);
    self->records = element_new(BLOCK_RECORDS);
    return file_root_resolve_prefix(tensor_string(name, 0), &self->path);
}

static enum kernel_result record_compute(struct kernel_ctx *ctx) {
    struct record_run *self = xcalloc(1, sizeof(*self));
    self->run.poll = record_poll;
    self->run.fini = record_fini;
    struct status *st = record_take(ctx, self);
    if (!st)
        return pipeline_start(ctx, &self->run);
    record_fini(&self->run);
    return kernel_fail(ctx, st);
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "DatasetToTFRecord", .compute = record_compute,
     .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
    {.op = "ExperimentalDatasetToTFRecord", .compute = record_compute,
     .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
};
// clang-format on

const struct kernel_list dataset_record_kernels = {rows, ARRAY_LEN(rows)};
