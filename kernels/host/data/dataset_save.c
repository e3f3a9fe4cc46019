/* Saves a dataset's elements in files (snapshot_files.h): SaveDataset saves all of them in one
 * execution, SaveDatasetV2 saves what its iterator hands out.
 *
 *   OPENING (I/O): directories, metadata ─► elements are collected ─► (I/O) a block is written ─►
 *   … ─► the input ends ─► (I/O) the rest, finished metadata ─► ENDED */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/io/file_root.h"
#include "common/io/file_system.h"
#include "common/tensor/tensor_proto.h"
#include "kernels/host/data/data_io.h"
#include "kernels/host/data/dataset_buffer.h"
#include "kernels/host/data/dataset_snapshot.h"
#include "kernels/host/data/iterator.h"
#include "kernels/host/data/snapshot_files.h"

extern const struct kernel_list dataset_save_kernels;

/* what one visit of an I/O thread writes; how many shards, each of which is an open file */
enum { BLOCK_ELEMENTS = 256, BLOCK_BYTES = 1 << 20, MAX_SHARDS = 1000 };

struct save_dataset {
    struct dataset base;
    char *dir;
    enum record_coding coding;
    struct dataset_fn shard_fn;
    bool has_shard_fn;
};

struct shard {
    int64_t number;
    struct record_sink *sink;
};

enum save_state { SAVE_OPENING, SAVE_WRITING, SAVE_ENDED };

struct save_iter {
    struct dataset_iter_one one;
    struct data_io io;
    struct dataset_call call;
    enum save_state state;
    struct snapshot_metadata metadata;
    struct element_buffer block; /* handed out and not written yet */
    int64_t shards_of_block[BLOCK_ELEMENTS];
    size_t block_bytes;
    struct shard *shards;
    int n_shards;
    struct tensor *element; /* of which the function is asked */
    bool has_element, has_input_ended;
};

static const struct file_system *const fs = &file_system_posix;

/* ---- on an I/O thread ---- */

static const struct save_dataset *save_of(const struct save_iter *self) {
    return (const struct save_dataset *)self->one.iter.dataset;
}

static struct status *open_files(struct data_io *io) {
    struct save_iter *self = CONTAINER_OF(io, struct save_iter, io);
    const struct save_dataset *dataset = save_of(self);
    struct str path = STR_INIT;
    int64_t now_us = clock_wall_us();
    str_addf(&path, "%llu",
             (unsigned long long)now_us << 20 | (self->one.iter.env->host->unique_id() & 0xfffff));
    self->metadata = (struct snapshot_metadata){
        .run_id = str_detach(&path), .created_us = now_us, .version = SNAPSHOT_VERSION};
    str_addf(&path, "%s/%s", dataset->dir, self->metadata.run_id);
    struct status *st = file_make_dirs(fs, str_text(&path));
    str_fini(&path);
    if (!st)
        st = snapshot_metadata_write(dataset->dir, &self->metadata, &dataset->base);
    if (!st)
        self->state = SAVE_WRITING;
    return st;
}

static struct status *find_sink(struct save_iter *self, int64_t number, struct record_sink **ret) {
    const struct save_dataset *dataset = save_of(self);
    struct str path = STR_INIT;
    for (int i = 0; i < self->n_shards; i++)
        if (self->shards[i].number == number) {
            *ret = self->shards[i].sink;
            return NULL;
        }
    if (self->n_shards == MAX_SHARDS)
        return status_exhausted("A dataset is saved in at most %d shards", MAX_SHARDS);
    snapshot_add_shard(&path, dataset->dir, self->metadata.run_id, number);
    struct status *st = file_make_dirs(fs, str_text(&path));
    char *shard = str_detach(&path);
    snapshot_add_file(&path, shard, 0);
    free(shard);
    if (!st)
        st = record_sink_open(str_text(&path), dataset->coding, ret);
    str_fini(&path);
    if (st)
        return st;
    self->shards = xreallocarray(self->shards, (size_t)self->n_shards + 1, sizeof(self->shards[0]));
    self->shards[self->n_shards++] = (struct shard){number, *ret};
    return NULL;
}

static struct status *write_element(struct save_iter *self, int64_t at) {
    struct record_sink *sink = NULL;
    struct str proto = STR_INIT;
    struct status *st = NULL;
    TRY(find_sink(self, self->shards_of_block[at], &sink));
    for (int i = 0; i < self->block.n_components && !st; i++) {
        str_clear(&proto);
        tensor_to_proto(&element_at(&self->block, at)[i], &proto);
        st = record_sink_add(sink, (struct span){str_text(&proto), proto.len});
    }
    str_fini(&proto);
    self->metadata.n_elements++;
    return st;
}

