/* Copies variants for another memory; see variant_copy.h. */
#include "kernels/support/variant_copy.h"

#include <stdlib.h>

struct copying {
    const struct allocator *wanted; /* NULL: the host's memory */
    bool has_decoded;               /* a serialized value */
    uint32_t depth;
    struct variant_places *places;
};

static void places_add(struct variant_places *places, struct tensor *place) {
    if (places->n == places->capacity) {
        places->capacity = MAX(16, 2 * places->capacity);
        places->items = xreallocarray(places->items, (size_t)places->capacity, sizeof(place));
    }
    places->items[places->n++] = place;
}

static struct status *copy_objects(struct copying *copying, struct tensor *t);

static bool is_elsewhere(const struct tensor *t, const struct allocator *wanted) {
    return tensor_is_on_device(t) ? t->buffer->allocator != wanted : wanted != NULL;
}

static struct status *visit(struct copying *copying, struct tensor *t) {
    if (t->dtype == DT_VARIANT && tensor_has_value(t))
        return copy_objects(copying, t);
    if (tensor_has_value(t) && t->n_elements > 0 && dtype_in((enum dtype)t->dtype, DTYPES_PLAIN) &&
        is_elsewhere(t, copying->wanted))
        places_add(copying->places, t);
    return NULL;
}

/* Replaces a list by a copy. */
static struct status *copy_object(struct copying *copying, struct object **object) {
    struct object *made = NULL, *before = *object;
    struct tensor *tensors = NULL;
    int64_t n = 0;
    TRY(variant_resolve(object, allocator_host()));
    copying->has_decoded |= *object != before;
    const struct variant_kind *kind = variant_kind_of(*object);
    if (!kind || !kind->copy)
        return NULL;
    TRY(kind->copy(*object, &made, &tensors, &n));
    object_unref(*object);
    *object = made;
    for (int64_t i = 0; i < n; i++)
        TRY(visit(copying, &tensors[i]));
    return NULL;
}

/* Gives *t objects of its own. */
static struct status *copy_objects(struct copying *copying, struct tensor *t) {
    struct tensor made = TENSOR_INIT;
    TRY(variant_check_depth(++copying->depth));
    TRY(tensor_clone(allocator_host(), t, &made));
    tensor_clear(t);
    tensor_move(t, &made);
    struct object **objects = tensor_data(t);
    for (int64_t i = 0; i < t->n_elements; i++)
        TRY(copy_object(copying, &objects[i]));
    copying->depth--;
    return NULL;
}

struct status *variant_copy_begin(const struct tensor *from, const struct allocator *wanted,
                                  struct tensor *ret, struct variant_places *ret_places) {
    struct copying copying = {.wanted = wanted, .places = ret_places};
    struct tensor made = TENSOR_INIT;
    *ret_places = (struct variant_places){NULL, 0, 0};
    tensor_copy(&made, from);
    struct status *st = copy_objects(&copying, &made);
    if (st || (ret_places->n == 0 && !copying.has_decoded))
        tensor_clear(&made);
    if (st)
        return st;
    if (made.storage == TENSOR_NONE)
        tensor_copy(ret, from);
    else
        tensor_move(ret, &made);
    return NULL;
}

void variant_places_fini(struct variant_places *places) { free(places->items); }
