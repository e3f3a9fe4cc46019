/* Computes RemoteCall where only the step knows the target: calls the function on this task, when
 * the target names a device of this task. The master inlines calls whose target is a constant. */
#include <stdlib.h>

#include "common/graph/device_name.h"
#include "kernels/host/data/iterator.h"

extern const struct kernel_list remote_call_kernels;

struct remote_run {
    struct pipeline_run run;
    struct dataset_fn fn;
    struct dataset_call call;
};

static void remote_fini(struct pipeline_run *run) {
    struct remote_run *self = (struct remote_run *)run;
    dataset_call_fini(&self->call);
    dataset_fn_fini(&self->fn);
    free(self);
}

static enum data_poll remote_poll(struct pipeline_run *run, struct data_task *task) {
    struct remote_run *self = (struct remote_run *)run;
    enum data_poll result = dataset_call_poll(&self->call, task);
    if (result == DATA_ELEMENT)
        element_move(run->ctx->outputs, self->call.rets, self->fn.function->n_rets);
    return result;
}

static struct status *check_target(struct kernel_ctx *ctx) {
    const struct tensor *target = kernel_input(ctx, 0);
    struct device_name wanted, own;
    if (target->rank != 0)
        return status_invalid("RemoteCall's target must be a scalar string");
    struct span text = tensor_string(target, 0);
    TRY(device_name_parse(text, &wanted));
    TRY(device_name_parse(span_of(ctx->instance->device), &own));
    if (device_name_matches(&wanted, &own))
        return NULL;
    return status_unimplemented("RemoteCall to '%.*s', which the step computes, from %s: such a "
                                "call can only stay on its device",
                                (int)MIN(text.len, (size_t)200), text.data, ctx->instance->device);
}

/* The function itself is called, not a fresh one: so its random ops continue from call to call. */
static void prepare_call(struct kernel_ctx *ctx, struct remote_run *self) {
    struct dataset_call *call = &self->call;
    object_ref(&self->fn.function->object);
    call->function = self->fn.function;
    call->n_inputs = call->n_args = ctx->instance->n_inputs - 1;
    call->args = element_new(call->n_args);
    element_copy(call->args, &ctx->inputs[1], call->n_args);
    call->rets = element_new(call->function->n_rets);
    call->call.call = (struct function_call){
        .function = call->function, .args = call->args, .n_args = call->n_args, .rets = call->rets};
}

static struct status *remote_take(struct kernel_ctx *ctx, struct remote_run *self) {
    TRY(check_target(ctx));
    TRY(dataset_fn_init(ctx, "f", 1, 0, &self->fn));
    TRY(dataset_fn_check(&self->fn, ctx->instance->out_types, ctx->instance->n_outputs));
    prepare_call(ctx, self);
    return NULL;
}

static enum kernel_result remote_compute(struct kernel_ctx *ctx) {
    struct remote_run *self = xcalloc(1, sizeof(*self));
    self->run.poll = remote_poll;
    self->run.fini = remote_fini;
    struct status *st = remote_take(ctx, self);
    if (!st)
        return pipeline_start(ctx, &self->run);
    remote_fini(&self->run);
    return kernel_fail(ctx, st);
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "RemoteCall", .compute = remote_compute, .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
};
// clang-format on

const struct kernel_list remote_call_kernels = {rows, ARRAY_LEN(rows)};
