/* Makes datasets that split the rows of their input's batches into batches of other sizes. A list
 * gives the sizes, and is repeated from its start. */
#include <stdlib.h>

#include "kernels/host/data/dataset_buffer.h"

extern const struct kernel_list dataset_rebatch_kernels;

struct rebatch_dataset {
    struct dataset base;
    struct tensor sizes; /* int64 vector */
    bool drops_remainder;
};

struct rebatch_iter {
    struct dataset_iter_one one;
    struct element_buffer parts; /* the runs of rows that the next batch is made of */
    struct tensor *batch;        /* the input's present batch; rows before `at` are used */
    int64_t at, n_rows, n_ready; /* n_rows: in the batch; n_ready: in parts */
    int64_t which;               /* the index of the next size */
    bool has_ended;
};

static struct status *rebatch_begin(struct dataset_iter *iter) {
    struct rebatch_iter *self = (struct rebatch_iter *)iter;
    self->parts.n_components = iter->dataset->n_components;
    self->batch = element_new(iter->dataset->n_components);
    return dataset_begin_one(iter);
}

static void rebatch_end(struct dataset_iter *iter) {
    struct rebatch_iter *self = (struct rebatch_iter *)iter;
    dataset_end_one(iter);
    element_buffer_fini(&self->parts);
    element_free(self->batch, iter->dataset->n_components);
}

static void rebatch_fini(struct dataset *dataset) {
    tensor_clear(&((struct rebatch_dataset *)dataset)->sizes);
}

static struct status *check_batch(const struct rebatch_iter *self) {
    int n = self->one.iter.dataset->n_components;
    for (int i = 0; i < n; i++) {
        if (self->batch[i].rank == 0)
            return status_invalid("Cannot rebatch dataset: All components must be batched, but "
                                  "component %d is a scalar",
                                  i);
        if (tensor_dim(&self->batch[i], 0) != tensor_dim(&self->batch[0], 0))
            return status_invalid("Cannot rebatch dataset: All components must have the same 0th "
                                  "dimension, but component %d has %lld where "
                                  "component 0 has %lld",
                                  i, (long long)tensor_dim(&self->batch[i], 0),
                                  (long long)tensor_dim(&self->batch[0], 0));
    }
    return NULL;
}

static int64_t wanted_size(const struct rebatch_iter *self) {
    const struct rebatch_dataset *dataset = (const struct rebatch_dataset *)self->one.iter.dataset;
    return tensor_index_at(&dataset->sizes, self->which % dataset->sizes.n_elements);
}

/* Adds up to `n` rows of the batch as a part. */
static struct status *take_part(struct rebatch_iter *self, int64_t n) {
    struct tensor *room = element_buffer_reserve(&self->parts);
    if (!room)
        return status_exhausted("Out of memory for a batch");
    for (int i = 0; i < self->parts.n_components; i++) {
        struct status *st = tensor_slice_rows(&self->batch[i], self->at, self->at + n, &room[i]);
        if (st) {
            element_clear(room, i);
            return st;
        }
    }
    self->parts.n++;
    self->n_ready += n;
    self->at += n;
    return NULL;
}

/* Joins component i of the parts. */
static struct status *join(const struct rebatch_iter *self, int i, struct allocator *allocator,
                           struct tensor *ret) {
    const struct tensor *first = &element_at(&self->parts, 0)[i];
    int64_t dims[SHAPE_MAX_RANK];
    if (self->parts.n == 1) {
        tensor_copy(ret, first);
        return NULL;
    }
    memcpy(dims, tensor_dims(first), first->rank * sizeof(*dims));
    dims[0] = self->n_ready;
    for (int64_t p = 1; p < self->parts.n; p++) {
        const struct tensor *part = &element_at(&self->parts, p)[i];
        if (part->rank != first->rank ||
            memcmp(tensor_dims(part) + 1, dims + 1, (first->rank - 1u) * sizeof(*dims)) != 0)
            return status_invalid("Cannot batch tensors with different shapes in component %d. "
                                  "First element had shape %s and a later one %s.",
                                  i, TENSOR_SHAPE_TEXT(first), TENSOR_SHAPE_TEXT(part));
    }
    TRY(tensor_new(allocator, (enum dtype)first->dtype, (struct shape){first->rank, dims}, ret));
    char *to = tensor_data(ret);
    for (int64_t p = 0; p < self->parts.n; p++) {
        const struct tensor *part = &element_at(&self->parts, p)[i];
        elements_copy((enum dtype)part->dtype, to, tensor_cdata(part), part->n_elements);
        to += tensor_size_bytes(part);
    }
    return NULL;
}

