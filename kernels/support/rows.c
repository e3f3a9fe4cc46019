/* Joins tensors along dimension 0; see rows.h. */
#include "kernels/support/rows.h"

#include <stdlib.h>

#include "common/tensor/element.h"
#include "kernels/support/dims.h"
#include "kernels/support/strided.h"

struct status *rows_try_new(size_t n, struct tensor **ret) {
    size_t size = MAX(n, (size_t)1) * sizeof(struct tensor);
    struct tensor *tensors =
        n > SIZE_MAX / sizeof(struct tensor) ? NULL : aligned_alloc(_Alignof(struct tensor), size);
    if (!tensors)
        return status_exhausted("Out of memory for %zu tensors", n);
    memset(tensors, 0, size);
    *ret = tensors;
    return NULL;
}

struct tensor *rows_new(int n) {
    struct tensor *tensors = NULL;
    struct status *st = rows_try_new((size_t)MAX(n, 1), &tensors);
    CHECK(!st);
    return tensors;
}

void rows_free(struct tensor *tensors, size_t n) {
    for (size_t i = 0; tensors && i < n; i++)
        tensor_clear(&tensors[i]);
    free(tensors);
}

static struct status *check_piece(const struct tensor *first, const struct tensor *piece, int i) {
    if (piece->dtype != first->dtype)
        return status_invalid("Types of all inputs should match: input 0 is %s, input %d is %s",
                              dtype_name((enum dtype)first->dtype), i,
                              dtype_name((enum dtype)piece->dtype));
    if (piece->rank != first->rank)
        return status_invalid("Ranks of all inputs should match: shape[0] = %s vs. shape[%d] = %s",
                              TENSOR_SHAPE_TEXT(first), i, TENSOR_SHAPE_TEXT(piece));
    for (int d = 1; d < first->rank; d++)
        if (tensor_dim(piece, d) != tensor_dim(first, d))
            return status_invalid(
                "Dimensions of inputs should match: shape[0] = %s vs. shape[%d] = %s",
                TENSOR_SHAPE_TEXT(first), i, TENSOR_SHAPE_TEXT(piece));
    return NULL;
}

struct status *rows_join(struct allocator *allocator, const struct tensor *const *pieces, int n,
                         struct pool *pool, struct tensor *ret) {
    struct dims dims;
    dims_set(&dims, tensor_shape(pieces[0]));
    for (int i = 1; i < n; i++) {
        TRY(check_piece(pieces[0], pieces[i], i));
        if (add_overflows_i64(dims.at[0], tensor_dim(pieces[i], 0), &dims.at[0]))
            return status_invalid("The rows of %d inputs are too many", n);
    }
    if (n == 1) {
        tensor_copy(ret, pieces[0]);
        return NULL;
    }
    enum dtype dtype = (enum dtype)pieces[0]->dtype;
    int64_t at = 0;
    TRY(tensor_new(allocator, dtype, dims_shape(&dims), ret));
    for (int i = 0; i < n; i++) {
        if (pieces[i]->n_elements > 0)
            strided_copy_run(dtype, tensor_at(ret, at), tensor_cdata(pieces[i]),
                             pieces[i]->n_elements, pool);
        at += pieces[i]->n_elements;
    }
    return NULL;
}
