/* The compute functions of ops that select elements: Where, Unique, UniqueWithCounts,
 * DynamicPartition, TopK. */
#include "kernels/cuda/ops/select.h"

#include <stdlib.h>

#include "common/tensor/element.h"
#include "kernels/cuda/ops/engine_internal.h"
#include "kernels/cuda/ops/order.h"
#include "kernels/cuda/ops/sized_job.h"
#include "kernels/support/dims.h"

static struct gpu_stem where_write_stem = {"where_write"};
static struct gpu_stem where_count_stem = {"where_count"};
static struct gpu_stem unique_write_stem = {"unique_write"};
static struct gpu_stem group_heads_stem = {"group_heads"};
static struct gpu_stem group_starts_stem = {"group_starts"};
static struct gpu_stem top_k_rows_stem = {"top_k_rows"};
static struct gpu_stem order_row_stem = {"order_row"};
static struct gpu_stem top_k_pick_stem = {"top_k_pick"};

/* ---- Where ---- */

struct where_job {
    struct sized_job job;
    struct buffer *counts, *total;
    struct places_args args;
};

static void where_fini(struct sized_job *base) {
    struct where_job *where = CONTAINER_OF(base, struct where_job, job);
    buffer_unref(where->counts);
    buffer_unref(where->total);
}

static struct gpu_grid tiles_grid(int64_t n) {
    int64_t n_tiles = (n + SCAN_TILE_LEN - 1) / SCAN_TILE_LEN;
    return (struct gpu_grid){.n_blocks = (unsigned)MIN(n_tiles, (int64_t)1 << 16),
                             .n_threads = ORDER_THREADS};
}

static struct status *where_finish(struct sized_job *base, const void *sizes) {
    struct where_job *where = CONTAINER_OF(base, struct where_job, job);
    struct kernel_ctx *ctx = base->ctx;
    int64_t dims[2] = {*(const int64_t *)sizes, where->args.rank};
    TRY(kernel_alloc(ctx, 0, DT_INT64, (struct shape){2, dims}));
    if (ctx->outputs[0].n_elements == 0)
        return NULL;
    where->args.out = tensor_data(&ctx->outputs[0]);
    return engine_launch(ctx, &where_write_stem, gpu_dtype_suffix((enum dtype)ctx->inputs[0].dtype),
                         tiles_grid(where->args.n), &where->args);
}

static struct status *where_start(struct kernel_ctx *ctx, struct where_job *where) {
    int64_t n = where->args.n, n_tiles = (n + SCAN_TILE_LEN - 1) / SCAN_TILE_LEN;
    TRY(order_longs(ctx, n_tiles + 1, &where->counts));
    TRY(order_longs(ctx, 1, &where->total));
    where->args.counts = order_longs_of(where->counts);
    TRY(engine_launch(ctx, &where_count_stem, gpu_dtype_suffix((enum dtype)ctx->inputs[0].dtype),
                      tiles_grid(n), &where->args));
    return order_scan(ctx, where->args.counts, n_tiles, order_longs_of(where->total));
}

enum kernel_result select_where(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    if (in->rank < 1 || in->rank > PLACES_MAX_RANK)
        return kernel_fail(ctx,
                           status_invalid("WhereOp : Unhandled input dimensions: %d", in->rank));
    if (in->n_elements == 0) {
        KERNEL_TRY(ctx,
                   kernel_alloc(ctx, 0, DT_INT64, (struct shape){2, (int64_t[]){0, in->rank}}));
        return KERNEL_DONE;
    }
    struct where_job *where = xcalloc(1, sizeof *where);
    where->job = (struct sized_job){.ctx = ctx, .finish = where_finish, .fini = where_fini};
    where->args =
        (struct places_args){.in = tensor_cdata(in), .n = in->n_elements, .rank = in->rank};
    for (int i = 0; i < in->rank; i++)
        where->args.dims[i] = tensor_dim(in, i);
    struct status *st = where_start(ctx, where);
    return sized_job_end_take(&where->job, st, where->total, sizeof(int64_t));
}

