/* Makes DenseToSparseBatchDataset: stacks elements of different sizes into sparse tensors.
 *
 *   an element is a variant [3], as SerializeSparse writes it:
 *     indices  int64 [n, rank + 1]   the element's number in the batch, then the coordinates in it
 *     values   T [n]                 all elements of the batch, row by row
 *     shape    int64 [rank + 1]      the number of elements, then row_shape; where that is -1, the
 *                                    largest size in the batch */
#include <stdlib.h>

#include "kernels/host/data/dataset_batch.h"

extern const struct kernel_list dataset_sparse_batch_kernels;

struct sparse_batch_dataset {
    struct batch_dataset batch;
    int64_t row_shape[SHAPE_MAX_RANK];
    int rank;
};

/* batch_begin and batch_end need this layout (dataset_batch.h). */
struct sparse_batch_iter {
    struct dataset_iter_one one;
    struct element_buffer buffer;
};

static struct status *check_element(const struct sparse_batch_dataset *dataset,
                                    const struct tensor *t) {
    struct shape row = {dataset->rank, dataset->row_shape};
    enum status_code code = t->rank != row.rank ? STATUS_INVALID_ARGUMENT : STATUS_OK;
    for (int k = 0; k < row.rank && code == STATUS_OK; k++)
        if (row.dims[k] >= 0 && tensor_dim(t, k) > row.dims[k])
            code = STATUS_DATA_LOSS;
    if (code == STATUS_OK)
        return NULL;
    return status_new(code,
                      "Input element had shape (%s) that is incompatible with the row shape (%s).",
                      TENSOR_SHAPE_TEXT(t), SHAPE_TEXT(row));
}

/* Sets dims to the shape of the batch, and *ret_n to the number of its values. */
static struct status *measure(const struct sparse_batch_dataset *dataset,
                              const struct element_buffer *buffer, int64_t dims[], int64_t *ret_n) {
    struct shape row = {dataset->rank, dataset->row_shape};
    dims[0] = buffer->n;
    for (int k = 0; k < row.rank; k++)
        dims[k + 1] = MAX(row.dims[k], (int64_t)0);
    *ret_n = 0;
    for (int64_t e = 0; e < buffer->n; e++) {
        const struct tensor *t = &element_at(buffer, e)[0];
        for (int k = 0; k < row.rank; k++)
            dims[k + 1] = MAX(dims[k + 1], tensor_dim(t, k));
        if (add_overflows_i64(*ret_n, t->n_elements, ret_n))
            return status_exhausted("A batch of more than 2^63 elements");
    }
    return NULL;
}

/* Writes the index of each of element `e`'s values, row by row. Returns the end. */
static int64_t *write_indices(const struct tensor *t, int64_t e, int64_t *to) {
    int64_t place[SHAPE_MAX_RANK] = {0};
    int rank = t->rank;
    for (int64_t i = 0; i < t->n_elements; i++) {
        *to++ = e;
        memcpy(to, place, (size_t)rank * sizeof(*to));
        to += rank;
        for (int k = rank - 1; k >= 0 && ++place[k] == tensor_dim(t, k); k--)
            place[k] = 0;
    }
    return to;
}

static struct status *make_parts(struct dataset_iter *iter, struct tensor parts[3]) {
    const struct sparse_batch_dataset *dataset = (const struct sparse_batch_dataset *)iter->dataset;
    const struct element_buffer *buffer = &((struct sparse_batch_iter *)iter)->buffer;
    struct allocator *allocator = iter->env->allocator;
    enum dtype dtype = (enum dtype)iter->dataset->inputs[0]->types[0];
    int64_t dims[SHAPE_MAX_RANK + 1], n, n_dims = dataset->rank + 1;
    TRY(measure(dataset, buffer, dims, &n));
    TRY(tensor_new(allocator, DT_INT64, (struct shape){2, (const int64_t[]){n, n_dims}},
                   &parts[0]));
    TRY(tensor_new(allocator, dtype, (struct shape){1, &n}, &parts[1]));
    TRY(tensor_new(allocator, DT_INT64, (struct shape){1, &n_dims}, &parts[2]));
    memcpy(tensor_data(&parts[2]), dims, (size_t)n_dims * sizeof(*dims));
    int64_t *index = tensor_data(&parts[0]);
    char *to = tensor_data(&parts[1]);
    for (int64_t e = 0; e < buffer->n; e++) {
        const struct tensor *t = &element_at(buffer, e)[0];
        index = write_indices(t, e, index);
        elements_copy(dtype, to, tensor_cdata(t), t->n_elements);
        to += tensor_size_bytes(t);
    }
    return NULL;
}

