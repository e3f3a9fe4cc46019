/* Rearranges sparse tensors and keeps their values: SparseReorder, SparseReshape, SparseConcat,
 * SparseSplit, SparseSlice and SparseSliceGrad. */
#include "kernels/cpu/sparse/sparse_arrange.h"

#include <stdlib.h>

#include "kernels/support/cancel.h"

extern const struct kernel_list sparse_arrange_kernels;

/* Adds numbers from clients, whose sum may wrap. */
static inline int64_t wrapping_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static inline int64_t wrapping_mul(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* ---- SparseReorder ---- */

static enum kernel_result sparse_reorder(struct kernel_ctx *ctx) {
    struct sparse in;
    int64_t *order = NULL;
    KERNEL_TRY(ctx, sparse_of_inputs(ctx, 0, &in));
    KERNEL_TRY(ctx, sparse_order(&in, NULL, in.rank, &order));
    struct status *st = sparse_alloc(ctx, 0, in.n, in.rank, (enum dtype)in.values->dtype, NULL);
    int64_t *to = st ? NULL : tensor_data(&ctx->outputs[0]);
    for (int64_t i = 0; !st && i < in.n && pool_goes_on(i); i++) {
        memcpy(to + i * in.rank, sparse_at(&in, order[i]), (size_t)in.rank * sizeof(*to));
        sparse_copy_value(&ctx->outputs[1], i, in.values, order[i]);
    }
    free(order);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- SparseReshape ---- */

/* Computes the new sizes, including the one that is -1. */
static struct status *new_dims(const struct tensor *asked, int64_t n_dense, int64_t *dims) {
    int64_t product = 1;
    int unknown = -1;
    if (asked->n_elements > SHAPE_MAX_RANK)
        return status_invalid("Too many dimensions: %lld", (long long)asked->n_elements);
    for (int d = 0; d < (int)asked->n_elements; d++) {
        dims[d] = tensor_index_at(asked, d);
        if (dims[d] == -1) {
            if (unknown >= 0)
                return status_invalid("only one output dimension may be -1, not both %d and %d",
                                      unknown, d);
            unknown = d;
        } else if (dims[d] < 0) {
            return status_invalid("size %d must be non-negative, not %lld", d, (long long)dims[d]);
        } else if (mul_overflows_i64(product, dims[d], &product)) {
            return status_invalid("the requested shape has too many dense values to count");
        }
    }
    if (unknown >= 0) {
        if (product == 0)
            return status_invalid("reshape cannot infer the missing input size for an empty tensor "
                                  "unless all specified input sizes are "
                                  "non-zero");
        dims[unknown] = n_dense / product;
        if (dims[unknown] * product != n_dense)
            return status_invalid("Input to reshape is a SparseTensor with %lld dense values, but "
                                  "the requested shape requires a multiple "
                                  "of %lld.",
                                  (long long)n_dense, (long long)product);
        return NULL;
    }
    return product == n_dense ? NULL
                              : status_invalid("Input to reshape is a tensor with %lld dense "
                                               "values, but the requested shape has %lld.",
                                               (long long)n_dense, (long long)product);
}

void sparse_fill_strides(const int64_t *dims, int rank, int64_t *strides) {
    int64_t product = 1;
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = product;
        product = wrapping_mul(product, dims[d]);
    }
}

static struct status *reshape_indices(struct kernel_ctx *ctx, const int64_t *dims, int rank) {
    const struct tensor *indices = &ctx->inputs[0], *old = &ctx->inputs[1];
    int old_rank = (int)old->n_elements;
    int64_t n = tensor_dim(indices, 0), strides[SHAPE_MAX_RANK], new_strides[SHAPE_MAX_RANK];
    const int64_t *from = tensor_cdata(indices);
    TRY(kernel_alloc(ctx, 0, DT_INT64, (struct shape){2, (int64_t[]){n, rank}}));
    int64_t *to = tensor_data(&ctx->outputs[0]);
    sparse_fill_strides(tensor_cdata(old), old_rank, strides);
    sparse_fill_strides(dims, rank, new_strides);
    for (int64_t i = 0; i < n && pool_goes_on(i + 1); i++, from += old_rank) {
        int64_t place = 0;
        for (int d = 0; d < old_rank; d++)
            place = wrapping_add(place, wrapping_mul(from[d], strides[d]));
        for (int d = 0; d < rank; d++) {
            *to++ = place / new_strides[d];
            place %= new_strides[d];
        }
    }
    return NULL;
}

struct status *sparse_reshape_check(const struct kernel_ctx *ctx, int64_t dims[SHAPE_MAX_RANK],
                                    int *ret_rank) {
    const struct tensor *indices = &ctx->inputs[0], *old = &ctx->inputs[1],
                        *asked = &ctx->inputs[2];
    int64_t n_dense;
    if (indices->rank != 2)
        return status_invalid("Input indices should be a matrix but received shape %s",
                              TENSOR_SHAPE_TEXT(indices));
    if (old->rank != 1)
        return status_invalid("Input shape should be a vector but received shape %s",
                              TENSOR_SHAPE_TEXT(old));
    if (asked->rank != 1)
        return status_invalid("Target shape should be a vector but received shape %s",
                              TENSOR_SHAPE_TEXT(asked));
    if (tensor_dim(indices, 1) != old->n_elements)
        return status_invalid("Input tensor rank must match input shape length.");
    TRY(sparse_check_dims(tensor_cdata(old), old->n_elements, &n_dense));
    TRY(new_dims(asked, n_dense, dims));
    if (n_dense == 0 && tensor_dim(indices, 0) > 0)
        return status_invalid("Input tensor has %lld non zero elements but input shape and/or "
                              "output shape is not valid",
                              (long long)tensor_dim(indices, 0));
    *ret_rank = (int)asked->n_elements;
    return NULL;
}

static enum kernel_result sparse_reshape(struct kernel_ctx *ctx) {
    int64_t dims[SHAPE_MAX_RANK];
    int rank;
    KERNEL_TRY(ctx, sparse_reshape_check(ctx, dims, &rank));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 1, DT_INT64, (struct shape){1, (int64_t[]){rank}}));
    if (rank > 0)
        memcpy(tensor_data(&ctx->outputs[1]), dims, (size_t)rank * sizeof(*dims));
    KERNEL_TRY(ctx, reshape_indices(ctx, dims, rank));
    return KERNEL_DONE;
}