/* ---- Unique, UniqueWithCounts ---- */

struct unique_job {
    struct sized_job job;
    struct order_sort sort;
    struct buffer *heads, *starts, *marks, *total;
};

static void unique_fini(struct sized_job *base) {
    struct unique_job *unique = CONTAINER_OF(base, struct unique_job, job);
    order_sort_fini(&unique->sort);
    buffer_unref(unique->heads);
    buffer_unref(unique->starts);
    buffer_unref(unique->marks);
    buffer_unref(unique->total);
}

/* The key of infinity: what is above is NaN, which equals nothing. */
static uint64_t greatest_equal_key(enum dtype dtype) {
    switch (dtype) {
    case DT_HALF:
        return 0xfc00u;
    case DT_BFLOAT16:
        return 0xff80u;
    case DT_FLOAT:
        return 0xff800000u;
    case DT_DOUBLE:
        return 0xfff0000000000000u;
    default:
        return UINT64_MAX;
    }
}

static struct status *unique_finish(struct sized_job *base, const void *sizes) {
    struct unique_job *unique = CONTAINER_OF(base, struct unique_job, job);
    struct kernel_ctx *ctx = base->ctx;
    const struct tensor *x = kernel_input(ctx, 0);
    enum dtype dtype = (enum dtype)x->dtype, out_dtype = kernel_out_dtype(ctx, 1);
    int64_t n_unique = *(const int64_t *)sizes;
    bool has_counts = ctx->instance->n_outputs > 2;
    TRY(kernel_alloc(ctx, 0, dtype, (struct shape){1, &n_unique}));
    TRY(kernel_alloc(ctx, 1, out_dtype, tensor_shape(x)));
    if (has_counts)
        TRY(kernel_alloc(ctx, 2, out_dtype, (struct shape){1, &n_unique}));
    struct unique_args args = {.x = tensor_cdata(x),
                               .y = tensor_data(&ctx->outputs[0]),
                               .of = tensor_data(&ctx->outputs[1]),
                               .counts = has_counts ? tensor_data(&ctx->outputs[2]) : NULL,
                               .positions = order_positions_of(&unique->sort),
                               .heads = order_longs_of(unique->heads),
                               .starts = order_longs_of(unique->starts),
                               .ranks = order_longs_of(unique->marks),
                               .n = x->n_elements,
                               .out_bytes = (int64_t)dtype_size(out_dtype)};
    return engine_launch_for(ctx, &unique_write_stem, gpu_size_suffix(dtype_size(dtype)), args.n,
                             &args);
}

struct status *select_groups(struct kernel_ctx *ctx, const struct order_sort *sort,
                             const struct select_bounds *bounds, int64_t *heads, int64_t *starts,
                             int64_t *marks, int64_t *total) {
    struct groups_args args = {.keys = sort->keys->data,
                               .positions = order_positions_of(sort),
                               .heads = heads,
                               .starts = starts,
                               .marks = marks,
                               .n = sort->n,
                               .distinct_above = bounds->distinct_above,
                               .n_valid = bounds->n_valid};
    TRY(engine_launch_for(ctx, &group_heads_stem, gpu_size_suffix(sort->key_bytes), sort->n,
                          &args));
    TRY(order_scan(ctx, heads, sort->n, total));
    return engine_launch_for(ctx, &group_starts_stem, gpu_size_suffix(sort->key_bytes), sort->n,
                             &args);
}

static struct status *unique_start(struct kernel_ctx *ctx, struct unique_job *unique) {
    const struct tensor *x = kernel_input(ctx, 0);
    int64_t n = x->n_elements;
    unique->sort.n = n;
    TRY(order_keys(ctx, &unique->sort, (enum dtype)x->dtype, tensor_cdata(x), false));
    TRY(order_sort_run(ctx, &unique->sort));
    TRY(order_longs(ctx, n + 1, &unique->heads));
    TRY(order_longs(ctx, n + 1, &unique->starts));
    TRY(order_longs(ctx, n + 1, &unique->marks));
    TRY(order_longs(ctx, 1, &unique->total));
    TRY(gpu_zero(ctx, unique->marks->data, (size_t)n * sizeof(int64_t)));
    struct select_bounds bounds = {greatest_equal_key((enum dtype)x->dtype), UINT64_MAX};
    TRY(select_groups(ctx, &unique->sort, &bounds, order_longs_of(unique->heads),
                      order_longs_of(unique->starts), order_longs_of(unique->marks),
                      order_longs_of(unique->total)));
    /* values are listed in the order of their first positions */
    return order_scan(ctx, order_longs_of(unique->marks), n, NULL);
}

