/* Sums the gradients of one variable, drops stale ones, and hands out their mean (or sum) when
 * enough gradients have arrived. Synchronous replicas with backup workers are built from
 * accumulators [OSDI 4.4].
 *
 * A gradient is stale when its local step is below the accumulator's global step, which grows with
 * each take. A dense accumulator holds one tensor. A sparse one holds rows, the index of each row,
 * and the number of gradients in each row. Takes are served first in, first out. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_ACCUMULATOR_H
#define MILLRACE_KERNELS_HOST_RESOURCES_ACCUMULATOR_H

#include "kernels/support/named_resource.h"
#include "kernels/support/wait_room.h"

/* The gradients since the last take. The rows of a sparse sum are in rising order when the
 * gradients' rows were. */
struct accumulated {
    struct tensor values; /* holds nothing while n_gradients is 0 */
    int64_t *indices;     /* sparse: the index of each row of `values`; malloc'd, like `counts` */
    int32_t *counts;      /* sparse: the number of gradients in each row */
    int64_t n_gradients;
};
void accumulated_clear(struct accumulated *a);

struct accumulator {
    struct object object;
    struct wait_room room;
    char *name;
    struct allocator *allocator;
    enum dtype dtype;   /* half, float or double */
    struct shape shape; /* as the node declares it, may be partial; owns its sizes */
    bool is_sparse, is_mean;
    /* guarded by room.lock */
    struct accumulated sum;
    int64_t global_step;
};
extern const struct object_type accumulator_type;

struct accumulator_options {
    enum dtype dtype;
    struct shape shape;
    bool is_sparse, is_mean;
};
struct accumulator *accumulator_new(const struct accumulator_options *options,
                                    struct allocator *allocator, const char *name);
void accumulator_empty(struct object *accumulator);

/* Adds a gradient of local step `step`, or drops it when it is stale; then its shape is not
 * checked. Borrows the tensor. Any thread. Errors: INVALID_ARGUMENT "Shape mismatch: …". */
struct status *accumulator_apply(struct accumulator *accumulator, int64_t step,
                                 const struct tensor *gradient) MUST_USE;
/* Adds the rows `values` [n, …] at `indices` [n]. `shape` is a vector of sizes, and is read only
 * with has_shape. Otherwise as accumulator_apply. */
struct status *accumulator_apply_sparse(struct accumulator *accumulator, int64_t step,
                                        const struct tensor *indices, const struct tensor *values,
                                        const struct tensor *shape, bool has_shape) MUST_USE;
/* Computes a take op: waits for n gradients and sets the outputs. Output 0 is the mean or sum; a
 * sparse accumulator sets indices, values and shape. Returns what the kernel must return. */
enum kernel_result accumulator_take(struct accumulator *accumulator, struct kernel_ctx *ctx,
                                    int64_t n);
int64_t accumulator_n_gradients(struct accumulator *accumulator);
void accumulator_set_global_step(struct accumulator *accumulator, int64_t step);

/* ---- accumulator_math.c: arithmetic on half, float and double ---- */
void accumulator_add(enum dtype dtype, void *to, const void *from, int64_t n);
void accumulator_divide(enum dtype dtype, void *values, int64_t n, int64_t by);

/* ---- accumulator_sparse.c: the caller holds room.lock ---- */
struct sparse_gradient {
    const struct tensor *indices, *values, *shape;
    bool has_shape;
};
struct status *accumulator_check_sparse(const struct accumulator *accumulator,
                                        const struct sparse_gradient *gradient) MUST_USE;
struct status *accumulator_merge_sparse(struct accumulator *accumulator,
                                        const struct sparse_gradient *gradient) MUST_USE;
/* Sets a take's outputs from the sum that was taken, and clears the sum. */
struct status *accumulator_finish_sparse(const struct accumulator *accumulator,
                                         struct accumulated *taken,
                                         struct kernel_ctx *ctx) MUST_USE;

#endif
