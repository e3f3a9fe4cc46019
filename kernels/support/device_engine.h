/* What a device with a memory of its own does for kernels of the CPU.
 *
 * A kernel that only moves elements, or whose loops a device has too, serves both: it checks its
 * arguments, makes its output with kernel_alloc, and hands the elements to an engine. On a host
 * that is strided_run, scatter_run or the optimizers' loops; on a device it is this table, which
 * kernel_instance.engine points to.
 *
 *     Transpose ──► checks, plan of loops ──┬──► strided_run           (engine is NULL)
 *                                           └──► engine->move          (elements on a device)
 *
 * Each function enqueues work on the device's compute stream and never waits. Pointers lead into
 * the device's memory unless a comment says otherwise. What the host would have to read from there
 * is not checked: an index that is out of range gives zeros where it is read, and is left out where
 * it is written, as in TensorFlow's GPU kernels.
 *
 * Sizes count elements unless they end in _bytes. Any thread. Errors: INTERNAL of the device,
 * RESOURCE_EXHAUSTED for scratch memory. */
#ifndef MILLRACE_KERNELS_SUPPORT_DEVICE_ENGINE_H
#define MILLRACE_KERNELS_SUPPORT_DEVICE_ENGINE_H

#include "kernels/kernel.h"
#include "kernels/support/philox.h"
#include "kernels/support/train_run.h"
#include "kernels/support/update.h"

struct random_fill; /* kernels/cpu/random/random_fill.h */
struct pooling_job; /* kernels/cpu/nn/pooling.h */
struct conv_job;    /* kernels/cpu/nn/conv.h */

/* ---- moves ---- */

enum { DEVICE_MOVE_LOOPS = 8, DEVICE_MOVE_BATCH = 16 };

/* A strided copy, as strided.h describes it, of at least one element. */
struct device_move {
    char *to;
    const char *from; /* NULL: each element becomes `value` */
    char value[16] __attribute__((aligned(16)));
    int n_loops;
    int64_t dims[DEVICE_MOVE_LOOPS], from_strides[DEVICE_MOVE_LOOPS], to_strides[DEVICE_MOVE_LOOPS];
};

/* A value of one element: on the device (`at`), or, where at is NULL, here. */
struct device_scalar {
    const void *at;
    char value[16] __attribute__((aligned(16)));
};

/* ---- picks ----
 *
 *   from     [n_batch, n_outer, n_axis, len]
 *   indices  [n_batch, n_picked]              int32 or int64
 *   to       [n_batch, n_outer, n_picked, len]   zeros where an index is out of range */
struct device_gather {
    char *to;
    const char *from;
    const void *indices;
    enum dtype index_dtype;
    size_t element_bytes;
    int64_t n_batch, n_outer, n_axis, n_picked, len;
};

enum { DEVICE_MAX_DEPTH = 8 }; /* TensorFlow's GPU kernels stop at 7 */

/* Slices of `depth` coordinates: row r of the indices [n_rows, depth] names one of the slices of
 * `len` elements of a tensor whose first sizes are dims. */
struct device_slices {
    const void *indices;
    enum dtype index_dtype;
    int depth;
    bool wraps; /* a coordinate is taken modulo its dimension, so none is out of range */
    int64_t dims[DEVICE_MAX_DEPTH];
    int64_t n_rows, len;
};

/* params[slice of row r] = params[…] op updates[r], in the order of the rows. */
struct device_scatter {
    enum update_op op;
    enum dtype dtype;
    char *params;
    const char *updates;         /* n_rows slices, or one element for all */
    struct device_scalar scalar; /* that element, where updates is NULL */
    struct device_slices slices;
};

/* out[segment of row r] = out[…] op data[r], in the order of the rows; a segment without rows holds
 * the op's neutral element. half and bfloat16 are summed in float. */
