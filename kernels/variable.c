/* Makes, reads and updates variables; see variable.h. */
#include "kernels/variable.h"

#include <stdlib.h>

static void variable_free(struct object *object) {
    struct variable *variable = variable_of(object);
    tensor_clear(&variable->value);
    tensor_clear(&variable->former);
    pthread_mutex_destroy(&variable->lock);
    free(variable->name);
    free((void *)(uintptr_t)variable->declared_shape.dims);
    free(variable);
}

const struct object_type variable_type = {.name = "Var", .free = variable_free};

struct variable *variable_new(enum dtype dtype, const char *name) {
    /* calloc aligns to 16 bytes, but a tensor wants a cache line. */
    struct variable *variable = aligned_alloc(_Alignof(struct variable), sizeof(*variable));
    if (!variable)
        out_of_memory(sizeof(*variable));
    memset(variable, 0, sizeof(*variable));
    object_init(&variable->object, &variable_type);
    pthread_mutex_init(&variable->lock, NULL);
    variable->value = TENSOR_INIT;
    variable->former = TENSOR_INIT;
    variable->dtype = dtype;
    variable->name = xstrdup(name ? name : "");
    return variable;
}

void variable_declare_shape(struct variable *variable, struct shape shape) {
    CHECK(!variable->has_declared_shape && shape_is_full(shape));
    variable->declared_shape = shape_keep(shape);
    variable->has_declared_shape = true;
}

static COLD struct status *uninitialized(const struct variable *variable) {
    return status_failed_precondition("Attempting to use uninitialized value %s", variable->name);
}

struct status *variable_read(struct variable *variable, struct tensor *ret) {
    struct status *st = NULL;
    pthread_mutex_lock(&variable->lock);
    if (likely(tensor_has_value(&variable->value)))
        tensor_copy(ret, &variable->value);
    else
        st = uninitialized(variable);
    pthread_mutex_unlock(&variable->lock);
    return st;
}

struct status *variable_read_sized(struct variable *variable, int64_t n_elements,
                                   struct tensor *ret) {
    struct status *st = NULL;
    pthread_mutex_lock(&variable->lock);
    const struct tensor *value = &variable->value, *former = &variable->former;
    if (unlikely(!tensor_has_value(value)))
        st = uninitialized(variable);
    else if (unlikely(value->n_elements != n_elements && tensor_has_value(former) &&
                      former->n_elements == n_elements))
        tensor_copy(ret, former);
    else
        tensor_copy(ret, value);
    pthread_mutex_unlock(&variable->lock);
    return st;
}

bool variable_is_initialized(struct variable *variable) {
    pthread_mutex_lock(&variable->lock);
    bool is = tensor_has_value(&variable->value);
    pthread_mutex_unlock(&variable->lock);
    return is;
}

void variable_assign_take(struct variable *variable, struct tensor *value) {
    struct tensor old = TENSOR_INIT;
    pthread_mutex_lock(&variable->lock);
    tensor_move(&old, &variable->value);
    tensor_move(&variable->value, value);
    pthread_mutex_unlock(&variable->lock);
    tensor_clear(&old); /* outside of the lock, because freeing a large buffer takes time */
}
