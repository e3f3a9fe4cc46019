/* Computes the ops that take a whole dataset: reduce, the single element, the cardinality. */
#include <stdlib.h>

#include "kernels/host/data/iterator.h"

extern const struct kernel_list dataset_reduce_kernels;

/* ---- reduce ---- */

struct reduce_run {
    struct pipeline_run run;
    struct dataset *dataset;
    struct dataset_iter *iter;
    struct dataset_fn fn;
    struct dataset_call call; /* its arguments are the state, then the element */
    struct tensor *state;
    int n_state;
    bool has_begun;
};

static void reduce_fini(struct pipeline_run *run) {
    struct reduce_run *self = (struct reduce_run *)run;
    dataset_iter_free(self->iter);
    dataset_unref(self->dataset);
    dataset_call_fini(&self->call);
    dataset_fn_fini(&self->fn);
    element_free(self->state, self->n_state);
    free(self);
}

static struct status *reduce_begin(struct reduce_run *self) {
    self->has_begun = true;
    TRY(dataset_iter_new(self->dataset, self->run.env, &self->iter));
    return dataset_call_init(&self->call, &self->fn, self->run.env,
                             self->n_state + self->dataset->n_components);
}

static enum data_poll reduce_poll(struct pipeline_run *run, struct data_task *task) {
    struct reduce_run *self = (struct reduce_run *)run;
    if (!self->has_begun) {
        struct status *st = reduce_begin(self);
        if (st)
            return data_task_fail(task, st);
    }
    for (;;) {
        enum data_poll result;
        if (!self->call.is_running) {
            result = dataset_iter_next(self->iter, task, self->call.args + self->n_state);
            if (result == DATA_END)
                break;
            if (result != DATA_ELEMENT)
                return result;
            element_move(self->call.args, self->state, self->n_state);
        }
        result = dataset_call_poll(&self->call, task);
        if (result != DATA_ELEMENT)
            return result;
        element_move(self->state, self->call.rets, self->n_state);
    }
    element_move(run->ctx->outputs, self->state, self->n_state);
    struct status *st = dataset_check_outputs(run->ctx);
    return st ? data_task_fail(task, st) : DATA_ELEMENT;
}

static struct status *reduce_take(struct kernel_ctx *ctx, struct reduce_run *self) {
    struct dataset *dataset = NULL;
    TRY(dataset_of(kernel_input(ctx, 0), &dataset));
    self->dataset = dataset_ref(dataset);
    self->n_state = dataset_list_length(ctx, "Tstate");
    self->state = element_new(self->n_state);
    element_copy(self->state, &ctx->inputs[1], self->n_state);
    TRY(dataset_fn_init(ctx, "f", 1 + self->n_state, dataset_list_length(ctx, "Targuments"),
                        &self->fn));
    TRY(dataset_fn_check(&self->fn, ctx->instance->out_types, ctx->instance->n_outputs));
    if (self->n_state != ctx->instance->n_outputs)
        return status_invalid("The state has %d components, the results %d", self->n_state,
                              ctx->instance->n_outputs);
    for (int i = 0; i < self->n_state; i++)
        if (self->state[i].dtype != ctx->instance->out_types[i])
            return status_invalid("Component %d of the state is %s, of the results %s", i,
                                  dtype_name((enum dtype)self->state[i].dtype),
                                  dtype_name((enum dtype)ctx->instance->out_types[i]));
    return NULL;
}

static enum kernel_result reduce_compute(struct kernel_ctx *ctx) {
    struct reduce_run *self = xcalloc(1, sizeof(*self));
    self->run.poll = reduce_poll;
    self->run.fini = reduce_fini;
    struct status *st = reduce_take(ctx, self);
    if (!st)
        return pipeline_start(ctx, &self->run);
    reduce_fini(&self->run);
    return kernel_fail(ctx, st);
}

/* ---- the only element ---- */

struct single_run {
    struct pipeline_run run;
    struct dataset *dataset;
    struct dataset_iter *iter;
    struct tensor *element, *another;
    bool has_element;
};

static void single_fini(struct pipeline_run *run) {
    struct single_run *self = (struct single_run *)run;
    dataset_iter_free(self->iter);
    element_free(self->element, self->dataset->n_components);
    element_free(self->another, self->dataset->n_components);
    dataset_unref(self->dataset);
    free(self);
}

static enum data_poll single_poll(struct pipeline_run *run, struct data_task *task) {
    struct single_run *self = (struct single_run *)run;
    enum data_poll result;
    if (!self->iter) {
        struct status *st = dataset_iter_new(self->dataset, run->env, &self->iter);
        if (st)
            return data_task_fail(task, st);
    }
    if (!self->has_element) {
        result = dataset_iter_next(self->iter, task, self->element);
        if (result == DATA_END)
            return data_task_fail(task, status_invalid("Dataset was empty."));
        if (result != DATA_ELEMENT)
            return result;
        self->has_element = true;
    }
    result = dataset_iter_next(self->iter, task, self->another);
    if (result == DATA_ELEMENT)
        return data_task_fail(task, status_invalid("Dataset had more than one element."));
    if (result != DATA_END)
        return result;
    element_move(run->ctx->outputs, self->element, self->dataset->n_components);
    struct status *st = dataset_check_outputs(run->ctx);
    return st ? data_task_fail(task, st) : DATA_ELEMENT;
}

static enum kernel_result single_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    const struct kernel_instance *instance = ctx->instance;
    KERNEL_TRY(ctx, dataset_of(kernel_input(ctx, 0), &dataset));
    if (dataset->n_components != instance->n_outputs ||
        (instance->n_outputs > 0 &&
         memcmp(dataset->types, instance->out_types, (size_t)instance->n_outputs) != 0))
        return kernel_fail(ctx, status_invalid("output_types must be those of the dataset"));
    struct single_run *self = xcalloc(1, sizeof(*self));
    self->run.poll = single_poll;
    self->run.fini = single_fini;
    self->dataset = dataset_ref(dataset);
    self->element = element_new(dataset->n_components);
    self->another = element_new(dataset->n_components);
    return pipeline_start(ctx, &self->run);
}

/* ---- cardinality ---- */

static enum kernel_result cardinality_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_of(kernel_input(ctx, 0), &dataset));
    tensor_init_scalar_i64(&ctx->outputs[0], dataset_cardinality(dataset));
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "ReduceDataset", .compute = reduce_compute, .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
    {.op = "DatasetToSingleElement", .compute = single_compute,
     .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
    {.op = "DatasetCardinality", .compute = cardinality_compute, .flags = KERNEL_STATEFUL},
    {.op = "ExperimentalDatasetCardinality", .compute = cardinality_compute,
     .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list dataset_reduce_kernels = {rows, ARRAY_LEN(rows)};