struct device_segments {
    enum update_op op; /* UPDATE_ADD, _MUL, _MIN, _MAX; a NaN wins in the last two */
    enum dtype dtype;
    char *out;
    const char *data;
    int64_t n_out;               /* elements of out */
    struct device_slices slices; /* depth 1; an id out of range is left out */
    /* Several of the same size in one call: the rows and the segments are divided equally, in their
     * order, and ids count within a part. 0 is 1. */
    int64_t n_parts;
};

/* ---- optimizers ---- */

struct device_train {
    enum train_rule rule;
    enum dtype dtype;
    int n_slots, n_scalars;
    /* in, out, grad and flag; in and out of a sparse step are the same memory */
    struct train_run run;
    struct device_scalar scalars[TRAIN_MAX_SCALARS];
    int64_t n;           /* of a dense step */
    const void *indices; /* not NULL in a sparse step: n_indices rows of row_len elements */
    enum dtype index_dtype;
    int64_t n_indices, n_rows, row_len;
};

/* ---- others ---- */

/* to [prefix, depth, suffix], with `on` where the index [prefix, suffix] is the place in depth. */
struct device_one_hot {
    char *to;
    const void *indices;
    enum dtype index_dtype; /* uint8, int8, int32 or int64 */
    size_t element_bytes;
    struct device_scalar on, off;
    int64_t prefix, depth, suffix;
};

/* Rows of [n_matrices, n_rows, n_cols] keep the columns row - lower … row + upper; a negative width
 * keeps all. `to` may be `from`. */
struct device_band {
    char *to;
    const char *from;
    size_t element_bytes;
    int64_t n_matrices, n_rows, n_cols, lower, upper;
};

/* The first lengths[b] of n_steps steps in reverse order. The dimensions are [outer, a, middle, b,
 * inner]; one of a and b is the batch, the other the steps. A length is cut to n_steps. */
struct device_reverse_sequence {
    char *to;
    const char *from;
    const void *lengths;
    enum dtype length_dtype;
    size_t element_bytes;
    int64_t outer, n_steps, middle, n_batch, inner;
    bool batch_is_first;
};

/* to[i] = numbers[from[i] modulo n_numbers] */
enum { DEVICE_MAX_NUMBERS = 8 };
struct device_renumber {
    enum dtype dtype; /* int32 or int64 */
    void *to;
    const void *from;
    int64_t n, n_numbers;
    int64_t numbers[DEVICE_MAX_NUMBERS];
};

/* The gradient of MirrorPad: to [dims] sums the elements of `from` [before + dims + after] that are
 * its mirror images. `offset` is 1 where the edge is not repeated. */
struct device_mirror {
    enum dtype dtype;
    char *to;
    const char *from;
    int rank, offset;
    int64_t dims[DEVICE_MOVE_LOOPS], before[DEVICE_MOVE_LOOPS], after[DEVICE_MOVE_LOOPS];
};

/* Classes drawn for each row of logits, as the CPU draws them: sample s of row r uses pair
 * r · n_samples + s of the generator's words. */
struct device_multinomial {
    enum dtype dtype; /* of the logits */
    const void *logits;
    void *out; /* int32 or int64 [n_rows, n_samples] */
    bool out_is_int32;
    int64_t n_rows, n_classes, n_samples;
    struct philox generator;
};

/* Where a random generator's state is: here, or on the device. */
struct device_generator {
    const uint64_t *key, *counter; /* NULL: the generator of the random_fill */
};

/* Gamma distributed numbers, as the CPU draws them: sample s of parameter p is out[s, p] and has
 * the stream that begins 256 · (p · samples + s) blocks on. */
struct device_gamma {
    enum dtype dtype; /* of alpha and the output */
    const void *alpha;
    void *out;
    int64_t n_parameters, samples;
    struct philox generator;
    struct device_generator generator_at;
};

/* Normals between bounds: output i has the parameters of batch i / samples, and the stream that
 * begins DEVICE_PARAMETERIZED_BLOCKS · i blocks on. NaN where parameters are wrong. */