enum kernel_result select_unique(struct kernel_ctx *ctx) {
    const struct tensor *x = kernel_input(ctx, 0);
    if (x->rank != 1)
        return kernel_fail(ctx, status_invalid("unique expects a 1D vector."));
    if (x->n_elements > INT32_MAX)
        return kernel_fail(ctx, status_invalid("unique does not support input tensors larger than "
                                               "%d elements",
                                               INT32_MAX));
    if (x->n_elements == 0) {
        for (int i = 0; i < ctx->instance->n_outputs; i++)
            KERNEL_TRY(ctx, kernel_alloc(ctx, i, kernel_out_dtype(ctx, i), tensor_shape(x)));
        return KERNEL_DONE;
    }
    struct unique_job *unique = xcalloc(1, sizeof *unique);
    unique->job = (struct sized_job){.ctx = ctx, .finish = unique_finish, .fini = unique_fini};
    struct status *st = unique_start(ctx, unique);
    return sized_job_end_take(&unique->job, st, unique->total, sizeof(int64_t));
}

/* ---- DynamicPartition ---- */

struct partition_job {
    struct sized_job job;
    struct order_sort sort;
    struct buffer *firsts;
};

static void partition_fini(struct sized_job *base) {
    struct partition_job *partition = CONTAINER_OF(base, struct partition_job, job);
    order_sort_fini(&partition->sort);
    buffer_unref(partition->firsts);
}

/* Makes output p with n_rows rows. */
static struct status *partition_alloc(struct kernel_ctx *ctx, int p, int64_t n_rows) {
    const struct tensor *data = kernel_input(ctx, 0), *partitions = kernel_input(ctx, 1);
    struct dims dims = {.rank = 1 + data->rank - partitions->rank};
    dims.at[0] = n_rows;
    for (int i = 1; i < dims.rank; i++)
        dims.at[i] = tensor_dim(data, partitions->rank + i - 1);
    if (dims.rank > SHAPE_MAX_RANK)
        return status_invalid("The parts would pass the rank limit of %d", SHAPE_MAX_RANK);
    return kernel_alloc(ctx, p, (enum dtype)data->dtype, dims_shape(&dims));
}

static struct status *partition_finish(struct sized_job *base, const void *sizes) {
    struct partition_job *partition = CONTAINER_OF(base, struct partition_job, job);
    struct kernel_ctx *ctx = base->ctx;
    const struct tensor *data = kernel_input(ctx, 0);
    const int64_t *firsts = sizes;
    size_t position_bytes = order_position_bytes(partition->sort.n);
    for (int p = 0; p < ctx->instance->n_outputs; p++) {
        int64_t n_rows = firsts[p + 1] - firsts[p];
        TRY(partition_alloc(ctx, p, n_rows));
        if (ctx->outputs[p].n_elements == 0)
            continue;
        struct device_gather gather = {.to = tensor_data(&ctx->outputs[p]),
                                       .from = tensor_cdata(data),
                                       .indices = partition->sort.positions->data +
                                                  (size_t)firsts[p] * position_bytes,
                                       .index_dtype = position_bytes == 4 ? DT_INT32 : DT_INT64,
                                       .element_bytes = dtype_size((enum dtype)data->dtype),
                                       .n_batch = 1,
                                       .n_outer = 1,
                                       .n_axis = partition->sort.n,
                                       .n_picked = n_rows,
                                       .len = data->n_elements / partition->sort.n};
        TRY(engine_gather(ctx, &gather));
    }
    return NULL;
}

