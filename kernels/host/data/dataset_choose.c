/* Datasets that hand on some of their input's elements, or several inputs' one after the other
 * or side by side. */
#include <stdlib.h>

#include "kernels/host.h"
#include "kernels/host/data/dataset.h"

extern const struct kernel_list dataset_choose_kernels;

/* ---- take, skip, shard, repeat: input 0 and some numbers ---- */

struct count_dataset {
    struct dataset base;
    int64_t count, index; /* of a shard: how many, which */
    bool must_have;       /* a shard must not be empty */
};

struct count_iter {
    struct dataset_iter_one one;
    int64_t n_done;
    bool has_any, has_ended;
};

static enum data_poll take_next(struct dataset_iter *iter, struct data_task *task,
                                struct tensor *out) {
    const struct count_dataset *dataset = (const struct count_dataset *)iter->dataset;
    struct count_iter *self = (struct count_iter *)iter;
    if (dataset->count >= 0 && self->n_done >= dataset->count)
        return DATA_END;
    enum data_poll result = dataset_iter_next(self->one.input, task, out);
    self->n_done += result == DATA_ELEMENT;
    return result;
}

static int64_t take_cardinality(struct dataset *dataset) {
    int64_t count = ((struct count_dataset *)dataset)->count,
            n = dataset_cardinality(dataset->inputs[0]);
    if (n == CARDINALITY_UNKNOWN)
        return CARDINALITY_UNKNOWN;
    return n == CARDINALITY_INFINITE ? count < 0 ? CARDINALITY_INFINITE : count
           : count < 0               ? n
                                     : MIN(n, count);
}

static enum data_poll skip_next(struct dataset_iter *iter, struct data_task *task,
                                struct tensor *out) {
    const struct count_dataset *dataset = (const struct count_dataset *)iter->dataset;
    struct count_iter *self = (struct count_iter *)iter;
    if (dataset->count < 0)
        return DATA_END;
    while (self->n_done < dataset->count) {
        enum data_poll result = dataset_iter_next(self->one.input, task, out);
        if (result != DATA_ELEMENT)
            return result;
        element_clear(out, iter->dataset->n_components);
        self->n_done++;
    }
    return dataset_iter_next(self->one.input, task, out);
}

static int64_t skip_cardinality(struct dataset *dataset) {
    int64_t count = ((struct count_dataset *)dataset)->count,
            n = dataset_cardinality(dataset->inputs[0]);
    return n < 0 ? n : count < 0 ? 0 : MAX(0, n - count);
}

static enum data_poll shard_next(struct dataset_iter *iter, struct data_task *task,
                                 struct tensor *out) {
    const struct count_dataset *dataset = (const struct count_dataset *)iter->dataset;
    struct count_iter *self = (struct count_iter *)iter;
    for (;;) {
        enum data_poll result = dataset_iter_next(self->one.input, task, out);
        if (result == DATA_END && dataset->must_have && self->n_done < dataset->count &&
            !self->has_ended) {
            self->has_ended = true;
            return data_task_fail(
                task, status_invalid("Could not apply FILE based sharding: the dataset only has "
                                     "%lld file(s), which is not enough for the "
                                     "required %lld shards/workers.",
                                     (long long)self->n_done, (long long)dataset->count));
        }
        if (result != DATA_ELEMENT)
            return result;
        if (self->n_done++ % dataset->count == dataset->index)
            return DATA_ELEMENT;
        element_clear(out, iter->dataset->n_components);
    }
}

static int64_t shard_cardinality(struct dataset *dataset) {
    const struct count_dataset *self = (const struct count_dataset *)dataset;
    int64_t n = dataset_cardinality(dataset->inputs[0]);
    return n < 0 ? n : n / self->count + (self->index < n % self->count);
}

/* Each round has an iterator of its own. A round that hands out nothing ends an endless
 * repetition. */