static struct status *write_block(struct data_io *io) {
    struct save_iter *self = CONTAINER_OF(io, struct save_iter, io);
    for (int64_t e = 0; e < self->block.n; e++)
        TRY(write_element(self, e));
    element_buffer_clear(&self->block);
    self->block_bytes = 0;
    if (!self->has_input_ended)
        return NULL;
    for (int i = 0; i < self->n_shards; i++)
        TRY(record_sink_finish(self->shards[i].sink));
    self->metadata.is_finalized = true;
    self->state = SAVE_ENDED;
    return snapshot_metadata_write(save_of(self)->dir, &self->metadata, &save_of(self)->base);
}

/* ---- the poll ---- */

/* The shard of self->element. */
static enum data_poll choose_shard(struct save_iter *self, struct data_task *task, int64_t *ret) {
    int n = self->block.n_components;
    *ret = 0;
    if (!save_of(self)->has_shard_fn)
        return DATA_ELEMENT;
    if (!self->call.is_running)
        element_copy(self->call.args, self->element, n);
    enum data_poll result = dataset_call_poll(&self->call, task);
    if (result != DATA_ELEMENT)
        return result;
    const struct tensor *answer = &self->call.rets[0];
    bool is_sound = self->call.function->n_rets == 1 && answer->dtype == DT_INT64 &&
                    answer->n_elements == 1 && tensor_index_at(answer, 0) >= 0;
    *ret = is_sound ? tensor_index_at(answer, 0) : 0;
    element_clear(self->call.rets, self->call.function->n_rets);
    return is_sound ? DATA_ELEMENT
                    : data_task_fail(task, status_invalid("`shard_func` must return a scalar "
                                                          "int64, which is not negative."));
}

static enum data_poll hand_out(struct save_iter *self, struct data_task *task, struct tensor *out) {
    int n = self->block.n_components;
    int64_t shard = 0;
    enum data_poll result = choose_shard(self, task, &shard);
    if (result == DATA_PENDING)
        return result;
    self->has_element = false;
    struct tensor *room = result == DATA_ELEMENT ? element_buffer_reserve(&self->block) : NULL;
    if (result == DATA_ELEMENT && !room)
        result = data_task_fail(task, status_exhausted("Out of memory for an element"));
    if (result == DATA_FAILED) {
        element_clear(self->element, n);
        return result;
    }
    self->shards_of_block[self->block.n++] = shard;
    for (int i = 0; i < n; i++)
        self->block_bytes += tensor_size_bytes(&self->element[i]);
    element_copy(room, self->element, n);
    element_move(out, self->element, n);
    return DATA_ELEMENT;
}

static enum data_poll save_next(struct dataset_iter *iter, struct data_task *task,
                                struct tensor *out) {
    struct save_iter *self = (struct save_iter *)iter;
    enum data_poll result = data_io_poll(&self->io, task);
    if (result != DATA_ELEMENT)
        return result;
    if (self->state == SAVE_ENDED)
        return DATA_END;
    if (self->state == SAVE_OPENING)
        return data_io_start(&self->io, iter->env->io_pool, task, open_files);
    if (!self->has_element) {
        if (self->has_input_ended || self->block.n >= BLOCK_ELEMENTS ||
            self->block_bytes >= BLOCK_BYTES)
            return data_io_start(&self->io, iter->env->io_pool, task, write_block);
        result = dataset_iter_next(self->one.input, task, self->element);
        self->has_input_ended = result == DATA_END;
        if (result == DATA_END)
            return data_io_start(&self->io, iter->env->io_pool, task, write_block);
        if (result != DATA_ELEMENT)
            return result;
        self->has_element = true;
    }
    return hand_out(self, task, out);
}

static struct status *save_begin(struct dataset_iter *iter) {
    struct save_iter *self = (struct save_iter *)iter;
    self->block.n_components = iter->dataset->n_components;
    self->element = element_new(iter->dataset->n_components);
    TRY(dataset_begin_one(iter));
    if (!save_of(self)->has_shard_fn)
        return NULL;
    return dataset_call_init(&self->call, &save_of(self)->shard_fn, iter->env,
                             iter->dataset->n_components);
}

static void save_end(struct dataset_iter *iter) {
    struct save_iter *self = (struct save_iter *)iter;
    dataset_end_one(iter);
    dataset_call_fini(&self->call);
    element_buffer_fini(&self->block);
    element_free(self->element, iter->dataset->n_components);
    for (int i = 0; i < self->n_shards; i++)
        record_sink_free(self->shards[i].sink);
    free(self->shards);
    snapshot_metadata_fini(&self->metadata);
    data_io_fini(&self->io);
}

