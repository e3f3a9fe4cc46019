/* Makes datasets that call a function for each element: map, filter, take while, scan. */
#include "kernels/host/data/dataset_map.h"

#include <stdlib.h>

extern const struct kernel_list dataset_map_kernels;

void fn_dataset_fini(struct dataset *dataset) {
    dataset_fn_fini(&((struct fn_dataset *)dataset)->fn);
}

struct status *fn_dataset_take(struct kernel_ctx *ctx, struct dataset *dataset, const char *attr) {
    struct fn_dataset *self = (struct fn_dataset *)dataset;
    bool *keeps = &self->keeps_cardinality;
    if (node_attr(ctx->instance->node, "preserve_cardinality"))
        TRY(node_get_b(ctx->instance->node, "preserve_cardinality", keeps));
    TRY(dataset_fn_init(ctx, attr, 1, dataset_list_length(ctx, "Targuments"), &self->fn));
    return dataset_declare(ctx, dataset, NULL, NULL);
}

/* ---- one call for each element ---- */

struct call_iter {
    struct dataset_iter_one one;
    struct dataset_call call;
    struct tensor *element; /* filter: the element that the predicate is called with */
    bool has_element, has_ended;
};

static struct status *call_begin(struct dataset_iter *iter) {
    struct call_iter *self = (struct call_iter *)iter;
    const struct fn_dataset *dataset = (const struct fn_dataset *)iter->dataset;
    int n = dataset->base.inputs[0]->n_components;
    TRY(dataset_begin_one(iter));
    self->element = element_new(n);
    return dataset_call_init(&self->call, &dataset->fn, iter->env, n);
}

static void call_end(struct dataset_iter *iter) {
    struct call_iter *self = (struct call_iter *)iter;
    dataset_end_one(iter);
    element_free(self->element, iter->dataset->inputs[0]->n_components);
    dataset_call_fini(&self->call);
}

/* Calls the function with the next element of the input. */
static enum data_poll map_next(struct dataset_iter *iter, struct data_task *task,
                               struct tensor *out) {
    struct call_iter *self = (struct call_iter *)iter;
    if (!self->call.is_running) {
        enum data_poll result = dataset_iter_next(self->one.input, task, self->call.args);
        if (result != DATA_ELEMENT)
            return result;
    }
    enum data_poll result = dataset_call_poll(&self->call, task);
    if (result == DATA_ELEMENT)
        element_move(out, self->call.rets, iter->dataset->n_components);
    else if (result == DATA_FAILED)
        task->status = map_failure(task->status);
    return result;
}

struct status *map_failure(struct status *status) {
    if (status_code(status) != STATUS_OUT_OF_RANGE)
        return status;
    struct status *made =
        status_invalid("Function invocation produced OutOfRangeError: %s", status_message(status));
    status_unref(status);
    return made;
}

static int64_t map_cardinality(struct dataset *dataset) {
    return dataset_cardinality(dataset->inputs[0]);
}

static const struct dataset_kind map_kind = {.name = "Map",
                                             .dataset_size = sizeof(struct fn_dataset),
                                             .iter_size = sizeof(struct call_iter),
                                             .begin = call_begin,
                                             .next = map_next,
                                             .end = call_end,
                                             .fini = fn_dataset_fini,
                                             .cardinality = map_cardinality};

static enum kernel_result map_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &map_kind, 1, &dataset));
    dataset->is_map = true;
    struct status *st = fn_dataset_take(ctx, dataset, "f");
    return dataset_finish(ctx, dataset,
                          st ? st
                             : dataset_fn_check(&((struct fn_dataset *)dataset)->fn, dataset->types,
                                                dataset->n_components));
}

/* ---- predicates ---- */

