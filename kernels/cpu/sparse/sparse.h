/* What the ops on sparse tensors share: reading entries, checking them, ordering them, and finding
 * runs of them.
 *
 * A sparse tensor is three tensors: indices [n, rank] with a row of coordinates per entry, values
 * [n], and shape [rank]. Nothing guarantees that the coordinates are inside the shape, that they
 * are in order, or that they are distinct. Each op checks what it needs. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_SPARSE_SPARSE_H
#define MILLRACE_KERNELS_CPU_SPARSE_SPARSE_H

#include "kernels/kernel.h"

struct sparse {
    const struct tensor *values; /* borrowed from the inputs, like all pointers here */
    const int64_t *indices;      /* the coordinates of entry i begin at indices + i * rank */
    const int64_t *dims;         /* `rank` sizes */
    int64_t n;
    int rank;
};

/* Reads a sparse tensor; indices and shape are int64. Checks that ranks and sizes fit each other,
 * but no size and no index. Errors: INVALID_ARGUMENT. */
struct status *sparse_init(const struct tensor *indices, const struct tensor *values,
                           const struct tensor *shape, struct sparse *ret) MUST_USE;
/* Reads a sparse tensor from the inputs first, first + 1 and first + 2. */
struct status *sparse_of_inputs(const struct kernel_ctx *ctx, int first,
                                struct sparse *ret) MUST_USE;
/* Reads a sparse tensor of rank 2 or more from inputs 0 … 2, for ops that take it row by row. The
 * entries are inside of the shape and in order. Errors: INVALID_ARGUMENT. */
struct status *sparse_rows_of_inputs(const struct kernel_ctx *ctx, struct sparse *ret) MUST_USE;

/* Checks that no size is negative and that the product, *ret_n, fits an int64. Errors:
 * INVALID_ARGUMENT. */
struct status *sparse_check_dims(const int64_t *dims, int64_t rank, int64_t *ret_n) MUST_USE;
/* SPARSE_ORDERED means strictly increasing, so that no entry is repeated. */
enum sparse_wants { SPARSE_INSIDE = 1, SPARSE_ORDERED = 2 };
/* Errors: INVALID_ARGUMENT, which names the first entry that is "out of bounds", "out of order" or
 * "repeated". */
struct status *sparse_check(const struct sparse *sparse, unsigned wants) MUST_USE;

static inline const int64_t *sparse_at(const struct sparse *sparse, int64_t i) {
    return sparse->indices + i * sparse->rank;
}
/* Compares n coordinates lexicographically. Returns a negative number, 0 or a positive one. */
static inline int sparse_compare(const int64_t *a, const int64_t *b, int n) {
    for (int d = 0; d < n; d++)
        if (a[d] != b[d])
            return a[d] < b[d] ? -1 : 1;
    return 0;
}
/* Returns the end of the run of entries that agree with entry `begin` in the first n_dims
 * coordinates. */
int64_t sparse_run_end(const struct sparse *sparse, int64_t begin, int n_dims);

/* Sorts entry numbers by the dimensions that `by` names, most significant first; NULL means 0, 1,
 * …. The sort is stable. The caller frees *ret_order, which has n entry numbers. Errors:
 * RESOURCE_EXHAUSTED. */
struct status *sparse_order(const struct sparse *sparse, const int *by, int n_by,
                            int64_t **ret_order) MUST_USE;

/* Returns the row-major offset of coordinates that are inside the sizes. */
static inline int64_t sparse_offset(const int64_t *at, const int64_t *dims, int n) {
    int64_t offset = 0;
    for (int d = 0; d < n; d++)
        offset = offset * dims[d] + at[d];
    return offset;
}
/* Computes the coordinates of a row-major offset. */
static inline void sparse_coordinates(int64_t offset, const int64_t *dims, int n, int64_t *ret_at) {
    for (int d = n - 1; d >= 0; d--) {
        ret_at[d] = offset % dims[d];
        offset /= dims[d];
    }
}

/* Allocates the outputs first, first + 1 and first + 2 for n entries; with dims NULL there is no
 * shape output. Values of object dtypes start as NULL. */
struct status *sparse_alloc(struct kernel_ctx *ctx, int first, int64_t n, int rank,
                            enum dtype dtype, const int64_t *dims) MUST_USE;
/* Copies one element. The destination of an object dtype must hold NULL. */
static inline void sparse_copy_value(struct tensor *to, int64_t i, const struct tensor *from,
                                     int64_t j) {
    size_t size = dtype_size((enum dtype)from->dtype);
    elements_copy((enum dtype)from->dtype, (char *)tensor_data(to) + (size_t)i * size,
                  (const char *)tensor_cdata(from) + (size_t)j * size, 1);
}

#endif
