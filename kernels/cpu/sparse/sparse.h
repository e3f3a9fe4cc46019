/* What the ops on sparse tensors share: entries as they arrive, their checks, their order, and
 * runs of them.
 *
 * A sparse tensor is three tensors: indices [n, rank], a row of coordinates per entry; values
 * [n]; shape [rank]. Nothing promises that the coordinates lie inside the shape, that they are
 * in order, or that no two are equal: each op asks for what it needs. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_SPARSE_SPARSE_H
#define MILLRACE_KERNELS_CPU_SPARSE_SPARSE_H

#include "kernels/kernel.h"

struct sparse {
    const struct tensor *values; /* borrowed from the inputs, as all here */
    const int64_t *indices;      /* entry i: indices + i * rank */
    const int64_t *dims;         /* rank of them */
    int64_t n;
    int rank;
};

/* indices, values and shape (int64 but for the values) stand for one sparse tensor: ranks and
 * sizes fit each other. No size or index has been looked at. Errors: INVALID_ARGUMENT. */
struct status *sparse_init(const struct tensor *indices, const struct tensor *values,
                           const struct tensor *shape, struct sparse *ret) MUST_USE;
/* Inputs first, first + 1, first + 2. */
struct status *sparse_of_inputs(const struct kernel_ctx *ctx, int first,
                                struct sparse *ret) MUST_USE;

/* Sizes are not negative and their product fits; *ret_n is that. Errors: INVALID_ARGUMENT. */
struct status *sparse_check_dims(const int64_t *dims, int64_t rank, int64_t *ret_n) MUST_USE;
/* ordered: strictly, so that no entry is repeated */
enum sparse_wants { SPARSE_INSIDE = 1, SPARSE_ORDERED = 2 };
/* Errors: INVALID_ARGUMENT that names the first entry that is "out of bounds", "out of order" or
 * "repeated". */
struct status *sparse_check(const struct sparse *sparse, unsigned wants) MUST_USE;

static inline const int64_t *sparse_at(const struct sparse *sparse, int64_t i) {
    return sparse->indices + i * sparse->rank;
}
/* Lexicographic order of n coordinates: negative, 0 or positive. */
static inline int sparse_compare(const int64_t *a, const int64_t *b, int n) {
    for (int d = 0; d < n; d++)
        if (a[d] != b[d])
            return a[d] < b[d] ? -1 : 1;
    return 0;
}
/* The end of the run of entries that agree with entry `begin` in their first n_dims coordinates. */
int64_t sparse_run_end(const struct sparse *sparse, int64_t begin, int n_dims);

/* The entries in order of the dimensions that `by` names, most significant first (NULL: 0, 1,
 * …); equal ones stay as they are. *ret_order: n entry numbers, malloc'd. Errors:
 * RESOURCE_EXHAUSTED. */
struct status *sparse_order(const struct sparse *sparse, const int *by, int n_by,
                            int64_t **ret_order) MUST_USE;

/* Row-major offset of coordinates that lie inside the sizes. */
static inline int64_t sparse_offset(const int64_t *at, const int64_t *dims, int n) {
    int64_t offset = 0;
    for (int d = 0; d < n; d++)
        offset = offset * dims[d] + at[d];
    return offset;
}
/* The other way: coordinates of an offset. */
static inline void sparse_place(int64_t offset, const int64_t *dims, int n, int64_t *ret_at) {
    for (int d = n - 1; d >= 0; d--) {
        ret_at[d] = offset % dims[d];
        offset /= dims[d];
    }
}

/* Outputs first, first + 1, first + 2 (dims NULL: there is no shape output) of n entries. The
 * values of objects are NULL. */
struct status *sparse_alloc(struct kernel_ctx *ctx, int first, int64_t n, int rank,
                            enum dtype dtype, const int64_t *dims) MUST_USE;
/* One element of a plain or object dtype; the destination of an object dtype holds NULL. */
static inline void sparse_copy_value(struct tensor *to, int64_t i, const struct tensor *from,
                                     int64_t j) {
    size_t size = dtype_size((enum dtype)from->dtype);
    elements_copy((enum dtype)from->dtype, (char *)tensor_data(to) + (size_t)i * size,
                  (const char *)tensor_cdata(from) + (size_t)j * size, 1);
}

#endif