static enum data_poll repeat_next(struct dataset_iter *iter, struct data_task *task,
                                  struct tensor *out) {
    const struct count_dataset *dataset = (const struct count_dataset *)iter->dataset;
    struct count_iter *self = (struct count_iter *)iter;
    while (!self->has_ended && (dataset->count < 0 || self->n_done < dataset->count)) {
        if (!self->one.input) {
            struct status *st = dataset_begin_one(iter);
            if (st)
                return data_task_fail(task, st);
        }
        enum data_poll result = dataset_iter_next(self->one.input, task, out);
        self->has_any = self->has_any || result == DATA_ELEMENT;
        if (result != DATA_END)
            return result;
        dataset_end_one(iter);
        self->one.input = NULL;
        self->n_done++;
        self->has_ended = dataset->count < 0 && !self->has_any;
        self->has_any = false;
    }
    return DATA_END;
}

static int64_t repeat_cardinality(struct dataset *dataset) {
    int64_t count = ((struct count_dataset *)dataset)->count,
            n = dataset_cardinality(dataset->inputs[0]), product;
    if (count == 0 || n == 0)
        return 0;
    if (count < 0)
        return n == CARDINALITY_UNKNOWN ? CARDINALITY_UNKNOWN : CARDINALITY_INFINITE;
    if (n < 0)
        return n;
    return mul_overflows_i64(count, n, &product) ? INT64_MAX : product;
}

static const struct dataset_kind take_kind = {.name = "Take",
                                              .dataset_size = sizeof(struct count_dataset),
                                              .iter_size = sizeof(struct count_iter),
                                              .begin = dataset_begin_one,
                                              .next = take_next,
                                              .end = dataset_end_one,
                                              .cardinality = take_cardinality};
static const struct dataset_kind skip_kind = {.name = "Skip",
                                              .dataset_size = sizeof(struct count_dataset),
                                              .iter_size = sizeof(struct count_iter),
                                              .begin = dataset_begin_one,
                                              .next = skip_next,
                                              .end = dataset_end_one,
                                              .cardinality = skip_cardinality};
static const struct dataset_kind shard_kind = {.name = "Shard",
                                               .dataset_size = sizeof(struct count_dataset),
                                               .iter_size = sizeof(struct count_iter),
                                               .begin = dataset_begin_one,
                                               .next = shard_next,
                                               .end = dataset_end_one,
                                               .cardinality = shard_cardinality};
static const struct dataset_kind repeat_kind = {.name = "Repeat",
                                                .dataset_size = sizeof(struct count_dataset),
                                                .iter_size = sizeof(struct count_iter),
                                                .next = repeat_next,
                                                .end = dataset_end_one,
                                                .cardinality = repeat_cardinality};

static enum kernel_result count_compute(struct kernel_ctx *ctx, const struct dataset_kind *kind) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, kind, 1, &dataset));
    return dataset_finish(
        ctx, dataset,
        dataset_scalar_i64(ctx, 1, "count", &((struct count_dataset *)dataset)->count));
}

static enum kernel_result take_compute(struct kernel_ctx *ctx) {
    return count_compute(ctx, &take_kind);
}
static enum kernel_result skip_compute(struct kernel_ctx *ctx) {
    return count_compute(ctx, &skip_kind);
}
static enum kernel_result repeat_compute(struct kernel_ctx *ctx) {
    return count_compute(ctx, &repeat_kind);
}

static struct status *shard_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct count_dataset *self = (struct count_dataset *)dataset;
    TRY(dataset_scalar_i64(ctx, 1, "num_shards", &self->count));
    TRY(dataset_scalar_i64(ctx, 2, "index", &self->index));
    TRY(node_get_b(ctx->instance->node, "require_non_empty", &self->must_have));
    if (self->count <= 0)
        return status_invalid(
            "Number of shards must be greater than zero (currently num_shards = %lld).",
            (long long)self->count);
    if (self->index < 0 || self->index >= self->count)
        return status_invalid("Index must be between 0 and %lld (currently index = %lld).",
                              (long long)self->count - 1, (long long)self->index);
    return NULL;
}

