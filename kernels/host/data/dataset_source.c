/* Makes datasets that begin a pipeline: tensors, rows of tensors, ranges, rows of sparse
 * tensors. */
#include <stdlib.h>

#include "common/tensor/float16.h"
#include "kernels/host/data/dataset.h"

extern const struct kernel_list dataset_source_kernels;

/* ---- tensors ---- */

struct tensor_dataset {
    struct dataset base;
    struct tensor *components;
    int64_t n_rows; /* of slices only */
};

struct counting_iter {
    struct dataset_iter iter;
    int64_t at;
};

static void tensor_fini(struct dataset *dataset) {
    struct tensor_dataset *self = (struct tensor_dataset *)dataset;
    element_free(self->components, dataset->n_components);
}

static enum data_poll tensor_next(struct dataset_iter *iter, struct data_task *task,
                                  struct tensor *out) {
    const struct tensor_dataset *dataset = (const struct tensor_dataset *)iter->dataset;
    struct counting_iter *self = (struct counting_iter *)iter;
    if (self->at > 0)
        return DATA_END;
    self->at++;
    element_copy(out, dataset->components, dataset->base.n_components);
    return DATA_ELEMENT;
}

static int64_t tensor_cardinality(struct dataset *dataset) { return 1; }

static const struct dataset_kind tensor_kind = {.name = "Tensor",
                                                .dataset_size = sizeof(struct tensor_dataset),
                                                .iter_size = sizeof(struct counting_iter),
                                                .next = tensor_next,
                                                .fini = tensor_fini,
                                                .cardinality = tensor_cardinality};

static enum kernel_result tensor_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &tensor_kind, 0, &dataset));
    struct status *st = dataset_declare(ctx, dataset, "Toutput_types", NULL);
    if (!st) {
        struct tensor_dataset *self = (struct tensor_dataset *)dataset;
        self->components = element_new(dataset->n_components);
        element_copy(self->components, ctx->inputs, dataset->n_components);
    }
    return dataset_finish(ctx, dataset, st);
}

/* ---- rows of tensors ---- */

/* Makes row `at` of a tensor of rank >= 1. A small row gets memory of its own. */
struct status *dataset_row_of(const struct tensor *t, int64_t at, struct tensor *ret) {
    const int64_t *dims = tensor_dims(t);
    struct tensor row = TENSOR_INIT;
    TRY(tensor_slice_rows(t, at, at + 1, &row));
    struct status *st = tensor_reshape(&row, (struct shape){t->rank - 1, dims + 1}, ret);
    tensor_clear(&row);
    return st;
}

static enum data_poll slice_next(struct dataset_iter *iter, struct data_task *task,
                                 struct tensor *out) {
    const struct tensor_dataset *dataset = (const struct tensor_dataset *)iter->dataset;
    struct counting_iter *self = (struct counting_iter *)iter;
    if (self->at >= dataset->n_rows)
        return DATA_END;
    for (int i = 0; i < dataset->base.n_components; i++) {
        struct status *st = dataset_row_of(&dataset->components[i], self->at, &out[i]);
        if (st) {
            element_clear(out, i);
            self->at++;
            return data_task_fail(task, st);
        }
    }
    self->at++;
    return DATA_ELEMENT;
}

static int64_t slice_cardinality(struct dataset *dataset) {
    return ((struct tensor_dataset *)dataset)->n_rows;
}

static const struct dataset_kind slice_kind = {.name = "TensorSlice",
                                               .dataset_size = sizeof(struct tensor_dataset),
                                               .iter_size = sizeof(struct counting_iter),
                                               .next = slice_next,
                                               .fini = tensor_fini,
                                               .cardinality = slice_cardinality};

static struct status *slice_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct tensor_dataset *self = (struct tensor_dataset *)dataset;
    TRY(dataset_declare(ctx, dataset, "Toutput_types", NULL));
    self->components = element_new(dataset->n_components);
    if (dataset->n_components == 0)
        return status_invalid("TensorSliceDataset needs at least one component");
    for (int i = 0; i < dataset->n_components; i++) {
        const struct tensor *t = &ctx->inputs[i];
        if (t->rank == 0)
            return status_invalid("All components must be at least 1-dimensional");
        if (tensor_dim(t, 0) != tensor_dim(&ctx->inputs[0], 0))
            return status_invalid("All components must have the same size in the 0th dimension");
        tensor_copy(&self->components[i], t);
    }
    self->n_rows = tensor_dim(&ctx->inputs[0], 0);
    return NULL;
}

