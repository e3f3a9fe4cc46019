/* Computes diagonals: of one matrix (Diag, DiagPart), and of batches and bands (MatrixDiag,
 * MatrixDiagPart, MatrixSetDiag, MatrixBandPart).
 *
 * A band is the diagonals lower … upper; diagonal d > 0 is above the main one. A packed band has
 * one row per diagonal, the highest first, as long as the longest diagonal. A shorter diagonal is
 * at the left or the right of its row; the attr `align` says which, for those above and below the
 * main one. */
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "common/tensor/element.h"
#include "kernels/cpu/array/array_internal.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/dims.h"

struct align {
    bool super_left, sub_left;
};

/* Ops of the first and second generation have no attr `align`: their diagonals are at the left. */
static struct status *align_init(struct kernel_init *init) {
    struct span text = span_of("LEFT_LEFT");
    if (node_attr(init->node, "align"))
        TRY(node_get_s(init->node, "align", &text));
    struct align align = {span_is(text, "LEFT_LEFT") || span_is(text, "LEFT_RIGHT"),
                          span_is(text, "LEFT_LEFT") || span_is(text, "RIGHT_LEFT")};
    if (!align.super_left && !align.sub_left && !span_is(text, "RIGHT_RIGHT"))
        return status_invalid("Unknown align attribute: %.*s", (int)MIN(text.len, 32), text.data);
    init->state = xmalloc(sizeof(align));
    *(struct align *)init->state = align;
    return NULL;
}

struct band {
    int64_t lower, upper, n_rows, n_cols, n_diags, max_len;
};

static struct status *band_read(const struct tensor *k, struct band *ret) {
    if (k->rank > 1)
        return status_invalid("diag_index must be a scalar or vector, received shape: %s",
                              TENSOR_SHAPE_TEXT(k));
    if (k->n_elements < 1 || k->n_elements > 2)
        return status_invalid(
            "diag_index must have only one or two elements, received %lld elements.",
            (long long)k->n_elements);
    ret->lower = tensor_index_at(k, 0);
    ret->upper = tensor_index_at(k, k->n_elements - 1);
    ret->n_diags = ret->upper - ret->lower + 1;
    if (ret->lower > ret->upper)
        return status_invalid(
            "lower_diag_index must not be larger than upper_diag_index: %lld > %lld",
            (long long)ret->lower, (long long)ret->upper);
    return NULL;
}

static int64_t diag_len(const struct band *band, int64_t d) {
    return MIN(band->n_rows + MIN(d, 0), band->n_cols - MAX(d, 0));
}

/* Checks the bounds against the matrix' sizes, and finds the longest diagonal. */
static struct status *band_fit(struct band *band, int64_t n_rows, int64_t n_cols) {
    band->n_rows = n_rows;
    band->n_cols = n_cols;
    if (!(band->lower > -n_rows && band->lower < n_cols) && band->lower != 0)
        return status_invalid(
            "lower_diag_index is out of bound: %lld. It must be between %lld and %lld",
            (long long)band->lower, (long long)-n_rows, (long long)n_cols);
    if (!(band->upper > -n_rows && band->upper < n_cols) && band->upper != 0)
        return status_invalid(
            "upper_diag_index is out of bound: %lld. It must be between %lld and %lld",
            (long long)band->upper, (long long)-n_rows, (long long)n_cols);
    band->max_len = MIN(n_rows + MIN(band->upper, 0), n_cols - MAX(band->lower, 0));
    return NULL;
}

/* The offset at which diagonal d begins in its packed row. */
static int64_t packed_offset(const struct band *band, const struct align *align, int64_t d) {
    bool is_left = (d >= 0 && align->super_left) || (d <= 0 && align->sub_left);
    return is_left ? 0 : band->max_len - diag_len(band, d);
}

/* Copies a band between matrices and packed rows, for all matrices of a batch, one diagonal at a
 * time. */
