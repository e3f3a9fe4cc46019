/* Reads a dataset that was saved in files (snapshot_files.h):
 *
 *   load ─► reader function ◄── dataset of the shards' datasets ─► one dataset for each shard
 *
 * The metadata are read, and the shards found, when an iterator begins. */
#include <stdlib.h>

#include "common/io/file_root.h"
#include "common/tensor/tensor_proto.h"
#include "kernels/host/data/data_io.h"
#include "kernels/host/data/dataset_buffer.h"
#include "kernels/host/data/dataset_snapshot.h"
#include "kernels/host/data/snapshot_files.h"
#include "kernels/support/io_task.h"

extern const struct kernel_list dataset_load_kernels;

enum { BLOCK_ELEMENTS = 256, BLOCK_BYTES = 1 << 20 }; /* what one visit of an I/O thread reads */

static const struct file_system *const fs = &file_system_posix;

/* ---- the elements of one shard ---- */

struct shard_dataset {
    struct dataset base;
    char *path;
    enum record_coding coding;
};

struct shard_iter {
    struct dataset_iter iter;
    struct data_io io;
    struct record_source *source;
    struct str key, value;
    int64_t file; /* its number */
    struct element_buffer block;
    bool has_ended;
};

static void shard_fini(struct dataset *dataset) { free(((struct shard_dataset *)dataset)->path); }

static struct status *open_file(struct shard_iter *self) {
    const struct shard_dataset *dataset = (const struct shard_dataset *)self->iter.dataset;
    struct record_options options = {.format = RECORD_TFRECORD, .coding = dataset->coding};
    struct str path = STR_INIT;
    struct status *st = NULL;
    snapshot_add_file(&path, dataset->path, self->file);
    self->has_ended = fs->kind(fs, str_text(&path)) != FILE_KIND_FILE;
    if (!self->has_ended)
        st = record_source_open(&options, (struct span){str_text(&path), path.len}, &self->source);
    str_fini(&path);
    return st;
}

static struct status *read_component(struct shard_iter *self, int i, bool *ret_is_end,
                                     struct tensor *ret) {
    const struct dataset *dataset = self->iter.dataset;
    TRY(record_source_next(self->source, &self->key, &self->value, ret_is_end));
    if (*ret_is_end && i == 0)
        return NULL;
    if (*ret_is_end)
        return status_new(STATUS_DATA_LOSS, "A saved element has %d of %d components", i,
                          dataset->n_components);
    struct span proto = {str_text(&self->value), self->value.len};
    TRY(tensor_proto_check_claim(proto, RECORD_MAX_BYTES));
    TRY(tensor_from_proto(proto, NULL, self->iter.env->allocator, ret));
    if (ret->dtype == dataset->types[i] &&
        shape_is_compatible(dataset->shapes[i], tensor_shape(ret)))
        return NULL;
    struct status *st =
        status_invalid("Component %d of a saved element is %s%s, where %s%s is declared", i,
                       dtype_name((enum dtype)ret->dtype), TENSOR_SHAPE_TEXT(ret),
                       dtype_name((enum dtype)dataset->types[i]), SHAPE_TEXT(dataset->shapes[i]));
    tensor_clear(ret);
    return st;
}

/* Reads the next element into the block. At the end of a file the next file is opened. */
static struct status *read_element(struct shard_iter *self, size_t *n_bytes) {
    bool is_end = false;
    struct status *st = NULL;
    if (!self->source)
        TRY(open_file(self));
    if (self->has_ended)
        return NULL;
    struct tensor *element = element_buffer_reserve(&self->block);
    if (!element)
        return status_exhausted("Out of memory for a saved element");
    for (int i = 0; i < self->block.n_components && !st && !is_end; i++) {
        st = read_component(self, i, &is_end, &element[i]);
        if (!st && !is_end)
            *n_bytes += tensor_size_bytes(&element[i]);
    }
    if (st || is_end) {
        element_clear(element, self->block.n_components);
        record_source_free(self->source);
        self->source = NULL;
        self->file++;
        return st;
    }
    self->block.n++;
    return NULL;
}

