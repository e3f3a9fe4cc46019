/* Makes datasets that turn several elements into one, and one into several: batch, padded batch,
 * unbatch. */
#include "kernels/host/data/dataset_batch.h"

#include <stdlib.h>

extern const struct kernel_list dataset_batch_kernels;

/* ---- batch ---- */

struct batch_iter {
    struct dataset_iter_one one;
    struct element_buffer buffer;
};

struct plain_batch_iter {
    struct batch_iter batch;
    /* of a fused batch: the elements that have failed, and the first failure */
    int64_t n_failed;
    struct status *failure;
};

struct status *batch_begin(struct dataset_iter *iter) {
    ((struct batch_iter *)iter)->buffer.n_components = iter->dataset->inputs[0]->n_components;
    return dataset_begin_one(iter);
}

void batch_end(struct dataset_iter *iter) {
    dataset_end_one(iter);
    element_buffer_fini(&((struct batch_iter *)iter)->buffer);
}

/* `result` is the result of filling the buffer. The next batch is in the buffer: DATA_ELEMENT. What
 * came before a failure is lost with it. */
static enum data_poll collect(struct batch_iter *self, struct data_task *task,
                              enum data_poll result) {
    const struct batch_dataset *dataset = (const struct batch_dataset *)self->one.iter.dataset;
    if (result == DATA_END && self->buffer.n > 0 && !dataset->drops_remainder)
        return DATA_ELEMENT;
    if (result == DATA_END || result == DATA_FAILED)
        element_buffer_clear(&self->buffer);
    return result;
}

/* As collect, for a batch whose failed elements count. */
static enum data_poll collect_fused(struct plain_batch_iter *self, struct data_task *task) {
    struct batch_iter *batch = &self->batch;
    const struct batch_dataset *dataset = (const struct batch_dataset *)batch->one.iter.dataset;
    enum data_poll result;
    while ((result = element_buffer_fill(&batch->buffer, dataset->batch_size - self->n_failed,
                                         batch->one.input, task)) == DATA_FAILED &&
           data_task_may_continue(task)) {
        if (self->failure)
            status_unref(task->status);
        else
            self->failure = task->status;
        task->status = NULL;
        self->n_failed++;
    }
    if (!self->failure || result == DATA_PENDING || result == DATA_FAILED)
        return collect(batch, task, result);
    struct status *failure = self->failure;
    self->failure = NULL;
    self->n_failed = 0;
    element_buffer_clear(&batch->buffer);
    return data_task_fail(task, failure);
}

/* Component i of the batch, from the elements in the buffer. */
typedef struct status *stack_fn(struct dataset_iter *iter, int i, struct tensor *ret);

static enum data_poll next_by(stack_fn *stack, struct dataset_iter *iter, struct data_task *task,
                              struct tensor *out) {
    struct batch_iter *self = (struct batch_iter *)iter;
    const struct batch_dataset *dataset = (const struct batch_dataset *)iter->dataset;
    enum data_poll result = dataset->is_fused
                                ? collect_fused((struct plain_batch_iter *)iter, task)
                                : collect(self, task,
                                          element_buffer_fill(&self->buffer, dataset->batch_size,
                                                              self->one.input, task));
    if (result != DATA_ELEMENT)
        return result;
    struct status *st = NULL;
    int n = 0;
    for (; n < iter->dataset->n_components && !st; n++)
        st = stack(iter, n, &out[n]);
    element_buffer_clear(&self->buffer);
    if (!st)
        return DATA_ELEMENT;
    element_clear(out, n);
    return data_task_fail(task, st);
}

static struct status *batch_stack(struct dataset_iter *iter, int i, struct tensor *ret) {
    return element_buffer_stack(&((struct batch_iter *)iter)->buffer, i, iter->env->allocator, ret);
}

static enum data_poll batch_next(struct dataset_iter *iter, struct data_task *task,
                                 struct tensor *out) {
    return next_by(batch_stack, iter, task, out);
}

static void plain_batch_end(struct dataset_iter *iter) {
    status_unref(((struct plain_batch_iter *)iter)->failure);
    batch_end(iter);
}

static int64_t batch_cardinality(struct dataset *dataset) {
    const struct batch_dataset *self = (const struct batch_dataset *)dataset;
    int64_t n = dataset_cardinality(dataset->inputs[0]);
    return n < 0 ? n : n / self->batch_size + (!self->drops_remainder && n % self->batch_size != 0);
}

