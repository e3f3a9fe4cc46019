/* Computes Softmax, LogSoftmax and the two cross entropies row by row, so that a row stays in the
 * cache between its passes.
 *
 * Rows are float or double. half and bfloat16 rows are converted to a float row first and rounded
 * once at the end. */
/* Nobody reads the floating-point exception flags. Without this option, gcc keeps a branch around
 * operations that may raise one, and does not vectorise. */
#ifndef __clang__
#pragma GCC optimize("no-trapping-math")
#endif

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "kernels/cpu/nn/nn_internal.h"
#include "kernels/support/half_blocks.h"
#include "kernels/support/lanes.h"
#include "kernels/support/reduction_checks.h"
#include "kernels/support/vmath.h"

enum { ROW_TILE = 1 << 11, ROW_PIECE = 1 << 18 /* takes less than a millisecond */ };

#define T float
#define ROW(f) f##_f32
#define LOG logf
#define LANES 16
#include "kernels/cpu/nn/nn_softmax_rows.inc"
#undef T
#undef ROW
#undef LOG
#undef LANES
#define T double
#define ROW(f) f##_f64
#define LOG log
#define LANES 8
#include "kernels/cpu/nn/nn_softmax_rows.inc"
#undef T
#undef ROW
#undef LOG
#undef LANES

enum row_kind { SOFTMAX, LOG_SOFTMAX, XENT, SPARSE_XENT };
enum { SCRATCH_COLS = 2048, COST_NS_PER_ELEMENT = 1 };

struct softmax_job {
    enum row_kind kind;
    enum dtype dtype;
    size_t size;
    int64_t cols;
    const char *x; /* row r begins at element r · x_row_step */
    int64_t x_row_step;
    bool is_x_one;      /* one element stands for the whole row */
    const char *labels; /* XENT: as x, for labels */
    int64_t labels_row_step;
    bool is_labels_one;
    const void *classes; /* SPARSE_XENT: int32 or int64 */
    bool is_class_i32;
    char *y; /* the output, or the backprop */
    char *loss;
    _Atomic bool is_out_of_memory;
};

/* Gives a row to the loops: in place where it has their type, else stretched or converted into
 * `scratch`. */
static const void *row_of(const struct softmax_job *job, const char *base, int64_t row,
                          int64_t row_step, bool is_one, void *scratch) {
    const char *at = base + (size_t)(row * row_step) * job->size;
    if (dtype_is_narrow_float(job->dtype)) {
        half_block_load(job->dtype, scratch, (const void *)at, is_one ? 1 : job->cols);
        float *floats = scratch;
        for (int64_t i = 1; is_one && i < job->cols; i++)
            floats[i] = floats[0];
        return scratch;
    }
    if (!is_one)
        return at;
    for (int64_t i = 0; i < job->cols; i++)
        memcpy((char *)scratch + (size_t)i * job->size, at, job->size);
    return scratch;
}

static int64_t class_of(const struct softmax_job *job, int64_t row) {
    return job->is_class_i32 ? ((const int32_t *)job->classes)[row]
                             : ((const int64_t *)job->classes)[row];
}

static void run_f32(const struct softmax_job *job, int64_t row, const float *x, const float *labels,
                    float *y) {
    float loss = 0;
    if (job->kind == SOFTMAX)
        softmax_row_f32(x, y, job->cols);
    else if (job->kind == LOG_SOFTMAX)
        log_softmax_row_f32(x, y, job->cols);
    else
        loss = job->kind == XENT ? xent_row_f32(x, labels, y, job->cols)
                                 : sparse_xent_row_f32(x, class_of(job, row), y, job->cols);
    if (job->loss && dtype_is_narrow_float(job->dtype))
        ((uint16_t *)(void *)job->loss)[row] = half_value_store(job->dtype, loss);
    else if (job->loss)
        ((float *)(void *)job->loss)[row] = loss;
}

