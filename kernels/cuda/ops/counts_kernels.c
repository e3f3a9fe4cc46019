/* The compute functions of counts, searches and small ops: DenseBincount, HistogramFixedWidth,
 * InTopK, LowerBound, Bucketize, Cross, CheckNumerics, SparseToDense, SparseReorder. */
#include "kernels/cuda/ops/segments.h"

#include <math.h>
#include <stdlib.h>

#include "common/tensor/element.h"
#include "kernels/cuda/ops/engine_internal.h"
#include "kernels/cuda/ops/order.h"
#include "kernels/cuda/ops/sized_job.h"
#include "kernels/support/counting_checks.h"
#include "kernels/support/dims.h"

static struct gpu_stem bin_stem = {"bin"};
static struct gpu_stem bincount_stem = {"bincount"};
static struct gpu_stem counts_stem = {"counts"};
static struct gpu_stem histogram_stem = {"histogram"};
static struct gpu_stem in_top_stem = {"in_top"};
static struct gpu_stem search_stem = {"search"};
static struct gpu_stem bucketize_stem = {"bucketize"};
static struct gpu_stem check_numbers_stem = {"check_numbers"};
static struct gpu_stem coordinate_stem = {"coordinate"};

/* ---- Bincount, DenseBincount ---- */

struct bins_state {
    bool is_dense, is_binary;
};

struct status *count_init_bins(struct kernel_init *init) {
    struct bins_state *state = xcalloc(1, sizeof *state);
    init->state = state;
    state->is_dense = node_is_op(init->node, "DenseBincount");
    return state->is_dense ? node_get_b(init->node, "binary_output", &state->is_binary) : NULL;
}

static struct status *check_bins(const struct kernel_ctx *ctx, int64_t *ret_n_bins) {
    const struct bins_state *state = ctx->instance->state;
    const struct tensor *values = &ctx->inputs[0], *size = &ctx->inputs[1],
                        *weights = &ctx->inputs[2];
    if (size->rank != 0)
        return status_invalid("Shape must be rank 0 but is rank %d (size)", size->rank);
    *ret_n_bins = tensor_index_at(size, 0);
    if (*ret_n_bins < 0)
        return status_invalid("size (%lld) must be non-negative", (long long)*ret_n_bins);
    if (state->is_dense && values->rank > 2)
        return status_invalid("Shape must be at most rank 2 but is rank %d", values->rank);
    if (state->is_dense && (weights->n_elements > 0 || weights->rank != 1) &&
        !shape_equal(tensor_shape(values), tensor_shape(weights)) && weights->n_elements > 0)
        return status_invalid("`weights` must be the same shape as `arr` or a length-0 `Tensor`, "
                              "in which case it acts as all weights equal to 1.");
    if (!state->is_dense && weights->n_elements > 0 && weights->n_elements != values->n_elements)
        return status_invalid("Input indices and weights must have the same size.");
    return NULL;
}

/* Weights are summed in order: values are sorted by bin, and each bin is a run. */
static struct status *sum_weights(struct kernel_ctx *ctx, int64_t n_rows, int64_t n_bins) {
    const struct tensor *values = &ctx->inputs[0], *weights = &ctx->inputs[2];
    int64_t n_all = n_rows * n_bins, n = values->n_elements;
    struct order_sort sort = {.n = n, .key_bytes = 8, .n_bits = order_n_bits((uint64_t)n_all)};
    struct buffer *firsts = NULL;
    struct status *st = gpu_scratch(ctx, (size_t)n * 8, &sort.keys);
    if (st)
        return st;
    struct bin_keys_args keys = {.values = tensor_cdata(values),
                                 .keys = (uint64_t *)(void *)sort.keys->data,
                                 .index = engine_index((enum dtype)values->dtype),
                                 .n = n,
                                 .row_len = n / n_rows,
                                 .n_bins = n_bins,
                                 .n_rows = n_rows};
    TRY_OUT(engine_launch_for(ctx, &bin_stem, "keys", n, &keys));
    TRY_OUT(order_sort_run(ctx, &sort));
    TRY_OUT(order_longs(ctx, n_all + 1, &firsts));
    TRY_OUT(order_bounds(ctx, sort.keys->data, BOUNDS_U64, n, n_all, order_longs_of(firsts)));
    struct runs_args runs = {.out = tensor_data(&ctx->outputs[0]),
                             .data = tensor_cdata(weights),
                             .positions = order_positions_of(&sort),
                             .firsts = order_longs_of(firsts),
                             .op = UPDATE_ADD,
                             .n_segments = n_all,
                             .n_rows = n,
                             .inner = 1};
    st = segments_run(ctx, (enum dtype)weights->dtype, &runs, n);
out:
    buffer_unref(firsts);
    order_sort_fini(&sort);
    return st;
}

