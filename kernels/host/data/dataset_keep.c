/* Makes datasets that pass their input's elements on and keep something about them: cache in
 * memory, unique, ignore errors, assert cardinality. */
#include <stdlib.h>

#include <stdio.h>

#include "common/base/map.h"
#include "kernels/host/data/dataset_buffer.h"
#include "kernels/host/data/dataset_cache.h"

extern const struct kernel_list dataset_keep_kernels;

/* ---- cache, in memory ---- */

/* The elements that the first iterator at the end has collected. They are immutable then. */
struct cache_dataset {
    struct dataset base;
    pthread_mutex_t lock;
    bool has_lock;
    bool is_full; /* guarded by lock until it is set */
    struct element_buffer elements;
};

struct cache_iter {
    struct dataset_iter_one one; /* without input when the iterator reads the cache */
    struct element_buffer collected;
    int64_t at;
};

static bool is_full(struct cache_dataset *cache) {
    pthread_mutex_lock(&cache->lock);
    bool is = cache->is_full;
    pthread_mutex_unlock(&cache->lock);
    return is;
}

static struct status *cache_begin(struct dataset_iter *iter) {
    ((struct cache_iter *)iter)->collected.n_components = iter->dataset->n_components;
    return is_full((struct cache_dataset *)iter->dataset) ? NULL : dataset_begin_one(iter);
}

static void cache_end(struct dataset_iter *iter) {
    dataset_end_one(iter);
    element_buffer_fini(&((struct cache_iter *)iter)->collected);
}

/* This iterator has seen all elements. Those of the first iterator that has are kept. */
static void publish(struct cache_iter *self) {
    struct cache_dataset *cache = (struct cache_dataset *)self->one.iter.dataset;
    pthread_mutex_lock(&cache->lock);
    if (!cache->is_full) {
        cache->elements = self->collected;
        self->collected = (struct element_buffer){.n_components = cache->base.n_components};
        cache->is_full = true;
    }
    pthread_mutex_unlock(&cache->lock);
    dataset_end_one(&self->one.iter);
    self->one.input = NULL;
    self->at = cache->elements.n; /* this iterator is at its end */
}

static enum data_poll cache_next(struct dataset_iter *iter, struct data_task *task,
                                 struct tensor *out) {
    struct cache_dataset *cache = (struct cache_dataset *)iter->dataset;
    struct cache_iter *self = (struct cache_iter *)iter;
    int n = iter->dataset->n_components;
    if (!self->one.input) {
        if (self->at >= cache->elements.n)
            return DATA_END;
        element_copy(out, element_at(&cache->elements, self->at++), n);
        return DATA_ELEMENT;
    }
    enum data_poll result = dataset_iter_next(self->one.input, task, out);
    if (result == DATA_END)
        publish(self);
    if (result != DATA_ELEMENT)
        return result;
    struct tensor *room = element_buffer_reserve(&self->collected);
    if (!room) {
        element_clear(out, n);
        return data_task_fail(task, status_exhausted("Out of memory for the elements of a cache"));
    }
    element_copy(room, out, n);
    self->collected.n++;
    return DATA_ELEMENT;
}

static void cache_fini(struct dataset *dataset) {
    struct cache_dataset *cache = (struct cache_dataset *)dataset;
    element_buffer_fini(&cache->elements);
    if (cache->has_lock)
        pthread_mutex_destroy(&cache->lock);
}

static const struct dataset_kind cache_kind = {.name = "MemoryCache",
                                               .dataset_size = sizeof(struct cache_dataset),
                                               .iter_size = sizeof(struct cache_iter),
                                               .begin = cache_begin,
                                               .next = cache_next,
                                               .end = cache_end,
                                               .fini = cache_fini,
                                               .keeps_cardinality = true};

static enum kernel_result cache_compute(struct kernel_ctx *ctx) {
    const struct tensor *name = kernel_input(ctx, 1);
    struct dataset *dataset = NULL;
    if (name->rank != 0)
        return kernel_fail(ctx, status_invalid("filename must be a scalar"));
    if (tensor_string(name, 0).len > 0)
        return dataset_cache_file(ctx, tensor_string(name, 0));
    KERNEL_TRY(ctx, dataset_new(ctx, &cache_kind, 1, &dataset));
    struct cache_dataset *cache = (struct cache_dataset *)dataset;
    CHECK(pthread_mutex_init(&cache->lock, NULL) == 0);
    cache->has_lock = true;
    return dataset_output(ctx, dataset);
}

/* ---- unique ---- */

struct unique_iter {
    struct dataset_iter_one one;
    struct strmap seen; /* a text of shape and elements, kept as key */
    struct arena keys;
    struct str key;
};

static struct status *unique_begin(struct dataset_iter *iter) {
    struct unique_iter *self = (struct unique_iter *)iter;
    strmap_init(&self->seen);
    arena_init(&self->keys);
    return dataset_begin_one(iter);
}

static void unique_end(struct dataset_iter *iter) {
    struct unique_iter *self = (struct unique_iter *)iter;
    dataset_end_one(iter);
    strmap_fini(&self->seen);
    arena_fini(&self->keys);
    str_fini(&self->key);
}

static void write_key(const struct tensor *t, struct str *out) {
    str_clear(out);
    str_add_bytes(out, &t->rank, sizeof(t->rank));
    str_add_bytes(out, tensor_dims(t), t->rank * sizeof(int64_t));
    if (t->dtype != DT_STRING)
        str_add_bytes(out, tensor_cdata(t), tensor_size_bytes(t));
    for (int64_t i = 0; t->dtype == DT_STRING && i < t->n_elements; i++) {
        struct span text = tensor_string(t, i);
        str_add_bytes(out, &text.len, sizeof(text.len));
        str_add_bytes(out, text.data, text.len);
    }
}

