/* Keeps iterators as resources, and runs the requests for their next elements
 * (kernels/host/data/iterator.h). */
#include "kernels/host/data/iterator.h"

#include <stdlib.h>

#include "kernels/host.h"
#include "kernels/host/data/dataset_random.h"
#include "kernels/host/data/iterator_internal.h"
#include "kernels/host/data/optional.h"

/* ---- states ---- */

struct iterator_state *iterator_state_ref(struct iterator_state *state) {
    atomic_fetch_add_explicit(&state->n_refs, 1, memory_order_relaxed);
    return state;
}

void iterator_state_unref(struct iterator_state *state) {
    if (!state || atomic_fetch_sub_explicit(&state->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    dataset_iter_free(state->iter);
    dataset_env_unref(state->env);
    pthread_mutex_destroy(&state->lock);
    free(state);
}

struct status *iterator_state_new(struct kernel_ctx *ctx, struct dataset *dataset,
                                  struct seed_log *seeds_take, struct iterator_state **ret) {
    struct iterator_state *state = xcalloc(1, sizeof(*state));
    atomic_init(&state->n_refs, 1);
    CHECK(pthread_mutex_init(&state->lock, NULL) == 0);
    list_init(&state->waiting);
    state->env = dataset_env_new(ctx, dataset);
    state->env->seeds = seeds_take;
    struct status *st = dataset_iter_new(dataset, state->env, &state->iter);
    if (st)
        iterator_state_unref(state);
    else
        *ret = state;
    return st;
}

/* ---- the resource ---- */

static void iterator_free(struct object *object) {
    struct iterator *iterator = CONTAINER_OF(object, struct iterator, object);
    iterator_state_unref(iterator->state);
    shapes_free(iterator->shapes, iterator->n_components);
    free(iterator->types);
    pthread_mutex_destroy(&iterator->lock);
    free(iterator);
}

const struct object_type iterator_type = {.name = "N10tensorflow4data16IteratorResourceE",
                                          .free = iterator_free};

struct status *iterator_new(struct kernel_ctx *ctx, struct iterator **ret) {
    struct iterator *iterator = xcalloc(1, sizeof(*iterator));
    int n_shapes = 0;
    object_init(&iterator->object, &iterator_type);
    CHECK(pthread_mutex_init(&iterator->lock, NULL) == 0);
    struct status *st = read_types(ctx->instance->node, "output_types", 0, &iterator->types,
                                   &iterator->n_components);
    if (!st)
        st = read_shapes(ctx->instance->node, "output_shapes", 0, true, &iterator->shapes,
                         &n_shapes);
    if (!st && n_shapes != iterator->n_components) {
        st =
            status_invalid("output_types and output_shapes must be the same length, got: %d vs. %d",
                           iterator->n_components, n_shapes);
        shapes_free(iterator->shapes, n_shapes);
        iterator->shapes = NULL;
    }
    if (st)
        object_unref(&iterator->object);
    else
        *ret = iterator;
    return st;
}

struct status *iterator_check(const struct iterator *iterator, const uint8_t *types,
                              const struct shape *shapes, int n) {
    if (n != iterator->n_components)
        return status_invalid("Number of components does not match: expected %d types but got %d.",
                              iterator->n_components, n);
    for (int i = 0; i < n; i++)
        if (types[i] != iterator->types[i])
            return status_invalid("Data type mismatch at component %d: expected %s but got %s.", i,
                                  dtype_name((enum dtype)iterator->types[i]),
                                  dtype_name((enum dtype)types[i]));
    for (int i = 0; i < n; i++)
        if (!shape_is_compatible(iterator->shapes[i], shapes[i]))
            return status_invalid("Incompatible shapes at component %d: expected %s but got %s.", i,
                                  SHAPE_TEXT(iterator->shapes[i]), SHAPE_TEXT(shapes[i]));
    return NULL;
}

struct status *iterator_make(struct kernel_ctx *ctx, struct iterator *iterator,
                             struct dataset *dataset) {
    struct iterator_state *state = NULL;
    TRY(iterator_check(iterator, dataset->types, dataset->shapes, dataset->n_components));
    TRY(iterator_state_new(ctx, dataset, xcalloc(1, sizeof(struct seed_log)), &state));
    iterator_set_state(iterator, state);
    return NULL;
}

void iterator_set_state(struct iterator *iterator, struct iterator_state *state_take) {
    pthread_mutex_lock(&iterator->lock);
    struct iterator_state *old = iterator->state;
    iterator->state = state_take;
    pthread_mutex_unlock(&iterator->lock);
    iterator_state_unref(old);
}

struct iterator_state *iterator_get_state(struct iterator *iterator) {
    pthread_mutex_lock(&iterator->lock);
    struct iterator_state *state = iterator->state ? iterator_state_ref(iterator->state) : NULL;
    pthread_mutex_unlock(&iterator->lock);
    return state;
}

bool iterator_is_made(struct iterator *iterator) {
    pthread_mutex_lock(&iterator->lock);
    bool is_made = iterator->state != NULL;
    pthread_mutex_unlock(&iterator->lock);
    return is_made;
}

void iterator_clear(struct iterator *iterator) { iterator_set_state(iterator, NULL); }

/* ---- requests ---- */

/* A kernel's execution that polls. Two events must happen, the kernel's return and the end of the
 * poll, and the later one completes the execution. */
struct request {
    struct data_task task;
    struct kernel_ctx *ctx;
    struct kernel_cancel_hook hook;
    struct iterator_state *state; /* GetNext only */
    struct pipeline_run *run;     /* other requests only */
    struct list link;             /* in state->waiting */
    struct tensor *element;       /* GetNextAsOptional only; otherwise the outputs are set */
    bool as_optional, has_hook;
    enum data_poll result;
    _Atomic int phase;
};

enum { PHASE_NONE, PHASE_RETURNED, PHASE_ENDED };

static struct request *request_of(struct data_task *task) {
    return CONTAINER_OF(task, struct request, task);
}

static void request_free(struct data_task *task) {
    struct request *request = request_of(task);
    if (request->element)
        element_free(request->element, request->state->iter->dataset->n_components);
    iterator_state_unref(request->state);
    if (request->run) {
        dataset_env_unref(request->run->env);
        request->run->fini(request->run);
    }
    data_task_fini(task);
    free(request);
}

static struct status *fill_outputs(struct request *request) {
    struct kernel_ctx *ctx = request->ctx;
    if (request->result == DATA_FAILED) {
        struct status *st = request->task.status;
        request->task.status = NULL;
        return st;
    }
    if (request->run)
        return NULL;
    const struct dataset *dataset = request->state->iter->dataset;
    if (request->result == DATA_END && !request->as_optional)
        return status_out_of_range("End of sequence");
    if (request->as_optional)
        return optional_make(request->result == DATA_ELEMENT, request->element,
                             dataset->n_components, &ctx->outputs[0]);
    return dataset_check_outputs(ctx);
}

/* Completes the execution with the result in ctx. */
static void complete(struct request *request) {
    struct kernel_ctx *ctx = request->ctx;
    if (request->has_hook && ctx->host->cancel_deregister(ctx, &request->hook))
        data_task_unref(&request->task);
    struct status *st = fill_outputs(request);
    if (st)
        kernel_fail(ctx, st);
}

/* Wakes the next request in the line. `counts`: this request has advanced the position. */
static void state_release(struct iterator_state *state, bool counts) {
    pthread_mutex_lock(&state->lock);
    state->n_done += counts;
    struct list *link = list_pop_front(&state->waiting);
    state->is_busy = link != NULL;
    struct data_task *next =
        link ? data_task_ref(&LIST_ENTRY(link, struct request, link)->task) : NULL;
    pthread_mutex_unlock(&state->lock);
    if (next)
        data_task_wake_on_pool(next);
    data_task_unref(next);
}

static void request_end(struct request *request, enum data_poll result) {
    request->result = result;
    if (atomic_exchange_explicit(&request->phase, PHASE_ENDED, memory_order_acq_rel) !=
        PHASE_RETURNED)
        return;
    struct kernel_ctx *ctx = request->ctx;
    complete(request);
    data_task_unref(&request->task); /* the execution's reference */
    ctx->host->done(ctx);
}

static void on_ended(struct data_task *task, enum data_poll result) {
    struct request *request = request_of(task);
    if (request->state)
        state_release(request->state, result != DATA_FAILED || !atomic_load(&task->is_cancelled));
    request_end(request, result);
}

static enum data_poll request_poll(struct data_task *task) {
    struct request *request = request_of(task);
    if (request->run)
        return request->run->poll(request->run, task);
    pthread_mutex_lock(&request->state->lock);
    bool is_waiting = !list_is_empty(&request->link); /* it was woken while others are before it */
    pthread_mutex_unlock(&request->state->lock);
    if (is_waiting)
        return DATA_PENDING;
    return dataset_iter_next(request->state->iter, task,
                             request->element ? request->element : request->ctx->outputs);
}

/* Ends a request that waits for the requests before it. Any other request ends when its poll does.
 */
static void on_cancel(struct kernel_cancel_hook *hook, struct status *why) {
    struct request *request = CONTAINER_OF(hook, struct request, hook);
    bool was_waiting = false;
    if (request->state) {
        pthread_mutex_lock(&request->state->lock);
        was_waiting = !list_is_empty(&request->link);
        list_remove(&request->link);
        pthread_mutex_unlock(&request->state->lock);
    }
    if (was_waiting) {
        data_task_fail(&request->task, status_ref(why));
        request_end(request, DATA_FAILED);
    } else {
        data_task_cancel(&request->task, why);
    }
    data_task_unref(&request->task); /* the reference of the hook */
}

/* Takes the execution's reference. `starts_now`: the request need not wait for others. */
static enum kernel_result request_start(struct request *request, bool starts_now) {
    struct kernel_ctx *ctx = request->ctx;
    struct data_task *task = data_task_ref(&request->task);
    if (starts_now)
        data_task_wake(task);
    if (atomic_load_explicit(&request->phase, memory_order_acquire) != PHASE_ENDED) {
        struct status *why = NULL;
        request->has_hook = true;
        data_task_ref(task);
        if (!ctx->host->cancel_register(ctx, &request->hook, &why)) {
            request->has_hook = false;
            on_cancel(&request->hook, why);
            status_unref(why);
        }
    }
    enum kernel_result result = KERNEL_PENDING;
    if (atomic_exchange_explicit(&request->phase, PHASE_RETURNED, memory_order_acq_rel) ==
        PHASE_ENDED) {
        complete(request);
        data_task_unref(task);
        result = KERNEL_DONE;
    }
    data_task_unref(task);
    return result;
}

static struct request *request_new(struct kernel_ctx *ctx) {
    struct request *request = xcalloc(1, sizeof(*request));
    data_task_init(&request->task, ctx->pool);
    request->task.poll = request_poll;
    request->task.ended = on_ended;
    request->task.free = request_free;
    request->ctx = ctx;
    request->hook.cancel = on_cancel;
    list_init(&request->hook.link);
    list_init(&request->link);
    atomic_init(&request->phase, PHASE_NONE);
    return request;
}

static struct status *check_node(const struct kernel_ctx *ctx, const struct dataset *dataset,
                                 bool as_optional) {
    const struct kernel_instance *instance = ctx->instance;
    if (as_optional)
        return NULL;
    if (instance->n_outputs != dataset->n_components)
        return status_invalid("Number of components does not match: expected %d types but got %d.",
                              instance->n_outputs, dataset->n_components);
    for (int i = 0; i < instance->n_outputs; i++)
        if (instance->out_types[i] != dataset->types[i])
            return status_invalid("Data type mismatch at component %d: expected %s but got %s.", i,
                                  dtype_name((enum dtype)instance->out_types[i]),
                                  dtype_name((enum dtype)dataset->types[i]));
    return NULL;
}

enum kernel_result iterator_get_next(struct kernel_ctx *ctx, struct iterator *iterator,
                                     bool as_optional) {
    struct iterator_state *state = iterator_get_state(iterator);
    if (!state)
        return kernel_fail(
            ctx, status_failed_precondition(
                     "GetNext() failed because the iterator has not been initialized. Ensure that "
                     "you have run the "
                     "initializer operation for this iterator before getting the next element."));
    struct status *st = check_node(ctx, state->iter->dataset, as_optional);
    if (st) {
        iterator_state_unref(state);
        return kernel_fail(ctx, st);
    }
    struct request *request = request_new(ctx);
    request->state = state;
    request->as_optional = as_optional;
    if (as_optional)
        request->element = element_new(state->iter->dataset->n_components);
    pthread_mutex_lock(&state->lock);
    bool starts_now = !state->is_busy;
    state->is_busy = true;
    if (!starts_now)
        list_push_back(&state->waiting, &request->link);
    pthread_mutex_unlock(&state->lock);
    return request_start(request, starts_now);
}

enum kernel_result pipeline_start(struct kernel_ctx *ctx, struct pipeline_run *run_take) {
    struct request *request = request_new(ctx);
    run_take->ctx = ctx;
    run_take->env = dataset_env_new(ctx, NULL);
    request->run = run_take;
    return request_start(request, true);
}
