/* Computes InitializeTableFromDataset: fills a table once with the keys and values of a dataset. */
#include <stdlib.h>

#include "kernels/support/rows.h"
#include "kernels/host/data/iterator.h"
#include "kernels/host/resources/lookup_table.h"

extern const struct kernel_list lookup_dataset_kernels;

enum { TABLE_MAX_ELEMENTS = INT32_MAX / 2 };

struct fill_run {
    struct pipeline_run run;
    struct lookup_table *table;
    struct dataset *dataset;
    struct dataset_iter *iter;
    struct tensor *keys, *values; /* a vector for each element */
    int n, capacity;
    struct tensor *element; /* two components */
};

static void fill_fini(struct pipeline_run *run) {
    struct fill_run *self = (struct fill_run *)run;
    dataset_iter_free(self->iter);
    dataset_unref(self->dataset);
    rows_free(self->keys, self->n);
    rows_free(self->values, self->n);
    element_free(self->element, 2);
    lookup_table_unref(self->table);
    free(self);
}

static void grow(struct tensor **tensors, int n, int capacity) {
    struct tensor *more = rows_new(capacity);
    for (int i = 0; i < n; i++)
        tensor_move(&more[i], &(*tensors)[i]);
    rows_free(*tensors, n);
    *tensors = more;
}

/* Keeps the keys and values of an element, of any shape, as vectors. */
static struct status *keep_element(struct fill_run *self) {
    const struct tensor *key = &self->element[0], *value = &self->element[1];
    if (key->n_elements != value->n_elements)
        return status_invalid("An element has %lld keys and %lld values",
                              (long long)key->n_elements, (long long)value->n_elements);
    if (self->n == TABLE_MAX_ELEMENTS)
        return status_exhausted("A table of more than %d elements of a dataset",
                                TABLE_MAX_ELEMENTS);
    if (self->n == self->capacity) {
        self->capacity = MAX(2 * self->capacity, 16);
        grow(&self->keys, self->n, self->capacity);
        grow(&self->values, self->n, self->capacity);
    }
    TRY(tensor_reshape(key, (struct shape){1, &key->n_elements}, &self->keys[self->n]));
    struct status *st =
        tensor_reshape(value, (struct shape){1, &value->n_elements}, &self->values[self->n]);
    if (st)
        tensor_clear(&self->keys[self->n]);
    else
        self->n++;
    return st;
}

static struct status *join(struct fill_run *self, struct tensor *tensors, struct tensor *ret) {
    const struct tensor **pieces = xcalloc((size_t)self->n, sizeof(*pieces));
    for (int i = 0; i < self->n; i++)
        pieces[i] = &tensors[i];
    struct status *st =
        rows_join(self->run.ctx->instance->allocator, pieces, self->n, self->run.ctx->pool, ret);
    free(pieces);
    return st;
}

static struct status *fill_table(struct fill_run *self) {
    struct tensor keys = TENSOR_INIT, values = TENSOR_INIT;
    if (self->n == 0)
        return status_out_of_range("end of iterator");
    struct status *st = join(self, self->keys, &keys);
    if (!st)
        st = join(self, self->values, &values);
    if (!st)
        st = lookup_table_fill(self->table, &keys, &values);
    tensor_clear(&keys);
    tensor_clear(&values);
    return st;
}

static enum data_poll fill_poll(struct pipeline_run *run, struct data_task *task) {
    struct fill_run *self = (struct fill_run *)run;
    struct status *st = self->iter ? NULL : dataset_iter_new(self->dataset, run->env, &self->iter);
    while (!st) {
        enum data_poll result = dataset_iter_next(self->iter, task, self->element);
        if (result == DATA_PENDING || result == DATA_FAILED)
            return result;
        if (result == DATA_END)
            break;
        st = keep_element(self);
        element_clear(self->element, 2);
    }
    if (!st)
        st = fill_table(self);
    return st ? data_task_fail(task, st) : DATA_ELEMENT;
}

static struct status *fill_take(struct kernel_ctx *ctx, struct fill_run *self) {
    struct dataset *dataset = NULL;
    TRY(lookup_table_of_input(ctx, &self->table));
    TRY(lookup_check_static(ctx, self->table));
    TRY(dataset_of(kernel_input(ctx, 1), &dataset));
    if (dataset->n_components != 2 || dataset->types[0] != self->table->key_dtype ||
        dataset->types[1] != self->table->value_dtype)
        return status_invalid("A table of %s to %s takes a dataset of pairs of these types",
                              dtype_name(self->table->key_dtype),
                              dtype_name(self->table->value_dtype));
    self->dataset = dataset_ref(dataset);
    self->element = element_new(2);
    return NULL;
}

static enum kernel_result fill_compute(struct kernel_ctx *ctx) {
    struct fill_run *self = xcalloc(1, sizeof(*self));
    self->run.poll = fill_poll;
    self->run.fini = fill_fini;
    struct status *st = fill_take(ctx, self);
    if (!st)
        return pipeline_start(ctx, &self->run);
    fill_fini(&self->run);
    return kernel_fail(ctx, st);
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "InitializeTableFromDataset", .compute = fill_compute,
     .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
};
// clang-format on

const struct kernel_list lookup_dataset_kernels = {rows, ARRAY_LEN(rows)};