static enum data_poll hand_out(struct rebatch_iter *self, struct data_task *task,
                               struct tensor *out) {
    struct dataset_iter *iter = &self->one.iter;
    struct status *st = NULL;
    int n = 0;
    for (; n < iter->dataset->n_components && !st; n++)
        st = join(self, n, iter->env->allocator, &out[n]);
    element_buffer_clear(&self->parts);
    self->n_ready = 0;
    self->which++;
    if (!st)
        return DATA_ELEMENT;
    element_clear(out, n);
    return data_task_fail(task, st);
}

static enum data_poll next_batch(struct rebatch_iter *self, struct data_task *task) {
    int n = self->one.iter.dataset->n_components;
    element_clear(self->batch, n);
    self->at = self->n_rows = 0;
    enum data_poll result = dataset_iter_next(self->one.input, task, self->batch);
    if (result != DATA_ELEMENT)
        return result;
    struct status *st = check_batch(self);
    if (st)
        return data_task_fail(task, st);
    self->n_rows = n > 0 ? tensor_dim(&self->batch[0], 0) : 0;
    return DATA_ELEMENT;
}

static enum data_poll rebatch_next(struct dataset_iter *iter, struct data_task *task,
                                   struct tensor *out) {
    const struct rebatch_dataset *dataset = (const struct rebatch_dataset *)iter->dataset;
    struct rebatch_iter *self = (struct rebatch_iter *)iter;
    while (!self->has_ended) {
        if (self->at == self->n_rows) {
            enum data_poll result = next_batch(self, task);
            self->has_ended = result == DATA_END;
            if (result == DATA_END)
                break;
            if (result != DATA_ELEMENT)
                return result;
            continue;
        }
        struct status *st =
            take_part(self, MIN(self->n_rows - self->at, wanted_size(self) - self->n_ready));
        if (st)
            return data_task_fail(task, st);
        if (self->n_ready == wanted_size(self))
            return hand_out(self, task, out);
    }
    return self->n_ready > 0 && !dataset->drops_remainder ? hand_out(self, task, out) : DATA_END;
}

static const struct dataset_kind rebatch_kind = {.name = "Rebatch",
                                                 .dataset_size = sizeof(struct rebatch_dataset),
                                                 .iter_size = sizeof(struct rebatch_iter),
                                                 .begin = rebatch_begin,
                                                 .next = rebatch_next,
                                                 .end = rebatch_end,
                                                 .fini = rebatch_fini};

static struct status *declare(struct kernel_ctx *ctx, struct dataset *dataset) {
    const struct dataset *input = dataset->inputs[0];
    TRY(dataset_declare(ctx, dataset, NULL, NULL));
    if (dataset->n_components != input->n_components ||
        memcmp(dataset->types, input->types, (size_t)input->n_components) != 0)
        return status_invalid("output_types must be those of the input dataset");
    return NULL;
}

static struct status *sizes_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct rebatch_dataset *self = (struct rebatch_dataset *)dataset;
    const struct tensor *sizes = kernel_input(ctx, 1);
    TRY(declare(ctx, dataset));
    TRY(dataset_scalar_bool(ctx, 2, "drop_remainder", &self->drops_remainder));
    if (sizes->rank > 1)
        return status_invalid("`batch_sizes` must be a scalar or vector, but had shape: %s",
                              TENSOR_SHAPE_TEXT(sizes));
    if (sizes->n_elements == 0)
        return status_invalid("`batch_sizes` must not be empty");
    for (int64_t i = 0; i < sizes->n_elements; i++)
        if (tensor_index_at(sizes, i) <= 0)
            return status_invalid("`batch_sizes` must be positive");
    tensor_copy(&self->sizes, sizes);
    return NULL;
}

static enum kernel_result sizes_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &rebatch_kind, 1, &dataset));
    return dataset_finish(ctx, dataset, sizes_take(ctx, dataset));
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("RebatchDatasetV2", sizes_compute),
};
// clang-format on

const struct kernel_list dataset_rebatch_kernels = {rows, ARRAY_LEN(rows)};
