/* NumPy's .npy files, versions 1 and 2 (and 3, which differs in nothing that matters here): how
 * tfctl reads feeds and keeps fetches.
 *
 * Types: those that NumPy has itself: bool, the (u)int8 to 64, half, float, double, complex64
 * and complex128. Others have no name there: INVALID_ARGUMENT. Reading accepts either byte order
 * and Fortran order; writing makes version 1, little-endian, C order. Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_NPY_H
#define MILLRACE_COMMON_TENSOR_NPY_H

#include "common/tensor/tensor.h"

/* From the whole file's bytes. Errors: INVALID_ARGUMENT (not such a file, a type without a
 * counterpart, too short), RESOURCE_EXHAUSTED. */
struct status *npy_parse(struct span file, struct allocator *allocator,
                         struct tensor *ret) MUST_USE;
/* The part before the elements; INVALID_ARGUMENT for a type that NumPy lacks. */
struct status *npy_head(const struct tensor *t, struct str *out) MUST_USE;

/* The same with files. Errors also: NOT_FOUND, PERMISSION_DENIED, UNKNOWN for other failures of
 * the system, all with the path. */
struct status *npy_read(const char *path, struct allocator *allocator, struct tensor *ret) MUST_USE;
struct status *npy_write(const char *path, const struct tensor *t) MUST_USE;

#endif