static enum kernel_result shard_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &shard_kind, 1, &dataset));
    return dataset_finish(ctx, dataset, shard_take(ctx, dataset));
}

/* ---- several inputs ---- */

struct many_iter {
    struct dataset_iter iter;
    struct dataset_iter **inputs;
    struct tensor *element; /* of zip: what has come so far */
    int at, n_components;   /* which input is next, and how many components have come */
};

static struct status *many_begin(struct dataset_iter *iter) {
    struct many_iter *self = (struct many_iter *)iter;
    self->inputs = xcalloc((size_t)iter->dataset->n_inputs + 1, sizeof(*self->inputs));
    self->element = element_new(iter->dataset->n_components);
    for (int i = 0; i < iter->dataset->n_inputs; i++)
        TRY(dataset_iter_new(iter->dataset->inputs[i], iter->env, &self->inputs[i]));
    return NULL;
}

static void many_end(struct dataset_iter *iter) {
    struct many_iter *self = (struct many_iter *)iter;
    for (int i = 0; self->inputs && i < iter->dataset->n_inputs; i++)
        dataset_iter_free(self->inputs[i]);
    element_free(self->element, iter->dataset->n_components);
    free(self->inputs);
}

static void zip_reset(struct many_iter *self) {
    element_clear(self->element, self->n_components);
    self->at = self->n_components = 0;
}

/* An input that fails does not keep the others from going on: the element as a whole is lost. */
static enum data_poll zip_next(struct dataset_iter *iter, struct data_task *task,
                               struct tensor *out) {
    struct many_iter *self = (struct many_iter *)iter;
    for (; self->at < iter->dataset->n_inputs; self->at++) {
        enum data_poll result =
            dataset_iter_next(self->inputs[self->at], task, self->element + self->n_components);
        if (result == DATA_PENDING)
            return result;
        if (result != DATA_ELEMENT) {
            zip_reset(self);
            return result;
        }
        self->n_components += iter->dataset->inputs[self->at]->n_components;
    }
    element_move(out, self->element, self->n_components);
    self->at = self->n_components = 0;
    return DATA_ELEMENT;
}

static int64_t zip_cardinality(struct dataset *dataset) {
    int64_t least = CARDINALITY_INFINITE;
    for (int i = 0; i < dataset->n_inputs; i++) {
        int64_t n = dataset_cardinality(dataset->inputs[i]);
        if (n == CARDINALITY_UNKNOWN)
            return n;
        least = least == CARDINALITY_INFINITE ? n
                : n == CARDINALITY_INFINITE   ? least
                                              : MIN(least, n);
    }
    return least;
}

static const struct dataset_kind zip_kind = {.name = "Zip",
                                             .dataset_size = sizeof(struct dataset),
                                             .iter_size = sizeof(struct many_iter),
                                             .begin = many_begin,
                                             .next = zip_next,
                                             .end = many_end,
                                             .cardinality = zip_cardinality};

static void zip_components(struct dataset *dataset) {
    int n = 0;
    for (int i = 0; i < dataset->n_inputs; i++)
        n += dataset->inputs[i]->n_components;
    uint8_t *types = xcalloc((size_t)n + 1, 1);
    struct shape *shapes = xcalloc((size_t)n + 1, sizeof(*shapes));
    n = 0;
    for (int i = 0; i < dataset->n_inputs; i++)
        for (int k = 0; k < dataset->inputs[i]->n_components; k++, n++) {
            types[n] = dataset->inputs[i]->types[k];
            shapes[n] = dataset->inputs[i]->shapes[k];
        }
    dataset_set_components(dataset, n, types, shapes);
    free(types);
    free(shapes);
}

