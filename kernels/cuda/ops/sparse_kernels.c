/* The compute functions of sparse tensors (sparse.h). Shapes are in host memory, indices and values
 * are the device's. Parts of a sparse tensor, and rows without entries, have sizes that the device
 * computes (sized_job.h). */
#include "kernels/cuda/ops/sparse.h"

#include <stdlib.h>

#include "common/tensor/element.h"
#include "kernels/cpu/sparse/sparse_arrange.h"
#include "kernels/cpu/sparse/sparse_fill.h"
#include "kernels/cuda/ops/engine_internal.h"
#include "kernels/cuda/ops/order.h"
#include "kernels/cuda/ops/segments_args.h"
#include "kernels/cuda/ops/sized_job.h"
#include "kernels/cuda/ops/sparse_args.h"

static struct gpu_stem sparse_stem = {"sparse"};
static struct gpu_stem part_stem = {"sparse_part"};
static struct gpu_stem fill_stem = {"sparse_fill"};
static struct gpu_stem coordinate_stem = {"coordinate"};
static struct gpu_stem fill_gaps_stem = {"sparse_fill_gaps"};
static struct gpu_stem fill_entries_stem = {"sparse_fill_entries"};
static struct gpu_stem rest_stem = {"sparse_rest"};
static struct gpu_stem slice_grad_stem = {"sparse_slice_grad"};

static struct status *check_rank(int rank) {
    return rank <= SPARSE_MAX_RANK
               ? NULL
               : status_unimplemented("A GPU takes sparse tensors of at most %d dimensions, not %d",
                                      SPARSE_MAX_RANK, rank);
}

/* An output of `n` numbers in host memory. */
static struct status *put_shape(struct kernel_ctx *ctx, int output, const int64_t *dims,
                                int64_t n) {
    TRY(tensor_new(allocator_host(), DT_INT64, (struct shape){1, &n}, &ctx->outputs[output]));
    if (n > 0)
        memcpy(tensor_data(&ctx->outputs[output]), dims, (size_t)n * sizeof(*dims));
    return NULL;
}

static struct status *alloc_entries(struct kernel_ctx *ctx, int indices, int values, int64_t n,
                                    int64_t rank, enum dtype dtype) {
    TRY(kernel_alloc(ctx, indices, DT_INT64, (struct shape){2, (int64_t[]){n, rank}}));
    return kernel_alloc(ctx, values, dtype, (struct shape){1, &n});
}

/* to[j] = row positions[first + j] of `from`, which has as many rows as were sorted. */
static struct status *take_rows(struct kernel_ctx *ctx, const struct order_sort *sort,
                                int64_t first, const void *from, struct tensor *to,
                                int64_t row_len) {
    size_t position_bytes = order_position_bytes(sort->n);
    if (to->n_elements == 0)
        return NULL;
    struct device_gather gather = {.to = tensor_data(to),
                                   .from = from,
                                   .indices =
                                       sort->positions->data + (size_t)first * position_bytes,
                                   .index_dtype = position_bytes == 4 ? DT_INT32 : DT_INT64,
                                   .element_bytes = dtype_size(tensor_dtype(to)),
                                   .n_batch = 1,
                                   .n_outer = 1,
                                   .n_axis = sort->n,
                                   .n_picked = to->n_elements / row_len,
                                   .len = row_len};
    return engine_gather(ctx, &gather);
}

/* ---- SparseReshape ---- */