/* ---- SparseConcat ---- */

struct concat {
    struct sparse_parts in;
    int64_t *indices; /* of all entries, with coordinates of the output, not sorted yet */
    int64_t *order;
};

/* Reads the parts. Afterwards their sizes are not negative, and the products of the sizes fit. */
static struct status *concat_read(const struct kernel_ctx *ctx, struct sparse_parts *concat) {
    int64_t n_dense;
    concat->n_entries = 0;
    for (int i = 0; i < concat->n; i++) {
        struct sparse *part = &concat->parts[i];
        TRY(sparse_init(&ctx->inputs[i], &ctx->inputs[concat->n + i],
                        &ctx->inputs[2 * concat->n + i], part));
        struct status *st = sparse_check_dims(part->dims, part->rank, &n_dense);
        if (st) {
            status_unref(st);
            return status_invalid("Encountered overflow from large input shape %s at position %d.",
                                  SHAPE_TEXT((struct shape){part->rank, part->dims}), i);
        }
        concat->n_entries += part->n;
    }
    return NULL;
}

struct status *sparse_parts_init(const struct kernel_ctx *ctx, struct sparse_parts *concat) {
    int64_t dim, n_dense;
    concat->n = ctx->instance->n_inputs / 3;
    concat->parts = xcalloc((size_t)concat->n, sizeof(*concat->parts));
    TRY(node_get_i(ctx->instance->node, "concat_dim", &dim));
    TRY(concat_read(ctx, concat));
    const struct sparse *first = &concat->parts[0];
    if (dim < -first->rank || dim >= first->rank)
        return status_invalid("Concat dimension must be in range [%d, %d), got %lld", -first->rank,
                              first->rank, (long long)dim);
    concat->dim = (int)(dim < 0 ? dim + first->rank : dim);
    for (int i = 0; i < concat->n; i++) {
        const struct sparse *part = &concat->parts[i];
        if (part->rank != first->rank)
            return status_invalid(
                "Ranks of all input tensors must match: expected %d but got %d at position %d",
                first->rank, part->rank, i);
        for (int d = 0; d < part->rank; d++) {
            if (d != concat->dim && part->dims[d] != first->dims[d])
                return status_invalid("Input shapes must match: expected %lld for dimension %d but "
                                      "got %lld at position %d",
                                      (long long)first->dims[d], d, (long long)part->dims[d], i);
            if (i == 0)
                concat->dims[d] = part->dims[d];
            else if (d == concat->dim &&
                     add_overflows_i64(concat->dims[d], part->dims[d], &concat->dims[d]))
                return status_invalid("The concatenated size of dimension %d does not fit", d);
        }
    }
    return sparse_check_dims(concat->dims, first->rank, &n_dense);
}