static enum data_poll unique_next(struct dataset_iter *iter, struct data_task *task,
                                  struct tensor *out) {
    struct unique_iter *self = (struct unique_iter *)iter;
    for (;;) {
        enum data_poll result = dataset_iter_next(self->one.input, task, out);
        if (result != DATA_ELEMENT)
            return result;
        write_key(&out[0], &self->key);
        struct span key = {str_text(&self->key), self->key.len};
        if (!strmap_get_span(&self->seen, key)) {
            key.data = arena_memdup(&self->keys, key.data, key.len);
            strmap_put_span(&self->seen, key, self);
            return DATA_ELEMENT;
        }
        element_clear(out, 1);
    }
}

static const struct dataset_kind unique_kind = {.name = "Unique",
                                                .dataset_size = sizeof(struct dataset),
                                                .iter_size = sizeof(struct unique_iter),
                                                .begin = unique_begin,
                                                .next = unique_next,
                                                .end = unique_end};

static enum kernel_result unique_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    const dtype_set types = DTYPE_BIT(DT_INT32) | DTYPE_BIT(DT_INT64) | DTYPE_BIT(DT_STRING);
    KERNEL_TRY(ctx, dataset_new(ctx, &unique_kind, 1, &dataset));
    struct status *st = NULL;
    if (dataset->n_components != 1)
        st = status_invalid("UniqueDataset only supports inputs with a single component.");
    else if (!dtype_in((enum dtype)dataset->types[0], types))
        st = status_invalid("UniqueDataset only supports inputs with a single `tf.int32`, "
                            "`tf.int64`, or `tf.string` component.");
    return dataset_finish(ctx, dataset, st);
}

/* ---- ignore errors ---- */

static enum data_poll ignore_next(struct dataset_iter *iter, struct data_task *task,
                                  struct tensor *out) {
    for (;;) {
        enum data_poll result =
            dataset_iter_next(((struct dataset_iter_one *)iter)->input, task, out);
        if (result != DATA_FAILED || !data_task_may_continue(task))
            return result;
    }
}

static const struct dataset_kind ignore_kind = {.name = "IgnoreErrors",
                                                .dataset_size = sizeof(struct dataset),
                                                .iter_size = sizeof(struct dataset_iter_one),
                                                .begin = dataset_begin_one,
                                                .next = ignore_next,
                                                .end = dataset_end_one};

static enum kernel_result ignore_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &ignore_kind, 1, &dataset));
    return dataset_output(ctx, dataset);
}

/* ---- assert cardinality ---- */

struct assert_dataset {
    struct dataset base;
    int64_t cardinality;
};

struct assert_iter {
    struct dataset_iter_one one;
    int64_t n;
};

static struct status *wrong_number(int64_t expected, const char *how, int64_t n) {
    char words[64];
    if (expected == CARDINALITY_INFINITE)
        snprintf(words, sizeof(words), "an infinite number of elements");
    else
        snprintf(words, sizeof(words), "%lld element%s", (long long)expected,
                 expected == 1 ? "" : "s");
    return status_failed_precondition(
        "Input dataset was expected to contain %s but contained %s %lld element%s.", words, how,
        (long long)n, n == 1 ? "" : "s");
}

static enum data_poll assert_next(struct dataset_iter *iter, struct data_task *task,
                                  struct tensor *out) {
    struct assert_iter *self = (struct assert_iter *)iter;
    int64_t expected = ((const struct assert_dataset *)iter->dataset)->cardinality;
    enum data_poll result = dataset_iter_next(self->one.input, task, out);
    self->n += result == DATA_ELEMENT;
    if (result == DATA_END && self->n != expected)
        return data_task_fail(task, wrong_number(expected, "only", self->n));
    if (result == DATA_ELEMENT && expected != CARDINALITY_INFINITE && self->n > expected) {
        element_clear(out, iter->dataset->n_components);
        return data_task_fail(task, wrong_number(expected, "at least", self->n));
    }
    return result;
}

static int64_t assert_cardinality(struct dataset *dataset) {
    return ((struct assert_dataset *)dataset)->cardinality;
}

static const struct dataset_kind assert_kind = {.name = "AssertCardinality",
                                                .dataset_size = sizeof(struct assert_dataset),
                                                .iter_size = sizeof(struct assert_iter),
                                                .begin = dataset_begin_one,
                                                .next = assert_next,
                                                .end = dataset_end_one,
                                                .cardinality = assert_cardinality};

static enum kernel_result assert_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &assert_kind, 1, &dataset));
    return dataset_finish(ctx, dataset,
                          dataset_scalar_i64(ctx, 1, "cardinality",
                                             &((struct assert_dataset *)dataset)->cardinality));
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("CacheDataset", cache_compute),
    DATASET_KERNEL("CacheDatasetV2", cache_compute),
    DATASET_KERNEL("UniqueDataset", unique_compute),
    DATASET_KERNEL("ExperimentalUniqueDataset", unique_compute),
    DATASET_KERNEL("IgnoreErrorsDataset", ignore_compute),
    DATASET_KERNEL("ExperimentalIgnoreErrorsDataset", ignore_compute),
    DATASET_KERNEL("AssertCardinalityDataset", assert_compute),
};
// clang-format on

const struct kernel_list dataset_keep_kernels = {rows, ARRAY_LEN(rows)};