static enum kernel_result slice_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &slice_kind, 0, &dataset));
    return dataset_finish(ctx, dataset, slice_take(ctx, dataset));
}

/* ---- elements, one after the other ---- */

static enum data_poll list_next(struct dataset_iter *iter, struct data_task *task,
                                struct tensor *out) {
    const struct tensor_dataset *dataset = (const struct tensor_dataset *)iter->dataset;
    struct counting_iter *self = (struct counting_iter *)iter;
    int n = dataset->base.n_components;
    if (self->at >= dataset->n_rows)
        return DATA_END;
    element_copy(out, dataset->components + self->at++ * n, n);
    return DATA_ELEMENT;
}

static void list_fini(struct dataset *dataset) {
    struct tensor_dataset *self = (struct tensor_dataset *)dataset;
    element_free(self->components, (int)self->n_rows * dataset->n_components);
}

static const struct dataset_kind list_kind = {.name = "List",
                                              .dataset_size = sizeof(struct tensor_dataset),
                                              .iter_size = sizeof(struct counting_iter),
                                              .next = list_next,
                                              .fini = list_fini,
                                              .cardinality = slice_cardinality};

static struct status *list_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct tensor_dataset *self = (struct tensor_dataset *)dataset;
    int n_inputs = ctx->instance->n_inputs;
    TRY(dataset_declare(ctx, dataset, NULL, NULL));
    int n = dataset->n_components;
    if (n == 0 || n_inputs % n != 0)
        return status_invalid("%d tensors are no elements of %d components", n_inputs, n);
    for (int i = 0; i < n_inputs; i++) {
        if (ctx->inputs[i].dtype != dataset->types[i % n])
            return status_invalid("Tensor %d is %s where output_types has %s", i,
                                  dtype_name((enum dtype)ctx->inputs[i].dtype),
                                  dtype_name((enum dtype)dataset->types[i % n]));
        if (!shape_is_compatible(dataset->shapes[i % n], tensor_shape(&ctx->inputs[i])))
            return status_invalid("Tensor %d has shape %s where output_shapes has %s", i,
                                  TENSOR_SHAPE_TEXT(&ctx->inputs[i]),
                                  SHAPE_TEXT(dataset->shapes[i % n]));
    }
    self->n_rows = n_inputs / n;
    self->components = element_new(n_inputs);
    element_copy(self->components, ctx->inputs, n_inputs);
    return NULL;
}

static enum kernel_result list_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &list_kind, 0, &dataset));
    return dataset_finish(ctx, dataset, list_take(ctx, dataset));
}

/* ---- ranges ---- */

struct range_dataset {
    struct dataset base;
    int64_t start, stop, step;
};

/* Makes a value of the range in the dataset's type, which need not be an integer. */
static void range_value(enum dtype type, int64_t v, struct tensor *ret) {
    union {
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        uint64_t u64;
        float f32;
        double f64;
        uint16_t bits16;
    } u = {.i64 = 0};
    switch (type) {
    case DT_INT8:
    case DT_UINT8:
        u.i8 = (int8_t)v;
        break;
    case DT_INT16:
    case DT_UINT16:
        u.i16 = (int16_t)v;
        break;
    case DT_INT32:
    case DT_UINT32:
        u.i32 = (int32_t)v;
        break;
    case DT_FLOAT:
        u.f32 = (float)v;
        break;
    case DT_DOUBLE:
        u.f64 = (double)v;
        break;
    case DT_HALF:
        u.bits16 = half_from_float((float)v);
        break;
    case DT_BFLOAT16:
        u.bits16 = bfloat16_from_float((float)v);
        break;
    default:
        u.i64 = v;
    }
    tensor_init_scalar(ret, type, &u);
}