enum kernel_result sparse_reshape_on_gpu(struct kernel_ctx *ctx) {
    const struct tensor *indices = &ctx->inputs[0], *old = &ctx->inputs[1];
    int64_t dims[SHAPE_MAX_RANK];
    int rank;
    KERNEL_TRY(ctx, sparse_reshape_check(ctx, dims, &rank));
    KERNEL_TRY(ctx, check_rank(rank));
    KERNEL_TRY(ctx, check_rank((int)old->n_elements));
    struct sparse_reshape_args args = {.from = tensor_cdata(indices),
                                       .n = tensor_dim(indices, 0),
                                       .rank = old->n_elements,
                                       .new_rank = rank};
    sparse_fill_strides(tensor_cdata(old), (int)args.rank, args.strides);
    sparse_fill_strides(dims, rank, args.new_strides);
    KERNEL_TRY(ctx, put_shape(ctx, 1, dims, rank));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT64, (struct shape){2, (int64_t[]){args.n, rank}}));
    args.to = tensor_data(&ctx->outputs[0]);
    if (ctx->outputs[0].n_elements > 0)
        KERNEL_TRY(ctx, engine_launch_for(ctx, &sparse_stem, "reshape", args.n, &args));
    return KERNEL_DONE;
}

/* ---- SparseConcat ---- */

/* Puts the entries of all parts one after the other, with coordinates of the output. */
static struct status *concat_parts(struct kernel_ctx *ctx, const struct sparse_parts *in,
                                   int64_t *indices, char *values) {
    int64_t rank = in->parts[0].rank, offset = 0;
    size_t size = dtype_size(tensor_dtype(in->parts[0].values));
    for (int i = 0; i < in->n; i++) {
        const struct sparse *part = &in->parts[i];
        struct sparse_shift_args args = {.from = part->indices,
                                         .to = indices,
                                         .n = part->n,
                                         .rank = rank,
                                         .dim = in->dim,
                                         .offset = offset};
        offset += part->dims[in->dim];
        if (part->n == 0)
            continue;
        TRY(engine_launch_for(ctx, &sparse_stem, "shift", args.n * rank, &args));
        TRY(gpu_copy_within(ctx, values, tensor_cdata(part->values), (size_t)part->n * size));
        indices += part->n * rank;
        values += (size_t)part->n * size;
    }
    return NULL;
}

/* Sorts entries by their place in the dense tensor; equal ones keep their order. */
static struct status *sort_by_place(struct kernel_ctx *ctx, const int64_t *indices,
                                    const struct sparse_parts *in, struct order_sort *sort) {
    struct buffer *dims = NULL;
    int rank = in->parts[0].rank;
    TRY(gpu_scratch(ctx, (size_t)sort->n * sizeof(uint64_t), &sort->keys));
    TRY(gpu_stage(ctx, in->dims, (size_t)rank * sizeof(int64_t), &dims));
    struct coordinates_args args = {.indices = indices,
                                    .dims = order_longs_of(dims),
                                    .keys = (uint64_t *)(void *)sort->keys->data,
                                    .n = sort->n,
                                    .rank = rank};
    struct status *st = engine_launch_for(ctx, &coordinate_stem, "keys", sort->n, &args);
    buffer_unref(dims);
    return st ? st : order_sort_run(ctx, sort);
}

static struct status *concat(struct kernel_ctx *ctx, const struct sparse_parts *in) {
    int64_t rank = in->parts[0].rank, n = in->n_entries;
    enum dtype dtype = tensor_dtype(in->parts[0].values);
    struct order_sort sort = {.n = n, .key_bytes = sizeof(uint64_t), .n_bits = 64};
    struct buffer *indices = NULL, *values = NULL;
    struct status *st = NULL;
    TRY_OUT(alloc_entries(ctx, 0, 1, n, rank, dtype));
    TRY_OUT(put_shape(ctx, 2, in->dims, rank));
    if (n == 0)
        goto out;
    TRY_OUT(order_longs(ctx, n * rank, &indices));
    TRY_OUT(gpu_scratch(ctx, (size_t)n * dtype_size(dtype), &values));
    TRY_OUT(concat_parts(ctx, in, order_longs_of(indices), values->data));
    TRY_OUT(sort_by_place(ctx, order_longs_of(indices), in, &sort));
    TRY_OUT(take_rows(ctx, &sort, 0, indices->data, &ctx->outputs[0], rank));
    TRY_OUT(take_rows(ctx, &sort, 0, values->data, &ctx->outputs[1], 1));
out:
    order_sort_fini(&sort);
    buffer_unref(indices);
    buffer_unref(values);
    return st;
}