/* Counts are exact in any order. */
static struct status *count_values(struct kernel_ctx *ctx, int64_t n_rows, int64_t n_bins) {
    const struct bins_state *state = ctx->instance->state;
    const struct tensor *values = &ctx->inputs[0];
    struct tensor *out = &ctx->outputs[0];
    bool is_float = out->dtype == DT_FLOAT;
    size_t size_bytes = (size_t)out->n_elements * sizeof(int32_t);
    struct buffer *scratch = NULL;
    if (is_float)
        TRY(gpu_scratch(ctx, size_bytes, &scratch));
    int32_t *counts = is_float ? (int32_t *)(void *)scratch->data : tensor_data(out);
    struct bincount_args args = {.values = tensor_cdata(values),
                                 .counts = counts,
                                 .index = engine_index((enum dtype)values->dtype),
                                 .n = values->n_elements,
                                 .row_len = values->n_elements / n_rows,
                                 .n_bins = n_bins,
                                 .is_binary = state->is_binary};
    struct status *st = gpu_zero(ctx, counts, size_bytes);
    if (!st && args.n > 0)
        st = engine_launch(ctx, &bincount_stem, "all", gpu_grid_for(ctx, args.n), &args);
    if (!st && is_float) {
        struct counts_float_args to_float = {counts, tensor_data(out), out->n_elements};
        st = engine_launch_for(ctx, &counts_stem, "float", to_float.n, &to_float);
    }
    buffer_unref(scratch);
    return st;
}

enum kernel_result count_bins(struct kernel_ctx *ctx) {
    const struct bins_state *state = ctx->instance->state;
    const struct tensor *values = &ctx->inputs[0], *weights = &ctx->inputs[2];
    bool has_rows = state->is_dense && values->rank == 2;
    int64_t n_bins, n_rows = has_rows ? tensor_dim(values, 0) : 1;
    KERNEL_TRY(ctx, check_bins(ctx, &n_bins));
    struct shape shape =
        has_rows ? (struct shape){2, (int64_t[]){n_rows, n_bins}} : (struct shape){1, &n_bins};
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)weights->dtype, shape));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    bool has_weights = weights->n_elements > 0 && !state->is_binary;
    KERNEL_TRY(ctx,
               has_weights ? sum_weights(ctx, n_rows, n_bins) : count_values(ctx, n_rows, n_bins));
    return KERNEL_DONE;
}

/* ---- HistogramFixedWidth ---- */

enum kernel_result count_histogram(struct kernel_ctx *ctx) {
    const struct tensor *values = kernel_input(ctx, 0);
    struct histogram_bins bins;
    KERNEL_TRY(ctx, histogram_check(ctx, &bins));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT32, (struct shape){1, &bins.n}));
    struct histogram_args args = {.values = tensor_cdata(values),
                                  .counts = tensor_data(&ctx->outputs[0]),
                                  .n = values->n_elements,
                                  .n_bins = bins.n,
                                  .low = bins.low,
                                  .step = bins.step};
    KERNEL_TRY(ctx, gpu_zero(ctx, args.counts, tensor_size_bytes(&ctx->outputs[0])));
    if (args.n > 0)
        KERNEL_TRY(ctx,
                   engine_launch_for(ctx, &histogram_stem,
                                     gpu_dtype_suffix((enum dtype)values->dtype), args.n, &args));
    return KERNEL_DONE;
}

