/* Makes, checks and transposes matrices by compressed rows; see csr.h. */
#include "kernels/cpu/sparse/csr.h"

#include <stdlib.h>

static void csr_point(struct csr *csr) {
    struct tensor *held = csr->held->held;
    csr->batch = tensor_data(&held[CSR_BATCH]);
    csr->row = tensor_data(&held[CSR_ROW]);
    csr->col = tensor_data(&held[CSR_COL]);
    csr->values = tensor_data(&held[CSR_VALUES]);
}

/* Sizes from dims; false when int32 cannot count them. */
static bool csr_set_sizes(struct csr *csr, int rank, const int64_t *dims) {
    int64_t n_pointers = 0;
    csr->rank = rank;
    csr->n_batches = rank == 3 ? dims[0] : 1;
    csr->n_rows = dims[rank - 2];
    csr->n_cols = dims[rank - 1];
    return csr->n_batches >= 0 && csr->n_batches < INT32_MAX && csr->n_rows >= 0 &&
           csr->n_rows < INT32_MAX && csr->n_cols >= 0 && csr->n_cols <= INT32_MAX &&
           !mul_overflows_i64(csr->n_batches, csr->n_rows + 1, &n_pointers) &&
           n_pointers <= INT32_MAX;
}

struct status *csr_new(struct kernel_ctx *ctx, enum dtype dtype, int rank, const int64_t *dims,
                       int64_t n_entries, struct csr *ret) {
    struct csr csr = {.dtype = dtype, .n_entries = n_entries};
    struct allocator *allocator = ctx->instance->allocator;
    struct status *st = NULL;
    if (!csr_set_sizes(&csr, rank, dims) || n_entries > INT32_MAX)
        return status_invalid("A sparse matrix of shape %s with %lld entries is too large",
                              SHAPE_TEXT(((struct shape){rank, dims})), (long long)n_entries);
    int64_t n_batch = csr.n_batches + 1, n_row = csr.n_batches * (csr.n_rows + 1), n_shape = rank;
    TRY(variant_tensors_new(&variant_csr_type, VARIANT_CSR_TENSORS, &csr.held));
    struct tensor *held = csr.held->held;
    TRY_OUT(tensor_new(allocator, DT_INT64, (struct shape){1, &n_shape}, &held[CSR_SHAPE]));
    TRY_OUT(tensor_new_zeroed(allocator, DT_INT32, (struct shape){1, &n_batch}, &held[CSR_BATCH]));
    TRY_OUT(tensor_new_zeroed(allocator, DT_INT32, (struct shape){1, &n_row}, &held[CSR_ROW]));
    TRY_OUT(tensor_new(allocator, DT_INT32, (struct shape){1, &n_entries}, &held[CSR_COL]));
    TRY_OUT(tensor_new(allocator, dtype, (struct shape){1, &n_entries}, &held[CSR_VALUES]));
    memcpy(tensor_data(&held[CSR_SHAPE]), dims, (size_t)rank * sizeof(*dims));
    csr_point(&csr);
    *ret = csr;
    return NULL;
out:
    csr_fini(&csr);
    return st;
}

void csr_fini(struct csr *csr) {
    variant_tensors_unref(csr->held);
    csr->held = NULL;
}

void csr_output(struct kernel_ctx *ctx, struct csr *csr) {
    tensor_init_scalar_object(&ctx->outputs[0], DT_VARIANT, &csr->held->object);
    csr->held = NULL;
}

/* ---- from an input ---- */

static bool has_vector(const struct tensor *t, enum dtype dtype, int64_t n) {
    return t->dtype == dtype && t->rank == 1 && t->n_elements == n;
}

/* Do the pointers rise from 0 to n? */
static bool is_rising(const int32_t *pointers, int64_t n_pointers, int64_t n) {
    for (int64_t i = 0; i < n_pointers; i++)
        if (pointers[i] < (i == 0 ? 0 : pointers[i - 1]) || pointers[i] > n)
            return false;
    return pointers[0] == 0 && pointers[n_pointers - 1] == n;
}