static struct status *read_block(struct data_io *io) {
    struct shard_iter *self = CONTAINER_OF(io, struct shard_iter, io);
    size_t n_bytes = 0;
    while (!self->has_ended && self->block.n < BLOCK_ELEMENTS && n_bytes < BLOCK_BYTES)
        TRY(read_element(self, &n_bytes));
    return NULL;
}

static enum data_poll shard_next(struct dataset_iter *iter, struct data_task *task,
                                 struct tensor *out) {
    struct shard_iter *self = (struct shard_iter *)iter;
    enum data_poll result = data_io_poll(&self->io, task);
    if (result != DATA_ELEMENT)
        return result;
    if (self->block.n > 0) {
        element_move(out, element_at(&self->block, 0), self->block.n_components);
        element_buffer_drop(&self->block, 1);
        return DATA_ELEMENT;
    }
    if (self->has_ended)
        return DATA_END;
    return data_io_start(&self->io, iter->env->io_pool, task, read_block);
}

static struct status *shard_begin(struct dataset_iter *iter) {
    ((struct shard_iter *)iter)->block.n_components = iter->dataset->n_components;
    return NULL;
}

static void shard_end(struct dataset_iter *iter) {
    struct shard_iter *self = (struct shard_iter *)iter;
    record_source_free(self->source);
    str_fini(&self->key);
    str_fini(&self->value);
    element_buffer_fini(&self->block);
    data_io_fini(&self->io);
}

static const struct dataset_kind shard_kind = {.name = "SnapshotShard",
                                               .dataset_size = sizeof(struct shard_dataset),
                                               .iter_size = sizeof(struct shard_iter),
                                               .begin = shard_begin,
                                               .next = shard_next,
                                               .end = shard_end,
                                               .fini = shard_fini};

/* ---- the dataset of the shards' datasets ---- */

struct shards_dataset {
    struct dataset base;
    struct dataset **shards; /* a reference each */
    int64_t n_shards;
};

struct shards_iter {
    struct dataset_iter iter;
    int64_t at;
};

static void shards_fini(struct dataset *dataset) {
    struct shards_dataset *self = (struct shards_dataset *)dataset;
    for (int64_t i = 0; i < self->n_shards; i++)
        dataset_unref(self->shards[i]);
    free(self->shards);
}

static enum data_poll shards_next(struct dataset_iter *iter, struct data_task *task,
                                  struct tensor *out) {
    const struct shards_dataset *dataset = (const struct shards_dataset *)iter->dataset;
    struct shards_iter *self = (struct shards_iter *)iter;
    if (self->at >= dataset->n_shards)
        return DATA_END;
    struct dataset *shard = dataset_ref(dataset->shards[self->at++]);
    tensor_init_scalar_object(&out[0], DT_VARIANT, &shard->object);
    return DATA_ELEMENT;
}

static int64_t shards_cardinality(struct dataset *dataset) {
    return ((const struct shards_dataset *)dataset)->n_shards;
}

static const struct dataset_kind shards_kind = {.name = "SnapshotShards",
                                                .dataset_size = sizeof(struct shards_dataset),
                                                .iter_size = sizeof(struct shards_iter),
                                                .next = shards_next,
                                                .fini = shards_fini,
                                                .cardinality = shards_cardinality};

/* ---- what the reader function makes of them ---- */

struct load_dataset {
    struct dataset base;
    char *dir;
    enum record_coding coding;
    struct dataset_fn reader_fn;
    int64_t n_elements; /* CARDINALITY_UNKNOWN, or what the metadata say */
};

struct load_iter {
    struct dataset_iter iter;
    struct data_io io;
    struct dataset_call call;
    struct dataset *shards;
    struct dataset_iter *current;
};