/* ---- InTopK, InTopKV2 ---- */

struct status *count_init_in_top_k(struct kernel_init *init) {
    int64_t *k = xcalloc(1, sizeof *k);
    init->state = k;
    return node_attr(init->node, "k") ? node_get_i(init->node, "k", k) : NULL;
}

enum kernel_result count_in_top_k(struct kernel_ctx *ctx) {
    const struct tensor *predictions = kernel_input(ctx, 0), *targets = kernel_input(ctx, 1);
    const struct tensor *k = ctx->instance->n_inputs > 2 ? kernel_input(ctx, 2) : NULL;
    if (predictions->rank != 2)
        return kernel_fail(ctx, status_invalid("predictions must be 2-dimensional"));
    if (targets->rank != 1)
        return kernel_fail(ctx, status_invalid("targets must be 1-dimensional"));
    int64_t n_rows = tensor_dim(predictions, 0);
    if (n_rows != tensor_dim(targets, 0))
        return kernel_fail(
            ctx,
            status_invalid("First dimension of predictions %lld must match length of targets %lld",
                           (long long)n_rows, (long long)tensor_dim(targets, 0)));
    if (k && k->rank != 0)
        return kernel_fail(ctx,
                           status_invalid("k must be 0-D, got shape %s", TENSOR_SHAPE_TEXT(k)));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_BOOL, (struct shape){1, &n_rows}));
    if (n_rows == 0)
        return KERNEL_DONE;
    struct in_top_k_args args = {.predictions = tensor_cdata(predictions),
                                 .targets = tensor_cdata(targets),
                                 .k_at = k ? tensor_cdata(k) : NULL,
                                 .out = tensor_data(&ctx->outputs[0]),
                                 .index = engine_index((enum dtype)targets->dtype),
                                 .n_rows = n_rows,
                                 .n_classes = tensor_dim(predictions, 1),
                                 .k = *(const int64_t *)ctx->instance->state};
    struct gpu_grid grid = {.n_blocks = (unsigned)MIN(n_rows, (int64_t)1 << 16),
                            .n_threads = ORDER_THREADS};
    KERNEL_TRY(ctx, engine_launch(ctx, &in_top_stem, "k", grid, &args));
    return KERNEL_DONE;
}

/* ---- LowerBound, UpperBound, Bucketize ---- */

enum kernel_result count_search(struct kernel_ctx *ctx) {
    const struct tensor *sorted = &ctx->inputs[0], *values = &ctx->inputs[1];
    enum dtype out_dtype = kernel_out_dtype(ctx, 0);
    KERNEL_TRY(ctx, bound_check(ctx));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, out_dtype, tensor_shape(values)));
    if (values->n_elements == 0)
        return KERNEL_DONE;
    struct search_args args = {.sorted = tensor_cdata(sorted),
                               .values = tensor_cdata(values),
                               .out = tensor_data(&ctx->outputs[0]),
                               .n = values->n_elements,
                               .n_sorted = tensor_dim(sorted, 1),
                               .n_values = tensor_dim(values, 1),
                               .is_upper = node_is_op(ctx->instance->node, "UpperBound"),
                               .out_bytes = (int64_t)dtype_size(out_dtype)};
    KERNEL_TRY(ctx, engine_launch_for(ctx, &search_stem,
                                      gpu_dtype_suffix((enum dtype)values->dtype), args.n, &args));
    return KERNEL_DONE;
}

struct boundaries {
    int64_t n;
    float at[];
};

struct status *count_init_bucketize(struct kernel_init *init) {
    const struct attr_value *values;
    int n = 0;
    TRY(node_get_list(init->node, "boundaries", &values, &n));
    struct boundaries *boundaries = xmalloc(sizeof *boundaries + (size_t)n * sizeof(float));
    init->state = boundaries;
    boundaries->n = n;
    for (int i = 0; i < n; i++) {
        boundaries->at[i] = values[i].f;
        if (i > 0 && boundaries->at[i] < boundaries->at[i - 1])
            return status_invalid("Expected sorted boundaries");
    }
    return NULL;
}