enum { DEVICE_PARAMETERIZED_BLOCKS = 1024 }; /* as many as 1,000 rejections of doubles need */
struct device_parameterized {
    enum dtype dtype;          /* of parameters and output: half, float or double */
    const void *parameters[4]; /* means, deviations, lower and upper bounds */
    bool is_shared[4];         /* one parameter for all batches */
    void *out;
    int64_t n, samples;
    struct philox generator;
};

/* A stack of matrix products: out[i] = op(x[i]) · op(y[i]), [m, n] of [m, k] and [k, n], stored row
 * by row. op transposes what is stored transposed, and with `conjugates` takes the adjoint. */
struct device_products {
    enum dtype dtype;
    const char *x, *y;
    char *out;
    int64_t m, n, k, n_products, x_stride, y_stride; /* 0: the same matrix for all */
    bool transposes_x, transposes_y, conjugates;
};

/* FusedBatchNorm of values [outer, channels, inner] (kernels/cpu/nn/norm_batch.c). All pointers but
 * x, g and result are to float [channels].
 *
 *   forward    mean and variance are the moving ones, which may be NULL where they are not needed;
 *              out: moving mean and variance, mean and variance of the batch
 *   gradient   g is the incoming gradient; mean and variance are the batch's; out: the gradients of
 *              scale and offset */
struct device_batch_norm {
    enum dtype dtype; /* half, bfloat16 or float */
    int64_t outer, channels, inner;
    float epsilon, average_factor;
    bool is_training;
    const void *x, *g;
    const float *scale, *offset, *mean, *variance;
    void *result;
    float *out[4];
};

/* LRN of float [n / depth, depth], or its gradient where there is an incoming one. */
struct device_lrn {
    int64_t n, depth, radius;
    float bias, alpha, beta;
    const float *in, *out, *gradient;
    float *result;
};

