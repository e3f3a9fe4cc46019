/* Computes the MultiDeviceIterator ops: the elements of one dataset dealt out in turns to numbered
 * shards.
 *
 *   element i ─► buffer of shard i mod n ─► GetNextFromShard of that shard
 *
 * A request whose buffer is empty pulls elements until one is its own, one request at a time. While
 * the buffer whose turn it is is full, nobody pulls, and requests wait without a thread until a
 * request of that shard comes. */
#include <stdlib.h>

#include "kernels/host.h"
#include "kernels/host/data/handle_string.h"
#include "kernels/host/data/iterator_internal.h"
#include "kernels/support/variable_input.h"

extern const struct kernel_list multi_iterator_kernels;

enum { MAX_DEVICES = 1 << 16 };

/* An element in a buffer, or a failure. */
struct dealt {
    struct list link;
    struct tensor *element;
    struct status *status;
};

struct shard_buffer {
    struct list dealt; /* struct dealt.link */
    int64_t n;
};

/* From one Init to the next. Counted. */
struct dealer {
    struct object object;
    struct iterator_state *state; /* its iterator is used by the puller */
    int64_t incarnation, capacity;
    int n_shards, n_components;
    pthread_mutex_t lock; /* guards what follows */
    struct shard_buffer *shards;
    int64_t n_pulled;
    bool is_pulling, has_ended;
    struct list waiting; /* struct shard_run.link */
};

struct multi_iterator {
    struct object object;
    struct iterator *declared; /* types and shapes as its node declares them */
    int n_devices;
    pthread_mutex_t lock;
    struct dealer *dealer; /* guarded by lock; NULL until Init */
    int64_t n_incarnations;
};

/* ---- a dealer ---- */

static void dealt_free(struct dealt *dealt, int n_components) {
    element_free(dealt->element, n_components);
    status_unref(dealt->status);
    free(dealt);
}

static void dealer_free(struct object *object) {
    struct dealer *dealer = CONTAINER_OF(object, struct dealer, object);
    for (int i = 0; i < dealer->n_shards; i++)
        for (struct list *link; (link = list_pop_front(&dealer->shards[i].dealt));)
            dealt_free(LIST_ENTRY(link, struct dealt, link), dealer->n_components);
    free(dealer->shards);
    iterator_state_unref(dealer->state);
    pthread_mutex_destroy(&dealer->lock);
    free(dealer);
}

static const struct object_type dealer_type = {.name = "Dealer", .free = dealer_free};

static struct status *dealer_new(struct kernel_ctx *ctx, struct dataset *dataset, int n_shards,
                                 int64_t capacity, struct dealer **ret) {
    struct iterator_state *state = NULL;
    TRY(iterator_state_new(ctx, dataset, NULL, &state));
    struct dealer *dealer = xcalloc(1, sizeof(*dealer));
    object_init(&dealer->object, &dealer_type);
    CHECK(pthread_mutex_init(&dealer->lock, NULL) == 0);
    list_init(&dealer->waiting);
    dealer->state = state;
    dealer->n_shards = n_shards;
    dealer->n_components = dataset->n_components;
    dealer->capacity = MAX(capacity, 1);
    dealer->shards = xcalloc((size_t)n_shards, sizeof(*dealer->shards));
    for (int i = 0; i < n_shards; i++)
        list_init(&dealer->shards[i].dealt);
    *ret = dealer;
    return NULL;
}

static struct shard_buffer *next_shard(struct dealer *dealer) {
    return &dealer->shards[dealer->n_pulled % dealer->n_shards];
}

/* ---- the resource ---- */

static void multi_free(struct object *object) {
    struct multi_iterator *multi = CONTAINER_OF(object, struct multi_iterator, object);
    if (multi->dealer)
        object_unref(&multi->dealer->object);
    object_unref(&multi->declared->object);
    pthread_mutex_destroy(&multi->lock);
    free(multi);
}

static const struct object_type multi_type = {.name = "N10tensorflow4data19MultiDeviceIteratorE",
                                              .free = multi_free};

static struct multi_iterator *multi_of(struct object *object) {
    return CONTAINER_OF(object, struct multi_iterator, object);
}