const struct dataset_kind batch_kind = {.name = "Batch",
                                        .dataset_size = sizeof(struct batch_dataset),
                                        .iter_size = sizeof(struct plain_batch_iter),
                                        .begin = batch_begin,
                                        .next = batch_next,
                                        .end = plain_batch_end,
                                        .cardinality = batch_cardinality};

struct status *batch_check_size(int64_t batch_size) {
    return batch_size > 0 ? NULL : status_invalid("Batch size must be greater than zero.");
}

static struct status *batch_take(struct kernel_ctx *ctx, struct dataset *dataset, int drop_input) {
    struct batch_dataset *self = (struct batch_dataset *)dataset;
    TRY(dataset_scalar_i64(ctx, 1, "batch_size", &self->batch_size));
    TRY(batch_check_size(self->batch_size));
    if (drop_input > 0)
        TRY(dataset_scalar_bool(ctx, drop_input, "drop_remainder", &self->drops_remainder));
    const struct dataset *input = dataset->inputs[0];
    /* only padded batches have Toutput_types */
    bool has_own_name = node_attr(ctx->instance->node, "Toutput_types") != NULL;
    TRY(dataset_declare(ctx, dataset, has_own_name ? "Toutput_types" : NULL, NULL));
    if (dataset->n_components != input->n_components ||
        memcmp(dataset->types, input->types, (size_t)input->n_components) != 0)
        return status_invalid("output_types must be those of the input dataset");
    return NULL;
}

static enum kernel_result batch_make(struct kernel_ctx *ctx, int drop_input) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &batch_kind, 1, &dataset));
    ((struct batch_dataset *)dataset)->is_fused = dataset->inputs[0]->is_map;
    return dataset_finish(ctx, dataset, batch_take(ctx, dataset, drop_input));
}

static enum kernel_result batch_compute(struct kernel_ctx *ctx) { return batch_make(ctx, 0); }
static enum kernel_result batch_v2_compute(struct kernel_ctx *ctx) { return batch_make(ctx, 2); }
static enum kernel_result parallel_batch_compute(struct kernel_ctx *ctx) {
    return batch_make(ctx, 3);
}

/* ---- padded batch ---- */

struct padded_dataset {
    struct batch_dataset batch;
    /* for each component: an int64 vector, -1 where it grows; a scalar */
    struct tensor *shapes, *values;
    int n; /* of shapes and of values */
};

static void padded_fini(struct dataset *dataset) {
    struct padded_dataset *self = (struct padded_dataset *)dataset;
    element_free(self->shapes, self->n);
    element_free(self->values, self->n);
}

/* Computes the least sizes that component i of all elements fits in. */
static struct status *padded_shape(const struct element_buffer *buffer, int i,
                                   const struct tensor *wanted, int64_t dims[]) {
    const int64_t *asked = tensor_cdata(wanted);
    int rank = (int)wanted->n_elements;
    dims[0] = buffer->n;
    for (int k = 0; k < rank; k++)
        dims[k + 1] = asked[k] < 0 ? 0 : asked[k];
    for (int64_t e = 0; e < buffer->n; e++) {
        const struct tensor *t = &element_at(buffer, e)[i];
        if (t->rank != rank)
            return status_invalid("All elements in a batch must have the same rank as the padded "
                                  "shape for component%d: expected rank %d but "
                                  "got element with rank %d",
                                  i, rank, t->rank);
        for (int k = 0; k < rank; k++) {
            if (asked[k] >= 0 && tensor_dim(t, k) > asked[k])
                return status_new(STATUS_DATA_LOSS,
                                  "Attempted to pad to a smaller size than the input element.");
            dims[k + 1] = MAX(dims[k + 1], tensor_dim(t, k));
        }
    }
    return NULL;
}

static void fill(struct tensor *t, const struct tensor *value) {
    size_t size = dtype_size((enum dtype)t->dtype);
    if (dtype_is_object((enum dtype)t->dtype)) {
        for (int64_t i = 0; i < t->n_elements; i++)
            tensor_set_object(t, i, object_ref(*(struct object *const *)tensor_cdata(value)));
        return;
    }
    char *to = tensor_data(t);
    for (int64_t i = 0; i < t->n_elements; i++)
        memcpy(to + (size_t)i * size, tensor_cdata(value), size);
}

