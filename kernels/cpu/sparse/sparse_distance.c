/* Runs EditDistance: computes the distance of the sequences that two sparse tensors hold along
 * their last dimension [Levenshtein 1966; Wagner and Fischer 1974 in the row-wise form, which keeps
 * one row of the table]. */
#include <math.h>
#include <stdlib.h>

#include "kernels/kernel.h"
#include "kernels/support/cancel.h"
#include "kernels/support/half_blocks.h"
#include "kernels/cpu/sparse/sparse.h"
#include "kernels/support/dims.h"

extern const struct kernel_list sparse_distance_kernels;

static struct status *distance_init(struct kernel_init *init) {
    return kernel_init_bool_attr(init, "normalize");
}

/* Compares values as their type does: the two zeros are equal, and a NaN equals nothing. */
static bool values_equal(enum dtype dtype, const struct tensor *a, int64_t i,
                         const struct tensor *b, int64_t j) {
    const void *x = tensor_cdata(a), *y = tensor_cdata(b);
    size_t size = dtype_size(dtype);
    switch (dtype) {
    case DT_STRING:
        return span_equal(tensor_string(a, i), tensor_string(b, j));
    case DT_FLOAT:
        return ((const float *)x)[i] == ((const float *)y)[j];
    case DT_DOUBLE:
        return ((const double *)x)[i] == ((const double *)y)[j];
    case DT_COMPLEX64:
        return ((const _Complex float *)x)[i] == ((const _Complex float *)y)[j];
    case DT_COMPLEX128:
        return ((const _Complex double *)x)[i] == ((const _Complex double *)y)[j];
    case DT_HALF:
    case DT_BFLOAT16:
        return half_value_load(dtype, ((const uint16_t *)x)[i]) ==
               half_value_load(dtype, ((const uint16_t *)y)[j]);
    default:
        return memcmp((const char *)x + (size_t)i * size, (const char *)y + (size_t)j * size,
                      size) == 0;
    }
}

/* A sequence: entries [begin, end) of a sparse tensor. */
struct sequence {
    const struct sparse *of;
    int64_t begin, end;
};

/* `row` has room for one more number than b has entries. */
static int64_t edit_distance_of(struct sequence a, struct sequence b, int64_t *row) {
    enum dtype dtype = (enum dtype)a.of->values->dtype;
    int64_t n = a.end - a.begin, m = b.end - b.begin;
    for (int64_t j = 0; j <= m; j++)
        row[j] = j;
    for (int64_t i = 0; i < n && pool_goes_on_rows(i + 1, m + 1); i++) {
        int64_t diagonal = row[0];
        row[0] = i + 1;
        for (int64_t j = 0; j < m; j++) {
            int64_t changed = diagonal + !values_equal(dtype, a.of->values, a.begin + i,
                                                       b.of->values, b.begin + j);
            diagonal = row[j + 1];
            row[j + 1] = MIN(changed, MIN(diagonal, row[j]) + 1);
        }
    }
    return row[m];
}

struct distance_job {
    struct sparse hypothesis, truth;
    int n_group; /* how many dimensions tell sequences apart: all but the last */
    int64_t dims[SHAPE_MAX_RANK];
    bool normalizes;
    int64_t *row;
};

static struct status *job_init(const struct kernel_ctx *ctx, struct distance_job *job) {
    int64_t n_dense;
    job->normalizes = *(const bool *)ctx->instance->state;
    TRY(status_prefix_take(sparse_of_inputs(ctx, 0, &job->hypothesis), "hypothesis: "));
    TRY(status_prefix_take(sparse_of_inputs(ctx, 3, &job->truth), "truth: "));
    if (job->hypothesis.rank != job->truth.rank)
        return status_invalid(
            "Expected hypothesis_shape and truth_shape to have the same rank, but got %d and %d",
            job->hypothesis.rank, job->truth.rank);
    if (job->hypothesis.rank < 2)
        return status_invalid(
            "Input SparseTensors must have rank at least 2, but truth_shape rank is: %d",
            job->truth.rank);
    TRY(sparse_check_dims(job->hypothesis.dims, job->hypothesis.rank, &n_dense));
    TRY(sparse_check_dims(job->truth.dims, job->truth.rank, &n_dense));
    job->n_group = job->hypothesis.rank - 1;
    for (int d = 0; d < job->n_group; d++)
        job->dims[d] = MAX(job->hypothesis.dims[d], job->truth.dims[d]);
    return NULL;
}

static float normalized(const struct distance_job *job, int64_t distance, int64_t n_truth) {
    if (!job->normalizes)
        return (float)distance;
    return n_truth > 0 ? (float)distance / (float)n_truth : distance > 0 ? INFINITY : 0;
}

static struct status *put(const struct distance_job *job, struct tensor *out, const int64_t *at,
                          float value) {
    uint64_t place = 0; /* wraps where an entry is outside of the shape */
    for (int d = 0; d < job->n_group; d++)
        place = place * (uint64_t)job->dims[d] + (uint64_t)at[d];
    if (place >= (uint64_t)out->n_elements)
        return status_invalid("Got an inner product %lld which would require writing to outside "
                              "of the buffer for the output tensor (max "
                              "elements %lld)",
                              (long long)place, (long long)out->n_elements);
    ((float *)tensor_data(out))[place] = value;
    return NULL;
}

/* Walks the sequences of both sides in order, and compares those that belong together. */
static struct status *compare_all(const struct distance_job *job, struct tensor *out) {
    const struct sparse *h = &job->hypothesis, *t = &job->truth;
    int64_t n_cells = 0;
    for (int64_t i = 0, j = 0; i < h->n || j < t->n;) {
        int order = i >= h->n   ? 1
                    : j >= t->n ? -1
                                : sparse_compare(sparse_at(h, i), sparse_at(t, j), job->n_group);
        struct sequence a = {h, i, order <= 0 ? sparse_run_end(h, i, job->n_group) : i};
        struct sequence b = {t, j, order >= 0 ? sparse_run_end(t, j, job->n_group) : j};
        TRY(put(job, out, order <= 0 ? sparse_at(h, i) : sparse_at(t, j),
                normalized(job, edit_distance_of(a, b, job->row), b.end - b.begin)));
        int64_t before = n_cells;
        n_cells += (a.end - a.begin + 1) * (b.end - b.begin + 1);
        if (n_cells >> 16 != before >> 16)
            TRY(kernel_loop_check(0));
        i = a.end;
        j = b.end;
    }
    return NULL;
}

static enum kernel_result edit_distance(struct kernel_ctx *ctx) {
    struct distance_job job;
    KERNEL_TRY(ctx, job_init(ctx, &job));
    struct shape shape = {job.n_group, job.dims};
    KERNEL_TRY(ctx, tensor_new_zeroed(ctx->instance->allocator, DT_FLOAT, shape, &ctx->outputs[0]));
    if (ctx->outputs[0].n_elements == 0)
        return kernel_fail(
            ctx, status_invalid("Got output shape %s which has 0 elements", SHAPE_TEXT(shape)));
    job.row = malloc(((size_t)job.truth.n + 1) * sizeof(*job.row));
    struct status *st =
        job.row ? compare_all(&job, &ctx->outputs[0]) : status_exhausted("OOM: a row of distances");
    free(job.row);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static const struct kernel_def rows[] = {
    {.op = "EditDistance",
     .constraints = {{"T", DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING)}},
     .compute = edit_distance,
     .init = distance_init},
};

const struct kernel_list sparse_distance_kernels = {rows, ARRAY_LEN(rows)};
