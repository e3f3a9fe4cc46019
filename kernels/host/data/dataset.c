/* Makes, checks and frees datasets, iterators, elements and functions of elements, for all kinds
 * (kernels/host/data/dataset.h). */
#include "kernels/host/data/dataset.h"

#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/support/named_resource.h"
#include "kernels/host/data/dataset_random.h"
#include "kernels/support/variant.h"
#include "kernels/support/variant_tensors.h"

/* ---- elements ---- */

struct tensor *element_new(int n) {
    size_t size = ((size_t)n + 1) * sizeof(struct tensor);
    struct tensor *tensors = aligned_alloc(_Alignof(struct tensor), size);
    if (!tensors)
        out_of_memory(size);
    memset(tensors, 0, size);
    return tensors;
}

void element_clear(struct tensor *tensors, int n) {
    for (int i = 0; i < n; i++)
        tensor_clear(&tensors[i]);
}

void element_free(struct tensor *tensors, int n) {
    if (tensors)
        element_clear(tensors, n);
    free(tensors);
}

void element_move(struct tensor *to, struct tensor *from, int n) {
    for (int i = 0; i < n; i++)
        tensor_move(&to[i], &from[i]);
}

void element_copy(struct tensor *to, const struct tensor *from, int n) {
    for (int i = 0; i < n; i++)
        tensor_copy(&to[i], &from[i]);
}

struct status *element_wrap(struct tensor *part, struct tensor *to, int64_t at) {
    struct variant_tensors *variant = NULL;
    TRY(variant_tensors_new(&variant_tensor_type, 1, &variant));
    tensor_set_object(to, at, &variant->object);
    tensor_move(&variant->held[0], part);
    return variant_tensors_seal(variant);
}

/* ---- environments ---- */

static struct seed_owner *owner_of(struct dataset *dataset) {
    struct seed_owner *owner = atomic_load_explicit(&dataset->owner, memory_order_acquire);
    if (!owner) {
        struct seed_owner *made = seed_owner_new();
        if (atomic_compare_exchange_strong(&dataset->owner, &owner, made))
            owner = made;
        else
            seed_owner_unref(made);
    }
    return seed_owner_ref(owner);
}

struct dataset_env *dataset_env_new(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct dataset_env *env = xcalloc(1, sizeof(*env));
    atomic_init(&env->n_refs, 1);
    env->host = ctx->host;
    env->allocator = ctx->instance->allocator;
    env->pool = ctx->pool;
    env->io_pool = ctx->host->io_pool(ctx);
    env->root = env;
    env->owner = dataset ? owner_of(dataset) : seed_owner_new();
    env->keeps_functions = !dataset;
    CHECK(pthread_mutex_init(&env->lock, NULL) == 0);
    return env;
}

static struct dataset_env *branch_new(struct dataset_env *env, int number) {
    struct dataset_env *branch = xcalloc(1, sizeof(*branch));
    branch->host = env->host;
    branch->allocator = env->allocator;
    branch->pool = env->pool;
    branch->io_pool = env->io_pool;
    branch->root = env->root;
    branch->keeps_functions = env->keeps_functions;
    branch->number = number;
    branch->next = env->branches;
    branch->owner = seed_owner_branch(env->owner, number);
    CHECK(pthread_mutex_init(&branch->lock, NULL) == 0);
    return branch;
}

struct dataset_env *dataset_env_branch(struct dataset_env *env, int i) {
    pthread_mutex_lock(&env->lock);
    struct dataset_env *branch = env->branches;
    while (branch && branch->number != i)
        branch = branch->next;
    if (!branch)
        branch = env->branches = branch_new(env, i);
    pthread_mutex_unlock(&env->lock);
    return branch;
}

struct dataset_env *dataset_env_ref(struct dataset_env *env) {
    atomic_fetch_add_explicit(&env->root->n_refs, 1, memory_order_relaxed);
    return env;
}

static void env_free(struct dataset_env *env) {
    for (struct dataset_env *branch = env->branches, *next; branch; branch = next) {
        next = branch->next;
        env_free(branch);
    }
    object_unref(env->scope);
    seed_owner_unref(env->owner);
    if (env->seeds)
        free(env->seeds->words);
    free(env->seeds);
    pthread_mutex_destroy(&env->lock);
    free(env);
}

void dataset_env_unref(struct dataset_env *env) {
    if (env && atomic_fetch_sub_explicit(&env->root->n_refs, 1, memory_order_acq_rel) == 1)
        env_free(env->root);
}