static void multi_set_dealer(struct multi_iterator *multi, struct dealer *dealer_take) {
    pthread_mutex_lock(&multi->lock);
    struct dealer *old = multi->dealer;
    multi->dealer = dealer_take;
    if (dealer_take)
        dealer_take->incarnation = ++multi->n_incarnations;
    pthread_mutex_unlock(&multi->lock);
    if (old)
        object_unref(&old->object);
}

/* The session of a resource without a shared name has ended. */
static void multi_empty(struct object *object) { multi_set_dealer(multi_of(object), NULL); }

static struct status *multi_create(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    const struct attr_value *devices = NULL;
    struct iterator *declared = NULL;
    int n = 0;
    TRY(node_get_list(ctx->instance->node, "devices", &devices, &n));
    if (n < 1 || n > MAX_DEVICES)
        return status_invalid("devices has %d entries, between 1 and %d are supported", n,
                              MAX_DEVICES);
    TRY(iterator_new(ctx, &declared));
    struct multi_iterator *multi = xcalloc(1, sizeof(*multi));
    object_init(&multi->object, &multi_type);
    CHECK(pthread_mutex_init(&multi->lock, NULL) == 0);
    multi->declared = declared;
    multi->n_devices = n;
    *ret = &multi->object;
    return NULL;
}

/* ---- making ---- */

static void node_fini(void *arg) {
    struct named_resource *resource = arg;
    named_resource_fini(resource);
    free(resource);
}

static struct status *handle_init(struct kernel_init *init) {
    struct named_resource *resource = init->state = xcalloc(1, sizeof(*resource));
    return named_resource_init(resource, init, &multi_type, RESOURCE_OWN, multi_empty);
}

static enum kernel_result handle_compute(struct kernel_ctx *ctx) {
    struct named_resource *resource = ctx->instance->state;
    struct object *object = NULL;
    KERNEL_TRY(ctx, named_resource_get(ctx, resource, multi_create, NULL, &object));
    object_unref(object);
    KERNEL_TRY(ctx, named_resource_output(ctx, resource));
    return KERNEL_DONE;
}

/* It belongs to the step that made it, as an anonymous iterator does. */
static enum kernel_result anonymous_compute(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, named_resource_make_anonymous(ctx, "_AnonymousMultiDeviceIterator_",
                                                  &multi_type, multi_create));
    if (ctx->instance->n_outputs > 1) /* V2's deleter is an empty variant */
        tensor_init_scalar_object(&ctx->outputs[1], DT_VARIANT, NULL);
    return KERNEL_DONE;
}

static struct status *init_multi(struct kernel_ctx *ctx, struct multi_iterator *multi) {
    struct dataset *dataset = NULL;
    struct dealer *dealer = NULL;
    int64_t capacity = 0;
    TRY(dataset_of(kernel_input(ctx, 0), &dataset));
    TRY(dataset_scalar_i64(ctx, 2, "max_buffer_size", &capacity));
    TRY(iterator_check(multi->declared, dataset->types, dataset->shapes, dataset->n_components));
    TRY(dealer_new(ctx, dataset, multi->n_devices, capacity, &dealer));
    object_ref(&dealer->object);
    multi_set_dealer(multi, dealer);
    tensor_init_scalar_i64(&ctx->outputs[0], dealer->incarnation);
    object_unref(&dealer->object);
    return NULL;
}

