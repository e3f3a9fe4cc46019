/* Makes random datasets: shuffle, random numbers, samples.
 *
 * Shuffle keeps a ring of elements. A slice is the elements of one epoch of the input. An element
 * is drawn from the oldest slice, and the first element of that slice moves to its position:
 *
 *   ring   . . [ a b c d ][ e f ] . .        draw c:   . . . [ b a d ][ e f ] . .
 *               slice 0    slice 1                            slice 0   slice 1
 *
 * Each epoch has its own seeds, made as TensorFlow makes them, so that the order is
 * TensorFlow's. */
#include "kernels/host.h"
#include "kernels/host/data/dataset_random.h"

#include <stdlib.h>

extern const struct kernel_list dataset_shuffle_kernels;

/* ---- seeds from inputs ---- */

/* Are the seeds those of a resource, which all datasets that take it share? */
static bool takes_resource(const struct kernel_instance *instance) {
    for (int i = 0; i < instance->n_inputs; i++)
        if (instance->in_types[i] == DT_RESOURCE)
            return true;
    return false;
}

/* Reads seeds from two inputs. The attr, if there is one, says whether they change each epoch. */
static struct status *take_seeds(struct kernel_ctx *ctx, int first, const char *changes_attr,
                                 bool changes, struct seed_source *ret) {
    int64_t seed, seed2;
    TRY(dataset_scalar_i64(ctx, first, "seed", &seed));
    TRY(dataset_scalar_i64(ctx, first + 1, "seed2", &seed2));
    if (changes_attr && node_attr(ctx->instance->node, changes_attr))
        TRY(node_get_b(ctx->instance->node, changes_attr, &changes));
    seed_source_init(ret, seed, seed2, !changes, takes_resource(ctx->instance));
    return NULL;
}

/* ---- shuffle ---- */

enum { MAX_SLICES = 4 }; /* epochs of the input in the ring */

struct shuffle_dataset {
    struct dataset base;
    int64_t buffer_size, count; /* count: epochs; -1: endless */
    struct seed_source seeds;
    bool has_seeds;
};

struct slice {
    int64_t start, end; /* positions in the ring, modulo its size */
};

struct shuffle_iter {
    struct dataset_iter_one one;
    /* `capacity` elements; grows up to buffer_size while the ring is filled for the first time */
    struct tensor *ring;
    int64_t capacity, n_elements, n_rounds;
    struct slice slices[MAX_SLICES];
    int n_slices;
    struct philox_words words;
    bool has_any;
};

static void new_words(struct shuffle_iter *self) {
    int64_t seed, seed2;
    seed_source_next(&((struct shuffle_dataset *)self->one.iter.dataset)->seeds, self->one.iter.env,
                     &seed, &seed2);
    self->words = dataset_words(seed, seed2);
}

static struct status *shuffle_begin(struct dataset_iter *iter) {
    new_words((struct shuffle_iter *)iter);
    return NULL;
}

static void shuffle_end(struct dataset_iter *iter) {
    struct shuffle_iter *self = (struct shuffle_iter *)iter;
    dataset_end_one(iter);
    for (int64_t i = 0; i < self->capacity; i++)
        element_clear(self->ring + i * iter->dataset->n_components, iter->dataset->n_components);
    free(self->ring);
}

static struct tensor *place(struct shuffle_iter *self, int64_t at) {
    const struct shuffle_dataset *dataset = (const struct shuffle_dataset *)self->one.iter.dataset;
    return self->ring + at % dataset->buffer_size * dataset->base.n_components;
}

/* Makes room for one more element. */
static struct status *grow(struct shuffle_iter *self) {
    const struct shuffle_dataset *dataset = (const struct shuffle_dataset *)self->one.iter.dataset;
    int64_t at = self->slices[self->n_slices - 1].end % dataset->buffer_size,
            n = dataset->base.n_components;
    if (at < self->capacity)
        return NULL;
    int64_t capacity = MIN(MAX(2 * self->capacity, 16), dataset->buffer_size);
    size_t size = (size_t)(capacity * n + 1) * sizeof(struct tensor);
    struct tensor *ring = aligned_alloc(_Alignof(struct tensor), size);
    if (!ring)
        return status_exhausted("Out of memory for %lld elements to shuffle", (long long)capacity);
    memset(ring, 0, size);
    if (self->capacity > 0)
        memcpy(ring, self->ring, (size_t)(self->capacity * n) * sizeof(struct tensor));
    free(self->ring);
    self->ring = ring;
    self->capacity = capacity;
    return NULL;
}

static bool wants_more(const struct shuffle_iter *self) {
    const struct shuffle_dataset *dataset = (const struct shuffle_dataset *)self->one.iter.dataset;
    if (!self->one.input && dataset->count != -1 && self->n_rounds >= dataset->count)
        return false;
    if (self->n_slices >= MAX_SLICES && self->n_elements > 0)
        return false;
    return self->n_elements < dataset->buffer_size;
}