enum kernel_result sparse_concat_on_gpu(struct kernel_ctx *ctx) {
    struct sparse_parts in = {0};
    struct status *st = sparse_parts_init(ctx, &in);
    if (!st)
        st = concat(ctx, &in);
    sparse_parts_fini(&in);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- SparseSlice, SparseSplit: entries are sorted by their part ---- */

struct parts_job {
    struct sized_job job;
    struct sparse in;
    struct sparse_part_args args;
    struct order_sort sort;
    struct buffer *firsts;
};

static void parts_fini(struct sized_job *base) {
    struct parts_job *parts = CONTAINER_OF(base, struct parts_job, job);
    order_sort_fini(&parts->sort);
    buffer_unref(parts->firsts);
}

/* Makes the outputs of part p: entries [first, first + n) of the sorted ones. */
static struct status *put_part(struct kernel_ctx *ctx, const struct parts_job *parts, int p,
                               int64_t first, int64_t n) {
    const struct sparse_part_args *args = &parts->args;
    int n_parts = (int)args->n_parts, axis = (int)args->axis;
    struct sparse_take_args take = {.indices = args->indices,
                                    .positions = order_positions_of(&parts->sort),
                                    .first = first,
                                    .n = n,
                                    .rank = args->rank};
    int64_t size[SPARSE_MAX_RANK];
    memcpy(take.begin, args->begin, sizeof take.begin);
    memcpy(size, args->size, sizeof size);
    if (n_parts > 1) {
        size[axis] = args->length + (p < args->n_longer);
        take.begin[axis] += args->length * p + MIN((int64_t)p, args->n_longer);
    }
    TRY(alloc_entries(ctx, p, n_parts + p, n, args->rank, tensor_dtype(parts->in.values)));
    TRY(put_shape(ctx, 2 * n_parts + p, size, args->rank));
    if (n == 0)
        return NULL;
    take.to = tensor_data(&ctx->outputs[p]);
    if (args->rank > 0)
        TRY(engine_launch_for(ctx, &sparse_stem, "take", n, &take));
    return take_rows(ctx, &parts->sort, first, tensor_cdata(parts->in.values),
                     &ctx->outputs[n_parts + p], 1);
}

static struct status *parts_finish(struct sized_job *base, const void *sizes) {
    struct parts_job *parts = CONTAINER_OF(base, struct parts_job, job);
    const int64_t *firsts = sizes;
    for (int p = 0; p < parts->args.n_parts; p++)
        TRY(put_part(base->ctx, parts, p, firsts[p], firsts[p + 1] - firsts[p]));
    return NULL;
}

static struct status *parts_start(struct kernel_ctx *ctx, struct parts_job *parts) {
    struct order_sort *sort = &parts->sort;
    int n_parts = (int)parts->args.n_parts;
    *sort = (struct order_sort){
        .n = parts->in.n, .key_bytes = sizeof(uint32_t), .n_bits = order_n_bits((uint64_t)n_parts)};
    TRY(gpu_scratch(ctx, (size_t)sort->n * sort->key_bytes, &sort->keys));
    parts->args.keys = (uint32_t *)(void *)sort->keys->data;
    TRY(engine_launch_for(ctx, &part_stem, "keys", sort->n, &parts->args));
    TRY(order_sort_run(ctx, sort));
    TRY(order_longs(ctx, n_parts + 1, &parts->firsts));
    return order_bounds(ctx, sort->keys->data, BOUNDS_U32, sort->n, n_parts,
                        order_longs_of(parts->firsts));
}

/* Fills in the rest of the arguments, whose box and parts are set, and begins. */
static enum kernel_result cut(struct kernel_ctx *ctx, const struct sparse *in,
                              const struct sparse_part_args *args) {
    struct parts_job *parts = xcalloc(1, sizeof *parts);
    parts->job = (struct sized_job){.ctx = ctx, .finish = parts_finish, .fini = parts_fini};
    parts->in = *in;
    parts->args = *args;
    parts->args.indices = in->indices;
    parts->args.n = in->n;
    parts->args.rank = in->rank;
    if (in->n > 0) {
        struct status *st = parts_start(ctx, parts);
        return sized_job_end_take(&parts->job, st, parts->firsts,
                                  (size_t)(args->n_parts + 1) * sizeof(int64_t));
    }
    struct status *st = NULL;
    for (int p = 0; !st && p < args->n_parts; p++)
        st = put_part(ctx, parts, p, 0, 0);
    free(parts);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

enum kernel_result sparse_slice_on_gpu(struct kernel_ctx *ctx) {
    struct sparse in;
    struct sparse_box box;
    struct sparse_part_args args = {.n_parts = 1};
    KERNEL_TRY(ctx, sparse_slice_check(ctx, &in, &box));
    KERNEL_TRY(ctx, check_rank(in.rank));
    memcpy(args.begin, box.begin, (size_t)in.rank * sizeof(int64_t));
    memcpy(args.size, box.size, (size_t)in.rank * sizeof(int64_t));
    return cut(ctx, &in, &args);
}

/* Entries outside of the shape are in no part. */
enum kernel_result sparse_split_on_gpu(struct kernel_ctx *ctx) {
    int n_parts = ctx->instance->n_outputs / 3, axis;
    struct sparse in;
    KERNEL_TRY(ctx, sparse_split_check(ctx, &in, &axis));
    KERNEL_TRY(ctx, check_rank(in.rank));
    struct sparse_part_args args = {.n_parts = n_parts,
                                    .axis = axis,
                                    .length = in.dims[axis] / n_parts,
                                    .n_longer = in.dims[axis] % n_parts};
    memcpy(args.size, in.dims, (size_t)in.rank * sizeof(int64_t));
    return cut(ctx, &in, &args);
}

/* ---- SparseSliceGrad ---- */

enum kernel_result sparse_slice_grad_on_gpu(struct kernel_ctx *ctx) {
    const struct tensor *grad = &ctx->inputs[0], *in = &ctx->inputs[1];
    KERNEL_TRY(ctx, sparse_slice_grad_check(ctx));
    int64_t n = tensor_dim(in, 0);
    struct sparse_slice_grad_args args = {.grad = tensor_cdata(grad),
                                          .in = tensor_cdata(in),
                                          .out = tensor_cdata(&ctx->inputs[3]),
                                          .start = tensor_cdata(&ctx->inputs[2]),
                                          .n = n,
                                          .n_grads = grad->n_elements,
                                          .rank = tensor_dim(in, 1)};
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(grad), (struct shape){1, &n}));
    args.to = tensor_data(&ctx->outputs[0]);
    if (n > 0)
        KERNEL_TRY(ctx,
                   engine_launch_for(ctx, &slice_grad_stem,
                                     gpu_size_suffix(dtype_size(tensor_dtype(grad))), n, &args));
    return KERNEL_DONE;
}

