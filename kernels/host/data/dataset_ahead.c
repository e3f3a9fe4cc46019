/* Makes datasets that work ahead of their consumer: prefetch, parallel map, map and batch.
 *
 *   input ──► producer (a task of its own) ──► jobs, in order, at most `limit` ──► the consumer
 *
 * A job of prefetch is complete at once. A job of parallel map is a task that calls the function on
 * the pool.
 *
 * The producer stops when there are enough jobs, and is woken when half of them are taken. When a
 * consumer asks before the first job is complete, its task becomes the waiter. The end of the
 * iterator cancels producer and jobs. The last of them to end frees the shared state. */
#include <stdlib.h>

#include "kernels/host/data/dataset_batch.h"
#include "kernels/host/data/dataset_map.h"

extern const struct kernel_list dataset_ahead_kernels;

enum { AUTO_AHEAD = 8, MAX_PARALLEL = 4096 };

struct ahead_dataset {
    struct fn_dataset fn; /* parallel map only */
    int64_t limit;        /* how many jobs may exist */
    bool is_map;
};

struct producer {
    struct data_task task; /* its reference count is the producer's */
    struct ahead_dataset *dataset;
    struct dataset_env *env;
    struct dataset_iter *input; /* used by the poll only */
    /* used by the poll only: the element that is being read from the input */
    struct tensor *element;
    pthread_mutex_t lock; /* guards the fields below */
    struct list jobs;     /* struct job.link */
    int64_t n_jobs;
    struct data_waiter waiter;
    bool is_parked, has_ended, is_closed;
};

struct job {
    struct data_task task;
    struct list link; /* producer->jobs */
    struct producer *producer;
    struct dataset_call call;
    enum data_poll result;
    struct status *status;
    struct tensor *element;
    /* guarded by the producer's lock; until it is set, result and status are guarded as well */
    bool is_done;
};

static int n_out(const struct producer *producer) {
    return producer->dataset->fn.base.n_components;
}

/* ---- jobs ---- */

static void job_free(struct data_task *task) {
    struct job *job = CONTAINER_OF(task, struct job, task);
    element_free(job->element, n_out(job->producer));
    dataset_call_fini(&job->call);
    status_unref(job->status);
    data_task_unref(&job->producer->task);
    data_task_fini(task);
    free(job);
}

static enum data_poll job_poll(struct data_task *task) {
    struct job *job = CONTAINER_OF(task, struct job, task);
    enum data_poll result = dataset_call_poll(&job->call, task);
    if (result == DATA_ELEMENT)
        element_move(job->element, job->call.rets, n_out(job->producer));
    return result;
}

static void job_done(struct job *job, enum data_poll result, struct status *status_take) {
    struct producer *producer = job->producer;
    pthread_mutex_lock(&producer->lock);
    job->is_done = true;
    job->result = result;
    job->status = status_take;
    bool is_first = producer->jobs.next == &job->link;
    struct data_task *waiter = is_first ? data_waiter_take(&producer->waiter) : NULL;
    pthread_mutex_unlock(&producer->lock);
    data_waiter_wake(waiter);
}

static void job_ended(struct data_task *task, enum data_poll result) {
    struct job *job = CONTAINER_OF(task, struct job, task);
    struct status *status = result == DATA_FAILED ? map_failure(task->status) : NULL;
    task->status = NULL;
    job_done(job, result, status);
    data_task_unref(task); /* the reference that the task had while it ran */
}

static struct job *job_new(struct producer *producer) {
    struct job *job = xcalloc(1, sizeof(*job));
    data_task_init(&job->task, producer->env->pool);
    job->task.poll = job_poll;
    job->task.ended = job_ended;
    job->task.free = job_free;
    job->producer = producer;
    data_task_ref(&producer->task);
    list_init(&job->link);
    job->element = element_new(n_out(producer));
    return job;
}

