/* Makes datasets that pass some elements of their input on, by number: take, skip, shard,
 * repeat. */
#include <stdlib.h>

#include "kernels/host.h"
#include "kernels/host/data/dataset.h"

extern const struct kernel_list dataset_choose_kernels;

/* ---- take, skip, shard, repeat: input 0 and some numbers ---- */

struct count_dataset {
    struct dataset base;
    int64_t count, index; /* of a shard: the number of shards, and its index */
    bool must_have;       /* the shard must have an element */
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
        if (result == DATA_FAILED)
            self->n_done = 0; /* TensorFlow then skips as many again */
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

/* Each round has a new iterator. An endless repetition ends after a round without elements. */
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

/* ---- auto shard ---- */

/* tf.data.experimental.AutoShardPolicy */
enum auto_shard_policy { POLICY_OFF = -1, POLICY_AUTO, POLICY_FILE, POLICY_DATA, POLICY_HINT };

/* Shards by elements, also under AUTO where TensorFlow would shard by files: each element goes to
 * one worker either way. */
static struct status *auto_shard_take(struct kernel_ctx *ctx, struct dataset *dataset,
                                      enum auto_shard_policy policy) {
    struct count_dataset *self = (struct count_dataset *)dataset;
    TRY(dataset_scalar_i64(ctx, 1, "num_workers", &self->count));
    TRY(dataset_scalar_i64(ctx, 2, "index", &self->index));
    if (self->count <= 0)
        return status_invalid("num_workers must be greater than zero.");
    if (self->index < 0 || self->index >= self->count)
        return status_invalid("index must be between 0 and %lld", (long long)self->count - 1);
    if (self->count > 1 && (policy == POLICY_FILE || policy == POLICY_HINT))
        return status_unimplemented("AutoShardDataset by %s, among %lld workers",
                                    policy == POLICY_FILE ? "files" : "hints",
                                    (long long)self->count);
    return NULL;
}

static enum kernel_result auto_shard_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL, *input = NULL;
    int64_t policy = POLICY_AUTO;
    KERNEL_TRY(ctx, node_get_i(ctx->instance->node, "auto_shard_policy", &policy));
    KERNEL_TRY(ctx, dataset_new(ctx, &shard_kind, 1, &dataset));
    struct status *st = auto_shard_take(ctx, dataset, (enum auto_shard_policy)policy);
    if (st || policy != POLICY_OFF)
        return dataset_finish(ctx, dataset, st);
    input = dataset_ref(dataset->inputs[0]);
    dataset_unref(dataset);
    return dataset_output(ctx, input);
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("AutoShardDataset", auto_shard_compute),
    DATASET_KERNEL("ExperimentalAutoShardDataset", auto_shard_compute),
    DATASET_KERNEL("TakeDataset", take_compute),
    DATASET_KERNEL("SkipDataset", skip_compute),
    DATASET_KERNEL("ShardDataset", shard_compute),
    DATASET_KERNEL("RepeatDataset", repeat_compute),
};
// clang-format on

const struct kernel_list dataset_choose_kernels = {rows, ARRAY_LEN(rows)};