/* ---- SparseFillEmptyRows, RaggedFillEmptyRows ---- */

enum { FILL_SUMMARY = 4 }; /* numbers of a summary (sparse_args.h) */

struct fill_job {
    struct sized_job job;
    struct sparse_fill in;
    struct sparse_fill_args args;
    struct order_sort sort;
    struct buffer *rows, *firsts, *starts, *summary;
};

static void fill_fini(struct sized_job *base) {
    struct fill_job *fill = CONTAINER_OF(base, struct fill_job, job);
    order_sort_fini(&fill->sort);
    buffer_unref(fill->rows);
    buffer_unref(fill->firsts);
    buffer_unref(fill->starts);
    buffer_unref(fill->summary);
}

static struct status *fill_finish(struct sized_job *base, const void *sizes) {
    struct fill_job *fill = CONTAINER_OF(base, struct fill_job, job);
    struct kernel_ctx *ctx = base->ctx;
    const struct sparse_fill *in = &fill->in;
    struct sparse_fill_args *args = &fill->args;
    const int64_t *summary = sizes;
    int64_t total = summary[0];
    enum dtype dtype = tensor_dtype(in->values);
    const char *suffix = gpu_size_suffix(dtype_size(dtype));
    if (summary[1] < in->n)
        return sparse_fill_row_error(in, summary[2], summary[3]);
    TRY(kernel_alloc(ctx, 0, DT_INT64,
                     in->is_ragged ? (struct shape){1, &total}
                                   : (struct shape){2, (int64_t[]){total, in->rank}}));
    TRY(kernel_alloc(ctx, 1, dtype, (struct shape){1, &total}));
    TRY(kernel_alloc(ctx, 3, DT_INT64, (struct shape){1, &in->n}));
    args->to_indices = tensor_data(&ctx->outputs[0]);
    args->to_values = tensor_data(&ctx->outputs[1]);
    args->map = tensor_data(&ctx->outputs[3]);
    TRY(engine_launch_for(ctx, &fill_gaps_stem, suffix, args->n_rows, args));
    return args->n > 0 ? engine_launch_for(ctx, &fill_entries_stem, suffix, args->n, args) : NULL;
}