static struct status *move_band(struct kernel_ctx *ctx, const struct band *band, bool to_packed,
                                int64_t n_batch, const struct tensor *in, struct tensor *out) {
    const struct align *align = ctx->instance->state;
    int64_t matrix = band->n_rows * band->n_cols, packed = band->n_diags * band->max_len;
    struct moves moves;
    moves_begin(&moves, ctx, tensor_dtype(in));
    for (int64_t d = band->upper; d >= band->lower && !pool_is_unwanted(); d--) {
        int64_t len = diag_len(band, d);
        if (len <= 0)
            continue;
        int64_t at_matrix = MAX(-d, 0) * band->n_cols + MAX(d, 0),
                at_packed = (band->upper - d) * band->max_len + packed_offset(band, align, d);
        struct strided s;
        strided_init(&s);
        strided_add(&s, n_batch, to_packed ? matrix : packed, to_packed ? packed : matrix);
        strided_add(&s, len, to_packed ? band->n_cols + 1 : 1, to_packed ? 1 : band->n_cols + 1);
        moves_add(&moves, &s, tensor_at(out, to_packed ? at_packed : at_matrix),
                  tensor_cat(in, to_packed ? at_matrix : at_packed));
    }
    return moves_end(&moves);
}

static const char zero_element[16] __attribute__((aligned(16)));

/* ---- MatrixDiagPart ---- */

static enum kernel_result diag_part_of(struct kernel_ctx *ctx, struct band *band,
                                       const void *padding) {
    const struct tensor *in = kernel_input(ctx, 0);
    if (in->rank < 2)
        return kernel_fail(ctx, status_invalid("input must be at least 2-dim, received shape: %s",
                                               TENSOR_SHAPE_TEXT(in)));
    KERNEL_TRY(ctx, band_fit(band, tensor_dim(in, in->rank - 2), tensor_dim(in, in->rank - 1)));
    struct dims dims;
    dims_set(&dims, tensor_shape(in));
    dims.rank -= 2;
    int64_t n_batch = dims_product(dims.at, 0, dims.rank);
    if (band->n_diags > 1)
        dims.at[dims.rank++] = band->n_diags;
    dims.at[dims.rank++] = band->max_len;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), dims_shape(&dims)));
    struct tensor *out = &ctx->outputs[0];
    if (out->n_elements == 0)
        return KERNEL_DONE;
    if (band->n_diags > 1)
        KERNEL_TRY(ctx,
                   move_fill(ctx, tensor_dtype(in), tensor_data(out), padding, out->n_elements));
    KERNEL_TRY(ctx, move_band(ctx, band, true, n_batch, in, out));
    return KERNEL_DONE;
}

static enum kernel_result matrix_diag_part(struct kernel_ctx *ctx) {
    struct band band = {.n_diags = 1};
    return diag_part_of(ctx, &band, zero_element);
}

static enum kernel_result matrix_diag_part_v3(struct kernel_ctx *ctx) {
    struct band band = {0};
    const struct tensor *padding = kernel_input(ctx, 2);
    KERNEL_TRY(ctx, band_read(kernel_input(ctx, 1), &band));
    if (padding->n_elements < 1)
        return kernel_fail(ctx, status_invalid("padding_value must be a scalar, received shape: %s",
                                               TENSOR_SHAPE_TEXT(padding)));
    return diag_part_of(ctx, &band, tensor_cdata(padding));
}

/* ---- MatrixDiag ---- */

