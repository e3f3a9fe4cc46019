/* A list of tensors of one dtype, the value of a variant: immutable, unless it has just one
 * holder.
 *
 * A kernel that changes a list takes its input's reference; when that is the only one the list
 * changes in place (appending is amortised constant time), else it is copied, which shares the
 * elements. So a loop that carries a list pays for what it changes only. Threads: as counted
 * objects; whoever holds the only reference may write. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_TENSOR_LIST_H
#define MILLRACE_KERNELS_HOST_RESOURCES_TENSOR_LIST_H

#include "kernels/support/variant.h"

struct tensor_list {
    struct object object;
    enum dtype dtype;
    int32_t max_n;              /* -1: no limit; PushBack alone looks at it */
    uint32_t depth;             /* of nesting: variant_check_depth */
    struct shape element_shape; /* owns its sizes; may be partial */
    /* n of them, TENSOR_NONE where nothing was ever set: "uninitialized"; the rest up to
     * capacity too */
    struct tensor *elements;
    int64_t n, capacity;
    void *memory; /* what elements lies in */
};
extern const struct object_type tensor_list_type; /* "tensorflow::TensorList" */

/* Nothing is set. Copies the shape's sizes. Errors: RESOURCE_EXHAUSTED. */
struct status *tensor_list_new(enum dtype dtype, struct shape element_shape, int64_t n,
                               struct tensor_list **ret) MUST_USE;
static inline void tensor_list_unref(struct tensor_list *list) {
    if (list)
        object_unref(&list->object);
}
static inline bool tensor_list_is_sole(const struct tensor_list *list) {
    return atomic_load_explicit(&list->object.n_refs, memory_order_acquire) == 1;
}
/* *list becomes one that only the caller holds, with room for `capacity` elements. Errors:
 * RESOURCE_EXHAUSTED, with *list as it was. */
struct status *tensor_list_own(struct tensor_list **list, int64_t capacity) MUST_USE;
/* The list must be the caller's own. Errors: RESOURCE_EXHAUSTED. */
struct status *tensor_list_resize(struct tensor_list *list, int64_t n) MUST_USE;
/* Sets element i < n of the caller's own list; takes what *value holds. Errors: INVALID_ARGUMENT
 * when variants nest too deep. */
struct status *tensor_list_set(struct tensor_list *list, int64_t i, struct tensor *value) MUST_USE;
void tensor_list_set_shape(struct tensor_list *list, struct shape element_shape);

static inline bool tensor_list_has(const struct tensor_list *list, int64_t i) {
    return list->elements[i].storage != TENSOR_NONE;
}

#endif