/* A row whose partition is out of range belongs to none. */
static struct status *partition_start(struct kernel_ctx *ctx, struct partition_job *partition) {
    const struct tensor *partitions = kernel_input(ctx, 1);
    int n_parts = ctx->instance->n_outputs;
    partition->sort.n = partitions->n_elements;
    TRY(order_index_keys(ctx, &partition->sort, DT_INT32, tensor_cdata(partitions), n_parts));
    TRY(order_sort_run(ctx, &partition->sort));
    TRY(order_longs(ctx, n_parts + 1, &partition->firsts));
    return order_bounds(ctx, partition->sort.keys->data, BOUNDS_U32, partition->sort.n, n_parts,
                        order_longs_of(partition->firsts));
}

enum kernel_result select_partition(struct kernel_ctx *ctx) {
    const struct tensor *data = kernel_input(ctx, 0), *partitions = kernel_input(ctx, 1);
    bool starts_with = data->rank >= partitions->rank;
    for (int i = 0; starts_with && i < partitions->rank; i++)
        starts_with = tensor_dim(data, i) == tensor_dim(partitions, i);
    if (!starts_with)
        return kernel_fail(ctx,
                           status_invalid("data.shape must start with partitions.shape, got "
                                          "data.shape = %s, partitions.shape = %s",
                                          TENSOR_SHAPE_TEXT(data), TENSOR_SHAPE_TEXT(partitions)));
    if (partitions->n_elements == 0) {
        for (int p = 0; p < ctx->instance->n_outputs; p++)
            KERNEL_TRY(ctx, partition_alloc(ctx, p, 0));
        return KERNEL_DONE;
    }
    struct partition_job *partition = xcalloc(1, sizeof *partition);
    partition->job =
        (struct sized_job){.ctx = ctx, .finish = partition_finish, .fini = partition_fini};
    struct status *st = partition_start(ctx, partition);
    return sized_job_end_take(&partition->job, st, partition->firsts,
                              (size_t)(ctx->instance->n_outputs + 1) * sizeof(int64_t));
}

/* ---- TopK, TopKV2 ---- */

enum { TOP_K_LONG_ROW = 1 << 20 }; /* few rows beyond this are sorted by all blocks */

/* By a block for each row. */
static struct status *top_k_rows(struct kernel_ctx *ctx, struct top_k_args *args) {
    const struct tensor *in = kernel_input(ctx, 0);
    size_t size = dtype_size((enum dtype)in->dtype), entry = (size == 8 ? 8 : 4) + sizeof(uint32_t);
    int64_t wanted = args->n_cols <= TOP_K_MOST / 4 ? args->n_cols : args->k;
    for (args->n_entries = 2; args->n_entries < wanted;)
        args->n_entries *= 2;
    struct gpu_grid grid = {.n_blocks = (unsigned)MIN(args->n_rows, (int64_t)1 << 16),
                            .n_threads = ORDER_THREADS,
                            .shared_bytes = (unsigned)((size_t)args->n_entries * entry)};
    return engine_launch(ctx, &top_k_rows_stem, gpu_dtype_suffix((enum dtype)in->dtype), grid,
                         args);
}

/* Replaces the sorted keys by the numbers of the rows, and sorts by them. */
static struct status *sort_by_row(struct kernel_ctx *ctx, struct order_sort *sort, int64_t n_rows,
                                  int64_t n_cols) {
    buffer_unref(sort->keys);
    sort->keys = NULL;
    sort->key_bytes = n_rows <= UINT32_MAX ? 4 : 8;
    sort->n_bits = order_n_bits((uint64_t)n_rows - 1);
    TRY(gpu_scratch(ctx, (size_t)sort->n * sort->key_bytes, &sort->keys));
    struct row_keys_args args = {.keys = sort->keys->data,
                                 .positions = order_positions_of(sort),
                                 .n = sort->n,
                                 .by = n_cols,
                                 .key_bytes = (int64_t)sort->key_bytes};
    TRY(engine_launch_for(ctx, &order_row_stem, "keys", sort->n, &args));
    return order_sort_run(ctx, sort);
}