enum kernel_result count_bucketize(struct kernel_ctx *ctx) {
    const struct boundaries *boundaries = ctx->instance->state;
    const struct tensor *in = &ctx->inputs[0];
    struct buffer *table = NULL;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT32, tensor_shape(in)));
    if (in->n_elements == 0)
        return KERNEL_DONE;
    if (boundaries->n > 0)
        KERNEL_TRY(ctx,
                   gpu_stage(ctx, boundaries->at, (size_t)boundaries->n * sizeof(float), &table));
    struct bucketize_args args = {.values = tensor_cdata(in),
                                  .boundaries = table ? (const float *)(void *)table->data : NULL,
                                  .out = tensor_data(&ctx->outputs[0]),
                                  .n = in->n_elements,
                                  .n_boundaries = boundaries->n};
    struct status *st = engine_launch_for(ctx, &bucketize_stem,
                                          gpu_dtype_suffix((enum dtype)in->dtype), args.n, &args);
    buffer_unref(table);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- Cross ---- */

enum kernel_result count_cross(struct kernel_ctx *ctx) {
    const struct tensor *a = &ctx->inputs[0], *b = &ctx->inputs[1];
    if (!shape_equal(tensor_shape(a), tensor_shape(b)))
        return kernel_fail(ctx, status_invalid("Both inputs must be of same shape"));
    if (a->rank < 1)
        return kernel_fail(ctx, status_invalid("Input must be at least 1D"));
    if (tensor_dim(a, a->rank - 1) != 3)
        return kernel_fail(ctx, status_failed_precondition(
                                    "Cross-products are only defined for 3-element vectors."));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)a->dtype, tensor_shape(a)));
    struct cross_args args = {tensor_cdata(a), tensor_cdata(b), tensor_data(&ctx->outputs[0]),
                              a->n_elements / 3};
    if (args.n_vectors == 0)
        return KERNEL_DONE;
    return gpu_run(ctx, ctx->instance->state, gpu_grid_for(ctx, args.n_vectors), &args);
}

/* ---- CheckNumerics ---- */

struct check_state {
    struct span message; /* owned by the node */
    bool says_sign;
};

struct check_job {
    struct sized_job job;
    struct buffer *found;
};

static void check_fini(struct sized_job *base) {
    buffer_unref(CONTAINER_OF(base, struct check_job, job)->found);
}

struct status *check_numbers_init(struct kernel_init *init) {
    struct check_state *state = xcalloc(1, sizeof *state);
    init->state = state;
    state->says_sign = init->arg != NULL;
    return node_get_s(init->node, "message", &state->message);
}

/* By the bits of what was found: 1 for +Inf, 2 for -Inf, 4 for NaN. */
static const char *finding_text(unsigned found, bool says_sign) {
    static const char *const signed_texts[8] = {
        "",    "+Inf",         "-Inf",         "-Inf and +Inf",
        "NaN", "+Inf and NaN", "-Inf and NaN", "-Inf, +Inf, and NaN"};
    if (says_sign)
        return signed_texts[found & 7];
    return found == 4 ? "NaN" : found & 4 ? "Inf and NaN" : "Inf";
}

static struct status *check_finish(struct sized_job *base, const void *sizes) {
    struct kernel_ctx *ctx = base->ctx;
    const struct check_state *state = ctx->instance->state;
    unsigned found = *(const unsigned *)sizes;
    if (found)
        return status_invalid("%.*s : Tensor had %s values", (int)state->message.len,
                              (const char *)state->message.data,
                              finding_text(found, state->says_sign));
    kernel_pass(ctx, 0, 0);
    return NULL;
}

static struct status *check_start(struct kernel_ctx *ctx, struct check_job *job) {
    const struct tensor *x = kernel_input(ctx, 0);
    TRY(gpu_scratch(ctx, sizeof(uint32_t), &job->found));
    TRY(gpu_zero(ctx, job->found->data, sizeof(uint32_t)));
    struct check_args args = {tensor_cdata(x), (uint32_t *)(void *)job->found->data, x->n_elements};
    return engine_launch_for(ctx, &check_numbers_stem, gpu_dtype_suffix((enum dtype)x->dtype),
                             args.n, &args);
}

