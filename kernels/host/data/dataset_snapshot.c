/* Makes SnapshotDatasetV2: the first iterator saves the input's elements, later ones read them.
 *
 *   OPENING (I/O): PATH/HASH/snapshot.metadata ── finished ──────────► a load dataset's iterator
 *                                               ├ another is writing ► the input's iterator
 *                                               └ none, or given up ─► a save dataset's iterator
 *
 * The hash is that of the graph that makes the input. The master computes it (pass_datasets.c),
 * because a worker does not know that graph. */
#include "kernels/host/data/dataset_snapshot.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/io/file_root.h"
#include "kernels/host/data/data_io.h"
#include "kernels/host/data/snapshot_files.h"

extern const struct kernel_list dataset_snapshot_kernels;

/* A snapshot that is unfinished for longer has been given up, as in TensorFlow. */
#define GIVEN_UP_AFTER_US (INT64_C(86400) * 1000000)

struct snapshot_dataset {
    struct dataset base;
    char *dir;
    struct dataset *save, *load;
};

struct snapshot_iter {
    struct dataset_iter iter;
    struct data_io io;
    struct dataset *chosen; /* borrowed from the dataset */
    struct dataset_iter *current;
};

static struct status *choose(struct data_io *io) {
    struct snapshot_iter *self = CONTAINER_OF(io, struct snapshot_iter, io);
    const struct snapshot_dataset *dataset = (const struct snapshot_dataset *)self->iter.dataset;
    struct snapshot_metadata metadata = {0};
    bool is_there = false;
    TRY(snapshot_metadata_read(dataset->dir, &metadata, &is_there));
    bool is_given_up = clock_wall_us() - metadata.created_us > GIVEN_UP_AFTER_US;
    self->chosen = is_there && metadata.is_finalized ? dataset->load
                   : !is_there || is_given_up        ? dataset->save
                                                     : dataset->base.inputs[0];
    snapshot_metadata_fini(&metadata);
    return NULL;
}

static enum data_poll snapshot_next(struct dataset_iter *iter, struct data_task *task,
                                    struct tensor *out) {
    struct snapshot_iter *self = (struct snapshot_iter *)iter;
    enum data_poll result = data_io_poll(&self->io, task);
    if (result != DATA_ELEMENT)
        return result;
    if (!self->chosen)
        return data_io_start(&self->io, iter->env->io_pool, task, choose);
    if (!self->current) {
        struct status *st = dataset_iter_new(self->chosen, iter->env, &self->current);
        if (st)
            return data_task_fail(task, st);
    }
    return dataset_iter_next(self->current, task, out);
}

static void snapshot_end(struct dataset_iter *iter) {
    struct snapshot_iter *self = (struct snapshot_iter *)iter;
    dataset_iter_free(self->current);
    data_io_fini(&self->io);
}

static void snapshot_fini(struct dataset *dataset) {
    struct snapshot_dataset *self = (struct snapshot_dataset *)dataset;
    dataset_unref(self->save);
    dataset_unref(self->load);
    free(self->dir);
}

static const struct dataset_kind snapshot_kind = {.name = "Snapshot",
                                                  .dataset_size = sizeof(struct snapshot_dataset),
                                                  .iter_size = sizeof(struct snapshot_iter),
                                                  .next = snapshot_next,
                                                  .end = snapshot_end,
                                                  .fini = snapshot_fini,
                                                  .keeps_cardinality = true};

/* ---- the kernel ---- */

static struct status *take_dir(struct kernel_ctx *ctx, struct snapshot_dataset *self) {
    const struct tensor *path = kernel_input(ctx, 1);
    const struct node *node = ctx->instance->node;
    struct str dir = STR_INIT;
    int64_t hash = 0;
    bool is_valid = false;
    if (path->rank != 0)
        return status_invalid("path must be a scalar");
    TRY(node_get_b(node, "hash_valid", &is_valid));
    TRY(node_get_i(node, "hash", &hash));
    if (!is_valid)
        return status_unimplemented("SnapshotDatasetV2 without a hash, over a dataset that depends "
                                    "on a value that is fed or is an argument of a function");
    TRY(file_root_resolve_prefix(tensor_string(path, 0), &dir));
    str_addf(&dir, "/%llu", (unsigned long long)hash);
    self->dir = str_detach(&dir);
    return NULL;
}

static struct status *take_children(struct kernel_ctx *ctx, struct snapshot_dataset *self) {
    int n_reader = dataset_list_length(ctx, "Treader_func_args");
    struct span compression = {0};
    struct dataset_fn reader_fn = {0}, shard_fn = {0};
    TRY(node_get_s(ctx->instance->node, "compression", &compression));
    if (span_is(compression, "AUTO"))
        compression = span_of("SNAPPY");
    TRY(dataset_fn_init(ctx, "reader_func", 2, n_reader, &reader_fn));
    self->load = dataset_load_new(self->dir, compression, &reader_fn);
    dataset_set_components(self->load, self->base.n_components, self->base.types,
                           self->base.shapes);
    TRY(dataset_fn_init(ctx, "shard_func", 2 + n_reader,
                        dataset_list_length(ctx, "Tshard_func_args"), &shard_fn));
    self->save = dataset_save_new(self->base.inputs[0], self->dir, compression, &shard_fn);
    return NULL;
}

static enum kernel_result snapshot_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &snapshot_kind, 1, &dataset));
    struct status *st = take_dir(ctx, (struct snapshot_dataset *)dataset);
    if (!st)
        st = take_children(ctx, (struct snapshot_dataset *)dataset);
    return dataset_finish(ctx, dataset, st);
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("SnapshotDatasetV2", snapshot_compute),
};
// clang-format on

const struct kernel_list dataset_snapshot_kernels = {rows, ARRAY_LEN(rows)};
