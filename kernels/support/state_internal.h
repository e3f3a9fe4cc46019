/* What the families of state share: the loops that change a value in place, and the way from an input to its variable.
 *
 * For kernels/cpu and its tests only. */
#ifndef MILLRACE_KERNELS_SUPPORT_STATE_INTERNAL_H
#define MILLRACE_KERNELS_SUPPORT_STATE_INTERNAL_H

#include "kernels/host.h"
#include "kernels/kernel.h"
#include "kernels/variable.h"

/* Loops worth more than the baseline instruction set are compiled for three; the loader picks. Sanitizers run before the
 * loader's pick is possible, so their builds have one. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__OPTIMIZE__) && !defined(__clang__)
#define STATE_CLONES VECTOR_CLONES
#else
#define STATE_CLONES VECTOR_CLONES
#endif

/* ---- updates: dst[i] = a[i] op b[i] ---- */

enum update_op { UPDATE_ASSIGN, UPDATE_ADD, UPDATE_SUB, UPDATE_MUL, UPDATE_DIV, UPDATE_MIN, UPDATE_MAX, N_UPDATE_OPS };

/* dst may be a, or be disjoint from it; it may be b as well. b_step is 1, or 0 when b is a single element for all i.
 * UPDATE_ASSIGN ignores a; for object dtypes its dst holds valid pointers. False: an integer was divided by zero. */
typedef bool update_fn(void *dst, const void *a, const void *b, int64_t n, int b_step);
/* NULL where the dtype does not have the op. */
update_fn *update_find(enum update_op op, enum dtype dtype);
/* The same over n elements in parallel. Errors: INVALID_ARGUMENT integer division by zero. */
struct status *update_run(struct pool *pool, update_fn *fn, enum dtype dtype, void *dst, const void *a, const void *b, int64_t n) MUST_USE;

/* ---- scattered updates: slices of `params` at offsets ---- */

struct scatter_job {
    update_fn *fn;
    enum dtype dtype;
    char *params;
    const char *updates; /* n_slices slices one after the other, or one element when update_step is 0 */
    int update_step;
    const int64_t *offsets; /* n_slices element offsets in params, checked; -1 leaves the slice out */
    const void *indices;    /* instead of offsets, when those are NULL: row numbers, checked, int32 or int64 */
    bool indices_are_wide;
    int64_t n_slices, slice_len;
    _Atomic bool divided_by_zero;
};
/* Slices in order, so a doubled one is updated twice. Large ones are shared out by columns, which keeps that order. */
struct status *scatter_run(struct pool *pool, struct scatter_job *job) MUST_USE;

/* ---- variables ---- */

/* The variable of a reference or resource input, with a reference of its own. Errors: what the lookup says. */
struct status *variable_of_input(struct kernel_ctx *ctx, int input, struct variable **ret) MUST_USE;
/* The handle of a resource input. Errors: INVALID_ARGUMENT when it holds none. */
struct status *handle_of_input(const struct kernel_ctx *ctx, int input, const struct resource_handle **ret) MUST_USE;
static inline void variable_unref(struct variable *variable) {
    if (variable)
        object_unref(&variable->object);
}
/* With the lock held: there is a value, of this dtype. Errors: FAILED_PRECONDITION, INVALID_ARGUMENT. */
struct status *variable_check(const struct variable *variable, bool is_ref, enum dtype dtype) MUST_USE;

/* Moves an input's value out to be kept for long: *ret, which must hold nothing, shares no buffer much larger than itself.
 * Errors: RESOURCE_EXHAUSTED. */
struct status *variable_keep(struct kernel_ctx *ctx, int input, struct tensor *ret) MUST_USE;

/* ---- kernels that ref and resource variables share ---- */

/* AssignAdd and kin: (variable, value). The row's arg is one of these. */
struct assign_update_row {
    enum update_op op;
    bool is_ref; /* the reference goes on as output 0 */
};
extern const struct assign_update_row assign_update_ref[2], assign_update_resource[2]; /* add, subtract */
kernel_fn assign_update;

/* CountUpTo and ResourceCountUpTo. */
struct count_state {
    int64_t limit;
    enum dtype dtype;
};
struct status *count_init(struct kernel_init *init) MUST_USE;
kernel_fn count_up_to;

/* Every index is in [0, limit). Errors: INVALID_ARGUMENT that names the first one that is not. */
struct status *indices_check(const struct tensor *indices, int64_t limit) MUST_USE;

/* ---- words for messages ---- */

/* Shapes as TensorFlow's messages show them. Valid until the thread's fourth call after. */
const char *shape_words(struct shape shape);
static inline const char *tensor_shape_words(const struct tensor *t) { return shape_words(tensor_shape(t)); }

/* "1,0": where position i of a tensor of this shape is. Valid like shape_words. */
const char *position_words(struct shape shape, int64_t i);

#endif