static void copy_run(struct tensor *to, int64_t to_at, const struct tensor *from, int64_t from_at,
                     int64_t n) {
    size_t size = dtype_size((enum dtype)to->dtype);
    if (!dtype_is_object((enum dtype)to->dtype)) {
        memcpy((char *)tensor_data(to) + (size_t)to_at * size,
               (const char *)tensor_cdata(from) + (size_t)from_at * size, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        tensor_set_object(to, to_at + i,
                          object_ref(((struct object *const *)tensor_cdata(from))[from_at + i]));
}

/* Copies the element into its row of `to`, one run of the innermost dimension at a time. */
static void put(struct tensor *to, int64_t row, const struct tensor *from) {
    const int64_t *to_dims = tensor_dims(to) + 1, *from_dims = tensor_dims(from);
    int rank = from->rank;
    int64_t run = rank > 0 ? from_dims[rank - 1] : 1, row_size = 1, position[SHAPE_MAX_RANK] = {0};
    if (from->n_elements == 0)
        return;
    for (int k = 0; k < rank; k++)
        row_size *= to_dims[k];
    for (int64_t at = 0; at < from->n_elements; at += run) {
        int64_t offset = 0;
        for (int k = 0; k < rank; k++)
            offset = offset * to_dims[k] + position[k];
        copy_run(to, row * row_size + offset, from, at, run);
        for (int k = rank - 2; k >= 0 && ++position[k] == from_dims[k]; k--)
            position[k] = 0;
    }
}

static struct status *padded_stack(const struct padded_dataset *dataset,
                                   const struct element_buffer *buffer, int i,
                                   struct allocator *allocator, struct tensor *ret) {
    int64_t dims[SHAPE_MAX_RANK + 1];
    TRY(padded_shape(buffer, i, &dataset->shapes[i], dims));
    struct shape shape = {(int)dataset->shapes[i].n_elements + 1, dims};
    TRY(tensor_new(allocator, (enum dtype)dataset->values[i].dtype, shape, ret));
    fill(ret, &dataset->values[i]);
    for (int64_t e = 0; e < buffer->n; e++)
        put(ret, e, &element_at(buffer, e)[i]);
    return NULL;
}

static struct status *padded_component(struct dataset_iter *iter, int i, struct tensor *ret) {
    return padded_stack((const struct padded_dataset *)iter->dataset,
                        &((struct batch_iter *)iter)->buffer, i, iter->env->allocator, ret);
}

static enum data_poll padded_next(struct dataset_iter *iter, struct data_task *task,
                                  struct tensor *out) {
    return next_by(padded_component, iter, task, out);
}

static const struct dataset_kind padded_kind = {.name = "PaddedBatch",
                                                .dataset_size = sizeof(struct padded_dataset),
                                                .iter_size = sizeof(struct batch_iter),
                                                .begin = batch_begin,
                                                .next = padded_next,
                                                .end = batch_end,
                                                .fini = padded_fini,
                                                .cardinality = batch_cardinality};

static struct status *padded_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct padded_dataset *self = (struct padded_dataset *)dataset;
    int n = dataset->inputs[0]->n_components,
        n_shapes = (int)node_attr(ctx->instance->node, "N")->i;
    int n_values = dataset_list_length(ctx, "Toutput_types"), drop = 2 + n_shapes + n_values;
    self->n = n;
    self->shapes = element_new(n);
    self->values = element_new(n);
    TRY(batch_take(ctx, dataset, ctx->instance->n_inputs > drop ? drop : 0));
    if (n_shapes != n || n_values != n)
        return status_invalid("Number of padded shapes (%d) must match the number of components in "
                              "the input dataset's elements (%d)",
                              n_shapes, n);
    for (int i = 0; i < n; i++) {
        const struct tensor *shape = &ctx->inputs[2 + i], *value = &ctx->inputs[2 + n + i];
        if (shape->rank != 1 || shape->n_elements >= SHAPE_MAX_RANK)
            return status_invalid("All `padded_shapes` must be vectors");
        if (value->rank != 0)
            return status_invalid("All padding values must be scalars");
        if (value->dtype != dataset->types[i])
            return status_invalid("Mismatched type between padding value %d and input dataset's "
                                  "component %d: %s vs. %s",
                                  i, i, dtype_name((enum dtype)value->dtype),
                                  dtype_name((enum dtype)dataset->types[i]));
        for (int64_t k = 0; k < shape->n_elements; k++)
            if (tensor_index_at(shape, k) < -1)
                return status_invalid("Dimension %lld must be >= -1",
                                      (long long)tensor_index_at(shape, k));
        tensor_copy(&self->shapes[i], shape);
        tensor_copy(&self->values[i], value);
    }
    return NULL;
}

static enum kernel_result padded_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &padded_kind, 1, &dataset));
    return dataset_finish(ctx, dataset, padded_take(ctx, dataset));
}