static enum kernel_result diag_of(struct kernel_ctx *ctx, struct band *band, int64_t n_rows,
                                  int64_t n_cols, const void *padding) {
    const struct tensor *in = kernel_input(ctx, 0);
    if (in->rank < 1)
        return kernel_fail(ctx,
                           status_invalid("diagonal must be at least 1-dim, received shape: %s",
                                          TENSOR_SHAPE_TEXT(in)));
    if (band->n_diags > 1 && in->rank < 2)
        return kernel_fail(ctx,
                           status_invalid("diagonal must be at least 2-dim, received shape: %s",
                                          TENSOR_SHAPE_TEXT(in)));
    if (band->n_diags > 1 && tensor_dim(in, in->rank - 2) != band->n_diags)
        return kernel_fail(ctx, status_invalid("The number of diagonals provided in the input does "
                                               "not match the lower_diag_index and "
                                               "upper_diag_index range."));
    int64_t len = tensor_dim(in, in->rank - 1), min_rows = len - MIN(band->upper, 0),
            min_cols = len + MAX(band->lower, 0);
    if (n_rows == -1 && n_cols == -1)
        n_rows = n_cols = MAX(min_rows, min_cols);
    else if (n_rows == -1)
        n_rows = min_rows;
    else if (n_cols == -1)
        n_cols = min_cols;
    if (n_rows < min_rows)
        return kernel_fail(ctx, status_invalid("The number of rows is too small."));
    if (n_cols < min_cols)
        return kernel_fail(ctx, status_invalid("The number of columns is too small."));
    if (n_rows != min_rows && n_cols != min_cols)
        return kernel_fail(ctx,
                           status_invalid("The number of rows or columns is not consistent with "
                                          "the specified d_lower, d_upper, and diagonal."));
    band->n_rows = n_rows;
    band->n_cols = n_cols;
    band->max_len = len;
    struct dims dims;
    dims_set(&dims, tensor_shape(in));
    dims.rank -= band->n_diags > 1 ? 2 : 1;
    int64_t n_batch = dims_product(dims.at, 0, dims.rank);
    if (!dims_add(&dims, n_rows) || !dims_add(&dims, n_cols))
        return kernel_fail(
            ctx, status_invalid("The output would pass the rank limit of %d", SHAPE_MAX_RANK));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), dims_shape(&dims)));
    struct tensor *out = &ctx->outputs[0];
    if (out->n_elements == 0)
        return KERNEL_DONE;
    KERNEL_TRY(ctx, move_fill(ctx, tensor_dtype(in), tensor_data(out), padding, out->n_elements));
    if (in->n_elements > 0)
        KERNEL_TRY(ctx, move_band(ctx, band, false, n_batch, in, out));
    return KERNEL_DONE;
}

static enum kernel_result matrix_diag(struct kernel_ctx *ctx) {
    struct band band = {.n_diags = 1};
    return diag_of(ctx, &band, -1, -1, zero_element);
}

static enum kernel_result matrix_diag_v3(struct kernel_ctx *ctx) {
    struct band band = {0};
    KERNEL_TRY(ctx, band_read(kernel_input(ctx, 1), &band));
    int64_t sizes[2];
    for (int i = 0; i < 2; i++) {
        const struct tensor *size = kernel_input(ctx, 2 + i);
        if (size->rank > 1 || size->n_elements != 1)
            return kernel_fail(ctx, status_invalid("%s must be a scalar, received shape: %s",
                                                   i ? "num_cols" : "num_rows",
                                                   TENSOR_SHAPE_TEXT(size)));
        sizes[i] = tensor_index_at(size, 0);
    }
    const struct tensor *padding = kernel_input(ctx, 4);
    if (padding->rank > 1 || padding->n_elements != 1)
        return kernel_fail(ctx, status_invalid("padding_value must be a scalar, received shape: %s",
                                               TENSOR_SHAPE_TEXT(padding)));
    return diag_of(ctx, &band, sizes[0], sizes[1], tensor_cdata(padding));
}

/* ---- MatrixSetDiag ---- */

static enum kernel_result set_diag(struct kernel_ctx *ctx, struct band *band) {
    const struct tensor *in = kernel_input(ctx, 0), *diag = kernel_input(ctx, 1);
    if (in->rank < 2)
        return kernel_fail(ctx, status_invalid("input must be at least 2-dim, received shape: %s",
                                               TENSOR_SHAPE_TEXT(in)));
    if (diag->rank < 1)
        return kernel_fail(ctx,
                           status_invalid("diagonal must be at least 1-dim, received shape: %s",
                                          TENSOR_SHAPE_TEXT(diag)));
    KERNEL_TRY(ctx, band_fit(band, tensor_dim(in, in->rank - 2), tensor_dim(in, in->rank - 1)));
    struct dims expected;
    dims_set(&expected, tensor_shape(in));
    expected.rank -= 2;
    int64_t n_batch = dims_product(expected.at, 0, expected.rank);
    if (band->n_diags > 1)
        expected.at[expected.rank++] = band->n_diags;
    expected.at[expected.rank++] = band->max_len;
    if (!shape_equal(dims_shape(&expected), tensor_shape(diag)))
        return kernel_fail(
            ctx, status_invalid("Either first dimensions of diagonal don't match input.shape[:-2], "
                                "or diagonal.shape[:-1] is not equal to "
                                "the longests diagonal in range "
                                "[lower_diag_index:upper_diag_index].\nInput shape: %s\nDiagonal "
                                "shape: %s\nExpected diagonal shape: %s",
                                TENSOR_SHAPE_TEXT(in), TENSOR_SHAPE_TEXT(diag),
                                SHAPE_TEXT(dims_shape(&expected))));
    struct tensor *out = &ctx->outputs[0];
    if (tensor_is_sole(in) || in->n_elements == 0)
        kernel_pass(ctx, 0, 0);
    else
        KERNEL_TRY(ctx, kernel_clone(ctx, in, out));
    if (out->n_elements > 0 && diag->n_elements > 0)
        KERNEL_TRY(ctx, move_band(ctx, band, false, n_batch, diag, out));
    return KERNEL_DONE;
}

