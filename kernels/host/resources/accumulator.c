/* Applies gradients to conditional accumulators and takes their sums
 * (kernels/host/resources/accumulator.h). */
#include "kernels/host/resources/accumulator.h"

#include <stdlib.h>

enum { LINE_TAKES };

void accumulated_clear(struct accumulated *a) {
    tensor_clear(&a->values);
    free(a->indices);
    free(a->counts);
    *a = (struct accumulated){0};
}

static void accumulator_free(struct object *object) {
    struct accumulator *accumulator = (struct accumulator *)object;
    accumulated_clear(&accumulator->sum);
    wait_room_fini(&accumulator->room);
    free((void *)(uintptr_t)accumulator->shape.dims);
    free(accumulator->name);
    free(accumulator);
}

const struct object_type accumulator_type = {.name = "tensorflow::ConditionalAccumulatorBase",
                                             .free = accumulator_free};

struct accumulator *accumulator_new(const struct accumulator_options *options,
                                    struct allocator *allocator, const char *name) {
    struct accumulator *accumulator =
        aligned_alloc(_Alignof(struct accumulator), sizeof(*accumulator));
    if (!accumulator)
        out_of_memory(sizeof(*accumulator));
    memset(accumulator, 0, sizeof(*accumulator));
    object_init(&accumulator->object, &accumulator_type);
    wait_room_init(&accumulator->room, &accumulator->object);
    accumulator->name = xstrdup(name);
    accumulator->allocator = allocator;
    accumulator->dtype = options->dtype;
    accumulator->shape = shape_keep(options->shape);
    accumulator->is_sparse = options->is_sparse;
    accumulator->is_mean = options->is_mean;
    return accumulator;
}

void accumulator_empty(struct object *object) {
    struct accumulator *accumulator = (struct accumulator *)object;
    wait_room_lock(&accumulator->room);
    accumulated_clear(&accumulator->sum);
    wait_room_unlock(&accumulator->room);
}

/* ---- apply ---- */

/* The first gradient sets the exact shape until the sum is taken. */
static struct status *check_dense(const struct accumulator *accumulator,
                                  const struct tensor *gradient) {
    struct shape expected = accumulator->sum.n_gradients > 0
                                ? tensor_shape(&accumulator->sum.values)
                                : accumulator->shape;
    if (likely(shape_is_compatible(expected, tensor_shape(gradient))))
        return NULL;
    return status_invalid("Shape mismatch: expected %s, got %s", SHAPE_TEXT(expected),
                          TENSOR_SHAPE_TEXT(gradient));
}

static struct status *add_dense(struct accumulator *accumulator, const struct tensor *gradient) {
    struct accumulated *sum = &accumulator->sum;
    TRY(check_dense(accumulator, gradient));
    if (sum->n_gradients == 0)
        TRY(tensor_clone(accumulator->allocator, gradient, &sum->values));
    else
        accumulator_add(accumulator->dtype, tensor_data(&sum->values), tensor_cdata(gradient),
                        gradient->n_elements);
    sum->n_gradients++;
    return NULL;
}

struct status *accumulator_apply(struct accumulator *accumulator, int64_t step,
                                 const struct tensor *gradient) {
    wait_room_lock(&accumulator->room);
    struct status *st = step >= accumulator->global_step ? add_dense(accumulator, gradient) : NULL;
    wait_room_unlock(&accumulator->room);
    return st;
}

struct status *accumulator_apply_sparse(struct accumulator *accumulator, int64_t step,
                                        const struct tensor *indices, const struct tensor *values,
                                        const struct tensor *shape, bool has_shape) {
    struct sparse_gradient gradient = {indices, values, shape, has_shape};
    struct status *st = NULL;
    wait_room_lock(&accumulator->room);
    if (step >= accumulator->global_step) {
        st = accumulator_check_sparse(accumulator, &gradient);
        if (!st)
            st = accumulator_merge_sparse(accumulator, &gradient);
        accumulator->sum.n_gradients += st == NULL;
    }
    wait_room_unlock(&accumulator->room);
    return st;
}

/* ---- take ---- */

struct take {
    struct accumulated taken; /* the first field, because a tensor needs this alignment */
    struct wait wait;
    struct accumulator *accumulator; /* the wait holds a reference */
    int64_t n;
};

static struct take *take_of(struct wait *wait) { return CONTAINER_OF(wait, struct take, wait); }

static enum wait_result take_attempt(struct wait *wait) {
    struct take *take = take_of(wait);
    struct accumulator *accumulator = take->accumulator;
    if (accumulator->sum.n_gradients < take->n)
        return WAIT_STUCK;
    take->taken = accumulator->sum; /* the sum is moved */
    accumulator->sum = (struct accumulated){0};
    accumulator->global_step++;
    return WAIT_ENDED;
}

static struct status *take_finish(struct wait *wait) {
    struct take *take = take_of(wait);
    const struct accumulator *accumulator = take->accumulator;
    struct tensor *values = &take->taken.values;
    if (accumulator->is_sparse)
        return accumulator_finish_sparse(accumulator, &take->taken, wait->ctx);
    if (accumulator->is_mean)
        accumulator_divide(accumulator->dtype, tensor_data(values), values->n_elements,
                           take->taken.n_gradients);
    tensor_move(&wait->ctx->outputs[0], values);
    return NULL;
}

static int64_t take_weight(const struct wait *wait) {
    const struct take *take = CONTAINER_OF(wait, struct take, wait);
    bool is_plain = !take->accumulator->is_sparse && !take->accumulator->is_mean;
    return is_plain || !tensor_has_value(&take->taken.values)
               ? 0
               : (int64_t)tensor_size_bytes(&take->taken.values);
}

static void take_free(struct wait *wait) {
    struct take *take = take_of(wait);
    accumulated_clear(&take->taken);
    free(take);
}

static const struct wait_kind take_kind = {.cancelled = "TakeGrad operation was cancelled",
                                           .attempt = take_attempt,
                                           .finish = take_finish,
                                           .weight = take_weight,
                                           .free = take_free};

enum kernel_result accumulator_take(struct accumulator *accumulator, struct kernel_ctx *ctx,
                                    int64_t n) {
    struct take *take = aligned_alloc(_Alignof(struct take), sizeof(*take));
    if (!take)
        out_of_memory(sizeof(*take));
    memset(take, 0, sizeof(*take));
    take->wait.kind = &take_kind;
    take->accumulator = accumulator;
    take->n = n;
    return wait_room_enter(&accumulator->room, LINE_TAKES, ctx, &take->wait);
}

/* ---- inspection ---- */

int64_t accumulator_n_gradients(struct accumulator *accumulator) {
    wait_room_lock(&accumulator->room);
    int64_t n = accumulator->sum.n_gradients;
    pthread_mutex_unlock(&accumulator->room.lock);
    return n;
}

void accumulator_set_global_step(struct accumulator *accumulator, int64_t step) {
    wait_room_lock(&accumulator->room);
    accumulator->global_step = step;
    pthread_mutex_unlock(&accumulator->room.lock);
}