/* Takes the caller's reference. False when nobody will ask for jobs any more. */
static bool job_push(struct producer *producer, struct job *job) {
    pthread_mutex_lock(&producer->lock);
    bool is_open = !producer->is_closed;
    if (is_open) {
        list_push_back(&producer->jobs, &job->link);
        producer->n_jobs++;
    }
    pthread_mutex_unlock(&producer->lock);
    if (!is_open)
        data_task_unref(&job->task);
    return is_open;
}

/* ---- the producer ---- */

static void producer_free(struct data_task *task) {
    struct producer *producer = CONTAINER_OF(task, struct producer, task);
    dataset_iter_free(producer->input);
    element_free(producer->element, producer->dataset->fn.base.inputs[0]->n_components);
    dataset_unref(&producer->dataset->fn.base);
    dataset_env_unref(producer->env);
    pthread_mutex_destroy(&producer->lock);
    data_task_fini(task);
    free(producer);
}

static bool has_enough(struct producer *producer) {
    pthread_mutex_lock(&producer->lock);
    bool has = producer->n_jobs >= producer->dataset->limit;
    producer->is_parked = has;
    pthread_mutex_unlock(&producer->lock);
    return has;
}

/* Starts a job that calls the function with the element that was read. */
static bool start_call(struct producer *producer) {
    struct job *job = job_new(producer);
    int n = producer->dataset->fn.base.inputs[0]->n_components;
    struct status *st = dataset_call_init(&job->call, &producer->dataset->fn.fn, producer->env, n);
    /* the reference of the list of jobs; the task itself has the other */
    data_task_ref(&job->task);
    if (!st)
        element_move(job->call.args, producer->element, n);
    else
        element_clear(producer->element, n);
    bool is_open = job_push(producer, job);
    if (is_open && !st) {
        data_task_wake_on_pool(&job->task);
        return true;
    }
    if (is_open)
        job_done(job, DATA_FAILED, st);
    else
        status_unref(st);
    data_task_unref(&job->task);
    return is_open;
}

static bool hand_on(struct producer *producer, struct data_task *task, enum data_poll result) {
    struct job *job = job_new(producer);
    if (result == DATA_ELEMENT)
        element_move(job->element, producer->element, n_out(producer));
    data_task_ref(&job->task);
    bool is_open = job_push(producer, job);
    if (is_open)
        job_done(job, result, task->status);
    else
        status_unref(task->status);
    task->status = NULL;
    data_task_unref(&job->task);
    return is_open;
}

static enum data_poll producer_poll(struct data_task *task) {
    struct producer *producer = CONTAINER_OF(task, struct producer, task);
    for (;;) {
        enum data_poll stop;
        if (data_task_must_stop(task, &stop))
            return stop;
        if (task->n_running == 0 && has_enough(producer))
            return DATA_PENDING;
        enum data_poll result = dataset_iter_next(producer->input, task, producer->element);
        if (result == DATA_PENDING)
            return result;
        bool is_open = result == DATA_ELEMENT && producer->dataset->is_map
                           ? start_call(producer)
                           : hand_on(producer, task, result);
        if (!is_open || result == DATA_END)
            return DATA_END;
    }
}

static void producer_ended(struct data_task *task, enum data_poll result) {
    data_task_unref(task); /* the reference that the task had while it ran */
}

static struct status *producer_new(struct dataset_iter *iter, struct producer **ret) {
    struct producer *producer = xcalloc(1, sizeof(*producer));
    data_task_init(&producer->task, iter->env->pool);
    producer->task.poll = producer_poll;
    producer->task.ended = producer_ended;
    producer->task.free = producer_free;
    producer->dataset = (struct ahead_dataset *)dataset_ref(iter->dataset);
    producer->env = dataset_env_ref(iter->env);
    producer->element = element_new(iter->dataset->inputs[0]->n_components);
    CHECK(pthread_mutex_init(&producer->lock, NULL) == 0);
    list_init(&producer->jobs);
    *ret = producer;
    return dataset_iter_new(iter->dataset->inputs[0], iter->env, &producer->input);
}

