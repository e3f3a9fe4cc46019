/* Makes GeneratorDataset: a function makes the elements, one for each call, until it answers
 * OUT_OF_RANGE.
 *
 *   first element ──► init(args) ──► state ──► next(state, args) ──► element, again and again
 *   the end, or the iterator is freed ──► finalize(state, args), once
 *
 * Dataset.from_generator is built on it: the functions call Python code of the client
 * (kernels/host/calls). */
#include <stdlib.h>

#include "kernels/host/data/dataset.h"

extern const struct kernel_list dataset_generator_kernels;

struct generator_dataset {
    struct dataset base;
    struct dataset_fn init, next, finalize;
};

enum generator_phase { GENERATOR_NEW, GENERATOR_OPEN, GENERATOR_FINALIZING, GENERATOR_ENDED };

struct generator_iter {
    struct dataset_iter iter;
    struct dataset_call init, next, finalize;
    enum generator_phase phase;
    struct tensor *state; /* the n_state results of init, set from GENERATOR_OPEN on */
    int n_state;
};

static struct status *generator_begin(struct dataset_iter *iter) {
    struct generator_iter *self = (struct generator_iter *)iter;
    const struct generator_dataset *dataset = (const struct generator_dataset *)iter->dataset;
    TRY(dataset_call_init(&self->init, &dataset->init, iter->env, 0));
    self->n_state = self->init.function->n_rets;
    self->state = element_new(self->n_state);
    TRY(dataset_call_init(&self->next, &dataset->next, iter->env, self->n_state));
    return dataset_call_init(&self->finalize, &dataset->finalize, iter->env, self->n_state);
}

/* ---- an iterator that is freed before its end: finalize runs without it ---- */

struct parting {
    struct function_call call;
    struct pool_task task;
    struct dataset_env *env;
    struct tensor *args, *rets;
};

static void parting_end(struct parting *self) {
    struct function *function = self->call.function;
    function->host->function_finish(&self->call);
    status_unref(self->call.status); /* nobody is left to receive the failure */
    element_free(self->args, self->call.n_args);
    element_free(self->rets, function->n_rets);
    object_unref(&function->object);
    dataset_env_unref(self->env);
    free(self);
}

static void on_parted(struct function_call *call) {
    parting_end(CONTAINER_OF(call, struct parting, call));
}

static void part(struct pool_task *task) {
    struct parting *self = CONTAINER_OF(task, struct parting, task);
    const struct kernel_host *host = self->call.function->host;
    host->function_prepare(&self->call);
    if (host->function_call(&self->call) == KERNEL_DONE)
        parting_end(self);
}

/* Takes the state. */
static void finalize_later(struct generator_iter *self) {
    struct dataset_env *env = self->iter.env;
    struct dataset_call *finalize = &self->finalize;
    struct parting *parting = xcalloc(1, sizeof(*parting));
    element_move(finalize->args, self->state, self->n_state);
    parting->env = dataset_env_ref(env);
    parting->args = finalize->args;
    parting->rets = finalize->rets;
    parting->call = (struct function_call){.function = finalize->function,
                                           .args = parting->args,
                                           .rets = parting->rets,
                                           .n_args = finalize->n_args,
                                           .on_done = on_parted};
    object_ref(&finalize->function->object);
    finalize->args = finalize->rets = NULL;
    finalize->n_args = 0;
    parting->task.run = part;
    pool_submit(env->pool, &parting->task);
}

static void generator_end(struct dataset_iter *iter) {
    struct generator_iter *self = (struct generator_iter *)iter;
    if (self->phase == GENERATOR_OPEN && iter->env->pool)
        finalize_later(self);
    element_free(self->state, self->n_state);
    dataset_call_fini(&self->init);
    dataset_call_fini(&self->next);
    dataset_call_fini(&self->finalize);
}

/* ---- elements ---- */

static enum data_poll open_poll(struct generator_iter *self, struct data_task *task) {
    enum data_poll result = dataset_call_poll(&self->init, task);
    if (result != DATA_ELEMENT)
        return result;
    element_move(self->state, self->init.rets, self->n_state);
    self->phase = GENERATOR_OPEN;
    return result;
}

static enum data_poll finalize_poll(struct generator_iter *self, struct data_task *task) {
    if (!self->finalize.is_running)
        element_copy(self->finalize.args, self->state, self->n_state);
    enum data_poll result = dataset_call_poll(&self->finalize, task);
    if (result == DATA_PENDING)
        return result;
    self->phase = GENERATOR_ENDED;
    element_clear(self->state, self->n_state);
    element_clear(self->finalize.rets, self->finalize.function->n_rets);
    return result == DATA_FAILED ? result : DATA_END;
}

static enum data_poll generator_next(struct dataset_iter *iter, struct data_task *task,
                                     struct tensor *out) {
    struct generator_iter *self = (struct generator_iter *)iter;
    if (self->phase == GENERATOR_NEW) {
        enum data_poll result = open_poll(self, task);
        if (result != DATA_ELEMENT)
            return result;
    }
    if (self->phase == GENERATOR_FINALIZING)
        return finalize_poll(self, task);
    if (self->phase == GENERATOR_ENDED)
        return DATA_END;
    if (!self->next.is_running)
        element_copy(self->next.args, self->state, self->n_state);
    enum data_poll result = dataset_call_poll(&self->next, task);
    if (result == DATA_ELEMENT) {
        element_move(out, self->next.rets, iter->dataset->n_components);
        return result;
    }
    if (result != DATA_FAILED || status_code(task->status) != STATUS_OUT_OF_RANGE)
        return result;
    status_unref(task->status);
    task->status = NULL;
    self->phase = GENERATOR_FINALIZING;
    return finalize_poll(self, task);
}

static void generator_fini(struct dataset *dataset) {
    struct generator_dataset *self = (struct generator_dataset *)dataset;
    dataset_fn_fini(&self->init);
    dataset_fn_fini(&self->next);
    dataset_fn_fini(&self->finalize);
}

static const struct dataset_kind generator_kind = {.name = "Generator",
                                                   .dataset_size = sizeof(struct generator_dataset),
                                                   .iter_size = sizeof(struct generator_iter),
                                                   .begin = generator_begin,
                                                   .next = generator_next,
                                                   .end = generator_end,
                                                   .fini = generator_fini};

static struct status *take_functions(struct kernel_ctx *ctx, struct generator_dataset *self) {
    int n_init = dataset_list_length(ctx, "Tinit_func_args");
    int n_next = dataset_list_length(ctx, "Tnext_func_args");
    int n_finalize = dataset_list_length(ctx, "Tfinalize_func_args");
    TRY(dataset_fn_init(ctx, "init_func", 0, n_init, &self->init));
    TRY(dataset_fn_init(ctx, "next_func", n_init, n_next, &self->next));
    TRY(dataset_fn_init(ctx, "finalize_func", n_init + n_next, n_finalize, &self->finalize));
    TRY(dataset_declare(ctx, &self->base, NULL, NULL));
    return dataset_fn_check(&self->next, self->base.types, self->base.n_components);
}

static enum kernel_result generator_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &generator_kind, 0, &dataset));
    return dataset_finish(ctx, dataset, take_functions(ctx, (struct generator_dataset *)dataset));
}

// clang-format off
static const struct kernel_def rows[] = {
    {"GeneratorDataset", .compute = generator_compute, .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list dataset_generator_kernels = {rows, ARRAY_LEN(rows)};