static struct status *make_batch(struct dataset_iter *iter, struct tensor *out) {
    struct tensor *parts = element_new(3);
    const int64_t three = 3;
    struct status *st = make_parts(iter, parts);
    if (!st)
        st = tensor_new(iter->env->allocator, DT_VARIANT, (struct shape){1, &three}, out);
    for (int i = 0; i < 3 && !st; i++)
        st = element_wrap(&parts[i], out, i);
    element_free(parts, 3);
    if (st)
        tensor_clear(out);
    return st;
}

static enum data_poll sparse_batch_next(struct dataset_iter *iter, struct data_task *task,
                                        struct tensor *out) {
    struct sparse_batch_iter *self = (struct sparse_batch_iter *)iter;
    const struct sparse_batch_dataset *dataset = (const struct sparse_batch_dataset *)iter->dataset;
    enum data_poll result = DATA_ELEMENT;
    while (self->buffer.n < dataset->batch.batch_size && result == DATA_ELEMENT) {
        result = element_buffer_fill(&self->buffer, self->buffer.n + 1, self->one.input, task);
        struct status *st =
            result == DATA_ELEMENT
                ? check_element(dataset, element_at(&self->buffer, self->buffer.n - 1))
                : NULL;
        if (st)
            result = data_task_fail(task, st);
    }
    if (result == DATA_PENDING)
        return result;
    if (result == DATA_FAILED || self->buffer.n == 0) {
        element_buffer_clear(&self->buffer);
        return result;
    }
    struct status *st = make_batch(iter, &out[0]);
    element_buffer_clear(&self->buffer);
    return st ? data_task_fail(task, st) : DATA_ELEMENT;
}

static int64_t sparse_batch_cardinality(struct dataset *dataset) {
    int64_t size = ((const struct batch_dataset *)dataset)->batch_size,
            n = dataset_cardinality(dataset->inputs[0]);
    return n < 0 ? n : n / size + (n % size != 0);
}

static const struct dataset_kind sparse_batch_kind = {.name = "DenseToSparseBatch",
                                                      .dataset_size =
                                                          sizeof(struct sparse_batch_dataset),
                                                      .iter_size = sizeof(struct sparse_batch_iter),
                                                      .begin = batch_begin,
                                                      .next = sparse_batch_next,
                                                      .end = batch_end,
                                                      .cardinality = sparse_batch_cardinality};

static struct status *sparse_batch_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct sparse_batch_dataset *self = (struct sparse_batch_dataset *)dataset;
    const struct tensor *row = kernel_input(ctx, 2);
    if (dataset->n_components != 1)
        return status_invalid(
            "DenseToSparseBatchDataset only supports inputs with a single component.");
    TRY(dataset_scalar_i64(ctx, 1, "batch_size", &self->batch.batch_size));
    TRY(batch_check_size(self->batch.batch_size));
    if (row->rank != 1 || row->n_elements >= SHAPE_MAX_RANK)
        return status_invalid("row_shape must be a vector");
    self->rank = (int)row->n_elements;
    for (int k = 0; k < self->rank; k++) {
        self->row_shape[k] = tensor_index_at(row, k);
        if (self->row_shape[k] < -1)
            return status_invalid("Dimension %lld must be >= -1", (long long)self->row_shape[k]);
    }
    TRY(dataset_declare(ctx, dataset, NULL, NULL));
    if (dataset->n_components != 1 || dataset->types[0] != DT_VARIANT)
        return status_invalid("output_types must be [variant]: the elements are sparse tensors");
    return NULL;
}

static enum kernel_result sparse_batch_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &sparse_batch_kind, 1, &dataset));
    return dataset_finish(ctx, dataset, sparse_batch_take(ctx, dataset));
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("DenseToSparseBatchDataset", sparse_batch_compute),
    DATASET_KERNEL("ExperimentalDenseToSparseBatchDataset", sparse_batch_compute),
};
// clang-format on

const struct kernel_list dataset_sparse_batch_kernels = {rows, ARRAY_LEN(rows)};