/* ---- the consumer ---- */

struct ahead_iter {
    struct dataset_iter iter;
    struct producer *producer;
    bool has_started, has_ended;
};

static struct status *ahead_begin(struct dataset_iter *iter) {
    return producer_new(iter, &((struct ahead_iter *)iter)->producer);
}

static void ahead_end(struct dataset_iter *iter) {
    struct producer *producer = ((struct ahead_iter *)iter)->producer;
    struct list jobs;
    if (!producer)
        return;
    struct status *why = status_new(STATUS_CANCELLED, "The iterator has ended");
    list_init(&jobs);
    pthread_mutex_lock(&producer->lock);
    producer->is_closed = true;
    list_splice_back(&jobs, &producer->jobs);
    struct data_task *waiter = data_waiter_take(&producer->waiter);
    pthread_mutex_unlock(&producer->lock);
    data_task_unref(waiter);
    if (((struct ahead_iter *)iter)->has_started)
        data_task_cancel(&producer->task, why);
    for (struct list *link; (link = list_pop_front(&jobs));) {
        struct job *job = LIST_ENTRY(link, struct job, link);
        if (job->call.function) /* else it hands on the end or a failure, and has no task to run */
            data_task_cancel(&job->task, why);
        data_task_unref(&job->task);
    }
    status_unref(why);
    data_task_unref(&producer->task);
}

/* Takes the first job if it is complete. Otherwise the task waits for it. */
static struct job *take_job(struct producer *producer, struct data_task *task,
                            bool *ret_wakes_producer) {
    struct job *job = NULL;
    pthread_mutex_lock(&producer->lock);
    if (!list_is_empty(&producer->jobs))
        job = LIST_ENTRY(producer->jobs.next, struct job, link);
    if (job && job->is_done) {
        list_remove(&job->link);
        producer->n_jobs--;
    } else {
        job = NULL;
        data_waiter_set(&producer->waiter, task);
    }
    *ret_wakes_producer =
        job && producer->is_parked && producer->n_jobs <= producer->dataset->limit / 2;
    if (*ret_wakes_producer)
        producer->is_parked = false;
    pthread_mutex_unlock(&producer->lock);
    return job;
}

static enum data_poll ahead_next(struct dataset_iter *iter, struct data_task *task,
                                 struct tensor *out) {
    struct ahead_iter *self = (struct ahead_iter *)iter;
    struct producer *producer = self->producer;
    bool wakes_producer;
    if (self->has_ended)
        return DATA_END;
    struct job *job = take_job(producer, task, &wakes_producer);
    if (!self->has_started) {
        self->has_started = true;
        data_task_ref(&producer->task); /* the reference that the task has while it runs */
        data_task_wake_on_pool(&producer->task);
    } else if (wakes_producer) {
        data_task_wake_on_pool(&producer->task);
    }
    if (!job)
        return DATA_PENDING;
    enum data_poll result = job->result;
    if (result == DATA_ELEMENT)
        element_move(out, job->element, iter->dataset->n_components);
    if (result == DATA_FAILED) {
        data_task_fail(task, job->status);
        job->status = NULL;
    }
    self->has_ended = result == DATA_END;
    data_task_unref(&job->task);
    return result;
}

static int64_t ahead_cardinality(struct dataset *dataset) {
    return dataset_cardinality(dataset->inputs[0]);
}

static const struct dataset_kind ahead_kind = {.name = "Prefetch",
                                               .dataset_size = sizeof(struct ahead_dataset),
                                               .iter_size = sizeof(struct ahead_iter),
                                               .begin = ahead_begin,
                                               .next = ahead_next,
                                               .end = ahead_end,
                                               .fini = fn_dataset_fini,
                                               .cardinality = ahead_cardinality};

/* ---- kernels ---- */