/* ---- unbatch ---- */

struct unbatch_iter {
    struct dataset_iter_one one;
    struct tensor *element;
    int64_t at, n; /* position in the element, and number of its rows */
};

static struct status *unbatch_begin(struct dataset_iter *iter) {
    ((struct unbatch_iter *)iter)->element = element_new(iter->dataset->n_components);
    return dataset_begin_one(iter);
}

static void unbatch_end(struct dataset_iter *iter) {
    dataset_end_one(iter);
    element_free(((struct unbatch_iter *)iter)->element, iter->dataset->n_components);
}

static struct status *check_rows(const struct tensor *element, int n_components) {
    for (int i = 0; i < n_components; i++) {
        if (element[i].rank == 0)
            return status_invalid("Input element must have a non-scalar value in each component.");
        if (tensor_dim(&element[i], 0) != tensor_dim(&element[0], 0))
            return status_invalid("Input element must have the same batch size in each component. "
                                  "Component 0 had size %lld but component "
                                  "%d had size, %lld.",
                                  (long long)tensor_dim(&element[0], 0), i,
                                  (long long)tensor_dim(&element[i], 0));
    }
    return NULL;
}

static enum data_poll unbatch_next(struct dataset_iter *iter, struct data_task *task,
                                   struct tensor *out) {
    struct unbatch_iter *self = (struct unbatch_iter *)iter;
    int n_components = iter->dataset->n_components;
    struct status *st = NULL;
    while (self->at >= self->n) {
        element_clear(self->element, n_components);
        self->at = self->n = 0;
        enum data_poll result = dataset_iter_next(self->one.input, task, self->element);
        if (result != DATA_ELEMENT)
            return result;
        st = check_rows(self->element, n_components);
        if (st)
            return data_task_fail(task, st);
        self->n = n_components > 0 ? tensor_dim(&self->element[0], 0) : 0;
    }
    int i = 0;
    for (; i < n_components && !st; i++)
        st = dataset_row_of(&self->element[i], self->at, &out[i]);
    self->at++;
    if (!st)
        return DATA_ELEMENT;
    element_clear(out, i);
    return data_task_fail(task, st);
}

static const struct dataset_kind unbatch_kind = {.name = "Unbatch",
                                                 .dataset_size = sizeof(struct dataset),
                                                 .iter_size = sizeof(struct unbatch_iter),
                                                 .begin = unbatch_begin,
                                                 .next = unbatch_next,
                                                 .end = unbatch_end};

static enum kernel_result unbatch_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &unbatch_kind, 1, &dataset));
    struct status *st = dataset_declare(ctx, dataset, NULL, NULL);
    const struct dataset *input = dataset->inputs[0];
    if (!st && (dataset->n_components != input->n_components ||
                (input->n_components > 0 &&
                 memcmp(dataset->types, input->types, (size_t)input->n_components) != 0)))
        st = status_invalid("output_types must be those of the input dataset");
    return dataset_finish(ctx, dataset, st);
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("BatchDataset", batch_compute),
    DATASET_KERNEL("BatchDatasetV2", batch_v2_compute),
    DATASET_KERNEL("ParallelBatchDataset", parallel_batch_compute),
    DATASET_KERNEL("PaddedBatchDataset", padded_compute),
    DATASET_KERNEL("PaddedBatchDatasetV2", padded_compute),
    DATASET_KERNEL("UnbatchDataset", unbatch_compute),
    DATASET_KERNEL("ExperimentalUnbatchDataset", unbatch_compute),
};
// clang-format on

const struct kernel_list dataset_batch_kernels = {rows, ARRAY_LEN(rows)};