static enum kernel_result matrix_set_diag(struct kernel_ctx *ctx) {
    struct band band = {.n_diags = 1};
    return set_diag(ctx, &band);
}

static enum kernel_result matrix_set_diag_v3(struct kernel_ctx *ctx) {
    struct band band = {0};
    KERNEL_TRY(ctx, band_read(kernel_input(ctx, 2), &band));
    return set_diag(ctx, &band);
}

/* ---- MatrixBandPart ---- */

static struct status *band_width(const struct tensor *t, const char *name, const char *what,
                                 int64_t limit, int64_t *ret) {
    if (t->rank != 0)
        return status_invalid("%s must be scalar, got shape %s", name, TENSOR_SHAPE_TEXT(t));
    *ret = tensor_index_at(t, 0);
    if (*ret > limit)
        return status_invalid(
            "%s must be negative or less or equal to number of %s (%lld) got: %lld", name, what,
            (long long)limit, (long long)*ret);
    return NULL;
}

struct band_rows {
    char *out;
    const char *in;
    size_t size;
    int64_t n_rows, n_cols, lower, upper;
};

static void band_rows_share(void *arg, int64_t begin, int64_t end) {
    const struct band_rows *job = arg;
    for (int64_t row = begin; row < end; row++) {
        int64_t i = row % job->n_rows;
        int64_t first = job->lower < 0 ? 0 : MIN(MAX(i - job->lower, 0), job->n_cols);
        int64_t last = job->upper < 0 ? job->n_cols : MIN(i + job->upper + 1, job->n_cols);
        last = MAX(last, first);
        char *to = job->out + (size_t)(row * job->n_cols) * job->size;
        const char *from = job->in + (size_t)(row * job->n_cols) * job->size;
        memset(to, 0, (size_t)first * job->size);
        if (to != from)
            memcpy(to + (size_t)first * job->size, from + (size_t)first * job->size,
                   (size_t)(last - first) * job->size);
        memset(to + (size_t)last * job->size, 0, (size_t)(job->n_cols - last) * job->size);
    }
}

static enum kernel_result matrix_band_part(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    if (in->rank < 2)
        return kernel_fail(ctx, status_invalid("input must be at least 2-dim, received shape: %s",
                                               TENSOR_SHAPE_TEXT(in)));
    enum dtype dtype = tensor_dtype(in);
    struct band_rows job = {.size = dtype_size(dtype),
                            .n_rows = tensor_dim(in, in->rank - 2),
                            .n_cols = tensor_dim(in, in->rank - 1)};
    KERNEL_TRY(ctx, band_width(kernel_input(ctx, 1), "num_lower", "rows", job.n_rows, &job.lower));
    KERNEL_TRY(ctx,
               band_width(kernel_input(ctx, 2), "num_upper", "columns", job.n_cols, &job.upper));
    if (in->n_elements == 0) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    /* stays valid, because the output took over the input's memory or the input keeps it */
    job.in = tensor_cdata(in);
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, dtype, tensor_shape(in)));
    struct tensor *out = &ctx->outputs[0];
    job.out = tensor_data(out);
    if (kernel_is_for_device(ctx)) {
        struct device_band band = {job.out,    job.in,     job.size,  0,
                                   job.n_rows, job.n_cols, job.lower, job.upper};
        band.n_matrices = out->n_elements / (job.n_rows * job.n_cols);
        KERNEL_TRY(ctx, ctx->instance->engine->band(ctx, &band));
        return KERNEL_DONE;
    }
    pool_parallel_for(ctx->pool, out->n_elements / job.n_cols,
                      5.0 + (double)job.n_cols * (double)job.size * 0.1, band_rows_share, &job);
    return KERNEL_DONE;
}

/* ---- Diag, DiagPart: a tensor of rank r and the diagonal of one of rank 2r ---- */