/* Finds the row of each entry, and sorts the entries by it. */
static struct status *fill_sort(struct kernel_ctx *ctx, struct fill_job *fill) {
    const struct sparse_fill *in = &fill->in;
    int64_t *firsts = order_longs_of(fill->firsts);
    if (in->n == 0)
        return gpu_zero(ctx, firsts, (size_t)(in->n_rows + 1) * sizeof(int64_t));
    fill->args.rows = in->indices;
    if (in->rank > 1) {
        TRY(order_longs(ctx, in->n, &fill->rows));
        struct device_move column = {.to = fill->rows->data,
                                     .from = (const char *)in->indices,
                                     .n_loops = 1,
                                     .dims = {in->n},
                                     .from_strides = {in->rank},
                                     .to_strides = {1}};
        TRY(engine_move(ctx, sizeof(int64_t), &column, 1));
        fill->args.rows = order_longs_of(fill->rows);
    }
    fill->sort.n = in->n;
    TRY(order_index_keys(ctx, &fill->sort, DT_INT64, fill->args.rows, in->n_rows));
    TRY(order_sort_run(ctx, &fill->sort));
    fill->args.positions = order_positions_of(&fill->sort);
    return order_bounds(ctx, fill->sort.keys->data,
                        fill->sort.key_bytes == sizeof(uint32_t) ? BOUNDS_U32 : BOUNDS_U64, in->n,
                        in->n_rows, firsts);
}

static struct status *fill_start(struct kernel_ctx *ctx, struct fill_job *fill) {
    const struct sparse_fill *in = &fill->in;
    struct sparse_fill_args *args = &fill->args;
    *args = (struct sparse_fill_args){.indices = in->indices,
                                      .values = tensor_cdata(in->values),
                                      .filler = tensor_cdata(in->filler),
                                      .is_empty = tensor_data(&ctx->outputs[2]),
                                      .n = in->n,
                                      .n_rows = in->n_rows,
                                      .rank = in->rank};
    TRY(order_longs(ctx, in->n_rows + 1, &fill->firsts));
    TRY(order_longs(ctx, in->n_rows + 1, &fill->starts));
    TRY(order_longs(ctx, FILL_SUMMARY, &fill->summary));
    TRY(fill_sort(ctx, fill));
    args->firsts = order_longs_of(fill->firsts);
    args->starts = order_longs_of(fill->starts);
    args->summary = order_longs_of(fill->summary);
    TRY(engine_launch_for(ctx, &fill_stem, "counts", in->n_rows, args));
    TRY(order_scan(ctx, args->starts, in->n_rows, NULL));
    return engine_launch_for(ctx, &fill_stem, "summary", 1, args);
}