/* The functions answer NULL or a status. Nothing is called for zero elements. */
struct device_engine {
    /* a fresh buffer with a copy of host bytes, which may be reused when the call returns */
    struct status *(*stage)(struct kernel_ctx *ctx, const void *from, size_t size_bytes,
                            struct buffer **ret)MUST_USE;
    /* all bits zero, by a launch; a copy between two places that do not overlap */
    struct status *(*zero)(struct kernel_ctx *ctx, void *to, size_t size_bytes)MUST_USE;
    struct status *(*copy)(struct kernel_ctx *ctx, void *to, const void *from,
                           size_t size_bytes)MUST_USE;
    /* up to DEVICE_MOVE_BATCH copies, none of which writes what another reads */
    struct status *(*move)(struct kernel_ctx *ctx, size_t element_bytes,
                           const struct device_move *moves, int n)MUST_USE;
    struct status *(*gather)(struct kernel_ctx *ctx, const struct device_gather *gather)MUST_USE;
    struct status *(*gather_slices)(struct kernel_ctx *ctx, const struct device_slices *slices,
                                    size_t element_bytes, char *to, const char *from)MUST_USE;
    struct status *(*scatter)(struct kernel_ctx *ctx, const struct device_scatter *scatter)MUST_USE;
    struct status *(*segments)(struct kernel_ctx *ctx,
                               const struct device_segments *segments)MUST_USE;
    /* dst[i] = a[i] op b[i]; dst may be a or b. An integer divided by zero gives 0. */
    struct status *(*update)(struct kernel_ctx *ctx, enum update_op op, enum dtype dtype, void *dst,
                             const void *a, const void *b, int64_t n)MUST_USE;
    struct status *(*train)(struct kernel_ctx *ctx, const struct device_train *train)MUST_USE;
    struct status *(*random)(struct kernel_ctx *ctx, const struct random_fill *fill,
                             const struct device_generator *generator, void *out,
                             int64_t n)MUST_USE;
    /* Moves the generator words (counter low, counter high, key) on by n_blocks. `before` gets the
     * three words as they were, unless it is NULL. */
    struct status *(*advance)(struct kernel_ctx *ctx, uint64_t *words, uint64_t n_blocks,
                              uint64_t *before)MUST_USE;
    struct status *(*multinomial)(struct kernel_ctx *ctx,
                                  const struct device_multinomial *job)MUST_USE;
    struct status *(*gamma)(struct kernel_ctx *ctx, const struct device_gamma *job)MUST_USE;
    struct status *(*parameterized)(struct kernel_ctx *ctx,
                                    const struct device_parameterized *job)MUST_USE;
    struct status *(*mirror_grad)(struct kernel_ctx *ctx,
                                  const struct device_mirror *mirror)MUST_USE;
    struct status *(*one_hot)(struct kernel_ctx *ctx, const struct device_one_hot *one_hot)MUST_USE;
    struct status *(*renumber)(struct kernel_ctx *ctx,
                               const struct device_renumber *renumber)MUST_USE;
    struct status *(*band)(struct kernel_ctx *ctx, const struct device_band *band)MUST_USE;
    struct status *(*reverse_sequence)(struct kernel_ctx *ctx,
                                       const struct device_reverse_sequence *reverse)MUST_USE;
    /* n complex numbers in place */
    struct status *(*conjugate)(struct kernel_ctx *ctx, enum dtype dtype, void *at,
                                int64_t n)MUST_USE;
    /* to[i] = the sum of row i of `from` [n_rows, n], of floats or complex numbers */
    struct status *(*sum_rows)(struct kernel_ctx *ctx, enum dtype dtype, const void *from, void *to,
                               int64_t n_rows, int64_t n)MUST_USE;
    struct status *(*multiply)(struct kernel_ctx *ctx,
                               const struct device_products *products)MUST_USE;
    /* half, bfloat16, float or double; every element of the result is written */
    struct status *(*pool)(struct kernel_ctx *ctx, const struct pooling_job *job)MUST_USE;
    /* half, bfloat16, float or double */
    struct status *(*convolve)(struct kernel_ctx *ctx, const struct conv_job *job)MUST_USE;
    struct status *(*depthwise)(struct kernel_ctx *ctx, const struct conv_job *job)MUST_USE;
    struct status *(*batch_norm)(struct kernel_ctx *ctx,
                                 const struct device_batch_norm *job)MUST_USE;
    struct status *(*batch_norm_grad)(struct kernel_ctx *ctx,
                                      const struct device_batch_norm *job)MUST_USE;
    struct status *(*lrn)(struct kernel_ctx *ctx, const struct device_lrn *job)MUST_USE;
    /* to[i] = start + i · delta in the dtype's arithmetic; start and delta are on the host */
    struct status *(*range)(struct kernel_ctx *ctx, enum dtype dtype, const void *start,
                            const void *delta, void *to, int64_t n)MUST_USE;
};

/* Are the elements for the engine of a device? */
static inline bool kernel_is_for_device(const struct kernel_ctx *ctx) {
    return unlikely(ctx->instance->engine != NULL);
}
/* tensor_clone into memory of the instance's allocator; on a device as a part of the step's work */
struct status *kernel_clone(struct kernel_ctx *ctx, const struct tensor *from,
                            struct tensor *ret) MUST_USE;
/* Makes sure that an input's elements are on the device: a host value, which may come where the row
 * has KERNEL_TAKES_INLINE, is replaced by a copy there. Does nothing on a host. */
struct status *device_input(struct kernel_ctx *ctx, int input) MUST_USE;
/* A value of one element that may have come inline (KERNEL_TAKES_INLINE). */
static inline struct device_scalar device_scalar_of(const struct tensor *t) {
    struct device_scalar scalar = {.at = NULL};
    if (tensor_is_on_device(t))
        scalar.at = tensor_cdata(t);
    else
        memcpy(scalar.value, tensor_cdata(t), dtype_size((enum dtype)t->dtype));
    return scalar;
}
/* Fills in the slices that indices [rows…, depth] name in a tensor of the shape. Errors:
 * UNIMPLEMENTED for a depth above DEVICE_MAX_DEPTH. */
struct status *device_slices_init(struct device_slices *slices, const struct tensor *indices,
                                  int depth, struct shape shape, int64_t n_rows) MUST_USE;

#endif