static struct dataset *shards_new(const struct load_dataset *dataset, char **paths, size_t n) {
    static const uint8_t types[] = {DT_VARIANT};
    static const struct shape shapes[] = {{0, NULL}};
    struct dataset *made = dataset_new_bare(&shards_kind, 2);
    struct shards_dataset *self = (struct shards_dataset *)made;
    self->shards = xcalloc(n + 1, sizeof(*self->shards));
    dataset_set_components(made, 1, types, shapes);
    for (; self->n_shards < (int64_t)n; self->n_shards++) {
        struct dataset *shard = dataset_new_bare(&shard_kind, 1);
        dataset_set_components(shard, dataset->base.n_components, dataset->base.types,
                               dataset->base.shapes);
        ((struct shard_dataset *)shard)->path = xstrdup(paths[self->n_shards]);
        ((struct shard_dataset *)shard)->coding = dataset->coding;
        self->shards[self->n_shards] = shard;
    }
    return made;
}

static COLD struct status *no_metadata(const char *dir) {
    return status_not_found("Could not find metadata file [%s/snapshot.metadata]", dir);
}

static struct status *find_shards(struct data_io *io) {
    struct load_iter *self = CONTAINER_OF(io, struct load_iter, io);
    const struct load_dataset *dataset = (const struct load_dataset *)self->iter.dataset;
    struct snapshot_metadata metadata = {0};
    struct str pattern = STR_INIT;
    char **paths = NULL;
    size_t n = 0;
    bool is_there = false;
    struct status *st = NULL;
    TRY_OUT(snapshot_metadata_read(dataset->dir, &metadata, &is_there));
    if (!is_there)
        TRY_OUT(no_metadata(dataset->dir));
    if (metadata.version != SNAPSHOT_VERSION)
        TRY_OUT(status_unimplemented("%s was saved in version %lld of the format; version %d is "
                                     "supported",
                                     dataset->dir, (long long)metadata.version, SNAPSHOT_VERSION));
    str_addf(&pattern, "%s/%s/*.shard", dataset->dir, metadata.run_id);
    TRY_OUT(file_match((struct span){str_text(&pattern), pattern.len}, &paths, &n));
    self->shards = shards_new(dataset, paths, n);
out:
    file_match_free(paths, n);
    snapshot_metadata_fini(&metadata);
    str_fini(&pattern);
    return st;
}

static struct status *check_result(const struct load_iter *self, struct dataset **ret) {
    const struct dataset *outer = self->iter.dataset;
    struct dataset *inner = NULL;
    if (self->call.function->n_rets != 1)
        return status_invalid("reader_func returns more than one argument.");
    TRY(dataset_of(&self->call.rets[0], &inner));
    if (inner->n_components != outer->n_components ||
        (outer->n_components > 0 &&
         memcmp(inner->types, outer->types, (size_t)outer->n_components) != 0))
        return status_invalid("The dataset that reader_func returns has other components than "
                              "`output_types` declares");
    *ret = inner;
    return NULL;
}

/* Calls the reader function with the dataset of the shards, and opens its result. */
static enum data_poll open_result(struct load_iter *self, struct data_task *task) {
    struct dataset *result = NULL;
    if (!self->call.is_running) {
        struct dataset *shards = dataset_ref(self->shards);
        tensor_init_scalar_object(&self->call.args[0], DT_VARIANT, &shards->object);
    }
    enum data_poll polled = dataset_call_poll(&self->call, task);
    if (polled != DATA_ELEMENT)
        return polled;
    struct status *st = check_result(self, &result);
    if (!st)
        st = dataset_iter_new(result, self->iter.env, &self->current);
    element_clear(self->call.rets, self->call.function->n_rets);
    return st ? data_task_fail(task, st) : DATA_ELEMENT;
}

