/* Keeps a list of tensors of one dtype, the value of a variant. A list is immutable unless it has
 * just one holder.
 *
 * A kernel that changes a list takes its input's reference. When that is the only reference, the
 * list changes in place (appending takes amortised constant time). Otherwise the list is copied;
 * the copy shares the elements. So a loop that carries a list pays only for what it changes.
 * Threads: as counted objects; the holder of the only reference may write. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_TENSOR_LIST_H
#define MILLRACE_KERNELS_HOST_RESOURCES_TENSOR_LIST_H

#include "kernels/support/variant.h"

struct tensor_list {
    struct object object;
    enum dtype dtype;
    int32_t max_n;              /* -1: no limit; only PushBack checks it */
    uint32_t depth;             /* how deep variants nest in it: variant_check_depth */
    struct shape element_shape; /* owns its sizes; may be partial */
    /* The first n are elements, TENSOR_NONE where none was set ("uninitialized"). The others, up to
     * capacity, are TENSOR_NONE. */
    struct tensor *elements;
    int64_t n, capacity;
    void *memory; /* the allocation that holds `elements` */
};
extern const struct object_type tensor_list_type; /* "tensorflow::TensorList" */

/* A list of n elements, none of them set, with one reference. Copies the shape's sizes. Errors:
 * RESOURCE_EXHAUSTED. */
struct status *tensor_list_new(enum dtype dtype, struct shape element_shape, int64_t n,
                               struct tensor_list **ret) MUST_USE;
static inline void tensor_list_unref(struct tensor_list *list) {
    if (list)
        object_unref(&list->object);
}
static inline bool tensor_list_is_sole(const struct tensor_list *list) {
    return atomic_load_explicit(&list->object.n_refs, memory_order_acquire) == 1;
}
/* Makes *list a list that only the caller holds, with room for `capacity` elements: copies it if
 * necessary. Errors: RESOURCE_EXHAUSTED, and then *list is unchanged. */
struct status *tensor_list_own(struct tensor_list **list, int64_t capacity) MUST_USE;
/* Sets the number of elements. Only the caller may hold the list. Errors: RESOURCE_EXHAUSTED. */
struct status *tensor_list_resize(struct tensor_list *list, int64_t n) MUST_USE;
/* Sets element i < n of a list that only the caller holds. Takes *value. Errors: INVALID_ARGUMENT
 * when variants nest too deep. */
struct status *tensor_list_set(struct tensor_list *list, int64_t i, struct tensor *value) MUST_USE;
void tensor_list_set_shape(struct tensor_list *list, struct shape element_shape);

static inline bool tensor_list_has(const struct tensor_list *list, int64_t i) {
    return list->elements[i].storage != TENSOR_NONE;
}

#endif