/* By a sort of all elements, and then by row, which keeps their order in it. */
static struct status *top_k_sorted(struct kernel_ctx *ctx, const struct top_k_args *args) {
    const struct tensor *in = kernel_input(ctx, 0);
    enum dtype dtype = (enum dtype)in->dtype;
    struct order_sort sort = {.n = in->n_elements};
    struct status *st = order_keys(ctx, &sort, dtype, args->in, true);
    if (!st)
        st = order_sort_run(ctx, &sort);
    if (!st && args->n_rows > 1)
        st = sort_by_row(ctx, &sort, args->n_rows, args->n_cols);
    if (!st) {
        struct top_k_pick_args pick = {.in = args->in,
                                       .values = args->values,
                                       .indices = args->indices,
                                       .positions = order_positions_of(&sort),
                                       .n_rows = args->n_rows,
                                       .n_cols = args->n_cols,
                                       .k = args->k,
                                       .index_bytes = args->index_bytes};
        st = engine_launch_for(ctx, &top_k_pick_stem, gpu_size_suffix(dtype_size(dtype)),
                               args->n_rows * args->k, &pick);
    }
    order_sort_fini(&sort);
    return st;
}

struct status *top_k_init(struct kernel_init *init) {
    int64_t *k = xmalloc(sizeof *k);
    init->state = k;
    *k = -1;
    if (!node_attr(init->node, "k"))
        return NULL;
    TRY(node_get_i(init->node, "k", k));
    return *k < 0 ? status_invalid("Need k >= 0, got %lld", (long long)*k) : NULL;
}

static struct status *top_k_read(const struct kernel_ctx *ctx, int64_t *ret_k) {
    const struct tensor *input = kernel_input(ctx, 0);
    *ret_k = *(const int64_t *)ctx->instance->state;
    if (*ret_k < 0) {
        const struct tensor *k = kernel_input(ctx, 1);
        if (k->rank != 0)
            return status_invalid("k must be scalar, got shape %s", TENSOR_SHAPE_TEXT(k));
        *ret_k = tensor_int_at(k, 0);
        if (*ret_k < 0)
            return status_invalid("Need k >= 0, got %lld", (long long)*ret_k);
    }
    if (input->rank < 1)
        return status_invalid("input must be >= 1-D, got shape []");
    int64_t n_cols = tensor_dim(input, input->rank - 1);
    if (n_cols < *ret_k)
        return status_invalid("input must have at least k columns. Had %lld, needed %lld",
                              (long long)n_cols, (long long)*ret_k);
    if (n_cols > INT32_MAX)
        return status_invalid("Second dimension of flattened input must be <= %d, got %lld",
                              INT32_MAX, (long long)n_cols);
    return NULL;
}

enum kernel_result select_top_k(struct kernel_ctx *ctx) {
    const struct tensor *input = kernel_input(ctx, 0);
    int64_t k;
    KERNEL_TRY(ctx, top_k_read(ctx, &k));
    struct dims dims;
    dims_set(&dims, tensor_shape(input));
    int64_t n_cols = dims.at[dims.rank - 1];
    dims.at[dims.rank - 1] = k;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)input->dtype, dims_shape(&dims)));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 1, kernel_out_dtype(ctx, 1), dims_shape(&dims)));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    struct top_k_args args = {.in = tensor_cdata(input),
                              .values = tensor_data(&ctx->outputs[0]),
                              .indices = tensor_data(&ctx->outputs[1]),
                              .n_rows = input->n_elements / n_cols,
                              .n_cols = n_cols,
                              .k = k,
                              .index_bytes = (int64_t)dtype_size(kernel_out_dtype(ctx, 1))};
    bool by_row = k <= TOP_K_MOST && (n_cols <= TOP_K_LONG_ROW || args.n_rows > 64);
    KERNEL_TRY(ctx, by_row ? top_k_rows(ctx, &args) : top_k_sorted(ctx, &args));
    return KERNEL_DONE;
}