static int64_t range_size(const struct range_dataset *range) {
    uint64_t step = range->step > 0 ? (uint64_t)range->step : -(uint64_t)range->step;
    bool is_empty = range->step > 0 ? range->start >= range->stop : range->start <= range->stop;
    uint64_t span = range->step > 0 ? (uint64_t)range->stop - (uint64_t)range->start
                                    : (uint64_t)range->start - (uint64_t)range->stop;
    uint64_t n = is_empty ? 0 : (span - 1) / step + 1;
    return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

static int64_t range_cardinality(struct dataset *dataset) {
    return range_size((struct range_dataset *)dataset);
}

static enum data_poll range_next(struct dataset_iter *iter, struct data_task *task,
                                 struct tensor *out) {
    const struct range_dataset *range = (const struct range_dataset *)iter->dataset;
    struct counting_iter *self = (struct counting_iter *)iter;
    if (self->at >= range_size(range))
        return DATA_END;
    uint64_t v = (uint64_t)range->start + (uint64_t)self->at * (uint64_t)range->step;
    self->at++;
    range_value((enum dtype)range->base.types[0], (int64_t)v, &out[0]);
    return DATA_ELEMENT;
}

static const struct dataset_kind range_kind = {.name = "Range",
                                               .dataset_size = sizeof(struct range_dataset),
                                               .iter_size = sizeof(struct counting_iter),
                                               .next = range_next,
                                               .cardinality = range_cardinality};

static struct status *range_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct range_dataset *self = (struct range_dataset *)dataset;
    const dtype_set types = DTYPES_INT | DTYPES_REAL_FLOAT;
    TRY(dataset_declare(ctx, dataset, NULL, NULL));
    TRY(dataset_scalar_i64(ctx, 0, "start", &self->start));
    TRY(dataset_scalar_i64(ctx, 1, "stop", &self->stop));
    TRY(dataset_scalar_i64(ctx, 2, "step", &self->step));
    if (self->step == 0)
        return status_invalid("step must be a non-zero integer.");
    if (dataset->n_components != 1 || !dtype_in((enum dtype)dataset->types[0], types))
        return status_invalid("Unsupported data type for RangeDataset");
    return NULL;
}

static enum kernel_result range_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &range_kind, 0, &dataset));
    return dataset_finish(ctx, dataset, range_take(ctx, dataset));
}

/* ---- rows of a sparse tensor ---- */

struct sparse_dataset {
    struct dataset base;
    struct tensor indices, values, shape;
};

struct sparse_iter {
    struct dataset_iter iter;
    int64_t row, at; /* the number of the next row, and where its values begin */
};

static void sparse_fini(struct dataset *dataset) {
    struct sparse_dataset *self = (struct sparse_dataset *)dataset;
    tensor_clear(&self->indices);
    tensor_clear(&self->values);
    tensor_clear(&self->shape);
}

/* Makes the indices without their first column, the values and the row's shape. */
static struct status *sparse_row(const struct sparse_dataset *dataset, struct allocator *allocator,
                                 int64_t begin, int64_t end, struct tensor *out) {
    int64_t rank = tensor_dim(&dataset->indices, 1), n = end - begin;
    TRY(tensor_new(allocator, DT_INT64, (struct shape){2, (const int64_t[]){n, rank - 1}},
                   &out[0]));
    int64_t *to = tensor_data(&out[0]);
    const int64_t *from = (const int64_t *)tensor_cdata(&dataset->indices) + begin * rank;
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * (rank - 1), from + i * rank + 1, (size_t)(rank - 1) * sizeof(int64_t));
    TRY(tensor_slice_rows(&dataset->values, begin, end, &out[1]));
    return tensor_slice_rows(&dataset->shape, 1, rank, &out[2]);
}

static enum data_poll sparse_next(struct dataset_iter *iter, struct data_task *task,
                                  struct tensor *out) {
    const struct sparse_dataset *dataset = (const struct sparse_dataset *)iter->dataset;
    struct sparse_iter *self = (struct sparse_iter *)iter;
    const int64_t *indices = tensor_cdata(&dataset->indices);
    int64_t rank = tensor_dim(&dataset->indices, 1), n = tensor_dim(&dataset->indices, 0),
            end = self->at;
    if (self->row >= tensor_index_at(&dataset->shape, 0))
        return DATA_END;
    while (end < n && indices[end * rank] == self->row)
        end++;
    struct status *st = sparse_row(dataset, iter->env->allocator, self->at, end, out);
    self->row++;
    self->at = end;
    if (!st)
        return DATA_ELEMENT;
    element_clear(out, 3);
    return data_task_fail(task, st);
}