void sparse_parts_fini(struct sparse_parts *parts) { free(parts->parts); }

static struct status *concat_place(struct concat *concat) {
    int rank = concat->in.parts[0].rank;
    int64_t n = concat->in.n_entries;
    int64_t *to = concat->indices = malloc(((size_t)n * (size_t)rank + 1) * sizeof(*to)),
            offset = 0;
    if (!to)
        return status_exhausted("OOM: %lld concatenated sparse entries", (long long)n);
    for (int i = 0; i < concat->in.n; i++) {
        const struct sparse *part = &concat->in.parts[i];
        for (int64_t j = 0; j < part->n; j++, to += rank) {
            TRY(kernel_loop_check(j + 1));
            memcpy(to, sparse_at(part, j), (size_t)rank * sizeof(*to));
            to[concat->in.dim] = wrapping_add(to[concat->in.dim], offset);
        }
        offset += part->dims[concat->in.dim];
    }
    struct sparse all = {.indices = concat->indices, .n = n, .rank = rank};
    return sparse_order(&all, NULL, rank, &concat->order);
}

static struct status *concat_write(struct kernel_ctx *ctx, const struct concat *concat) {
    const struct sparse_parts *in = &concat->in;
    int rank = in->parts[0].rank;
    int64_t n = in->n_entries;
    int64_t *first = xcalloc((size_t)in->n + 1, sizeof(*first));
    struct status *st =
        sparse_alloc(ctx, 0, n, rank, (enum dtype)in->parts[0].values->dtype, in->dims);
    for (int i = 0; i < in->n; i++)
        first[i + 1] = first[i] + in->parts[i].n;
    int64_t *to = st ? NULL : tensor_data(&ctx->outputs[0]);
    for (int64_t i = 0; !st && i < n && pool_goes_on(i); i++) {
        int64_t entry = concat->order[i];
        int low = 0, high = in->n; /* first[low] <= entry < first[high] */
        while (high - low > 1) {
            int middle = (low + high) / 2;
            *(first[middle] <= entry ? &low : &high) = middle;
        }
        memcpy(to + i * rank, concat->indices + entry * rank, (size_t)rank * sizeof(*to));
        sparse_copy_value(&ctx->outputs[1], i, in->parts[low].values, entry - first[low]);
    }
    free(first);
    return st;
}