/* Calls the predicate with the next element, which stays in self->element. */
static enum data_poll predicate_poll(struct call_iter *self, struct data_task *task,
                                     const char *what, bool *ret) {
    int n = self->one.iter.dataset->n_components;
    if (!self->has_element) {
        enum data_poll result = dataset_iter_next(self->one.input, task, self->element);
        if (result != DATA_ELEMENT)
            return result;
        self->has_element = true;
        element_copy(self->call.args, self->element, n);
    }
    enum data_poll result = dataset_call_poll(&self->call, task);
    if (result == DATA_PENDING)
        return result;
    self->has_element = false;
    if (result == DATA_ELEMENT) {
        struct tensor *answer = &self->call.rets[0];
        bool is_sound = answer->rank == 0 && answer->dtype == DT_BOOL;
        *ret = is_sound && *(const bool *)tensor_cdata(answer);
        element_clear(self->call.rets, self->call.function->n_rets);
        if (!is_sound)
            result = data_task_fail(
                task, status_invalid("%s `predicate` must return a scalar bool.", what));
    }
    if (result == DATA_FAILED)
        element_clear(self->element, n);
    return result;
}

static enum data_poll filter_next(struct dataset_iter *iter, struct data_task *task,
                                  struct tensor *out) {
    struct call_iter *self = (struct call_iter *)iter;
    for (;;) {
        bool is_wanted = false;
        enum data_poll result = predicate_poll(self, task, "Filter", &is_wanted);
        if (result == DATA_FAILED)
            task->status = map_failure(task->status);
        if (result != DATA_ELEMENT)
            return result;
        if (is_wanted) {
            element_move(out, self->element, iter->dataset->n_components);
            return DATA_ELEMENT;
        }
        element_clear(self->element, iter->dataset->n_components);
    }
}

static enum data_poll take_while_next(struct dataset_iter *iter, struct data_task *task,
                                      struct tensor *out) {
    struct call_iter *self = (struct call_iter *)iter;
    bool is_wanted = false;
    if (self->has_ended)
        return DATA_END;
    enum data_poll result = predicate_poll(self, task, "TakeWhile", &is_wanted);
    if (result != DATA_ELEMENT)
        return result;
    if (is_wanted) {
        element_move(out, self->element, iter->dataset->n_components);
        return DATA_ELEMENT;
    }
    element_clear(self->element, iter->dataset->n_components);
    self->has_ended = true;
    return DATA_END;
}

static const struct dataset_kind filter_kind = {.name = "Filter",
                                                .dataset_size = sizeof(struct fn_dataset),
                                                .iter_size = sizeof(struct call_iter),
                                                .begin = call_begin,
                                                .next = filter_next,
                                                .end = call_end,
                                                .fini = fn_dataset_fini};
static const struct dataset_kind take_while_kind = {.name = "TakeWhile",
                                                    .dataset_size = sizeof(struct fn_dataset),
                                                    .iter_size = sizeof(struct call_iter),
                                                    .begin = call_begin,
                                                    .next = take_while_next,
                                                    .end = call_end,
                                                    .fini = fn_dataset_fini};

static struct status *predicate_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    static const uint8_t wanted[] = {DT_BOOL};
    struct fn_dataset *self = (struct fn_dataset *)dataset;
    TRY(dataset_fn_init(ctx, "predicate", 1, dataset_list_length(ctx, "Targuments"), &self->fn));
    return dataset_fn_check(&self->fn, wanted, 1);
}

static enum kernel_result predicate_compute(struct kernel_ctx *ctx,
                                            const struct dataset_kind *kind) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, kind, 1, &dataset));
    return dataset_finish(ctx, dataset, predicate_take(ctx, dataset));
}

static enum kernel_result filter_compute(struct kernel_ctx *ctx) {
    return predicate_compute(ctx, &filter_kind);
}
static enum kernel_result take_while_compute(struct kernel_ctx *ctx) {
    return predicate_compute(ctx, &take_while_kind);
}

/* ---- scan: a state is passed from call to call ---- */

struct scan_dataset {
    struct fn_dataset fn;
    struct tensor *initial;
    int n_state;
};

struct scan_iter {
    struct dataset_iter_one one;
    struct dataset_call call; /* its arguments are the state, then the element */
    struct tensor *state;
};

