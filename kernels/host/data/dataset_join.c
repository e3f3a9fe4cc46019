/* Makes datasets of several inputs: side by side (zip), one after the other (concatenate), or in
 * an order that another dataset gives (directed interleave). */
#include <stdlib.h>

#include "kernels/host.h"
#include "kernels/host/data/dataset.h"

extern const struct kernel_list dataset_join_kernels;

struct many_iter {
    struct dataset_iter iter;
    struct dataset_iter **inputs;
    struct tensor *element; /* of zip: what has come so far */
    int at, n_components;   /* which input is next, and how many components have come */
    struct status *failure; /* of zip: the first of the inputs that have failed */
};

static struct status *many_begin(struct dataset_iter *iter) {
    struct many_iter *self = (struct many_iter *)iter;
    self->inputs = xcalloc((size_t)iter->dataset->n_inputs + 1, sizeof(*self->inputs));
    self->element = element_new(iter->dataset->n_components);
    for (int i = 0; i < iter->dataset->n_inputs; i++)
        TRY(dataset_iter_new(iter->dataset->inputs[i], dataset_env_branch(iter->env, i),
                             &self->inputs[i]));
    return NULL;
}

static void many_end(struct dataset_iter *iter) {
    struct many_iter *self = (struct many_iter *)iter;
    for (int i = 0; self->inputs && i < iter->dataset->n_inputs; i++)
        dataset_iter_free(self->inputs[i]);
    element_free(self->element, iter->dataset->n_components);
    status_unref(self->failure);
    free(self->inputs);
}

static void zip_reset(struct many_iter *self) {
    element_clear(self->element, self->n_components);
    self->at = self->n_components = 0;
}

/* Keeps the failure of one input. The others take a step, too, so that all stay side by side. */
static void keep_failure(struct many_iter *self, struct data_task *task) {
    if (self->failure)
        status_unref(task->status);
    else
        self->failure = task->status;
    task->status = NULL;
}

static enum data_poll zip_fail(struct many_iter *self, struct data_task *task) {
    struct status *failure = self->failure;
    self->failure = NULL;
    zip_reset(self);
    return data_task_fail(task, failure);
}

/* Where an input fails, the element as a whole is lost. */
static enum data_poll zip_next(struct dataset_iter *iter, struct data_task *task,
                               struct tensor *out) {
    struct many_iter *self = (struct many_iter *)iter;
    for (; self->at < iter->dataset->n_inputs; self->at++) {
        enum data_poll result =
            dataset_iter_next(self->inputs[self->at], task, self->element + self->n_components);
        if (result == DATA_PENDING)
            return result;
        if (result == DATA_FAILED && data_task_may_continue(task))
            keep_failure(self, task);
        else if (result == DATA_END && self->failure)
            return zip_fail(self, task);
        else if (result != DATA_ELEMENT) {
            zip_reset(self);
            return result;
        }
        self->n_components += iter->dataset->inputs[self->at]->n_components;
    }
    if (self->failure)
        return zip_fail(self, task);
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

/* The most exact shape that both fit. Sizes that differ become unknown. */
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
    int64_t chosen; /* -1: must be read */
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

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("ZipDataset", zip_compute),
    DATASET_KERNEL("ConcatenateDataset", concatenate_compute),
    DATASET_KERNEL("DirectedInterleaveDataset", directed_compute),
    DATASET_KERNEL("ExperimentalDirectedInterleaveDataset", directed_compute),
};
// clang-format on

const struct kernel_list dataset_join_kernels = {rows, ARRAY_LEN(rows)};
