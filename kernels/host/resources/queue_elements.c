/* Keeps the elements of queues and barriers in order, and stacks batches of them
 * (kernels/host/resources/queue.h). */
#include <stdlib.h>

#include "kernels/host/resources/queue.h"

enum { MIN_CAPACITY = 8 };

struct queue_element *queue_element_new(int n_components) {
    size_t align = _Alignof(struct queue_element);
    size_t size = sizeof(struct queue_element) + (size_t)n_components * sizeof(struct tensor);
    struct queue_element *element = aligned_alloc(align, (size + align - 1) / align * align);
    if (!element)
        out_of_memory(size);
    memset(element, 0, size);
    return element;
}

void queue_element_free(struct queue_element *element, int n_components) {
    for (int i = 0; element && i < n_components; i++)
        tensor_clear(&element->components[i]);
    free(element);
}

void queue_elements_init(struct queue_elements *elements, enum queue_order order, int n_components,
                         uint64_t seed, uint64_t seed2) {
    *elements = (struct queue_elements){.order = order,
                                        .n_components = n_components,
                                        .next_number = 1,
                                        .random.next = {.key = seed, .hi = seed2}};
}

void queue_elements_clear(struct queue_elements *elements) {
    for (int64_t i = 0; i < elements->n; i++)
        queue_element_free(elements->items[(elements->head + i) & (elements->capacity - 1)],
                           elements->n_components);
    free(elements->items);
    elements->items = NULL;
    elements->head = elements->n = elements->capacity = 0;
}

/* ---- the ring ---- */

static struct queue_element **item_at(struct queue_elements *elements, int64_t i) {
    return &elements->items[(elements->head + i) & (elements->capacity - 1)];
}

static void reserve_one(struct queue_elements *elements) {
    if (elements->n < elements->capacity)
        return;
    int64_t capacity = MAX((int64_t)MIN_CAPACITY, 2 * elements->capacity);
    struct queue_element **items =
        xreallocarray(NULL, (size_t)capacity, sizeof(struct queue_element *));
    for (int64_t i = 0; i < elements->n; i++)
        items[i] = *item_at(elements, i);
    free(elements->items);
    elements->items = items;
    elements->head = 0;
    elements->capacity = capacity;
}

static void push_back(struct queue_elements *elements, struct queue_element *element) {
    reserve_one(elements);
    *item_at(elements, elements->n++) = element;
}

static void push_front(struct queue_elements *elements, struct queue_element *element) {
    reserve_one(elements);
    elements->head = (elements->head - 1) & (elements->capacity - 1);
    elements->items[elements->head] = element;
    elements->n++;
}

static struct queue_element *pop_front(struct queue_elements *elements) {
    struct queue_element *element = elements->items[elements->head];
    elements->head = (elements->head + 1) & (elements->capacity - 1);
    elements->n--;
    return element;
}

/* ---- random ---- */

/* The last element moves to the gap. With the same seeds this gives TensorFlow's order. */
static struct queue_element *take_random(struct queue_elements *elements) {
    struct queue_element **chosen =
        item_at(elements, (int64_t)(philox_words_u32(&elements->random) % (uint64_t)elements->n));
    struct queue_element *element = *chosen;
    *chosen = *item_at(elements, --elements->n);
    return element;
}

/* ---- a heap by priority, then by arrival ---- */

static bool is_before(const struct queue_element *a, const struct queue_element *b) {
    return a->priority != b->priority ? a->priority < b->priority : a->number < b->number;
}

static void heap_push(struct queue_elements *elements, struct queue_element *element) {
    reserve_one(elements);
    int64_t at = elements->n++;
    for (int64_t parent; at > 0 && is_before(element, elements->items[parent = (at - 1) / 2]);
         at = parent)
        elements->items[at] = elements->items[parent];
    elements->items[at] = element;
}

static struct queue_element *heap_pop(struct queue_elements *elements) {
    struct queue_element **items = elements->items, *first = items[0], *last = items[--elements->n];
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < elements->n; at = child) {
        child += child + 1 < elements->n && is_before(items[child + 1], items[child]);
        if (!is_before(items[child], last))
            break;
        items[at] = items[child];
    }
    items[at] = last;
    return first;
}

/* ---- the four orders ---- */

void queue_elements_put(struct queue_elements *elements, struct queue_element *element) {
    element->number = elements->next_number++;
    if (elements->order == QUEUE_PRIORITY)
        heap_push(elements, element);
    else
        push_back(elements, element);
}