static bool csr_is_sound(struct csr *csr) {
    const struct tensor *held = csr->held->held;
    if (held[CSR_SHAPE].dtype != DT_INT64 || held[CSR_SHAPE].rank != 1 ||
        (held[CSR_SHAPE].n_elements != 2 && held[CSR_SHAPE].n_elements != 3) ||
        !csr_set_sizes(csr, (int)held[CSR_SHAPE].n_elements, tensor_cdata(&held[CSR_SHAPE])))
        return false;
    csr->dtype = (enum dtype)held[CSR_VALUES].dtype;
    csr->n_entries = held[CSR_VALUES].n_elements;
    if (!dtype_in(csr->dtype, CSR_TYPES) || csr->n_entries > INT32_MAX ||
        !has_vector(&held[CSR_VALUES], csr->dtype, csr->n_entries) ||
        !has_vector(&held[CSR_COL], DT_INT32, csr->n_entries) ||
        !has_vector(&held[CSR_BATCH], DT_INT32, csr->n_batches + 1) ||
        !has_vector(&held[CSR_ROW], DT_INT32, csr->n_batches * (csr->n_rows + 1)))
        return false;
    csr_point(csr);
    if (!is_rising(csr->batch, csr->n_batches + 1, csr->n_entries))
        return false;
    for (int64_t b = 0; b < csr->n_batches; b++)
        if (!is_rising(csr->row + b * (csr->n_rows + 1), csr->n_rows + 1,
                       csr->batch[b + 1] - csr->batch[b]))
            return false;
    for (int64_t i = 0; i < csr->n_entries; i++)
        if (csr->col[i] < 0 || csr->col[i] >= csr->n_cols)
            return false;
    return true;
}

struct status *csr_of_input(struct kernel_ctx *ctx, int input, enum dtype dtype, struct csr *ret) {
    const struct tensor *t = kernel_input(ctx, input);
    struct csr csr = {0};
    struct status *st = NULL;
    if (t->rank != 0)
        return status_invalid(
            "Invalid input matrix: expected a scalar variant, but its shape is %s",
            TENSOR_SHAPE_TEXT(t));
    TRY(variant_tensors_at(t, 0, &variant_csr_type, ctx->instance->allocator, &csr.held));
    if (!csr.held)
        return status_invalid("Unable to retrieve CSRSparseMatrix from input %d: it holds %s",
                              input, variant_text(*(struct object *const *)tensor_cdata(t)));
    if (!csr_is_sound(&csr))
        st = status_invalid("The CSRSparseMatrix of input %d is malformed", input);
    else if (dtype != DT_INVALID && csr.dtype != dtype)
        st = status_invalid("dtype of input matrix is not %s, but %s", dtype_name(dtype),
                            dtype_name(csr.dtype));
    if (st)
        csr_fini(&csr);
    else
        *ret = csr;
    return st;
}

/* ---- the transpose ---- */

static void transpose_batch(const struct csr *from, int64_t b, bool conjugate, struct csr *to) {
    int32_t *rows = to->row + b * (to->n_rows + 1);
    int64_t first = from->batch[b];
    for (int64_t i = first; i < from->batch[b + 1]; i++)
        rows[from->col[i] + 1]++;
    for (int64_t r = 0; r < to->n_rows; r++)
        rows[r + 1] += rows[r];
    /* rows[c] runs from a row's begin to its end, and is the next row's begin then */
    for (int64_t r = 0; r < from->n_rows; r++) {
        int64_t end, i = csr_row(from, b, r, &end);
        for (; i < end; i++) {
            int64_t at = first + rows[from->col[i]]++;
            double complex value = c128_load(from->dtype, from->values, i);
            to->col[at] = (int32_t)r;
            c128_store(to->dtype, to->values, at, conjugate ? conj(value) : value);
        }
    }
    for (int64_t r = to->n_rows; r > 0; r--)
        rows[r] = rows[r - 1];
    rows[0] = 0;
}

struct status *csr_transpose(struct kernel_ctx *ctx, const struct csr *from, bool conjugate,
                             struct csr *ret) {
    const int64_t dims[] = {from->n_batches, from->n_cols, from->n_rows};
    struct csr to;
    TRY(csr_new(ctx, from->dtype, from->rank, dims + (3 - from->rank), from->n_entries, &to));
    memcpy(to.batch, from->batch, (size_t)(from->n_batches + 1) * sizeof(*to.batch));
    for (int64_t b = 0; b < from->n_batches; b++)
        transpose_batch(from, b, conjugate, &to);
    *ret = to;
    return NULL;
}