static enum kernel_result zip_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &zip_kind, ctx->instance->n_inputs, &dataset));
    zip_components(dataset);
    return dataset_output(ctx, dataset);
}

static enum data_poll concatenate_next(struct dataset_iter *iter, struct data_task *task,
                                       struct tensor *out) {
    struct many_iter *self = (struct many_iter *)iter;
    for (; self->at < iter->dataset->n_inputs; self->at++) {
        enum data_poll result = dataset_iter_next(self->inputs[self->at], task, out);
        if (result != DATA_END)
            return result;
    }
    return DATA_END;
}

static int64_t concatenate_cardinality(struct dataset *dataset) {
    int64_t a = dataset_cardinality(dataset->inputs[0]),
            b = dataset_cardinality(dataset->inputs[1]), sum;
    if (a == CARDINALITY_INFINITE || b == CARDINALITY_INFINITE)
        return CARDINALITY_INFINITE;
    if (a < 0 || b < 0)
        return CARDINALITY_UNKNOWN;
    return add_overflows_i64(a, b, &sum) ? INT64_MAX : sum;
}

static const struct dataset_kind concatenate_kind = {.name = "Concatenate",
                                                     .dataset_size = sizeof(struct dataset),
                                                     .iter_size = sizeof(struct many_iter),
                                                     .begin = many_begin,
                                                     .next = concatenate_next,
                                                     .end = many_end,
                                                     .cardinality = concatenate_cardinality};

/* The shape that both fit: sizes that differ become unknown. */
static struct shape shape_common(struct shape a, struct shape b, int64_t dims[SHAPE_MAX_RANK]) {
    if (a.rank < 0 || a.rank != b.rank)
        return SHAPE_UNKNOWN;
    for (int i = 0; i < a.rank; i++)
        dims[i] = a.dims[i] == b.dims[i] ? a.dims[i] : -1;
    return (struct shape){a.rank, dims};
}

static struct status *concatenate_components(struct dataset *dataset) {
    const struct dataset *a = dataset->inputs[0], *b = dataset->inputs[1];
    if (a->n_components != b->n_components ||
        (a->n_components > 0 && memcmp(a->types, b->types, (size_t)a->n_components) != 0))
        return status_invalid("input dataset and another dataset have different output_types");
    int64_t(*dims)[SHAPE_MAX_RANK] = xcalloc((size_t)a->n_components + 1, sizeof(*dims));
    struct shape *shapes = xcalloc((size_t)a->n_components + 1, sizeof(*shapes));
    for (int i = 0; i < a->n_components; i++)
        shapes[i] = shape_common(a->shapes[i], b->shapes[i], dims[i]);
    dataset_set_components(dataset, a->n_components, a->types, shapes);
    free(shapes);
    free(dims);
    return NULL;
}

static enum kernel_result concatenate_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &concatenate_kind, 2, &dataset));
    return dataset_finish(ctx, dataset, concatenate_components(dataset));
}

/* ---- directed interleave: input 0 says which of the others is next ---- */

struct directed_dataset {
    struct dataset base;
    bool stops_on_empty;
};

struct directed_iter {
    struct many_iter many;
    struct tensor choice;
    int64_t chosen; /* -1: to be asked for */
    int n_live;
};

static struct status *directed_begin(struct dataset_iter *iter) {
    struct directed_iter *self = (struct directed_iter *)iter;
    self->chosen = -1;
    self->n_live = iter->dataset->n_inputs - 1;
    return many_begin(iter);
}

static enum data_poll choose(struct directed_iter *self, struct data_task *task) {
    struct dataset_iter *iter = &self->many.iter;
    enum data_poll result = dataset_iter_next(self->many.inputs[0], task, &self->choice);
    if (result != DATA_ELEMENT)
        return result;
    int64_t chosen = self->choice.rank == 0 ? tensor_index_at(&self->choice, 0) : -1;
    tensor_clear(&self->choice);
    if (chosen < 0 || chosen >= iter->dataset->n_inputs - 1)
        return data_task_fail(task, status_invalid("Selector index out of range: %lld >= %d",
                                                   (long long)chosen, iter->dataset->n_inputs - 1));
    self->chosen = chosen;
    return DATA_ELEMENT;
}