void queue_elements_put_back(struct queue_elements *elements, struct queue_element *element) {
    if (elements->order == QUEUE_PRIORITY)
        heap_push(elements, element);
    else if (elements->order == QUEUE_RANDOM)
        push_back(elements, element);
    else
        push_front(elements, element);
}

struct queue_element *queue_elements_take(struct queue_elements *elements) {
    CHECK(elements->n > 0);
    if (elements->order == QUEUE_PRIORITY)
        return heap_pop(elements);
    return elements->order == QUEUE_RANDOM ? take_random(elements) : pop_front(elements);
}

/* ---- batches ---- */

struct status *queue_row(struct allocator *allocator, const struct tensor *rows, int64_t i,
                         struct tensor *ret) {
    struct shape shape = {rows->rank - 1, tensor_dims(rows) + 1};
    TRY(tensor_new(allocator, (enum dtype)rows->dtype, shape, ret));
    size_t row_bytes = (size_t)ret->n_elements * dtype_size((enum dtype)rows->dtype);
    elements_copy((enum dtype)rows->dtype, tensor_data(ret),
                  (const char *)tensor_cdata(rows) + (size_t)i * row_bytes, ret->n_elements);
    return NULL;
}

/* Copies `from` into the corner of this element's part of a batch, which has the shape dims[0 …
 * rank). */
static void copy_corner(const struct tensor *from, const int64_t *dims, char *to) {
    enum dtype dtype = (enum dtype)from->dtype;
    size_t element_bytes = dtype_size(dtype);
    const char *source = tensor_cdata(from);
    int rank = from->rank;
    if (from->n_elements == 0)
        return;
    if (rank == 0) {
        elements_copy(dtype, to, source, 1);
        return;
    }
    int64_t at[SHAPE_MAX_RANK] = {0}, run = tensor_dim(from, rank - 1);
    for (;;) {
        int64_t offset = 0;
        for (int d = 0; d < rank; d++)
            offset = offset * dims[d] + at[d];
        elements_copy(dtype, to + (size_t)offset * element_bytes, source, run);
        source += (size_t)run * element_bytes;
        int d = rank - 2;
        while (d >= 0 && ++at[d] == tensor_dim(from, d))
            at[d--] = 0;
        if (d < 0)
            return;
    }
}

/* [n] and the largest size of each dimension. Without elements the sizes are those of `shape`. */
static struct shape batch_shape(struct shape shape, bool is_padded, int component,
                                struct queue_element *const *elements, int64_t n, int64_t *dims) {
    dims[0] = n;
    for (int d = 0; d < shape.rank; d++) {
        dims[d + 1] = MAX(shape.dims[d], (int64_t)0);
        for (int64_t i = 0; is_padded && shape.dims[d] < 0 && i < n; i++)
            dims[d + 1] = MAX(dims[d + 1], tensor_dim(&elements[i]->components[component], d));
    }
    return (struct shape){shape.rank + 1, dims};
}

int64_t queue_batch_bytes(struct queue_element *const *elements, int64_t n, int n_components) {
    int64_t weight = 0;
    for (int i = 0; i < n_components; i++) {
        size_t largest = 0;
        for (int64_t k = 0; k < n; k++)
            largest = MAX(largest, tensor_size_bytes(&elements[k]->components[i]));
        weight += (int64_t)largest * n;
    }
    return weight;
}

struct status *queue_batch(struct allocator *allocator, enum dtype dtype, struct shape shape,
                           bool is_padded, int component, struct queue_element *const *elements,
                           int64_t n, struct tensor *ret) {
    int64_t dims[SHAPE_MAX_RANK + 1];
    if (shape.rank >= SHAPE_MAX_RANK)
        return status_invalid("A batch of elements of rank %d is beyond the limit of %d dimensions",
                              shape.rank, SHAPE_MAX_RANK);
    struct shape whole = batch_shape(shape, is_padded, component, elements, n, dims);
    struct tensor batch = TENSOR_INIT;
    TRY(is_padded ? tensor_new_zeroed(allocator, dtype, whole, &batch)
                  : tensor_new(allocator, dtype, whole, &batch));
    size_t part_bytes = n > 0 ? tensor_size_bytes(&batch) / (size_t)n : 0;
    char *to = tensor_data(&batch);
    for (int64_t i = 0; i < n; i++, to += part_bytes) {
        const struct tensor *from = &elements[i]->components[component];
        if (tensor_size_bytes(from) == part_bytes)
            elements_copy(dtype, to, tensor_cdata(from), from->n_elements);
        else
            copy_corner(from, dims + 1, to);
    }
    tensor_move(ret, &batch);
    return NULL;
}
