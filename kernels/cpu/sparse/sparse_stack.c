/* Splits sparse tensors into pieces and stacks them again; see sparse_stack.h. */
#include "kernels/cpu/sparse/sparse_stack.h"

#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "kernels/kernel.h"

struct sparse_piece *sparse_pieces_new(int64_t n) {
    size_t size = sizeof(struct sparse_piece) * (size_t)MAX(n, (int64_t)1);
    struct sparse_piece *pieces = aligned_alloc(_Alignof(struct sparse_piece), size);
    if (pieces)
        memset(pieces, 0, size);
    return pieces;
}

void sparse_pieces_free(struct sparse_piece *pieces, int64_t n) {
    for (int64_t i = 0; pieces && i < n; i++) {
        tensor_clear(&pieces[i].indices);
        tensor_clear(&pieces[i].values);
        tensor_clear(&pieces[i].shape);
    }
    free(pieces);
}

struct status *sparse_piece_of_run(struct kernel_ctx *ctx, const struct sparse *in, int64_t begin,
                                   int64_t end, struct sparse_piece *ret) {
    struct allocator *allocator = ctx->instance->allocator;
    int64_t n = end - begin, rank = in->rank - 1;
    TRY(tensor_new(allocator, DT_INT64, (struct shape){2, (int64_t[]){n, rank}}, &ret->indices));
    TRY(tensor_new(allocator, (enum dtype)in->values->dtype, (struct shape){1, &n}, &ret->values));
    TRY(tensor_new(allocator, DT_INT64, (struct shape){1, &rank}, &ret->shape));
    memcpy(tensor_data(&ret->shape), in->dims + 1, (size_t)rank * sizeof(*in->dims));
    int64_t *to = tensor_data(&ret->indices);
    for (int64_t i = begin; i < end; i++) {
        memcpy(to + (i - begin) * rank, sparse_at(in, i) + 1, (size_t)rank * sizeof(*to));
        sparse_copy_value(&ret->values, i - begin, in->values, i);
    }
    return NULL;
}

struct status *sparse_piece_check(const struct sparse_piece *piece, enum dtype dtype,
                                  int64_t index) {
    long long i = index;
    if (piece->indices.dtype != DT_INT64 || piece->shape.dtype != DT_INT64)
        return status_invalid("SparseTensor[%lld] must have indices and a shape of type int64", i);
    if (piece->indices.rank != 2)
        return status_invalid("Expected serialized_sparse[%lld, 0] to represent an index matrix "
                              "but received shape %s",
                              i, TENSOR_SHAPE_TEXT(&piece->indices));
    if (piece->values.rank != 1)
        return status_invalid("Expected serialized_sparse[%lld, 1] to represent a values vector "
                              "but received shape %s",
                              i, TENSOR_SHAPE_TEXT(&piece->values));
    if (piece->values.dtype != dtype)
        return status_invalid(
            "Requested SparseTensor of type %s but SparseTensor[%lld].values.dtype() == %s",
            dtype_name(dtype), i, dtype_name((enum dtype)piece->values.dtype));
    if (tensor_dim(&piece->indices, 0) != piece->values.n_elements)
        return status_invalid("Expected row counts of SparseTensor[%lld].indices and "
                              "SparseTensor[%lld].values to match but they do not: "
                              "%lld vs. %lld",
                              i, i, (long long)tensor_dim(&piece->indices, 0),
                              (long long)piece->values.n_elements);
    if (piece->shape.rank != 1)
        return status_invalid(
            "Expected serialized_sparse[%lld, 2] to be a shape vector but its shape is %s", i,
            TENSOR_SHAPE_TEXT(&piece->shape));
    if (tensor_dim(&piece->indices, 1) != piece->shape.n_elements)
        return status_invalid("Expected column counts of SparseTensor[%lld].indices to match size "
                              "of SparseTensor[%lld].shape but they do "
                              "not: %lld vs. %lld",
                              i, i, (long long)tensor_dim(&piece->indices, 1),
                              (long long)piece->shape.n_elements);
    return NULL;
}

/* Computes the sizes of the stack. */
static struct status *stacked_dims(const struct sparse_piece *pieces, int64_t n, struct shape front,
                                   int64_t *dims, int *ret_rank, int64_t *ret_entries) {
    int64_t rank = pieces[0].shape.n_elements, entries = 0, n_dense;
    if (front.rank + rank > SHAPE_MAX_RANK)
        return status_invalid("Too many dimensions: %lld", (long long)(front.rank + rank));
    memcpy(dims, front.dims, (size_t)front.rank * sizeof(*dims));
    memset(dims + front.rank, 0, (size_t)rank * sizeof(*dims));
    for (int64_t i = 0; i < n; i++) {
        const struct tensor *shape = &pieces[i].shape;
        if (shape->n_elements != rank)
            return status_invalid("Inconsistent rank across SparseTensors: rank prior to "
                                  "SparseTensor[%lld] was: %lld but rank of "
                                  "SparseTensor[%lld] is: %lld",
                                  (long long)i, (long long)rank, (long long)i,
                                  (long long)shape->n_elements);
        TRY(sparse_check_dims(tensor_cdata(shape), rank, &n_dense));
        for (int d = 0; d < (int)rank; d++)
            dims[front.rank + d] = MAX(dims[front.rank + d], tensor_index_at(shape, d));
        entries += pieces[i].values.n_elements;
    }
    *ret_rank = front.rank + (int)rank;
    *ret_entries = entries;
    TRY(sparse_check_dims(dims, *ret_rank, &n_dense));
    if (n_dense == 0 && entries > 0)
        return status_invalid("Input tensor has %lld non zero elements but input shape and/or "
                              "output shape is not valid",
                              (long long)entries);
    return NULL;
}

struct status *sparse_stack(struct kernel_ctx *ctx, const struct sparse_piece *pieces, int64_t n,
                            struct shape front, enum dtype dtype) {
    int64_t dims[SHAPE_MAX_RANK], entries, at = 0;
    int rank;
    TRY(stacked_dims(pieces, n, front, dims, &rank, &entries));
    TRY(sparse_alloc(ctx, 0, entries, rank, dtype, dims));
    int64_t *to = tensor_data(&ctx->outputs[0]);
    int own_rank = rank - front.rank;
    for (int64_t i = 0; i < n; i++) {
        const int64_t *from = tensor_cdata(&pieces[i].indices);
        for (int64_t j = 0; j < pieces[i].values.n_elements && pool_goes_on(j + 1);
             j++, to += rank) {
            sparse_coordinates(i, front.dims, front.rank, to);
            memcpy(to + front.rank, from + j * own_rank, (size_t)own_rank * sizeof(*to));
            sparse_copy_value(&ctx->outputs[1], at++, &pieces[i].values, j);
        }
    }
    return NULL;
}