static void save_fini(struct dataset *dataset) {
    struct save_dataset *self = (struct save_dataset *)dataset;
    dataset_fn_fini(&self->shard_fn);
    free(self->dir);
}

static const struct dataset_kind save_kind = {.name = "Save",
                                              .dataset_size = sizeof(struct save_dataset),
                                              .iter_size = sizeof(struct save_iter),
                                              .begin = save_begin,
                                              .next = save_next,
                                              .end = save_end,
                                              .fini = save_fini,
                                              .keeps_cardinality = true};

struct dataset *dataset_save_new(struct dataset *input, const char *dir, struct span compression,
                                 struct dataset_fn *shard_fn_take) {
    struct dataset *dataset = dataset_new_bare(&save_kind, input->depth + 1);
    struct save_dataset *self = (struct save_dataset *)dataset;
    dataset->inputs = xcalloc(1, sizeof(dataset->inputs[0]));
    dataset->inputs[0] = dataset_ref(input);
    dataset->n_inputs = 1;
    dataset_set_components(dataset, input->n_components, input->types, input->shapes);
    self->dir = xstrdup(dir);
    self->coding = record_coding_named(compression);
    self->has_shard_fn = shard_fn_take != NULL;
    if (shard_fn_take)
        self->shard_fn = *shard_fn_take;
    return dataset;
}

/* ---- kernels ---- */

static struct status *save_take(struct kernel_ctx *ctx, struct dataset **ret) {
    const struct tensor *path = kernel_input(ctx, 1);
    struct dataset *input = NULL;
    struct dataset_fn fn = {0};
    struct span compression = {0};
    struct str dir = STR_INIT;
    struct status *st = NULL;
    bool has_fn = false;
    if (path->rank != 0)
        return status_invalid("path must be a scalar");
    TRY(node_get_s(ctx->instance->node, "compression", &compression));
    TRY(node_get_b(ctx->instance->node, "use_shard_func", &has_fn));
    TRY(dataset_of(kernel_input(ctx, 0), &input));
    if (input->depth >= DATASET_MAX_DEPTH)
        return status_invalid("Datasets nest too deep: the limit is %d", DATASET_MAX_DEPTH);
    TRY_OUT(file_root_resolve_prefix(tensor_string(path, 0), &dir));
    if (has_fn)
        TRY_OUT(dataset_fn_init(ctx, "shard_func", 2, dataset_list_length(ctx, "Tshard_func_args"),
                                &fn));
    *ret = dataset_save_new(input, str_text(&dir), compression, has_fn ? &fn : NULL);
    fn = (struct dataset_fn){0};
out:
    dataset_fn_fini(&fn);
    str_fini(&dir);
    return st;
}

static enum kernel_result save_dataset_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, save_take(ctx, &dataset));
    return dataset_output(ctx, dataset);
}

/* SaveDataset: an iterator over such a dataset, to its end. */
struct save_run {
    struct pipeline_run run;
    struct dataset *dataset;
    struct dataset_iter *iter;
    struct tensor *element;
};

static void save_run_fini(struct pipeline_run *run) {
    struct save_run *self = (struct save_run *)run;
    dataset_iter_free(self->iter);
    element_free(self->element, self->dataset->n_components);
    dataset_unref(self->dataset);
    free(self);
}

static enum data_poll save_run_poll(struct pipeline_run *run, struct data_task *task) {
    struct save_run *self = (struct save_run *)run;
    if (!self->iter) {
        struct status *st = dataset_iter_new(self->dataset, run->env, &self->iter);
        if (st)
            return data_task_fail(task, st);
    }
    for (;;) {
        enum data_poll result = dataset_iter_next(self->iter, task, self->element);
        if (result != DATA_ELEMENT)
            return result == DATA_END ? DATA_ELEMENT : result;
        element_clear(self->element, self->dataset->n_components);
    }
}

static enum kernel_result save_all_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, save_take(ctx, &dataset));
    struct save_run *self = xcalloc(1, sizeof(*self));
    self->run.poll = save_run_poll;
    self->run.fini = save_run_fini;
    self->dataset = dataset;
    self->element = element_new(dataset->n_components);
    return pipeline_start(ctx, &self->run);
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "SaveDataset", .compute = save_all_compute, .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
    DATASET_KERNEL("SaveDatasetV2", save_dataset_compute),
};
// clang-format on

const struct kernel_list dataset_save_kernels = {rows, ARRAY_LEN(rows)};
