/* A conditional accumulator: sums gradients of one variable, drops stale ones, and hands out the
 * mean (or sum) when enough have come: what synchronous replicas with backup workers are made of
 * [OSDI 4.4].
 *
 * A gradient is stale when its local step lies before the accumulator's global step, which grows
 * with each take. A dense accumulator has a tensor; a sparse one rows with their indices, and a
 * count for each row. Takes wait in line. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_ACCUMULATOR_H
#define MILLRACE_KERNELS_HOST_RESOURCES_ACCUMULATOR_H

#include "kernels/support/named_resource.h"
#include "kernels/support/wait_room.h"

/* What has come since the last take. Rows of a sparse one are in order as long as the gradients'
 * were. */
struct accumulated {
    struct tensor values; /* holds nothing while n_gradients is 0 */
    int64_t *indices;     /* sparse: of each row of values; malloc'd, like the counts */
    int32_t *counts;      /* sparse: how many gradients are in each row */
    int64_t n_gradients;
};
void accumulated_clear(struct accumulated *a);

struct accumulator {
    struct object object;
    struct wait_room room;
    char *name;
    struct allocator *allocator;
    enum dtype dtype;   /* half, float or double */
    struct shape shape; /* declared: partial; owns its sizes */
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

/* A gradient of local step `step`. Errors: INVALID_ARGUMENT "Shape mismatch: …" (a stale one is
 * dropped without a look). */
struct status *accumulator_apply(struct accumulator *accumulator, int64_t step,
                                 const struct tensor *gradient) MUST_USE;
/* indices [n], values [n, …]; shape: a vector of sizes, looked at with has_shape only. */
struct status *accumulator_apply_sparse(struct accumulator *accumulator, int64_t step,
                                        const struct tensor *indices, const struct tensor *values,
                                        const struct tensor *shape, bool has_shape) MUST_USE;
/* A kernel's whole answer: waits for n gradients. Output 0 is the mean or sum; of a sparse one
 * outputs are indices, values, shape. */
enum kernel_result accumulator_take(struct accumulator *accumulator, struct kernel_ctx *ctx,
                                    int64_t n);
int64_t accumulator_n_gradients(struct accumulator *accumulator);
void accumulator_set_global_step(struct accumulator *accumulator, int64_t step);

/* ---- arithmetic on half, float, double (accumulator_math.c) ---- */
void accumulator_add(enum dtype dtype, void *to, const void *from, int64_t n);
void accumulator_divide(enum dtype dtype, void *values, int64_t n, int64_t by);

/* accumulator_sparse.c: checks against what is there and adds; with the lock held. */
struct sparse_gradient {
    const struct tensor *indices, *values, *shape;
    bool has_shape;
};
struct status *accumulator_check_sparse(const struct accumulator *accumulator,
                                        const struct sparse_gradient *gradient) MUST_USE;
struct status *accumulator_merge_sparse(struct accumulator *accumulator,
                                        const struct sparse_gradient *gradient) MUST_USE;
/* Outputs of a taken sum. */
struct status *accumulator_finish_sparse(const struct accumulator *accumulator,
                                         struct accumulated *taken,
                                         struct kernel_ctx *ctx) MUST_USE;

#endif