/* Drops the oldest slice, which is empty. */
static void drop_slice(struct shuffle_iter *self) {
    memmove(self->slices, self->slices + 1, (size_t)--self->n_slices * sizeof(struct slice));
    new_words(self);
}

static struct status *begin_round(struct shuffle_iter *self) {
    int64_t at = self->n_slices > 0 ? self->slices[self->n_slices - 1].end : 0;
    if (self->n_slices == MAX_SLICES) /* all slices are empty */
        drop_slice(self);
    self->slices[self->n_slices++] = (struct slice){at, at};
    self->n_rounds++;
    return dataset_begin_one(&self->one.iter);
}

/* Fills the ring. DATA_END: the input has ended, but the ring may still have elements. */
static enum data_poll fill_ring(struct shuffle_iter *self, struct data_task *task) {
    const struct shuffle_dataset *dataset = (const struct shuffle_dataset *)self->one.iter.dataset;
    while (wants_more(self)) {
        struct status *st = self->one.input ? NULL : begin_round(self);
        if (!st)
            st = grow(self);
        if (st)
            return data_task_fail(task, st);
        struct slice *slice = &self->slices[self->n_slices - 1];
        enum data_poll result = dataset_iter_next(self->one.input, task, place(self, slice->end));
        if (result == DATA_ELEMENT) {
            slice->end++;
            self->n_elements++;
            self->has_any = true;
        } else if (result != DATA_END) {
            return result;
        } else {
            dataset_end_one(&self->one.iter);
            self->one.input = NULL;
            if (!self->has_any && dataset->count == -1)
                return DATA_END; /* an endless repetition of an empty input would never end */
        }
    }
    return DATA_ELEMENT;
}

static enum data_poll shuffle_next(struct dataset_iter *iter, struct data_task *task,
                                   struct tensor *out) {
    struct shuffle_iter *self = (struct shuffle_iter *)iter;
    int n = iter->dataset->n_components;
    enum data_poll result = fill_ring(self, task);
    if (result == DATA_PENDING || result == DATA_FAILED)
        return result;
    if (self->n_elements == 0)
        return DATA_END;
    while (self->slices[0].start == self->slices[0].end)
        drop_slice(self);
    struct slice *slice = &self->slices[0];
    struct tensor *first = place(self, slice->start);
    struct tensor *drawn =
        place(self, slice->start + (int64_t)(philox_words_u32(&self->words) %
                                             (uint64_t)(slice->end - slice->start)));
    element_move(out, drawn, n);
    if (drawn != first)
        element_move(drawn, first, n);
    slice->start++;
    self->n_elements--;
    return DATA_ELEMENT;
}

static void shuffle_fini(struct dataset *dataset) {
    struct shuffle_dataset *self = (struct shuffle_dataset *)dataset;
    if (self->has_seeds)
        seed_source_fini(&self->seeds);
}

static int64_t shuffle_cardinality(struct dataset *dataset) {
    int64_t count = ((struct shuffle_dataset *)dataset)->count,
            n = dataset_cardinality(dataset->inputs[0]), product;
    if (count == 0 || n == 0)
        return 0;
    if (count < 0)
        return CARDINALITY_INFINITE;
    if (n < 0)
        return n;
    return mul_overflows_i64(count, n, &product) ? INT64_MAX : product;
}

static const struct dataset_kind shuffle_kind = {.name = "Shuffle",
                                                 .dataset_size = sizeof(struct shuffle_dataset),
                                                 .iter_size = sizeof(struct shuffle_iter),
                                                 .begin = shuffle_begin,
                                                 .next = shuffle_next,
                                                 .end = shuffle_end,
                                                 .fini = shuffle_fini,
                                                 .cardinality = shuffle_cardinality};

static struct status *shuffle_take(struct kernel_ctx *ctx, struct dataset *dataset,
                                   int count_input) {
    struct shuffle_dataset *self = (struct shuffle_dataset *)dataset;
    self->count = 1;
    TRY(dataset_scalar_i64(ctx, 1, "buffer_size", &self->buffer_size));
    if (self->buffer_size == -2) /* the buffer holds the whole input */
        self->buffer_size = INT64_MAX;
    if (self->buffer_size <= 0)
        return status_invalid("buffer_size must be greater than zero.");
    if (count_input > 0)
        TRY(dataset_scalar_i64(ctx, count_input, "count", &self->count));
    if (self->count <= 0 && self->count != -1)
        return status_invalid("count must be greater than zero or equal to -1.");
    TRY(take_seeds(ctx, 2, "reshuffle_each_iteration", true, &self->seeds));
    self->has_seeds = true;
    return NULL;
}

static enum kernel_result shuffle_make(struct kernel_ctx *ctx, int count_input) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &shuffle_kind, 1, &dataset));
    return dataset_finish(ctx, dataset, shuffle_take(ctx, dataset, count_input));
}

static enum kernel_result shuffle_compute(struct kernel_ctx *ctx) { return shuffle_make(ctx, 0); }
static enum kernel_result shuffle_and_repeat_compute(struct kernel_ctx *ctx) {
    return shuffle_make(ctx, 4);
}