static void run_f64(const struct softmax_job *job, int64_t row, const double *x,
                    const double *labels, double *y) {
    double loss = 0;
    if (job->kind == SOFTMAX)
        softmax_row_f64(x, y, job->cols);
    else if (job->kind == LOG_SOFTMAX)
        log_softmax_row_f64(x, y, job->cols);
    else
        loss = job->kind == XENT ? xent_row_f64(x, labels, y, job->cols)
                                 : sparse_xent_row_f64(x, class_of(job, row), y, job->cols);
    if (job->loss)
        ((double *)(void *)job->loss)[row] = loss;
}

static void softmax_rows(void *arg, int64_t begin, int64_t end) {
    struct softmax_job *job = arg;
    bool needs_x = dtype_is_narrow_float(job->dtype) || job->is_x_one,
         needs_labels = dtype_is_narrow_float(job->dtype) || job->is_labels_one;
    size_t element = job->dtype == DT_DOUBLE ? sizeof(double) : sizeof(float);
    double small[SCRATCH_COLS];
    char *scratch = NULL, *large = NULL;
    if (needs_x || needs_labels) {
        size_t row_bytes = (size_t)job->cols * element;
        scratch = (char *)small;
        if (2 * row_bytes > sizeof(small))
            scratch = large = calloc(2, row_bytes);
        if (!scratch) {
            atomic_store(&job->is_out_of_memory, true);
            return;
        }
    }
    for (int64_t row = begin; row < end; row++) {
        const void *labels = NULL;
        if (job->kind == XENT)
            labels = row_of(job, job->labels, row, job->labels_row_step, job->is_labels_one,
                            scratch ? scratch + (size_t)job->cols * element : NULL);
        const void *x = row_of(job, job->x, row, job->x_row_step, job->is_x_one, scratch);
        char *y = job->y + (size_t)(row * job->cols) * job->size;
        if (job->dtype == DT_DOUBLE) {
            run_f64(job, row, x, labels, (void *)y);
        } else if (job->dtype == DT_FLOAT) {
            run_f32(job, row, x, labels, (void *)y);
        } else {
            run_f32(job, row, x, labels, (void *)scratch);
            half_block_store(job->dtype, (void *)y, (void *)scratch, job->cols);
        }
    }
    free(large);
}

static enum kernel_result run(struct kernel_ctx *ctx, struct softmax_job *job, int64_t rows) {
    if (rows == 0)
        return KERNEL_DONE;
    pool_parallel_for(ctx->pool, rows, (double)job->cols * COST_NS_PER_ELEMENT + 20, softmax_rows,
                      job);
    if (unlikely(job->is_out_of_memory))
        return kernel_fail(
            ctx, status_exhausted("no memory for a row of %lld elements", (long long)job->cols));
    return KERNEL_DONE;
}

static enum kernel_result softmax_of(struct kernel_ctx *ctx, enum row_kind kind) {
    const struct tensor *logits = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, softmax_check(ctx));
    int64_t cols = tensor_dim(logits, logits->rank - 1),
            rows = cols ? logits->n_elements / cols : 0;
    struct softmax_job job = {.kind = kind,
                              .dtype = (enum dtype)logits->dtype,
                              .size = dtype_size((enum dtype)logits->dtype),
                              .cols = cols,
                              .x = tensor_cdata(logits),
                              .x_row_step = cols};
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, job.dtype, tensor_shape(logits)));
    job.y = tensor_data(&ctx->outputs[0]);
    return run(ctx, &job, rows);
}

/* Softmax: e^x / Σ e^x along the last dimension. LogSoftmax: its logarithm, x - log Σ e^x.
 *   logits  T [..., classes]
 * Errors    INVALID_ARGUMENT   a scalar */
enum kernel_result nn_softmax(struct kernel_ctx *ctx) { return softmax_of(ctx, SOFTMAX); }
enum kernel_result nn_log_softmax(struct kernel_ctx *ctx) { return softmax_of(ctx, LOG_SOFTMAX); }

/* ---- cross entropies ---- */