/* ---- datasets ---- */

static void set_no_components(struct dataset *dataset) {
    shapes_free(dataset->shapes, dataset->n_components);
    free(dataset->types);
    dataset->shapes = NULL;
    dataset->types = NULL;
    dataset->n_components = 0;
}

static void dataset_free(struct object *object) {
    struct dataset *dataset = CONTAINER_OF(object, struct dataset, object);
    if (dataset->kind->fini)
        dataset->kind->fini(dataset);
    set_no_components(dataset);
    for (int i = 0; i < dataset->n_inputs; i++)
        dataset_unref(dataset->inputs[i]);
    free(dataset->inputs);
    seed_owner_unref(atomic_load(&dataset->owner));
    free(dataset);
}

const struct object_type dataset_type = {.name = "tensorflow::DatasetVariantWrapper",
                                         .free = dataset_free};

void dataset_unref(struct dataset *dataset) {
    if (dataset)
        object_unref(&dataset->object);
}

static bool is_sent_dataset(const struct object *object) {
    struct variant_parts parts;
    const struct bytes *bytes = CONTAINER_OF(object, const struct bytes, object);
    return object->type == &variant_proto_type && variant_read_parts(bytes_span(bytes), &parts) &&
           span_is(parts.type_name, dataset_type.name);
}

static COLD struct status *dataset_was_sent(void) {
    return status_invalid("Tensor must be a Dataset object of this task: a dataset cannot be sent, "
                          "so place it where its iterator is.");
}

static struct status *dataset_decode(struct span proto, struct allocator *allocator,
                                     struct object **ret) {
    return dataset_was_sent();
}

static uint32_t dataset_depth(const struct object *object) {
    return (uint32_t)CONTAINER_OF(object, const struct dataset, object)->depth;
}

const struct variant_kind dataset_variant_kind = {
    .type = &dataset_type, .decode = dataset_decode, .depth = dataset_depth};

struct status *dataset_of(const struct tensor *t, struct dataset **ret) {
    if (t->dtype != DT_VARIANT || t->rank != 0 || !tensor_has_value(t))
        return status_invalid("Dataset tensor must be a scalar of dtype DT_VARIANT.");
    struct object *object = *(struct object *const *)tensor_cdata(t);
    if (!object || (object->type != &dataset_type && !is_sent_dataset(object)))
        return status_invalid("Tensor must be a Dataset object.");
    if (object->type != &dataset_type)
        return dataset_was_sent();
    *ret = CONTAINER_OF(object, struct dataset, object);
    return NULL;
}

struct dataset *dataset_new_bare(const struct dataset_kind *kind, int depth) {
    struct dataset *dataset = xcalloc(1, kind->dataset_size);
    object_init(&dataset->object, &dataset_type);
    dataset->kind = kind;
    dataset->depth = depth;
    return dataset;
}

void dataset_set_components(struct dataset *dataset, int n, const uint8_t *types,
                            const struct shape *shapes) {
    uint8_t *new_types = xcalloc((size_t)n + 1, 1);
    struct shape *new_shapes = xcalloc((size_t)n + 1, sizeof(*new_shapes));
    for (int i = 0; i < n; i++) {
        new_types[i] = types[i];
        new_shapes[i] = shapes ? shape_keep(shapes[i]) : SHAPE_UNKNOWN;
    }
    set_no_components(dataset); /* the arguments may come from this dataset */
    dataset->n_components = n;
    dataset->types = new_types;
    dataset->shapes = new_shapes;
}

static struct status *take_inputs(struct kernel_ctx *ctx, struct dataset *dataset, int n_inputs) {
    dataset->inputs = xcalloc((size_t)n_inputs + 1, sizeof(*dataset->inputs));
    for (int i = 0; i < n_inputs; i++) {
        struct dataset *input = NULL;
        TRY(dataset_of(&ctx->inputs[i], &input));
        dataset->inputs[dataset->n_inputs++] = dataset_ref(input);
    }
    /* captured values may hold datasets as well */
    for (int i = 0; i < ctx->instance->n_inputs; i++)
        dataset->depth = MAX(dataset->depth, (int)variant_depth_with(&ctx->inputs[i]));
    if (dataset->depth > DATASET_MAX_DEPTH)
        return status_invalid("Datasets nest too deep: the limit is %d", DATASET_MAX_DEPTH);
    if (n_inputs > 0)
        dataset_set_components(dataset, dataset->inputs[0]->n_components, dataset->inputs[0]->types,
                               dataset->inputs[0]->shapes);
    return NULL;
}