static enum kernel_result sparse_concat(struct kernel_ctx *ctx) {
    struct concat concat = {0};
    struct status *st = sparse_parts_init(ctx, &concat.in);
    if (!st)
        st = concat_place(&concat);
    if (!st)
        st = concat_write(ctx, &concat);
    sparse_parts_fini(&concat.in);
    free(concat.indices);
    free(concat.order);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- SparseSplit, SparseSlice ---- */

static bool box_has(const struct sparse_box *box, const int64_t *at, int rank) {
    for (int d = 0; d < rank; d++)
        if (at[d] < box->begin[d] || at[d] - box->begin[d] >= box->size[d])
            return false;
    return true;
}

/* Makes the outputs indices, values and shape from a box. */
static struct status *cut_box(struct kernel_ctx *ctx, const struct sparse *in,
                              const struct sparse_box *box, int indices, int values, int shape) {
    int64_t n = 0, rank = in->rank;
    for (int64_t i = 0; i < in->n && pool_goes_on(i + 1); i++)
        n += box_has(box, sparse_at(in, i), in->rank);
    TRY(kernel_alloc(ctx, indices, DT_INT64, (struct shape){2, (int64_t[]){n, rank}}));
    TRY(kernel_alloc(ctx, values, (enum dtype)in->values->dtype, (struct shape){1, &n}));
    TRY(kernel_alloc(ctx, shape, DT_INT64, (struct shape){1, &rank}));
    memcpy(tensor_data(&ctx->outputs[shape]), box->size, (size_t)rank * sizeof(*box->size));
    int64_t *to = tensor_data(&ctx->outputs[indices]), at = 0;
    for (int64_t i = 0; i < in->n; i++) {
        TRY(kernel_loop_check(i));
        if (!box_has(box, sparse_at(in, i), in->rank))
            continue;
        for (int d = 0; d < in->rank; d++)
            *to++ = sparse_at(in, i)[d] - box->begin[d];
        sparse_copy_value(&ctx->outputs[values], at++, in->values, i);
    }
    return NULL;
}

struct status *sparse_split_check(const struct kernel_ctx *ctx, struct sparse *in, int *ret_axis) {
    const struct tensor *dim = &ctx->inputs[0];
    int n_parts = ctx->instance->n_outputs / 3;
    int64_t n_dense;
    TRY(sparse_of_inputs(ctx, 1, in));
    if (dim->rank != 0)
        return status_invalid("Input split_dim (axis) should be a scalar but received shape %s",
                              TENSOR_SHAPE_TEXT(dim));
    int64_t axis = tensor_index_at(dim, 0);
    if (axis < -in->rank || axis >= in->rank)
        return status_invalid("Input axis should be in range [-%d, %d), got %lld", in->rank,
                              in->rank, (long long)axis);
    axis += axis < 0 ? in->rank : 0;
    TRY(sparse_check_dims(in->dims, in->rank, &n_dense));
    if (n_parts > in->dims[axis])
        return status_invalid("Input num_split should be between 1 and the splitting dimension "
                              "size (%lld), got %d",
                              (long long)in->dims[axis], n_parts);
    *ret_axis = (int)axis;
    return NULL;
}

static enum kernel_result sparse_split(struct kernel_ctx *ctx) {
    int n_parts = ctx->instance->n_outputs / 3, axis;
    struct sparse in;
    KERNEL_TRY(ctx, sparse_split_check(ctx, &in, &axis));
    KERNEL_TRY(ctx, sparse_check(&in, SPARSE_INSIDE));
    struct sparse_box box = {0};
    memcpy(box.size, in.dims, (size_t)in.rank * sizeof(*in.dims));
    for (int i = 0; i < n_parts; i++) { /* the remainder is spread over the first parts, one each */
        box.size[axis] = in.dims[axis] / n_parts + (i < in.dims[axis] % n_parts);
        KERNEL_TRY(ctx, cut_box(ctx, &in, &box, i, n_parts + i, 2 * n_parts + i));
        box.begin[axis] += box.size[axis];
    }
    return KERNEL_DONE;
}

static struct status *check_vector_of(const struct tensor *t, const char *name, int64_t n) {
    if (t->rank != 1)
        return status_invalid("Input %s should be a vector but received shape %s", name,
                              TENSOR_SHAPE_TEXT(t));
    if (t->n_elements != n)
        return status_invalid("Expected %s to be a vector of length %lld but got length %lld", name,
                              (long long)n, (long long)t->n_elements);
    return NULL;
}

struct status *sparse_slice_check(const struct kernel_ctx *ctx, struct sparse *in,
                                  struct sparse_box *ret) {
    const struct tensor *start = &ctx->inputs[3], *size = &ctx->inputs[4];
    int64_t n_dense;
    TRY(sparse_of_inputs(ctx, 0, in));
    TRY(check_vector_of(start, "start", in->rank));
    TRY(check_vector_of(size, "size", in->rank));
    TRY(sparse_check_dims(in->dims, in->rank, &n_dense));
    for (int d = 0; d < in->rank; d++) {
        int64_t begin = tensor_index_at(start, d), wanted = tensor_index_at(size, d);
        if (begin < 0)
            return status_invalid("start must not be negative, but start[%d] is %lld", d,
                                  (long long)begin);
        if (wanted < 0)
            return status_invalid("size must not be negative, but size[%d] is %lld", d,
                                  (long long)wanted);
        ret->begin[d] = begin;
        ret->size[d] = MIN(wanted, MAX(in->dims[d] - begin, (int64_t)0));
    }
    return NULL;
}

static enum kernel_result sparse_slice(struct kernel_ctx *ctx) {
    struct sparse in;
    struct sparse_box box;
    KERNEL_TRY(ctx, sparse_slice_check(ctx, &in, &box));
    KERNEL_TRY(ctx, cut_box(ctx, &in, &box, 0, 1, 2));
    return KERNEL_DONE;
}

struct status *sparse_slice_grad_check(const struct kernel_ctx *ctx) {
    const struct tensor *grad = &ctx->inputs[0], *in = &ctx->inputs[1], *start = &ctx->inputs[2],
                        *out = &ctx->inputs[3];
    if (in->rank != 2 || out->rank != 2)
        return status_invalid(
            "Input and output indices should be matrices but received shapes: %s and %s",
            TENSOR_SHAPE_TEXT(in), TENSOR_SHAPE_TEXT(out));
    if (grad->rank != 1)
        return status_invalid("Input backprop_val_grad should be a vector but received shape: %s",
                              TENSOR_SHAPE_TEXT(grad));
    if (start->rank != 1)
        return status_invalid("The input_start should be a vector but received shape %s",
                              TENSOR_SHAPE_TEXT(start));
    int64_t rank = tensor_dim(in, 1), n = tensor_dim(in, 0), n_out = tensor_dim(out, 0);
    if (rank != tensor_dim(out, 1))
        return status_invalid("The input and output should have the same ndims: got: %lld and %lld",
                              (long long)rank, (long long)tensor_dim(out, 1));
    if (start->n_elements != rank)
        return status_invalid("Expected %lld values in input_start, got %lld", (long long)rank,
                              (long long)start->n_elements);
    if (n_out > n)
        return status_invalid("# rows of output_indices should be not greater than of "
                              "input_indices, got %lld and %lld",
                              (long long)n_out, (long long)n);
    if (grad->n_elements != n_out)
        return status_invalid("# elements of backprop_val_grad and # rows of output_indices should "
                              "match (#nnz of sum): got %lld and %lld",
                              (long long)grad->n_elements, (long long)n_out);
    return NULL;
}

/* Both lists have the same order, so a gradient belongs to the next input entry with its
 * coordinates. */
static enum kernel_result sparse_slice_grad(struct kernel_ctx *ctx) {
    const struct tensor *grad = &ctx->inputs[0], *in = &ctx->inputs[1], *start = &ctx->inputs[2],
                        *out = &ctx->inputs[3];
    KERNEL_TRY(ctx, sparse_slice_grad_check(ctx));
    int64_t rank = tensor_dim(in, 1), n = tensor_dim(in, 0), n_grads = grad->n_elements, next = 0;
    KERNEL_TRY(ctx, tensor_new_zeroed(ctx->instance->allocator, (enum dtype)grad->dtype,
                                      (struct shape){1, &n}, &ctx->outputs[0]));
    const int64_t *from = tensor_cdata(in), *to = tensor_cdata(out), *corner = tensor_cdata(start);
    for (int64_t i = 0; i < n && next < n_grads; i++) {
        KERNEL_TRY(ctx, kernel_loop_check(i + 1));
        bool is_same = true;
        for (int64_t d = 0; d < rank; d++)
            is_same &= from[i * rank + d] == wrapping_add(to[next * rank + d], corner[d]);
        if (is_same)
            sparse_copy_value(&ctx->outputs[0], i, grad, next++);
    }
    if (next != n_grads)
        return kernel_fail(ctx, status_invalid("Elements of backprop_val_grad aren't all "
                                               "propagated. Num elements: %lld, used: %lld",
                                               (long long)n_grads, (long long)next));
    return KERNEL_DONE;
}

#define VALUE_TYPES (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)
// clang-format off
static const struct kernel_def rows[] = {
    {.op = "SparseReorder", .constraints = {{"T", VALUE_TYPES}}, .compute = sparse_reorder},
    {.op = "SparseReshape", .compute = sparse_reshape},
    {.op = "SparseConcat", .constraints = {{"T", VALUE_TYPES}}, .compute = sparse_concat},
    {.op = "SparseSplit", .constraints = {{"T", VALUE_TYPES}}, .compute = sparse_split},
    {.op = "SparseSlice", .constraints = {{"T", VALUE_TYPES}}, .compute = sparse_slice},
    {.op = "SparseSliceGrad", .constraints = {{"T", DTYPES_NUMBER}}, .compute = sparse_slice_grad},
};
// clang-format on

const struct kernel_list sparse_arrange_kernels = {rows, ARRAY_LEN(rows)};