static enum kernel_result fill_nothing(struct kernel_ctx *ctx, const struct sparse_fill *in) {
    int64_t none = 0;
    if (in->n > 0)
        return kernel_fail(ctx, sparse_fill_row_error(in, 0, 0));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT64,
                                 in->is_ragged ? (struct shape){1, &none}
                                               : (struct shape){2, (int64_t[]){0, in->rank}}));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 1, tensor_dtype(in->values), (struct shape){1, &none}));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 3, DT_INT64, (struct shape){1, &none}));
    return KERNEL_DONE;
}

enum kernel_result sparse_fill_on_gpu(struct kernel_ctx *ctx) {
    struct sparse_fill in;
    KERNEL_TRY(ctx, sparse_fill_read(ctx, &in));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 2, DT_BOOL, (struct shape){1, &in.n_rows}));
    if (in.n_rows == 0)
        return fill_nothing(ctx, &in);
    struct fill_job *fill = xcalloc(1, sizeof *fill);
    fill->job = (struct sized_job){.ctx = ctx, .finish = fill_finish, .fini = fill_fini};
    fill->in = in;
    struct status *st = fill_start(ctx, fill);
    return sized_job_end_take(&fill->job, st, fill->summary, FILL_SUMMARY * sizeof(int64_t));
}

/* ---- their gradients ---- */

/* Marks the positions that entries have. One out of range is left out. */
static struct status *mark_taken(struct kernel_ctx *ctx, const struct tensor *map, int64_t n_full,
                                 char *marks) {
    struct device_scatter scatter = {
        .op = UPDATE_ASSIGN, .dtype = DT_BOOL, .params = marks, .scalar = {.value = {1}}};
    TRY(gpu_zero(ctx, marks, (size_t)n_full));
    if (map->n_elements == 0)
        return NULL;
    TRY(device_slices_init(&scatter.slices, map, 1, (struct shape){1, &n_full}, map->n_elements));
    return engine_scatter(ctx, &scatter);
}

/* The gradient of an entry is that of its new position. The sum of all others is the default
 * value's. */
static struct status *fill_grad(struct kernel_ctx *ctx) {
    const struct tensor *map = &ctx->inputs[0], *grad = &ctx->inputs[1];
    enum dtype dtype = tensor_dtype(grad);
    int64_t n = map->n_elements, n_full = grad->n_elements;
    struct buffer *marks = NULL;
    TRY(kernel_alloc(ctx, 0, dtype, (struct shape){1, &n}));
    TRY(kernel_alloc_zeroed(ctx, 1, dtype, SHAPE_SCALAR));
    if (n > 0) {
        struct device_gather gather = {.to = tensor_data(&ctx->outputs[0]),
                                       .from = tensor_cdata(grad),
                                       .indices = tensor_cdata(map),
                                       .index_dtype = DT_INT64,
                                       .element_bytes = dtype_size(dtype),
                                       .n_batch = 1,
                                       .n_outer = 1,
                                       .n_axis = n_full,
                                       .n_picked = n,
                                       .len = 1};
        TRY(engine_gather(ctx, &gather));
    }
    if (n_full == 0)
        return NULL;
    TRY(gpu_scratch(ctx, (size_t)n_full, &marks));
    struct status *st = mark_taken(ctx, map, n_full, marks->data);
    struct sparse_rest_args args = {.values = tensor_cdata(grad),
                                    .marks = (const uint8_t *)marks->data,
                                    .out = tensor_data(&ctx->outputs[1]),
                                    .n = n_full};
    struct gpu_grid one = {.n_blocks = 1, .n_threads = ORDER_THREADS};
    if (!st)
        st = engine_launch(ctx, &rest_stem, gpu_dtype_suffix(dtype), one, &args);
    buffer_unref(marks);
    return st;
}

enum kernel_result sparse_fill_grad_on_gpu(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, sparse_fill_grad_check(&ctx->inputs[0], &ctx->inputs[1]));
    KERNEL_TRY(ctx, fill_grad(ctx));
    return KERNEL_DONE;
}