/* A handle for the arguments of V3. The dataset itself keeps its seeds and its cache. */
static const struct object_type nothing_type = {.name = "nothing"};

static enum kernel_result dummy_compute(struct kernel_ctx *ctx) {
    struct resource_handle *handle =
        ctx->host->handle_make(ctx, "", ctx->instance->def->op, &nothing_type, DT_INVALID);
    tensor_init_scalar_object(&ctx->outputs[0], DT_RESOURCE, &handle->object);
    return KERNEL_DONE;
}

/* ---- random numbers ---- */

struct random_dataset {
    struct dataset base;
    struct seed_source seeds;
    bool has_seeds;
    float rate; /* sampling only */
};

struct random_iter {
    struct dataset_iter_one one;
    struct philox_words words;
};

static struct status *random_begin(struct dataset_iter *iter) {
    int64_t seed, seed2;
    seed_source_next(&((struct random_dataset *)iter->dataset)->seeds, iter->env, &seed, &seed2);
    ((struct random_iter *)iter)->words = dataset_words(seed, seed2);
    return iter->dataset->n_inputs > 0 ? dataset_begin_one(iter) : NULL;
}

static void random_fini(struct dataset *dataset) {
    struct random_dataset *self = (struct random_dataset *)dataset;
    if (self->has_seeds)
        seed_source_fini(&self->seeds);
}

static enum data_poll random_next(struct dataset_iter *iter, struct data_task *task,
                                  struct tensor *out) {
    tensor_init_scalar_i64(&out[0], philox_words_u32(&((struct random_iter *)iter)->words));
    return DATA_ELEMENT;
}

static int64_t random_cardinality(struct dataset *dataset) { return CARDINALITY_INFINITE; }

static const struct dataset_kind random_kind = {.name = "Random",
                                                .dataset_size = sizeof(struct random_dataset),
                                                .iter_size = sizeof(struct random_iter),
                                                .begin = random_begin,
                                                .next = random_next,
                                                .fini = random_fini,
                                                .cardinality = random_cardinality};

static struct status *random_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct random_dataset *self = (struct random_dataset *)dataset;
    TRY(dataset_declare(ctx, dataset, NULL, NULL));
    if (dataset->n_components != 1 || dataset->types[0] != DT_INT64)
        return status_invalid("RandomDataset yields scalars of int64");
    TRY(take_seeds(ctx, 0, "rerandomize_each_iteration", false, &self->seeds));
    self->has_seeds = true;
    return NULL;
}

static enum kernel_result random_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &random_kind, 0, &dataset));
    return dataset_finish(ctx, dataset, random_take(ctx, dataset));
}

/* ---- samples ---- */

static enum data_poll sample_next(struct dataset_iter *iter, struct data_task *task,
                                  struct tensor *out) {
    struct random_iter *self = (struct random_iter *)iter;
    for (;;) {
        enum data_poll result = dataset_iter_next(self->one.input, task, out);
        if (result != DATA_ELEMENT ||
            philox_words_f32(&self->words) < ((const struct random_dataset *)iter->dataset)->rate)
            return result;
        element_clear(out, iter->dataset->n_components);
    }
}

static const struct dataset_kind sample_kind = {.name = "Sampling",
                                                .dataset_size = sizeof(struct random_dataset),
                                                .iter_size = sizeof(struct random_iter),
                                                .begin = random_begin,
                                                .next = sample_next,
                                                .end = dataset_end_one,
                                                .fini = random_fini};

static struct status *sample_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct random_dataset *self = (struct random_dataset *)dataset;
    const struct tensor *rate = kernel_input(ctx, 1);
    if (rate->rank != 0 || rate->dtype != DT_FLOAT)
        return status_invalid("rate must be a scalar");
    self->rate = *(const float *)tensor_cdata(rate);
    TRY(take_seeds(ctx, 2, NULL, false, &self->seeds));
    self->has_seeds = true;
    return NULL;
}

static enum kernel_result sample_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &sample_kind, 1, &dataset));
    return dataset_finish(ctx, dataset, sample_take(ctx, dataset));
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("ShuffleDataset", shuffle_compute),
    DATASET_KERNEL("ShuffleDatasetV3", shuffle_compute),
    DATASET_KERNEL("ShuffleAndRepeatDataset", shuffle_and_repeat_compute),
    DATASET_KERNEL("ShuffleAndRepeatDatasetV2", shuffle_and_repeat_compute),
    DATASET_KERNEL("DummySeedGenerator", dummy_compute),
    DATASET_KERNEL("DummyMemoryCache", dummy_compute),
    DATASET_KERNEL("RandomDataset", random_compute),
    DATASET_KERNEL("RandomDatasetV2", random_compute),
    DATASET_KERNEL("ExperimentalRandomDataset", random_compute),
    DATASET_KERNEL("SamplingDataset", sample_compute),
};
// clang-format on

const struct kernel_list dataset_shuffle_kernels = {rows, ARRAY_LEN(rows)};