static enum data_poll directed_next(struct dataset_iter *iter, struct data_task *task,
                                    struct tensor *out) {
    struct directed_iter *self = (struct directed_iter *)iter;
    while (self->n_live > 0) {
        if (self->chosen < 0) {
            enum data_poll result = choose(self, task);
            if (result != DATA_ELEMENT)
                return result;
        }
        struct dataset_iter **input = &self->many.inputs[self->chosen + 1];
        enum data_poll result = *input ? dataset_iter_next(*input, task, out) : DATA_END;
        if (result == DATA_PENDING)
            return result;
        self->chosen = -1;
        if (result != DATA_END)
            return result;
        if (*input) {
            dataset_iter_free(*input);
            *input = NULL;
            self->n_live--;
            if (((const struct directed_dataset *)iter->dataset)->stops_on_empty)
                self->n_live = 0;
        }
    }
    return DATA_END;
}

static const struct dataset_kind directed_kind = {.name = "DirectedInterleave",
                                                  .dataset_size = sizeof(struct directed_dataset),
                                                  .iter_size = sizeof(struct directed_iter),
                                                  .begin = directed_begin,
                                                  .next = directed_next,
                                                  .end = many_end};

static struct status *directed_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    const struct dataset *selector = dataset->inputs[0];
    TRY(node_get_b(ctx->instance->node, "stop_on_empty_dataset",
                   &((struct directed_dataset *)dataset)->stops_on_empty));
    if (selector->n_components != 1 || selector->types[0] != DT_INT64)
        return status_invalid("The selector dataset must yield scalars of int64.");
    if (dataset->n_inputs < 2)
        return status_invalid("Need at least one data input dataset");
    for (int i = 2; i < dataset->n_inputs; i++)
        if (dataset->inputs[i]->n_components != dataset->inputs[1]->n_components ||
            memcmp(dataset->inputs[i]->types, dataset->inputs[1]->types,
                   (size_t)dataset->inputs[1]->n_components) != 0)
            return status_invalid("All inputs must have the same output_dtypes.");
    return dataset_declare(ctx, dataset, NULL, NULL);
}

static struct status *directed_check(struct dataset *dataset) {
    const struct dataset *data = dataset->inputs[1];
    if (dataset->n_components != data->n_components ||
        memcmp(dataset->types, data->types, (size_t)data->n_components) != 0)
        return status_invalid("output_types must be those of the data inputs");
    return NULL;
}

static enum kernel_result directed_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &directed_kind, ctx->instance->n_inputs, &dataset));
    struct status *st = directed_take(ctx, dataset);
    return dataset_finish(ctx, dataset, st ? st : directed_check(dataset));
}

/* ---- as it is: hints to an optimizer or a thread pool ---- */

static enum kernel_result same_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_of(kernel_input(ctx, 0), &dataset));
    return dataset_output(ctx, dataset_ref(dataset));
}

static enum kernel_result same_after_count(struct kernel_ctx *ctx, const char *name) {
    int64_t n = 0;
    KERNEL_TRY(ctx, dataset_scalar_i64(ctx, 1, name, &n));
    if (n < 0)
        return kernel_fail(ctx, status_invalid("`%s` must be >= 0", name));
    return same_compute(ctx);
}
static enum kernel_result intra_op_compute(struct kernel_ctx *ctx) {
    return same_after_count(ctx, "max_intra_op_parallelism");
}
static enum kernel_result thread_pool_compute(struct kernel_ctx *ctx) {
    return same_after_count(ctx, "num_threads");
}