struct status *dataset_new(struct kernel_ctx *ctx, const struct dataset_kind *kind, int n_inputs,
                           struct dataset **ret) {
    struct dataset *dataset = dataset_new_bare(kind, 1);
    struct status *st = take_inputs(ctx, dataset, n_inputs);
    if (st)
        dataset_unref(dataset);
    else
        *ret = dataset;
    return st;
}

struct status *dataset_declare(struct kernel_ctx *ctx, struct dataset *dataset,
                               const char *types_attr, const char *shapes_attr) {
    const struct attr_value *types = NULL, *shapes = NULL;
    int n = 0, n_shapes = 0;
    TRY(node_get_list(ctx->instance->node, types_attr ? types_attr : "output_types", &types, &n));
    TRY(node_get_list(ctx->instance->node, shapes_attr ? shapes_attr : "output_shapes", &shapes,
                      &n_shapes));
    if (n != n_shapes)
        return status_invalid(
            "output_types and output_shapes must be the same length, got: %d vs. %d", n, n_shapes);
    uint8_t *plain_types = xcalloc((size_t)n + 1, 1);
    struct shape *plain_shapes = xcalloc((size_t)n + 1, sizeof(*plain_shapes));
    for (int i = 0; i < n; i++) {
        plain_types[i] = (uint8_t)types[i].dtype;
        plain_shapes[i] = shapes[i].shape;
    }
    dataset_set_components(dataset, n, plain_types, plain_shapes);
    free(plain_types);
    free(plain_shapes);
    return NULL;
}

enum kernel_result dataset_output(struct kernel_ctx *ctx, struct dataset *dataset_take) {
    tensor_init_scalar_object(&ctx->outputs[0], DT_VARIANT, &dataset_take->object);
    return KERNEL_DONE;
}

enum kernel_result dataset_finish(struct kernel_ctx *ctx, struct dataset *dataset_take,
                                  struct status *status_take) {
    if (!status_take)
        return dataset_output(ctx, dataset_take);
    dataset_unref(dataset_take);
    return kernel_fail(ctx, status_take);
}

int64_t dataset_cardinality(struct dataset *dataset) {
    if (dataset->kind->cardinality)
        return dataset->kind->cardinality(dataset);
    return dataset->kind->keeps_cardinality ? dataset_cardinality(dataset->inputs[0])
                                            : CARDINALITY_UNKNOWN;
}

/* ---- iterators ---- */

struct status *dataset_iter_new(struct dataset *dataset, struct dataset_env *env,
                                struct dataset_iter **ret) {
    while (dataset->kind->is_transparent)
        dataset = dataset->inputs[0];
    struct dataset_iter *iter = xcalloc(1, dataset->kind->iter_size);
    iter->dataset = dataset_ref(dataset);
    iter->env = dataset_env_ref(env);
    struct status *st = dataset->kind->begin ? dataset->kind->begin(iter) : NULL;
    if (st)
        dataset_iter_free(iter);
    else
        *ret = iter;
    return st;
}

void dataset_iter_free(struct dataset_iter *iter) {
    if (!iter)
        return;
    if (iter->dataset->kind->end)
        iter->dataset->kind->end(iter);
    dataset_unref(iter->dataset);
    dataset_env_unref(iter->env);
    free(iter);
}

enum data_poll dataset_iter_next(struct dataset_iter *iter, struct data_task *task,
                                 struct tensor *out) {
    enum data_poll stop;
    if (data_task_must_stop(task, &stop))
        return stop;
    return iter->dataset->kind->next(iter, task, out);
}

struct status *dataset_begin_one(struct dataset_iter *iter) {
    return dataset_iter_new(iter->dataset->inputs[0], iter->env,
                            &((struct dataset_iter_one *)iter)->input);
}

void dataset_end_one(struct dataset_iter *iter) {
    dataset_iter_free(((struct dataset_iter_one *)iter)->input);
}

/* ---- functions ---- */

struct status *dataset_fn_init(struct kernel_ctx *ctx, const char *attr, int first, int n,
                               struct dataset_fn *ret) {
    if (!ctx->host->function_find)
        return status_unimplemented("Functions can be called on workers only");
    TRY(ctx->host->function_find(ctx, attr, &ret->function));
    ret->captured = element_new(n);
    ret->n_captured = n;
    element_copy(ret->captured, &ctx->inputs[first], n);
    return NULL;
}