static enum kernel_result init_compute(struct kernel_ctx *ctx) {
    struct object *object = NULL;
    KERNEL_TRY(ctx, named_resource_of(ctx, 1, &multi_type, &object));
    struct status *st = init_multi(ctx, multi_of(object));
    object_unref(object);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- the next element of a shard ---- */

struct shard_run {
    struct pipeline_run run;
    struct dealer *dealer; /* a reference */
    int shard;
    bool is_puller;
    struct tensor *element; /* that it pulls */
    struct list link;       /* dealer->waiting, or nowhere; guarded by its lock */
    struct data_task *task; /* while it waits; borrowed */
};

static void shard_fini(struct pipeline_run *run) {
    struct shard_run *self = (struct shard_run *)run;
    element_free(self->element, self->dealer->n_components);
    object_unref(&self->dealer->object);
    free(self);
}

/* What a request finds under the lock: its element, which is moved out; DATA_END; DATA_PENDING,
 * either as the puller or in line. */
static enum data_poll look(struct shard_run *self, struct data_task *task,
                           struct dealt **ret_dealt) {
    struct dealer *dealer = self->dealer;
    struct shard_buffer *own = &dealer->shards[self->shard];
    enum data_poll result = DATA_PENDING;
    pthread_mutex_lock(&dealer->lock);
    list_remove(&self->link);
    if (own->n > 0) {
        *ret_dealt = LIST_ENTRY(list_pop_front(&own->dealt), struct dealt, link);
        own->n--;
        result = DATA_ELEMENT;
    } else if (dealer->has_ended) {
        result = DATA_END;
    } else if (!dealer->is_pulling && next_shard(dealer)->n < dealer->capacity) {
        dealer->is_pulling = self->is_puller = true;
    } else {
        self->task = task;
        list_push_back(&dealer->waiting, &self->link);
    }
    pthread_mutex_unlock(&dealer->lock);
    return result;
}

/* Wakes all that wait now; each looks again. */
static void wake_waiting(struct dealer *dealer) {
    struct list woken;
    list_init(&woken);
    pthread_mutex_lock(&dealer->lock);
    list_splice_back(&woken, &dealer->waiting);
    for (struct list *link; (link = list_pop_front(&woken));) {
        struct data_task *task = data_task_ref(LIST_ENTRY(link, struct shard_run, link)->task);
        pthread_mutex_unlock(&dealer->lock);
        data_task_wake_on_pool(task);
        data_task_unref(task);
        pthread_mutex_lock(&dealer->lock);
    }
    pthread_mutex_unlock(&dealer->lock);
}

static void dequeue(struct shard_run *self) {
    pthread_mutex_lock(&self->dealer->lock);
    list_remove(&self->link);
    pthread_mutex_unlock(&self->dealer->lock);
}

/* Deals out what the puller got, which ends its turn. A failure is dealt out, too. */
static void deal(struct shard_run *self, struct data_task *task, enum data_poll result) {
    struct dealer *dealer = self->dealer;
    struct dealt *dealt = NULL;
    bool is_cancelled = result == DATA_FAILED && atomic_load(&task->is_cancelled);
    if (result != DATA_END && !is_cancelled) {
        dealt = xcalloc(1, sizeof(*dealt));
        dealt->element = self->element;
        dealt->status = task->status;
        self->element = NULL;
        task->status = NULL;
    }
    pthread_mutex_lock(&dealer->lock);
    dealer->is_pulling = self->is_puller = false;
    dealer->has_ended = dealer->has_ended || result == DATA_END;
    if (dealt) {
        struct shard_buffer *to = next_shard(dealer);
        list_push_back(&to->dealt, &dealt->link);
        to->n++;
        dealer->n_pulled++;
    }
    pthread_mutex_unlock(&dealer->lock);
    wake_waiting(dealer);
}

static enum data_poll hand_out(struct shard_run *self, struct data_task *task,
                               struct dealt *dealt) {
    struct status *st = dealt->status;
    dealt->status = NULL;
    if (!st)
        element_move(self->run.ctx->outputs, dealt->element, self->dealer->n_components);
    dealt_free(dealt, self->dealer->n_components);
    wake_waiting(self->dealer); /* there is room in the buffer now */
    if (!st)
        st = dataset_check_outputs(self->run.ctx);
    return st ? data_task_fail(task, st) : DATA_ELEMENT;
}

static enum data_poll shard_poll(struct pipeline_run *run, struct data_task *task) {
    struct shard_run *self = (struct shard_run *)run;
    struct dealt *dealt = NULL;
    enum data_poll result;
    for (;;) {
        if (!self->is_puller) {
            if (data_task_must_stop(task, &result)) {
                dequeue(self);
                return result;
            }
            result = look(self, task, &dealt);
            if (result == DATA_ELEMENT)
                return hand_out(self, task, dealt);
            if (result == DATA_END)
                return data_task_fail(task, status_out_of_range("End of sequence"));
            if (!self->is_puller)
                return DATA_PENDING;
        }
        if (!self->element)
            self->element = element_new(self->dealer->n_components);
        result = dataset_iter_next(self->dealer->state->iter, task, self->element);
        if (result == DATA_PENDING)
            return result;
        bool is_cancelled = result == DATA_FAILED && atomic_load(&task->is_cancelled);
        deal(self, task, result);
        if (is_cancelled)
            return DATA_FAILED;
    }
}

static struct status *find_dealer(struct kernel_ctx *ctx, struct multi_iterator *multi, int shard,
                                  int64_t incarnation, struct dealer **ret) {
    const struct kernel_instance *instance = ctx->instance;
    if (shard < 0 || shard >= multi->n_devices)
        return status_invalid("shard_num must be between 0 and %d, but is %d", multi->n_devices - 1,
                              shard);
    if (instance->n_outputs != multi->declared->n_components ||
        memcmp(instance->out_types, multi->declared->types, (size_t)instance->n_outputs) != 0)
        return status_invalid("output_types must be those of the MultiDeviceIterator");
    struct status *st = NULL;
    pthread_mutex_lock(&multi->lock);
    if (!multi->dealer)
        st = status_failed_precondition("The MultiDeviceIterator has not been initialized.");
    else if (multi->dealer->incarnation != incarnation)
        st = status_invalid("Invalid incarnation id. Provided: %lld; Expected: %lld",
                            (long long)incarnation, (long long)multi->dealer->incarnation);
    else
        *ret = CONTAINER_OF(object_ref(&multi->dealer->object), struct dealer, object);
    pthread_mutex_unlock(&multi->lock);
    return st;
}

static enum kernel_result next_compute(struct kernel_ctx *ctx) {
    struct object *object = NULL;
    struct dealer *dealer = NULL;
    int64_t shard = 0, incarnation = 0;
    KERNEL_TRY(ctx, dataset_scalar_i64(ctx, 1, "shard_num", &shard));
    KERNEL_TRY(ctx, dataset_scalar_i64(ctx, 2, "incarnation_id", &incarnation));
    KERNEL_TRY(ctx, named_resource_of(ctx, 0, &multi_type, &object));
    struct status *st = find_dealer(ctx, multi_of(object), (int)shard, incarnation, &dealer);
    object_unref(object);
    KERNEL_TRY(ctx, st);
    struct shard_run *self = xcalloc(1, sizeof(*self));
    self->run.poll = shard_poll;
    self->run.fini = shard_fini;
    self->dealer = dealer;
    self->shard = (int)shard;
    list_init(&self->link);
    return pipeline_start(ctx, &self->run);
}

/* ---- handles as strings ---- */

static enum kernel_result to_string_compute(struct kernel_ctx *ctx) {
    return handle_to_string(ctx, &multi_type);
}

static struct status *check_declared(struct kernel_ctx *ctx, struct object *multi) {
    const struct attr_value *types = node_attr(ctx->instance->node, "output_types");
    struct iterator *wanted = NULL;
    if (!types || types->list.n_values == 0)
        return NULL;
    TRY(iterator_new(ctx, &wanted));
    struct status *st = iterator_check(multi_of(multi)->declared, wanted->types, wanted->shapes,
                                       wanted->n_components);
    object_unref(&wanted->object);
    return st;
}

static enum kernel_result from_string_compute(struct kernel_ctx *ctx) {
    return handle_from_string(ctx, &multi_type, check_declared);
}

#define LOOKS(name, fn) \
    { .op = (name), .compute = (fn), .flags = KERNEL_STATEFUL }

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "MultiDeviceIterator", .compute = handle_compute, .init = handle_init,
     .fini = node_fini, .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE},
    LOOKS("AnonymousMultiDeviceIterator", anonymous_compute),
    LOOKS("AnonymousMultiDeviceIteratorV3", anonymous_compute),
    LOOKS("DeleteMultiDeviceIterator", named_resource_delete),
    LOOKS("MultiDeviceIteratorInit", init_compute),
    {.op = "MultiDeviceIteratorGetNextFromShard", .compute = next_compute,
     .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
    LOOKS("MultiDeviceIteratorToStringHandle", to_string_compute),
    LOOKS("MultiDeviceIteratorFromStringHandle", from_string_compute),
};
// clang-format on

const struct kernel_list multi_iterator_kernels = {rows, ARRAY_LEN(rows)};