/* A pool by name: functions run on the worker's one pool, whatever a graph asks for. */
static const struct object_type pool_type = {.name = "ThreadPoolResource"};

static struct status *pool_init(struct kernel_init *init) {
    int64_t n;
    TRY(node_get_i(init->node, "num_threads", &n));
    return n >= 0 ? NULL : status_invalid("`num_threads` must be >= 0");
}

static enum kernel_result pool_compute(struct kernel_ctx *ctx) {
    const struct node *node = ctx->instance->node;
    struct resource_handle *handle =
        ctx->host->handle_make(ctx, "", node->name, &pool_type, DT_INVALID);
    tensor_init_scalar_object(&ctx->outputs[0], DT_RESOURCE, &handle->object);
    return KERNEL_DONE;
}

/* Statistics under a tag, for an aggregator: there is none. */
static enum kernel_result tagged_compute(struct kernel_ctx *ctx) {
    if (kernel_input(ctx, 1)->rank != 0)
        return kernel_fail(ctx, status_invalid("tag must be a scalar"));
    return same_compute(ctx);
}

/* The inputs are to be alike, and any of them will do. */
static enum kernel_result fastest_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    for (int i = 0; i < ctx->instance->n_inputs; i++)
        KERNEL_TRY(ctx, dataset_of(kernel_input(ctx, i), &dataset));
    return same_compute(ctx);
}

#define DATASET(name, fn) \
    { .op = (name), .compute = (fn), .flags = KERNEL_STATEFUL | KERNEL_VIEW }

// clang-format off
static const struct kernel_def rows[] = {
    DATASET("TakeDataset", take_compute),
    DATASET("SkipDataset", skip_compute),
    DATASET("ShardDataset", shard_compute),
    DATASET("RepeatDataset", repeat_compute),
    DATASET("ZipDataset", zip_compute),
    DATASET("ConcatenateDataset", concatenate_compute),
    DATASET("DirectedInterleaveDataset", directed_compute),
    DATASET("OptionsDataset", same_compute),
    DATASET("FinalizeDataset", same_compute),
    DATASET("ModelDataset", same_compute),
    DATASET("OptimizeDataset", same_compute),
    DATASET("OptimizeDatasetV2", same_compute),
    DATASET("MaxIntraOpParallelismDataset", intra_op_compute),
    DATASET("PrivateThreadPoolDataset", thread_pool_compute),
    DATASET("NonSerializableDataset", same_compute),
    DATASET("RewriteDataset", same_compute),
    DATASET("ExperimentalNonSerializableDataset", same_compute),
    DATASET("ExperimentalDirectedInterleaveDataset", directed_compute),
    DATASET("ExperimentalMaxIntraOpParallelismDataset", intra_op_compute),
    DATASET("ExperimentalPrivateThreadPoolDataset", thread_pool_compute),
    DATASET("ThreadPoolDataset", same_compute),
    DATASET("ExperimentalThreadPoolDataset", same_compute),
    {.op = "ThreadPoolHandle", .compute = pool_compute, .init = pool_init, .flags = KERNEL_STATEFUL | KERNEL_VIEW},
    {.op = "ExperimentalThreadPoolHandle", .compute = pool_compute, .init = pool_init, .flags = KERNEL_STATEFUL | KERNEL_VIEW},
    DATASET("BytesProducedStatsDataset", tagged_compute),
    DATASET("ExperimentalBytesProducedStatsDataset", tagged_compute),
    DATASET("LatencyStatsDataset", tagged_compute),
    DATASET("ExperimentalLatencyStatsDataset", tagged_compute),
    DATASET("ChooseFastestDataset", fastest_compute),
    DATASET("ExperimentalChooseFastestDataset", fastest_compute),
    DATASET("WrapDatasetVariant", same_compute),
    DATASET("UnwrapDatasetVariant", same_compute),
};
// clang-format on

const struct kernel_list dataset_choose_kernels = {rows, ARRAY_LEN(rows)};