/* SoftmaxCrossEntropyWithLogits: for each row, the cross entropy of softmax(features) with labels,
 * and its gradient by features.
 *   features, labels  T [batch, classes], broadcast against each other
 *   loss              T [batch]          backprop  T [batch, classes]
 * Errors   INVALID_ARGUMENT   shapes that cannot be broadcast, or not to a matrix */
enum kernel_result nn_softmax_xent(struct kernel_ctx *ctx) {
    const struct tensor *features = kernel_input(ctx, 0), *labels = kernel_input(ctx, 1);
    struct cross_entropy_plan plan;
    KERNEL_TRY(ctx, cross_entropy_plan(ctx, &plan));
    const int64_t *dims = plan.dims;
    struct softmax_job job = {.kind = XENT,
                              .dtype = (enum dtype)features->dtype,
                              .size = dtype_size((enum dtype)features->dtype),
                              .cols = dims[1],
                              .x = tensor_cdata(features),
                              .x_row_step = plan.features.row_step,
                              .is_x_one = plan.features.is_one,
                              .labels = tensor_cdata(labels),
                              .labels_row_step = plan.labels.row_step,
                              .is_labels_one = plan.labels.is_one};
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, job.dtype, (struct shape){1, dims}));
    job.loss = tensor_data(&ctx->outputs[0]);
    if (plan.has_all_features)
        KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 1, job.dtype, (struct shape){2, dims}));
    else
        KERNEL_TRY(ctx, kernel_alloc(ctx, 1, job.dtype, (struct shape){2, dims}));
    job.y = tensor_data(&ctx->outputs[1]);
    if (dims[1] == 0) {
        memset(job.loss, 0, (size_t)dims[0] * job.size);
        return KERNEL_DONE;
    }
    return run(ctx, &job, dims[0]);
}

static COLD struct status *bad_label(const struct tensor *labels, int64_t label,
                                     int64_t n_classes) {
    enum { SHOWN = 1000 };
    struct str text = STR_INIT;
    for (int64_t i = 0; i < MIN(labels->n_elements, (int64_t)SHOWN); i++)
        str_addf(&text, "%s%lld", i ? " " : "", (long long)tensor_index_at(labels, i));
    if (labels->n_elements > SHOWN)
        str_add(&text, " …");
    struct status *st = status_invalid("Received a label value of %lld which is outside the valid "
                                       "range of [0, %lld).  Label values: %s",
                                       (long long)label, (long long)n_classes, str_text(&text));
    str_fini(&text);
    return st;
}

/* SparseSoftmaxCrossEntropyWithLogits: as above, with one class number for each row as label.
 *   features  T [batch, classes]    labels  Tlabels [batch]
 *   loss      T [batch]             backprop  T [batch, classes]
 * Errors   INVALID_ARGUMENT   ranks, sizes, no classes, a label outside of [0, classes) */
enum kernel_result nn_sparse_softmax_xent(struct kernel_ctx *ctx) {
    const struct tensor *features = kernel_input(ctx, 0), *labels = kernel_input(ctx, 1);
    KERNEL_TRY(ctx, sparse_cross_entropy_check(ctx));
    int64_t dims[2] = {tensor_dim(features, 0), tensor_dim(features, 1)};
    for (int64_t i = 0; i < dims[0]; i++) {
        int64_t label = tensor_index_at(labels, i);
        if (unlikely(label < 0 || label >= dims[1]))
            return kernel_fail(ctx, bad_label(labels, label, dims[1]));
    }
    struct softmax_job job = {.kind = SPARSE_XENT,
                              .dtype = (enum dtype)features->dtype,
                              .size = dtype_size((enum dtype)features->dtype),
                              .cols = dims[1],
                              .x = tensor_cdata(features),
                              .x_row_step = dims[1],
                              .classes = tensor_cdata(labels),
                              .is_class_i32 = labels->dtype == DT_INT32};
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, job.dtype, (struct shape){1, dims}));
    job.loss = tensor_data(&ctx->outputs[0]);
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 1, job.dtype, (struct shape){2, dims}));
    job.y = tensor_data(&ctx->outputs[1]);
    return run(ctx, &job, dims[0]);
}
