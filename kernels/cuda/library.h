/* Opens a library by dlopen and finds its calls, for blas.c, dnn.c, compiler.c and activity.c. */
#ifndef MILLRACE_KERNELS_CUDA_LIBRARY_H
#define MILLRACE_KERNELS_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/str.h"

struct gpu_library_call {
    const char *name;
    size_t offset; /* of its pointer, in the table of calls */
};

/* Opens one of n names in `folders` (DIR:DIR…, or NULL), else where the system looks for libraries.
 * Returns NULL with the reason added to `why`. */
void *gpu_library_open(const char *folders, const char *const *names, size_t n, struct str *why);
/* Fills in a table of calls. Returns false with the reason added to `why`. */
bool gpu_library_find(void *library, const struct gpu_library_call *calls, size_t n, void *table,
                      struct str *why);

#endif