static enum data_poll load_next(struct dataset_iter *iter, struct data_task *task,
                                struct tensor *out) {
    struct load_iter *self = (struct load_iter *)iter;
    enum data_poll result = data_io_poll(&self->io, task);
    if (result != DATA_ELEMENT)
        return result;
    if (!self->shards)
        return data_io_start(&self->io, iter->env->io_pool, task, find_shards);
    if (!self->current) {
        result = open_result(self, task);
        if (result != DATA_ELEMENT)
            return result;
    }
    return dataset_iter_next(self->current, task, out);
}

static struct status *load_begin(struct dataset_iter *iter) {
    return dataset_call_init(&((struct load_iter *)iter)->call,
                             &((const struct load_dataset *)iter->dataset)->reader_fn, iter->env,
                             1);
}

static void load_end(struct dataset_iter *iter) {
    struct load_iter *self = (struct load_iter *)iter;
    dataset_iter_free(self->current);
    dataset_unref(self->shards);
    dataset_call_fini(&self->call);
    data_io_fini(&self->io);
}

static int64_t load_cardinality(struct dataset *dataset) {
    return ((const struct load_dataset *)dataset)->n_elements;
}

static void load_fini(struct dataset *dataset) {
    struct load_dataset *self = (struct load_dataset *)dataset;
    dataset_fn_fini(&self->reader_fn);
    free(self->dir);
}

static const struct dataset_kind load_kind = {.name = "Load",
                                              .dataset_size = sizeof(struct load_dataset),
                                              .iter_size = sizeof(struct load_iter),
                                              .begin = load_begin,
                                              .next = load_next,
                                              .end = load_end,
                                              .fini = load_fini,
                                              .cardinality = load_cardinality};

struct dataset *dataset_load_new(const char *dir, struct span compression,
                                 struct dataset_fn *reader_fn_take) {
    struct dataset *dataset = dataset_new_bare(&load_kind, 3);
    struct load_dataset *self = (struct load_dataset *)dataset;
    self->dir = xstrdup(dir);
    self->coding = record_coding_named(compression);
    self->n_elements = CARDINALITY_UNKNOWN;
    self->reader_fn = *reader_fn_take;
    return dataset;
}

/* ---- the kernel: it fails where nothing is saved ---- */

static struct status *load_make(struct kernel_ctx *ctx, const char *dir) {
    struct snapshot_metadata metadata = {0};
    struct dataset *dataset = NULL;
    struct dataset_fn fn = {0};
    struct span compression = {0};
    bool is_there = false;
    TRY(node_get_s(ctx->instance->node, "compression", &compression));
    TRY(snapshot_metadata_read(dir, &metadata, &is_there));
    snapshot_metadata_fini(&metadata);
    if (!is_there)
        return no_metadata(dir);
    TRY(dataset_fn_init(ctx, "reader_func", 1, dataset_list_length(ctx, "Treader_func_args"), &fn));
    dataset = dataset_load_new(dir, compression, &fn);
    ((struct load_dataset *)dataset)->n_elements = MAX(metadata.n_elements, 0);
    struct status *st = dataset_declare(ctx, dataset, NULL, NULL);
    if (st)
        dataset_unref(dataset);
    else
        tensor_init_scalar_object(&ctx->outputs[0], DT_VARIANT, &dataset->object);
    return st;
}

static struct status *load_body(struct kernel_ctx *ctx) {
    struct str dir = STR_INIT;
    struct status *st = io_prefix(tensor_string(kernel_input(ctx, 0), 0), &dir);
    if (!st)
        st = load_make(ctx, str_text(&dir));
    str_fini(&dir);
    return st;
}

static enum kernel_result load_compute(struct kernel_ctx *ctx) {
    if (kernel_input(ctx, 0)->rank != 0)
        return kernel_fail(ctx, status_invalid("path must be a scalar"));
    return io_run(ctx, load_body);
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "LoadDataset", .compute = load_compute, .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
};
// clang-format on

const struct kernel_list dataset_load_kernels = {rows, ARRAY_LEN(rows)};
