/* Kernels that are compiled while a worker runs, by NVRTC, which is opened by dlopen when the
 * plugin starts. A thread of the device compiles; until then, and where there is no NVRTC, callers
 * do without. */
#ifndef MILLRACE_KERNELS_CUDA_COMPILER_H
#define MILLRACE_KERNELS_CUDA_COMPILER_H

#include "common/base/str.h"

struct gpu_compiler;
struct gpu_device;
struct gpu_function;

/* Opens libnvrtc as gpu_blas_open opens cuBLASLt. Called once in a process, before devices are
 * opened. */
void gpu_compiler_open(const char *folders, void *simulated);
/* Returns why nothing is compiled; NULL if kernels are. */
const char *gpu_compiler_missing(void);

/* Writes the source of the kernel that `key` stands for: a file of CUDA C++ with one kernel, called
 * `name`. Returns false if it cannot be compiled. */
typedef bool gpu_source_fn(struct span key, const char *name, struct str *out);

/* Returns the kernel of a key, or NULL while there is none. It is compiled once it was asked for a
 * few times, so not for shapes that come only once. The key is borrowed. Any thread. */
const struct gpu_function *gpu_compiled(struct gpu_device *gpu, struct span key,
                                        gpu_source_fn *write_source);

/* What a device keeps: a thread, and the kernels. NULL without NVRTC. */
struct gpu_compiler *gpu_compiler_new(struct gpu_device *gpu);
/* Ends the thread once it has done its kernel. Kernels stay. False: it has not within the patience,
 * so it goes on, and uses the device and all that is kept here. Accepts NULL. */
bool gpu_compiler_stop(struct gpu_compiler *compiler, int64_t patience_ns) MUST_USE;
/* The same for a device that hangs: the thread is not waited for, and nothing is freed. */
void gpu_compiler_detach(struct gpu_compiler *compiler);
/* Frees everything after gpu_compiler_stop. Accepts NULL. */
void gpu_compiler_free(struct gpu_compiler *compiler);

struct gpu_compiler_counts {
    uint64_t compiled, failed;
};
struct gpu_compiler_counts gpu_compiler_count(struct gpu_compiler *compiler); /* accepts NULL */

#endif
