/* Makes datasets whose function returns a dataset for each element: flat map and interleave.
 *
 * Interleave visits a cycle of open datasets in turn and takes block_length elements from each.
 * Before it takes from an empty slot of the cycle, it opens the dataset of the input's next element
 * there. When the input has ended, empty slots are skipped.
 *
 * The first version of parallel interleave (tf.data.experimental.parallel_interleave) differs: it
 * fills all slots at the start, and a slot as soon as its dataset has ended. When the input has no
 * more elements, the rest of a block is taken from the next slot. */
#include <stdlib.h>

#include "kernels/host/data/dataset_map.h"

extern const struct kernel_list dataset_nested_kernels;

/* ---- what both share ---- */

/* Iterates over the datasets that a function makes of elements. Flat map and interleave use it. */
struct nested_iter {
    struct dataset_iter_one one;
    struct dataset_call call;
    bool has_input_ended;
};

static struct status *nested_begin(struct dataset_iter *iter) {
    struct nested_iter *self = (struct nested_iter *)iter;
    const struct fn_dataset *dataset = (const struct fn_dataset *)iter->dataset;
    TRY(dataset_begin_one(iter));
    return dataset_call_init(&self->call, &dataset->fn, iter->env,
                             iter->dataset->inputs[0]->n_components);
}

static void nested_end(struct dataset_iter *iter) {
    dataset_end_one(iter);
    dataset_call_fini(&((struct nested_iter *)iter)->call);
}

/* Checks that elements are what the outer dataset declares. */
static struct status *check_inner(const struct dataset *outer, const struct dataset *inner) {
    if (inner->n_components != outer->n_components)
        return status_invalid("The function's dataset has %d components where %d are declared",
                              inner->n_components, outer->n_components);
    for (int i = 0; i < inner->n_components; i++)
        if (inner->types[i] != outer->types[i])
            return status_invalid(
                "Component %d of the function's dataset is %s where %s is declared", i,
                dtype_name((enum dtype)inner->types[i]), dtype_name((enum dtype)outer->types[i]));
    return NULL;
}

static struct status *open_result(struct nested_iter *self, struct dataset_iter **ret) {
    struct dataset *dataset = NULL;
    TRY(dataset_of(&self->call.rets[0], &dataset));
    TRY(check_inner(self->one.iter.dataset, dataset));
    return dataset_iter_new(dataset, self->one.iter.env, ret);
}

/* Opens an iterator of the next element's dataset. DATA_ELEMENT: *ret is set. */
static enum data_poll nested_open(struct nested_iter *self, struct data_task *task,
                                  struct dataset_iter **ret) {
    if (!self->call.is_running) {
        enum data_poll result = self->has_input_ended
                                    ? DATA_END
                                    : dataset_iter_next(self->one.input, task, self->call.args);
        self->has_input_ended = self->has_input_ended || result == DATA_END;
        if (result != DATA_ELEMENT)
            return result;
    }
    enum data_poll result = dataset_call_poll(&self->call, task);
    if (result == DATA_FAILED)
        task->status = map_failure(task->status);
    if (result != DATA_ELEMENT)
        return result;
    struct status *st = open_result(self, ret);
    element_clear(self->call.rets, self->call.function->n_rets);
    return st ? data_task_fail(task, st) : DATA_ELEMENT;
}

static struct status *nested_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    static const uint8_t wanted[] = {DT_VARIANT};
    TRY(fn_dataset_take(ctx, dataset, "f"));
    return dataset_fn_check(&((struct fn_dataset *)dataset)->fn, wanted, 1);
}

/* ---- flat map ---- */

struct flat_map_iter {
    struct nested_iter nested;
    struct dataset_iter *current;
};

static void flat_map_end(struct dataset_iter *iter) {
    dataset_iter_free(((struct flat_map_iter *)iter)->current);
    nested_end(iter);
}

static enum data_poll flat_map_next(struct dataset_iter *iter, struct data_task *task,
                                    struct tensor *out) {
    struct flat_map_iter *self = (struct flat_map_iter *)iter;
    for (;;) {
        if (!self->current) {
            enum data_poll result = nested_open(&self->nested, task, &self->current);
            if (result != DATA_ELEMENT)
                return result;
        }
        enum data_poll result = dataset_iter_next(self->current, task, out);
        if (result != DATA_END)
            return result;
        dataset_iter_free(self->current);
        self->current = NULL;
    }
}

static const struct dataset_kind flat_map_kind = {.name = "FlatMap",
                                                  .dataset_size = sizeof(struct fn_dataset),
                                                  .iter_size = sizeof(struct flat_map_iter),
                                                  .begin = nested_begin,
                                                  .next = flat_map_next,
                                                  .end = flat_map_end,
                                                  .fini = fn_dataset_fini};

static enum kernel_result flat_map_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &flat_map_kind, 1, &dataset));
    return dataset_finish(ctx, dataset, nested_take(ctx, dataset));
}

/* ---- interleave ---- */

enum { MAX_CYCLE = 1 << 20, AUTO_CYCLE = 8 };

struct interleave_dataset {
    struct fn_dataset fn;
    int64_t cycle_length, block_length;
    bool is_first_version; /* parallel interleave only */
};

struct interleave_iter {
    struct nested_iter nested;
    struct dataset_iter **cycle;
    int64_t at, n_in_block, n_open;
    int64_t n_filled; /* first version: slots that have been filled at the start */
};

static struct status *interleave_begin(struct dataset_iter *iter) {
    struct interleave_iter *self = (struct interleave_iter *)iter;
    self->cycle = xcalloc((size_t)((const struct interleave_dataset *)iter->dataset)->cycle_length,
                          sizeof(*self->cycle));
    return nested_begin(iter);
}