static struct status *scan_begin(struct dataset_iter *iter) {
    struct scan_iter *self = (struct scan_iter *)iter;
    const struct scan_dataset *dataset = (const struct scan_dataset *)iter->dataset;
    TRY(dataset_begin_one(iter));
    self->state = element_new(dataset->n_state);
    element_copy(self->state, dataset->initial, dataset->n_state);
    return dataset_call_init(&self->call, &dataset->fn.fn, iter->env,
                             dataset->n_state + iter->dataset->inputs[0]->n_components);
}

static void scan_end(struct dataset_iter *iter) {
    struct scan_iter *self = (struct scan_iter *)iter;
    dataset_end_one(iter);
    element_free(self->state, ((const struct scan_dataset *)iter->dataset)->n_state);
    dataset_call_fini(&self->call);
}

static enum data_poll scan_next(struct dataset_iter *iter, struct data_task *task,
                                struct tensor *out) {
    struct scan_iter *self = (struct scan_iter *)iter;
    int n_state = ((const struct scan_dataset *)iter->dataset)->n_state;
    if (!self->call.is_running) {
        enum data_poll result = dataset_iter_next(self->one.input, task, self->call.args + n_state);
        if (result != DATA_ELEMENT)
            return result;
        element_copy(self->call.args, self->state, n_state);
    }
    enum data_poll result = dataset_call_poll(&self->call, task);
    if (result == DATA_FAILED)
        task->status = map_failure(task->status);
    if (result != DATA_ELEMENT)
        return result;
    element_clear(self->state, n_state);
    element_move(self->state, self->call.rets, n_state);
    element_move(out, self->call.rets + n_state, iter->dataset->n_components);
    return DATA_ELEMENT;
}

static void scan_fini(struct dataset *dataset) {
    struct scan_dataset *self = (struct scan_dataset *)dataset;
    element_free(self->initial, self->n_state);
    fn_dataset_fini(dataset);
}

static const struct dataset_kind scan_kind = {.name = "Scan",
                                              .dataset_size = sizeof(struct scan_dataset),
                                              .iter_size = sizeof(struct scan_iter),
                                              .begin = scan_begin,
                                              .next = scan_next,
                                              .end = scan_end,
                                              .fini = scan_fini,
                                              .keeps_cardinality = true};

/* Checks that the function returns the state's types, then the element's. */
static struct status *scan_check(const struct scan_dataset *self) {
    const struct dataset *dataset = &self->fn.base;
    int n = self->n_state + dataset->n_components;
    uint8_t *types = xcalloc((size_t)n + 1, 1);
    for (int i = 0; i < n; i++)
        types[i] = i < self->n_state ? self->initial[i].dtype : dataset->types[i - self->n_state];
    struct status *st = dataset_fn_check(&self->fn.fn, types, n);
    free(types);
    return st;
}

static struct status *scan_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct scan_dataset *self = (struct scan_dataset *)dataset;
    self->n_state = dataset_list_length(ctx, "Tstate");
    self->initial = element_new(self->n_state);
    element_copy(self->initial, &ctx->inputs[1], self->n_state);
    TRY(dataset_fn_init(ctx, "f", 1 + self->n_state, dataset_list_length(ctx, "Targuments"),
                        &self->fn.fn));
    TRY(dataset_declare(ctx, dataset, NULL, NULL));
    return scan_check(self);
}

static enum kernel_result scan_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &scan_kind, 1, &dataset));
    return dataset_finish(ctx, dataset, scan_take(ctx, dataset));
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("MapDataset", map_compute),
    DATASET_KERNEL("ExperimentalMapDataset", map_compute),
    DATASET_KERNEL("FilterDataset", filter_compute),
    DATASET_KERNEL("ParallelFilterDataset", filter_compute),
    DATASET_KERNEL("TakeWhileDataset", take_while_compute),
    DATASET_KERNEL("ExperimentalTakeWhileDataset", take_while_compute),
    DATASET_KERNEL("ScanDataset", scan_compute),
    DATASET_KERNEL("ExperimentalScanDataset", scan_compute),
};
// clang-format on

const struct kernel_list dataset_map_kernels = {rows, ARRAY_LEN(rows)};