void dataset_fn_fini(struct dataset_fn *fn) {
    element_free(fn->captured, fn->n_captured);
    if (fn->function)
        object_unref(&fn->function->object);
}

struct status *dataset_fn_check(const struct dataset_fn *fn, const uint8_t *types, int n) {
    const struct function *function = fn->function;
    if (function->n_rets != n)
        return status_invalid("Function %s has %d results where %d are wanted", function->name,
                              function->n_rets, n);
    for (int i = 0; i < n; i++)
        if (function->ret_types[i] != types[i])
            return status_invalid("Result %d of function %s is %s where %s is wanted", i,
                                  function->name, dtype_name((enum dtype)function->ret_types[i]),
                                  dtype_name((enum dtype)types[i]));
    return NULL;
}

int dataset_list_length(const struct kernel_ctx *ctx, const char *attr) {
    const struct attr_value *value = node_attr(ctx->instance->node, attr);
    return value && (value->type & ATTR_LIST) ? value->list.n_values : 0;
}

static struct status *take_function(const struct dataset_fn *fn, struct dataset_env *env,
                                    struct function **ret) {
    if (env->keeps_functions) {
        object_ref(&fn->function->object);
        *ret = fn->function;
        return NULL;
    }
    pthread_mutex_lock(&env->lock);
    struct status *st = env->host->function_fresh(fn->function, &env->scope, ret);
    pthread_mutex_unlock(&env->lock);
    return st;
}

struct status *dataset_call_init(struct dataset_call *call, const struct dataset_fn *fn,
                                 struct dataset_env *env, int n_inputs) {
    TRY(take_function(fn, env, &call->function));
    call->n_inputs = n_inputs;
    call->n_args = n_inputs + fn->n_captured;
    call->args = element_new(call->n_args);
    element_copy(call->args + n_inputs, fn->captured, fn->n_captured);
    call->rets = element_new(call->function->n_rets);
    call->call.call.function = call->function;
    call->call.call.args = call->args;
    call->call.call.n_args = call->n_args;
    call->call.call.rets = call->rets;
    return NULL;
}

void dataset_call_fini(struct dataset_call *call) {
    if (!call->function)
        return;
    CHECK(!call->is_running);
    element_free(call->args, call->n_args);
    element_free(call->rets, call->function->n_rets);
    object_unref(&call->function->object);
}

enum data_poll dataset_call_poll(struct dataset_call *call, struct data_task *task) {
    if (!call->is_running) {
        call->is_running = true;
        data_call_start(&call->call, task);
    }
    if (!data_call_is_ended(&call->call))
        return DATA_PENDING;
    call->is_running = false;
    struct status *st = data_call_take(&call->call, task);
    element_clear(call->args, call->n_inputs);
    return st ? data_task_fail(task, st) : DATA_ELEMENT;
}

/* ---- inputs and outputs ---- */

struct status *dataset_check_outputs(const struct kernel_ctx *ctx) {
    const struct attr_value *shapes = NULL;
    int n = 0;
    TRY(node_get_list(ctx->instance->node, "output_shapes", &shapes, &n));
    for (int i = 0; i < ctx->instance->n_outputs && i < n; i++)
        if (!shape_is_compatible(shapes[i].shape, tensor_shape(&ctx->outputs[i])))
            return status_invalid("Incompatible shapes at component %d: expected %s but got %s.", i,
                                  SHAPE_TEXT(shapes[i].shape), TENSOR_SHAPE_TEXT(&ctx->outputs[i]));
    return NULL;
}

struct status *dataset_scalar_i64(struct kernel_ctx *ctx, int input, const char *name,
                                  int64_t *ret) {
    const struct tensor *t = kernel_input(ctx, input);
    if (t->rank != 0 || (t->dtype != DT_INT64 && t->dtype != DT_INT32))
        return status_invalid("%s must be a scalar", name);
    *ret = tensor_index_at(t, 0);
    return NULL;
}

struct status *dataset_scalar_bool(struct kernel_ctx *ctx, int input, const char *name, bool *ret) {
    const struct tensor *t = kernel_input(ctx, input);
    if (t->rank != 0 || t->dtype != DT_BOOL)
        return status_invalid("%s must be a scalar", name);
    *ret = *(const bool *)tensor_cdata(t);
    return NULL;
}