static void interleave_end(struct dataset_iter *iter) {
    struct interleave_iter *self = (struct interleave_iter *)iter;
    for (int64_t i = 0;
         self->cycle && i < ((const struct interleave_dataset *)iter->dataset)->cycle_length; i++)
        dataset_iter_free(self->cycle[i]);
    free(self->cycle);
    nested_end(iter);
}

static void next_place(struct interleave_iter *self, const struct interleave_dataset *dataset) {
    self->at = (self->at + 1) % dataset->cycle_length;
    self->n_in_block = 0;
}

/* Fills the slot at the cursor if the input has more elements, and skips the slot otherwise. After
 * DATA_ELEMENT and DATA_END the caller calls again, or takes from the slot. */
static enum data_poll fill_place(struct interleave_iter *self,
                                 const struct interleave_dataset *dataset, struct data_task *task) {
    enum data_poll result = nested_open(&self->nested, task, &self->cycle[self->at]);
    self->n_open += result == DATA_ELEMENT;
    if (dataset->is_first_version && result == DATA_END)
        /* the block continues at the next slot */
        self->at = (self->at + 1) % dataset->cycle_length;
    else if (result == (dataset->is_first_version ? DATA_ELEMENT : DATA_END))
        next_place(self, dataset);
    return result;
}

/* First version: fills all slots. Returns DATA_ELEMENT when they are full. */
static enum data_poll fill_cycle(struct interleave_iter *self,
                                 const struct interleave_dataset *dataset, struct data_task *task) {
    while (self->n_filled < dataset->cycle_length && !self->nested.has_input_ended) {
        enum data_poll result = nested_open(&self->nested, task, &self->cycle[self->n_filled]);
        if (result == DATA_PENDING || result == DATA_FAILED)
            return result;
        self->n_open += result == DATA_ELEMENT;
        self->n_filled++;
    }
    return DATA_ELEMENT;
}

static enum data_poll interleave_next(struct dataset_iter *iter, struct data_task *task,
                                      struct tensor *out) {
    const struct interleave_dataset *dataset = (const struct interleave_dataset *)iter->dataset;
    struct interleave_iter *self = (struct interleave_iter *)iter;
    if (dataset->is_first_version) {
        enum data_poll result = fill_cycle(self, dataset, task);
        if (result != DATA_ELEMENT)
            return result;
    }
    while (self->n_open > 0 || !self->nested.has_input_ended) {
        enum data_poll result;
        if (!self->cycle[self->at]) {
            result = fill_place(self, dataset, task);
            if (result == DATA_PENDING || result == DATA_FAILED)
                return result;
            continue;
        }
        result = dataset_iter_next(self->cycle[self->at], task, out);
        if (result == DATA_ELEMENT && ++self->n_in_block == dataset->block_length)
            next_place(self, dataset);
        if (result != DATA_END)
            return result;
        dataset_iter_free(self->cycle[self->at]);
        self->cycle[self->at] = NULL;
        self->n_open--;
        if (!dataset->is_first_version)
            next_place(self, dataset);
    }
    return DATA_END;
}

static const struct dataset_kind interleave_kind = {.name = "Interleave",
                                                    .dataset_size =
                                                        sizeof(struct interleave_dataset),
                                                    .iter_size = sizeof(struct interleave_iter),
                                                    .begin = interleave_begin,
                                                    .next = interleave_next,
                                                    .end = interleave_end,
                                                    .fini = fn_dataset_fini};

static struct status *interleave_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct interleave_dataset *self = (struct interleave_dataset *)dataset;
    int first = 1 + dataset_list_length(ctx, "Targuments");
    TRY(nested_take(ctx, dataset));
    TRY(dataset_scalar_i64(ctx, first, "cycle_length", &self->cycle_length));
    TRY(dataset_scalar_i64(ctx, first + 1, "block_length", &self->block_length));
    if (self->cycle_length == -1) /* a length that we choose */
        self->cycle_length = AUTO_CYCLE;
    if (self->cycle_length <= 0)
        return status_invalid("cycle_length must be greater than zero.");
    if (self->block_length <= 0)
        return status_invalid("block_length must be greater than zero.");
    if (self->cycle_length > MAX_CYCLE)
        return status_exhausted("cycle_length is %lld, at most %d is supported",
                                (long long)self->cycle_length, MAX_CYCLE);
    return NULL;
}

static enum kernel_result interleave_make(struct kernel_ctx *ctx, bool is_first_version) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &interleave_kind, 1, &dataset));
    ((struct interleave_dataset *)dataset)->is_first_version = is_first_version;
    return dataset_finish(ctx, dataset, interleave_take(ctx, dataset));
}

static enum kernel_result interleave_compute(struct kernel_ctx *ctx) {
    return interleave_make(ctx, false);
}
static enum kernel_result first_interleave_compute(struct kernel_ctx *ctx) {
    return interleave_make(ctx, true);
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("FlatMapDataset", flat_map_compute),
    DATASET_KERNEL("InterleaveDataset", interleave_compute),
    DATASET_KERNEL("ParallelInterleaveDatasetV2", interleave_compute),
    DATASET_KERNEL("ParallelInterleaveDatasetV3", interleave_compute),
    DATASET_KERNEL("ParallelInterleaveDatasetV4", interleave_compute),
    DATASET_KERNEL("ParallelInterleaveDataset", first_interleave_compute),
    DATASET_KERNEL("LegacyParallelInterleaveDatasetV2", first_interleave_compute),
    DATASET_KERNEL("ExperimentalParallelInterleaveDataset", first_interleave_compute),
};
// clang-format on

const struct kernel_list dataset_nested_kernels = {rows, ARRAY_LEN(rows)};