static int64_t sparse_cardinality(struct dataset *dataset) {
    return tensor_index_at(&((struct sparse_dataset *)dataset)->shape, 0);
}

static const struct dataset_kind sparse_kind = {.name = "SparseTensorSlice",
                                                .dataset_size = sizeof(struct sparse_dataset),
                                                .iter_size = sizeof(struct sparse_iter),
                                                .next = sparse_next,
                                                .fini = sparse_fini,
                                                .cardinality = sparse_cardinality};

static struct status *sparse_check(const struct tensor *indices, const struct tensor *values,
                                   const struct tensor *shape) {
    if (indices->rank != 2)
        return status_invalid("Input indices must be a matrix. Got: %s",
                              TENSOR_SHAPE_TEXT(indices));
    if (values->rank != 1)
        return status_invalid("Input values must be a vector. Got: %s", TENSOR_SHAPE_TEXT(values));
    if (shape->rank != 1)
        return status_invalid("Input shape must be a vector. Got: %s", TENSOR_SHAPE_TEXT(shape));
    if (tensor_dim(indices, 0) != tensor_dim(values, 0))
        return status_invalid("Number of values must match first dimension of indices. Got %lld "
                              "values, indices shape: %s",
                              (long long)tensor_dim(values, 0), TENSOR_SHAPE_TEXT(indices));
    if (tensor_dim(indices, 1) != tensor_dim(shape, 0))
        return status_invalid("Number of dimensions must match second dimension of indices. Got "
                              "%lld dimensions, indices shape: %s",
                              (long long)tensor_dim(shape, 0), TENSOR_SHAPE_TEXT(indices));
    if (tensor_dim(shape, 0) < 1)
        return status_invalid("The shape argument requires at least one element.");
    const int64_t *at = tensor_cdata(indices), *dims = tensor_cdata(shape);
    int64_t rank = tensor_dim(indices, 1), previous = -1;
    for (int64_t i = 0; i < tensor_dim(indices, 0); i++) {
        for (int64_t k = 0; k < rank; k++)
            if (at[i * rank + k] < 0 || at[i * rank + k] >= dims[k])
                return status_invalid("indices[%lld] is out of bounds of the shape", (long long)i);
        if (at[i * rank] < previous)
            return status_unimplemented("The SparseTensor must be ordered in the batch dimension; "
                                        "handling arbitrarily ordered input is "
                                        "not currently supported.");
        previous = at[i * rank];
    }
    return NULL;
}

static enum kernel_result sparse_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, sparse_check(&ctx->inputs[0], &ctx->inputs[1], &ctx->inputs[2]));
    KERNEL_TRY(ctx, dataset_new(ctx, &sparse_kind, 0, &dataset));
    struct sparse_dataset *self = (struct sparse_dataset *)dataset;
    int64_t rank = tensor_dim(&ctx->inputs[0], 1);
    const uint8_t types[] = {DT_INT64, ctx->inputs[1].dtype, DT_INT64};
    const int64_t index_dims[] = {-1, rank - 1}, value_dims[] = {-1}, shape_dims[] = {rank - 1};
    const struct shape shapes[] = {{2, index_dims}, {1, value_dims}, {1, shape_dims}};
    dataset_set_components(dataset, 3, types, shapes);
    tensor_copy(&self->indices, &ctx->inputs[0]);
    tensor_copy(&self->values, &ctx->inputs[1]);
    tensor_copy(&self->shape, &ctx->inputs[2]);
    return dataset_output(ctx, dataset);
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("TensorDataset", tensor_compute),
    DATASET_KERNEL("TensorSliceDataset", slice_compute),
    DATASET_KERNEL("ListDataset", list_compute),
    DATASET_KERNEL("RangeDataset", range_compute),
    DATASET_KERNEL("SparseTensorSliceDataset", sparse_compute),
};
// clang-format on

const struct kernel_list dataset_source_kernels = {rows, ARRAY_LEN(rows)};
