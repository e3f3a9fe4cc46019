/* Computes SerializeIterator and DeserializeIterator, which save an iterator's position and restore
 * it.
 *
 * A position is the number of elements that the iterator has handed out, and the seeds that the
 * pipeline's random iterators have drawn. Restoring starts a new pipeline over the dataset of the
 * last MakeIterator, makes it draw the same seeds, and drops as many elements. So the position is
 * exact for each kind of dataset, and a restore takes as long as the elements took. It is not exact
 * where a function reads something that changes, and where shuffles behind several prefetches start
 * their later epochs in another order.
 *
 *   SerializeIterator    variant [1]: a VariantTensorDataProto of type name POSITION_TYPE, whose
 *                        metadata is n_done, n, and n pairs of seeds, all as varints */
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/host/data/iterator_internal.h"
#include "kernels/support/named_resource.h"
#include "kernels/support/variant.h"

extern const struct kernel_list iterator_position_kernels;

#define POSITION_TYPE "millrace::IteratorPosition"

/* ---- saving ---- */

static struct status *not_made(const char *op) {
    return status_failed_precondition(
        "%s failed because the iterator has not been initialized. Ensure that you have run the "
        "initializer operation for this iterator before saving or restoring its position.",
        op);
}

static struct status *add_position(struct iterator_state *state, struct str *out) {
    struct str metadata = STR_INIT;
    struct dataset_env *env = state->env;
    pthread_mutex_lock(&state->lock);
    proto_add_varint(&metadata, (uint64_t)state->n_done);
    pthread_mutex_unlock(&state->lock);
    pthread_mutex_lock(&env->lock);
    int64_t n = env->seeds->n;
    proto_add_varint(&metadata, (uint64_t)n);
    for (int64_t i = 0; i < 2 * n; i++)
        proto_add_varint(&metadata, (uint64_t)env->seeds->words[i]);
    pthread_mutex_unlock(&env->lock);
    proto_add_bytes(out, 1, POSITION_TYPE, strlen(POSITION_TYPE));
    proto_add_bytes(out, 2, str_text(&metadata), metadata.len);
    str_fini(&metadata);
    return n < SEED_LOG_MAX ? NULL
                            : status_exhausted("The iterator has drawn more than %d pairs of seeds",
                                               SEED_LOG_MAX);
}

