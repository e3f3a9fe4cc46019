/* Computes MapDefun: calls a function for each row of its arguments, and stacks the results.
 *
 * Calls start in order, on the thread that polls. Calls that have to wait run at the same time, at
 * most MAP_MAX_CALLS. The first failure cancels the calls that are running. */
#include <stdlib.h>

#include "common/tensor/element.h"
#include "kernels/host/data/iterator.h"
#include "kernels/support/dims.h"

extern const struct kernel_list map_defun_kernels;

enum { MAP_MAX_CALLS = 16 };

struct map_run {
    struct pipeline_run run;
    struct dataset_fn fn;
    struct dataset_call calls[MAP_MAX_CALLS];
    int64_t row_of[MAP_MAX_CALLS]; /* the row that each call computes */
    int n_calls;
    int64_t n_rows, next, n_done;
    int n_arguments, n_results;
    struct tensor *arguments, *results; /* results are made once their shape is known */
    struct shape *shapes;               /* the declared shapes of rows; owned by the node */
    struct status *failure;             /* the first failure; no call starts after it */
    bool has_cancelled;
};

static void map_fini(struct pipeline_run *run) {
    struct map_run *self = (struct map_run *)run;
    for (int i = 0; i < self->n_calls; i++)
        dataset_call_fini(&self->calls[i]);
    dataset_fn_fini(&self->fn);
    element_free(self->arguments, self->n_arguments);
    element_free(self->results, self->n_results);
    status_unref(self->failure);
    free(self->shapes);
    free(self);
}

/* ---- results ---- */

static struct status *make_result(struct map_run *self, int i, struct shape row) {
    struct dims dims;
    dims.rank = 1;
    dims.at[0] = self->n_rows;
    for (int d = 0; d < row.rank; d++)
        if (!dims_add(&dims, row.dims[d]))
            return status_invalid("Result %d has more than %d dimensions", i, SHAPE_MAX_RANK);
    const struct kernel_instance *instance = self->run.ctx->instance;
    return tensor_new(instance->allocator, dtype_base((enum dtype)instance->out_types[i]),
                      dims_shape(&dims), &self->results[i]);
}

static struct status *put_result(struct map_run *self, int i, int64_t at,
                                 const struct tensor *row) {
    struct tensor *to = &self->results[i];
    struct shape wanted = self->shapes[i];
    if (!tensor_has_value(row))
        return status_invalid("Retval[%d] does not have value", i);
    if (to->storage != TENSOR_NONE)
        wanted = (struct shape){to->rank - 1, tensor_dims(to) + 1};
    if (!shape_is_compatible(wanted, tensor_shape(row)))
        return status_invalid(
            "Mismatch in function retval shape, %s, and expected output shape, %s.",
            TENSOR_SHAPE_TEXT(row), SHAPE_TEXT(wanted));
    if (to->storage == TENSOR_NONE)
        TRY(make_result(self, i, tensor_shape(row)));
    elements_copy((enum dtype)row->dtype, tensor_at(to, at * row->n_elements), tensor_cdata(row),
                  row->n_elements);
    return NULL;
}

/* ---- calls ---- */

static struct status *set_arguments(struct map_run *self, struct dataset_call *call) {
    for (int i = 0; i < self->n_arguments; i++)
        TRY(dataset_row_of(&self->arguments[i], self->next, &call->args[i]));
    return NULL;
}

static void keep_failure(struct map_run *self, struct status *status_take) {
    if (self->failure)
        status_unref(status_take);
    else
        self->failure = status_take;
}

/* Lets the call advance, or begin with the next row. False when it has nothing to do now. */
static bool advance(struct map_run *self, int i, struct data_task *task) {
    struct dataset_call *call = &self->calls[i];
    if (!call->is_running) {
        struct status *st = NULL;
        if (self->next == self->n_rows || self->failure)
            return false;
        st = set_arguments(self, call);
        self->row_of[i] = self->next++;
        if (st) {
            element_clear(call->args, self->n_arguments);
            keep_failure(self, st);
            return false;
        }
    }
    enum data_poll result = dataset_call_poll(call, task);
    if (result == DATA_PENDING)
        return false;
    if (result == DATA_FAILED) {
        keep_failure(self, task->status);
        task->status = NULL;
        return true;
    }
    for (int r = 0; r < self->n_results && !self->failure; r++)
        keep_failure(self, put_result(self, r, self->row_of[i], &call->rets[r]));
    element_clear(call->rets, call->function->n_rets);
    self->n_done++;
    return true;
}