static enum kernel_result prefetch_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    int64_t size = 0;
    KERNEL_TRY(ctx, dataset_scalar_i64(ctx, 1, "buffer_size", &size));
    if (size < -1)
        return kernel_fail(
            ctx,
            status_invalid("buffer_size must be >= 0 or set buffer_size to be -1 for auto-tuning"));
    if (size == 0) {
        KERNEL_TRY(ctx, dataset_of(kernel_input(ctx, 0), &dataset));
        return dataset_output(ctx, dataset_ref(dataset));
    }
    KERNEL_TRY(ctx, dataset_new(ctx, &ahead_kind, 1, &dataset));
    ((struct ahead_dataset *)dataset)->limit = size < 0 ? AUTO_AHEAD : size;
    return dataset_output(ctx, dataset);
}

static struct status *parallel_take(struct kernel_ctx *ctx, struct dataset *dataset,
                                    int calls_input) {
    struct ahead_dataset *self = (struct ahead_dataset *)dataset;
    self->is_map = dataset->is_map = true;
    TRY(fn_dataset_take(ctx, dataset, "f"));
    TRY(dataset_fn_check(&self->fn.fn, dataset->types, dataset->n_components));
    TRY(dataset_scalar_i64(ctx, calls_input, "num_parallel_calls", &self->limit));
    if (self->limit == -1)
        self->limit = ctx->pool ? 2 * pool_n_threads(ctx->pool) : 2;
    if (self->limit <= 0)
        return status_invalid("num_parallel_calls must be greater than zero.");
    self->limit = MIN(self->limit, (int64_t)MAX_PARALLEL);
    return NULL;
}

static enum kernel_result parallel_map_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &ahead_kind, 1, &dataset));
    return dataset_finish(ctx, dataset, parallel_take(ctx, dataset, ctx->instance->n_inputs - 1));
}

/* Takes a batch of a parallel map. The declared shapes are those of the batch. */
static struct status *map_and_batch_take(struct kernel_ctx *ctx, struct dataset *map,
                                         struct dataset **ret) {
    int first = 1 + dataset_list_length(ctx, "Targuments");
    int64_t batch_size;
    bool drops_remainder;
    TRY(parallel_take(ctx, map, first + 1));
    TRY(dataset_scalar_i64(ctx, first, "batch_size", &batch_size));
    TRY(dataset_scalar_bool(ctx, first + 2, "drop_remainder", &drops_remainder));
    if (batch_size <= 0)
        return status_invalid("batch_size must be greater than zero.");
    struct dataset *batch = dataset_new_bare(&batch_kind, map->depth + 1);
    struct batch_dataset *self = (struct batch_dataset *)batch;
    dataset_set_components(batch, map->n_components, map->types, map->shapes);
    dataset_set_components(map, map->n_components, map->types, NULL);
    batch->inputs = xcalloc(1, sizeof(*batch->inputs));
    batch->inputs[0] = dataset_ref(map);
    batch->n_inputs = 1;
    self->batch_size = batch_size;
    self->drops_remainder = drops_remainder;
    self->is_fused = true;
    *ret = batch;
    return NULL;
}

static enum kernel_result map_and_batch_compute(struct kernel_ctx *ctx) {
    struct dataset *map = NULL, *batch = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &ahead_kind, 1, &map));
    struct status *st = map_and_batch_take(ctx, map, &batch);
    dataset_unref(map);
    return dataset_finish(ctx, batch, st);
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("PrefetchDataset", prefetch_compute),
    DATASET_KERNEL("ParallelMapDataset", parallel_map_compute),
    DATASET_KERNEL("ParallelMapDatasetV2", parallel_map_compute),
    DATASET_KERNEL("MapAndBatchDataset", map_and_batch_compute),
    DATASET_KERNEL("ExperimentalMapAndBatchDataset", map_and_batch_compute),
};
// clang-format on

const struct kernel_list dataset_ahead_kernels = {rows, ARRAY_LEN(rows)};