enum kernel_result check_numbers(struct kernel_ctx *ctx) {
    if (kernel_input(ctx, 0)->n_elements == 0) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    struct check_job *job = xcalloc(1, sizeof *job);
    job->job = (struct sized_job){.ctx = ctx, .finish = check_finish, .fini = check_fini};
    struct status *st = check_start(ctx, job);
    return sized_job_end_take(&job->job, st, job->found, sizeof(uint32_t));
}

/* ---- SparseReorder ---- */

static struct status *check_sparse(const struct kernel_ctx *ctx) {
    const struct tensor *indices = &ctx->inputs[0], *values = &ctx->inputs[1],
                        *sizes = &ctx->inputs[2];
    if (indices->rank != 2)
        return status_invalid("Input indices should be a matrix but received shape %s",
                              TENSOR_SHAPE_TEXT(indices));
    if (values->rank != 1)
        return status_invalid("Input values should be a vector but received shape %s",
                              TENSOR_SHAPE_TEXT(values));
    if (sizes->rank != 1)
        return status_invalid("Input shape should be a vector but received shape %s",
                              TENSOR_SHAPE_TEXT(sizes));
    if (tensor_dim(indices, 1) != sizes->n_elements)
        return status_invalid("Input shape should have %lld elements, not %lld",
                              (long long)tensor_dim(indices, 1), (long long)sizes->n_elements);
    if (tensor_dim(indices, 0) != values->n_elements)
        return status_invalid("Number of elements of indices (%lld) and values (%lld) should match",
                              (long long)tensor_dim(indices, 0), (long long)values->n_elements);
    return NULL;
}

static struct status *take_rows(struct kernel_ctx *ctx, const struct order_sort *sort, int output) {
    const struct tensor *from = &ctx->inputs[output];
    struct device_gather gather = {.to = tensor_data(&ctx->outputs[output]),
                                   .from = tensor_cdata(from),
                                   .indices = sort->positions->data,
                                   .index_dtype =
                                       order_position_bytes(sort->n) == 4 ? DT_INT32 : DT_INT64,
                                   .element_bytes = dtype_size((enum dtype)from->dtype),
                                   .n_batch = 1,
                                   .n_outer = 1,
                                   .n_axis = sort->n,
                                   .n_picked = sort->n,
                                   .len = from->n_elements / sort->n};
    return gather.len > 0 ? engine_gather(ctx, &gather) : NULL;
}

/* Entries are sorted by their place in the dense tensor; equal ones keep their order. */
enum kernel_result sparse_reorder(struct kernel_ctx *ctx) {
    const struct tensor *indices = &ctx->inputs[0], *values = &ctx->inputs[1];
    KERNEL_TRY(ctx, check_sparse(ctx));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT64, tensor_shape(indices)));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 1, (enum dtype)values->dtype, tensor_shape(values)));
    struct order_sort sort = {.n = values->n_elements, .key_bytes = 8, .n_bits = 64};
    if (sort.n == 0)
        return KERNEL_DONE;
    struct status *st = gpu_scratch(ctx, (size_t)sort.n * 8, &sort.keys);
    KERNEL_TRY(ctx, st);
    struct coordinates_args args = {.indices = tensor_cdata(indices),
                                    .dims = tensor_cdata(&ctx->inputs[2]),
                                    .keys = (uint64_t *)(void *)sort.keys->data,
                                    .n = sort.n,
                                    .rank = tensor_dim(indices, 1)};
    TRY_OUT(engine_launch_for(ctx, &coordinate_stem, "keys", sort.n, &args));
    TRY_OUT(order_sort_run(ctx, &sort));
    TRY_OUT(take_rows(ctx, &sort, 0));
    TRY_OUT(take_rows(ctx, &sort, 1));
out:
    order_sort_fini(&sort);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}