static struct status *begin(struct map_run *self) {
    int n = (int)MIN(self->n_rows, (int64_t)MAP_MAX_CALLS);
    for (; self->n_calls < n; self->n_calls++)
        TRY(dataset_call_init(&self->calls[self->n_calls], &self->fn, self->run.env,
                              self->n_arguments));
    for (int i = 0; i < self->n_results; i++)
        if (shape_is_full(self->shapes[i]))
            TRY(make_result(self, i, self->shapes[i]));
    return NULL;
}

static enum data_poll map_poll(struct pipeline_run *run, struct data_task *task) {
    struct map_run *self = (struct map_run *)run;
    enum data_poll stop;
    if (self->n_calls == 0 && !self->failure)
        self->failure = begin(self);
    for (int i = 0; i < self->n_calls; i++)
        while (advance(self, i, task))
            if (data_task_must_stop(task, &stop))
                return stop;
    if (task->n_running > 0 && self->failure && !self->has_cancelled) {
        self->has_cancelled = true;
        data_task_cancel(task, self->failure); /* also wakes the task */
    }
    if (task->n_running > 0)
        return DATA_PENDING;
    for (int i = 0; i < self->n_results && !self->failure; i++)
        /* there are no rows, and the shape is unknown */
        if (self->results[i].storage == TENSOR_NONE)
            keep_failure(self, status_invalid("Missing %d-th output from {{node %s}}", i,
                                              run->ctx->instance->node->name));
    if (self->failure)
        return data_task_fail(task, status_ref(self->failure));
    element_move(run->ctx->outputs, self->results, self->n_results);
    return DATA_ELEMENT;
}

/* ---- the kernel ---- */

static struct status *take_rows(struct kernel_ctx *ctx, struct map_run *self) {
    for (int i = 0; i < self->n_arguments; i++) {
        const struct tensor *t = &ctx->inputs[i];
        if (t->rank == 0)
            return status_invalid("All inputs must have rank at least 1. Input %d has a rank of 0.",
                                  i);
        if (i > 0 && tensor_dim(t, 0) != self->n_rows)
            return status_invalid("All inputs must have the same dimension 0. Input %d has leading "
                                  "dimension %lld, while all previous "
                                  "inputs have leading dimension %lld",
                                  i, (long long)tensor_dim(t, 0), (long long)self->n_rows);
        self->n_rows = tensor_dim(t, 0);
        tensor_copy(&self->arguments[i], t);
    }
    return NULL;
}

static struct status *map_take(struct kernel_ctx *ctx, struct map_run *self) {
    const struct attr_value *shapes = NULL;
    int n_shapes = 0;
    self->n_arguments = dataset_list_length(ctx, "Targuments");
    self->n_results = ctx->instance->n_outputs;
    self->arguments = element_new(self->n_arguments);
    self->results = element_new(self->n_results);
    TRY(node_get_list(ctx->instance->node, "output_shapes", &shapes, &n_shapes));
    if (n_shapes != self->n_results)
        return status_invalid(
            "`output_shapes` must be the same length as `output_types` (%d vs. %d)", n_shapes,
            self->n_results);
    self->shapes = xcalloc((size_t)n_shapes + 1, sizeof(*self->shapes));
    for (int i = 0; i < n_shapes; i++)
        self->shapes[i] = shapes[i].shape;
    TRY(take_rows(ctx, self));
    TRY(dataset_fn_init(ctx, "f", self->n_arguments, dataset_list_length(ctx, "Tcaptured"),
                        &self->fn));
    for (int i = 0; i < MIN(self->fn.function->n_rets, self->n_results); i++)
        if (self->fn.function->ret_types[i] != dtype_base((enum dtype)ctx->instance->out_types[i]))
            return status_invalid(
                "Mismatch in function return type and expected output type for output: %d", i);
    return dataset_fn_check(&self->fn, ctx->instance->out_types, self->n_results);
}

static enum kernel_result map_compute(struct kernel_ctx *ctx) {
    struct map_run *self = xcalloc(1, sizeof(*self));
    self->run.poll = map_poll;
    self->run.fini = map_fini;
    struct status *st = map_take(ctx, self);
    if (!st)
        return pipeline_start(ctx, &self->run);
    map_fini(&self->run);
    return kernel_fail(ctx, st);
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "MapDefun", .compute = map_compute, .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
};
// clang-format on

const struct kernel_list map_defun_kernels = {rows, ARRAY_LEN(rows)};
