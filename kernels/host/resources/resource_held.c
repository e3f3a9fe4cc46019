/* Counts the bytes of variables, queues, tables and TensorArrays: a row for each kind. */
#include "kernels/host/resources/resource_held.h"

#include "kernels/host/resources/lookup_table.h"
#include "kernels/host/resources/queue.h"
#include "kernels/host/resources/tensor_array.h"
#include "kernels/variable.h"

enum { MAX_LOOKS = 1000 }; /* at tensors of one resource; there may be millions */

static void add_tensor(struct resource_held *held, const struct tensor *t) {
    if (!tensor_has_value(t))
        return;
    held->size_bytes += (int64_t)tensor_size_bytes(t);
    if (t->storage == TENSOR_BUFFER)
        held->memory = t->buffer->allocator->name;
}

/* Takes the looks at the resource's first items. Returns how many items that is. */
static int64_t take_looks(const struct resource_held *held, int n_tensors_each, int *n_looks) {
    int n_each = MAX(n_tensors_each, 1);
    int64_t n = MIN(MIN(MAX(MAX_LOOKS / n_each, 1), *n_looks / n_each), held->n_items);
    *n_looks = n == 0 && held->n_items > 0 ? 0 : *n_looks - (int)n * n_each;
    return n;
}

/* The first n_counted items stand for all. */
static void extrapolate(struct resource_held *held, int64_t n_counted) {
    if (n_counted > 0 && n_counted < held->n_items)
        held->size_bytes =
            (int64_t)((double)held->size_bytes / (double)n_counted * (double)held->n_items);
}

static bool variable_held(struct object *object, int *n_looks, struct resource_held *held) {
    struct variable *variable = variable_of(object);
    if (pthread_mutex_trylock(&variable->lock) != 0)
        return false;
    held->n_items = tensor_has_value(&variable->value);
    add_tensor(held, &variable->former);
    add_tensor(held, &variable->value);
    pthread_mutex_unlock(&variable->lock);
    return true;
}

static bool queue_held(struct object *object, int *n_looks, struct resource_held *held) {
    struct queue *queue = (struct queue *)object;
    const struct queue_elements *elements = &queue->elements;
    if (pthread_mutex_trylock(&queue->room.lock) != 0)
        return false;
    held->n_items = elements->n;
    int64_t n = take_looks(held, elements->n_components, n_looks);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < elements->n_components; k++)
            add_tensor(held,
                       &elements->items[(elements->head + i) % elements->capacity]->components[k]);
    extrapolate(held, n);
    pthread_mutex_unlock(&queue->room.lock);
    return n > 0 || held->n_items == 0;
}

static bool tensor_array_held(struct object *object, int *n_looks, struct resource_held *held) {
    struct tensor_array *array = (struct tensor_array *)object;
    if (pthread_mutex_trylock(&array->lock) != 0)
        return false;
    held->n_items = array->n;
    int64_t n = take_looks(held, 1, n_looks);
    for (int64_t i = 0; i < n; i++)
        add_tensor(held, &array->elements[i].value);
    extrapolate(held, n);
    pthread_mutex_unlock(&array->lock);
    return n > 0 || held->n_items == 0;
}

static bool lookup_table_held(struct object *object, int *n_looks, struct resource_held *held) {
    struct lookup_table *table = (struct lookup_table *)object;
    if (table->methods || pthread_rwlock_tryrdlock(&table->lock) != 0)
        return false;
    size_t row_bytes = (size_t)table->row_len * dtype_size(table->value_dtype);
    held->n_items = table->n;
    held->size_bytes = table->capacity * (int64_t)(row_bytes + sizeof(table->keys[0]));
    pthread_rwlock_unlock(&table->lock);
    return true;
}

static const struct held_row {
    const struct object_type *type;
    bool (*held)(struct object *resource, int *n_looks, struct resource_held *held);
} rows[] = {
    {&variable_type, variable_held},
    {&queue_type, queue_held},
    {&tensor_array_type, tensor_array_held},
    {&lookup_table_type, lookup_table_held},
};

bool resource_held(struct object *resource, int *n_looks, struct resource_held *ret) {
    *ret = (struct resource_held){.memory = NULL};
    if (*n_looks <= 0)
        return false;
    --*n_looks;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].type == resource->type)
            return rows[i].held(resource, n_looks, ret);
    return false;
}
