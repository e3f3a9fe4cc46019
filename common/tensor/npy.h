/* Reads and writes NumPy's .npy files, versions 1 to 3: the feeds and fetches of tfctl.
 *
 * Types: bool, (u)int8 to (u)int64, half, float, double, complex64 and complex128. Other types of
 * TensorFlow, which NumPy lacks, are INVALID_ARGUMENT. Reading accepts either byte order, C and
 * Fortran order; writing makes version 1, little-endian, C order. Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_NPY_H
#define MILLRACE_COMMON_TENSOR_NPY_H

#include "common/tensor/tensor.h"

/* Reads a tensor from the bytes of a whole file. Errors: INVALID_ARGUMENT (no .npy file, a type
 * that TensorFlow lacks, too short), RESOURCE_EXHAUSTED. */
struct status *npy_parse(struct span file, struct allocator *allocator,
                         struct tensor *ret) MUST_USE;
/* Appends the header, which precedes the elements. Errors: INVALID_ARGUMENT for a type that NumPy
 * lacks. */
struct status *npy_head(const struct tensor *t, struct str *out) MUST_USE;

/* Read and write a file. Errors also: NOT_FOUND, PERMISSION_DENIED, UNKNOWN for other failures of
 * the system, all with the path. */
struct status *npy_read(const char *path, struct allocator *allocator, struct tensor *ret) MUST_USE;
struct status *npy_write(const char *path, const struct tensor *t) MUST_USE;

#endif