static enum kernel_result diag(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    if (in->rank < 1)
        return kernel_fail(ctx, status_invalid("Input must be at least rank 1, got 0"));
    struct dims dims;
    dims_set(&dims, tensor_shape(in));
    for (int i = 0; i < in->rank; i++) {
        if (!dims_add(&dims, tensor_dim(in, i)))
            return kernel_fail(
                ctx, status_invalid("The output would pass the rank limit of %d", SHAPE_MAX_RANK));
    }
    KERNEL_TRY(ctx, kernel_alloc_zeroed(ctx, 0, tensor_dtype(in), dims_shape(&dims)));
    struct strided s;
    strided_init(&s);
    strided_add(&s, in->n_elements, 1, in->n_elements + 1);
    KERNEL_TRY(
        ctx, move_run(ctx, &s, tensor_dtype(in), tensor_data(&ctx->outputs[0]), tensor_cdata(in)));
    return KERNEL_DONE;
}

static enum kernel_result diag_part(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    int rank = in->rank / 2;
    /* TensorFlow's kernel accepts a scalar, although its messages say otherwise */
    if (in->rank == 0) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    if (in->rank % 2 != 0)
        return kernel_fail(
            ctx, status_invalid("The rank of the tensor should be even and positive, got shape %s",
                                TENSOR_SHAPE_TEXT(in)));
    for (int i = 0; i < rank; i++) {
        if (tensor_dim(in, i) != tensor_dim(in, i + rank))
            return kernel_fail(
                ctx, status_invalid("Invalid shape %s: dimensions %d and %d do not match.",
                                    TENSOR_SHAPE_TEXT(in), i, i + rank));
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), (struct shape){rank, tensor_dims(in)}));
    int64_t n = ctx->outputs[0].n_elements;
    struct strided s;
    strided_init(&s);
    strided_add(&s, n, n + 1, 1);
    KERNEL_TRY(
        ctx, move_run(ctx, &s, tensor_dtype(in), tensor_data(&ctx->outputs[0]), tensor_cdata(in)));
    return KERNEL_DONE;
}

#define PLAIN                 \
    {                         \
        { "T", DTYPES_PLAIN } \
    }
#define DIAG_TYPES (DTYPES_REAL_FLOAT | DTYPES_INDEX | DTYPES_COMPLEX)

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "Diag", .constraints = {{"T", DIAG_TYPES}}, .compute = diag},
    {.op = "DiagPart", .constraints = {{"T", DIAG_TYPES}}, .compute = diag_part},
    {.op = "MatrixDiag", .constraints = PLAIN, .compute = matrix_diag, .init = align_init},
    {.op = "MatrixDiagV2", .constraints = PLAIN, .compute = matrix_diag_v3, .init = align_init},
    {.op = "MatrixDiagV3", .constraints = PLAIN, .compute = matrix_diag_v3, .init = align_init},
    {.op = "MatrixDiagPart", .constraints = PLAIN, .compute = matrix_diag_part, .init = align_init},
    {.op = "MatrixDiagPartV2", .constraints = PLAIN, .compute = matrix_diag_part_v3,
        .init = align_init},
    {.op = "MatrixDiagPartV3", .constraints = PLAIN, .compute = matrix_diag_part_v3,
        .init = align_init},
    {.op = "MatrixSetDiag", .constraints = PLAIN, .compute = matrix_set_diag, .init = align_init},
    {.op = "MatrixSetDiagV2", .constraints = PLAIN, .compute = matrix_set_diag_v3,
        .init = align_init},
    {.op = "MatrixSetDiagV3", .constraints = PLAIN, .compute = matrix_set_diag_v3,
        .init = align_init},
    {.op = "MatrixBandPart", .constraints = PLAIN, .compute = matrix_band_part},
    {.op = "BatchMatrixDiag", .constraints = PLAIN, .compute = matrix_diag, .init = align_init},
    {.op = "BatchMatrixDiagPart", .constraints = PLAIN, .compute = matrix_diag_part,
        .init = align_init},
    {.op = "BatchMatrixSetDiag", .constraints = PLAIN, .compute = matrix_set_diag,
        .init = align_init},
    {.op = "BatchMatrixBandPart", .constraints = PLAIN, .compute = matrix_band_part},
};
// clang-format on

const struct kernel_list array_diag_kernels = {rows, ARRAY_LEN(rows)};