static enum kernel_result serialize_compute(struct kernel_ctx *ctx) {
    struct object *object = NULL;
    struct str proto = STR_INIT;
    const int64_t one = 1;
    KERNEL_TRY(ctx, named_resource_of(ctx, 0, &iterator_type, &object));
    struct iterator_state *state =
        iterator_get_state(CONTAINER_OF(object, struct iterator, object));
    struct status *st = state ? add_position(state, &proto) : not_made("SerializeIterator()");
    if (!st)
        st = kernel_alloc(ctx, 0, DT_VARIANT, (struct shape){1, &one});
    if (!st)
        tensor_set_object(&ctx->outputs[0], 0,
                          &variant_proto_new((struct span){str_text(&proto), proto.len})->object);
    iterator_state_unref(state);
    object_unref(object);
    str_fini(&proto);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- restoring ---- */

/* Reads a position into *ret_n_done and the seeds of `log`. False when the proto is malformed. */
static bool read_position(struct span proto, int64_t *ret_n_done, struct seed_log *log) {
    struct variant_parts parts;
    uint64_t n_done, n, word;
    if (!variant_read_parts(proto, &parts) || !span_is(parts.type_name, POSITION_TYPE) ||
        !proto_read_varint(&parts.metadata, &n_done) || n_done > INT64_MAX ||
        !proto_read_varint(&parts.metadata, &n) || n > SEED_LOG_MAX || n > parts.metadata.len / 2)
        return false;
    log->words = xcalloc((size_t)n + 1, 2 * sizeof(*log->words));
    log->n = log->capacity = (int64_t)n;
    for (uint64_t i = 0; i < 2 * n; i++) {
        if (!proto_read_varint(&parts.metadata, &word))
            return false;
        log->words[i] = (int64_t)word;
    }
    *ret_n_done = (int64_t)n_done;
    return true;
}

/* An execution that drops elements of a new pipeline. */
struct restore_run {
    struct pipeline_run run;
    struct iterator *iterator;    /* holds a reference */
    struct iterator_state *state; /* holds a reference to the new state */
    struct tensor *element;
    int64_t n_left;
};

static void restore_fini(struct pipeline_run *run) {
    struct restore_run *self = CONTAINER_OF(run, struct restore_run, run);
    element_free(self->element, self->state->iter->dataset->n_components);
    iterator_state_unref(self->state);
    object_unref(&self->iterator->object);
    free(self);
}

static enum data_poll restore_poll(struct pipeline_run *run, struct data_task *task) {
    struct restore_run *self = CONTAINER_OF(run, struct restore_run, run);
    while (self->n_left > 0) {
        enum data_poll result = dataset_iter_next(self->state->iter, task, self->element);
        if (result == DATA_PENDING || (result == DATA_FAILED && atomic_load(&task->is_cancelled)))
            return result;
        if (result == DATA_FAILED) { /* the element failed before as well, so it counts */
            status_unref(task->status);
            task->status = NULL;
        }
        if (result == DATA_ELEMENT)
            element_clear(self->element, self->state->iter->dataset->n_components);
        self->n_left = result == DATA_END ? 0 : self->n_left - 1;
    }
    iterator_set_state(self->iterator, iterator_state_ref(self->state));
    return DATA_ELEMENT;
}

static struct status *restore_new(struct kernel_ctx *ctx, struct iterator *iterator,
                                  struct restore_run **ret) {
    const struct tensor *saved = kernel_input(ctx, 1);
    struct object *const *objects = tensor_cdata(saved);
    struct iterator_state *old = iterator_get_state(iterator), *state = NULL;
    struct seed_log *log = xcalloc(1, sizeof(*log));
    struct dataset *dataset = NULL;
    int64_t n_done = 0;
    struct status *st = NULL;
    if (!old)
        TRY_OUT(not_made("DeserializeIterator()"));
    if (saved->n_elements != 1 || !objects[0] || objects[0]->type != &variant_proto_type ||
        !read_position(bytes_span(CONTAINER_OF(objects[0], struct bytes, object)), &n_done, log))
        TRY_OUT(status_invalid("The variant is no position of an iterator that this version of "
                               "Millrace has saved"));
    dataset = dataset_ref(old->iter->dataset);
    /* the old pipeline may hold a cache's lock file, so it is freed first */
    iterator_clear(iterator);
    iterator_state_unref(old);
    old = NULL;
    st = iterator_state_new(ctx, dataset, log, &state);
    log = NULL;
    TRY_OUT(st);
    state->n_done = n_done;
    *ret = xcalloc(1, sizeof(**ret));
    **ret = (struct restore_run){
        .run = {.poll = restore_poll, .fini = restore_fini},
        .iterator = CONTAINER_OF(object_ref(&iterator->object), struct iterator, object),
        .state = state,
        .element = element_new(state->iter->dataset->n_components),
        .n_left = n_done};
out:
    if (log)
        free(log->words);
    free(log);
    dataset_unref(dataset);
    iterator_state_unref(old);
    return st;
}

static enum kernel_result deserialize_compute(struct kernel_ctx *ctx) {
    struct object *object = NULL;
    struct restore_run *run = NULL;
    KERNEL_TRY(ctx, named_resource_of(ctx, 0, &iterator_type, &object));
    struct status *st = restore_new(ctx, CONTAINER_OF(object, struct iterator, object), &run);
    object_unref(object);
    KERNEL_TRY(ctx, st);
    return pipeline_start(ctx, &run->run);
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "SerializeIterator", .compute = serialize_compute, .flags = KERNEL_STATEFUL},
    {.op = "DeserializeIterator", .compute = deserialize_compute,
     .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
};
// clang-format on

const struct kernel_list iterator_position_kernels = {rows, ARRAY_LEN(rows)};
