/* Which ops a GPU computes.
 *
 * gpu_rows are facts: what TensorFlow registers for GPUs, with the arguments that it keeps in host
 * memory. implementations.inc lists what we compute there. Together they are the kernel rows of the
 * device type "GPU", which the master places by and a worker with a GPU computes by:
 *
 *   - a fact whose arguments are all in host memory is the CPU's kernel under the GPU's name (shape
 *     arithmetic, TensorFlow's int32 rule);
 *   - a fact that an implementation serves has its compute function, and the types of both;
 *   - any other fact gives no row, so the op is computed on a CPU.
 *
 * A row with KERNEL_ELEMENTWISE has only GPU_FUSED_TYPES; its other types have a row without. The
 * row of fused programs has no fact, because the op is ours. */
#ifndef MILLRACE_KERNELS_CUDA_ROWS_GPU_ROWS_H
#define MILLRACE_KERNELS_CUDA_ROWS_GPU_ROWS_H

#include "common/graph/fused.h"
#include "kernels/kernel.h"

/* The types of values in a fused program. */
#define GPU_FUSED_TYPES (DTYPES_REAL | DTYPE_BIT(DT_BOOL))

struct gpu_row {
    const char *op;
    struct {
        const char *attr; /* NULL ends the list */
        dtype_set types;
    } constraints[KERNEL_MAX_CONSTRAINTS];
    const char *const *host_args; /* NULL at the end; NULL: none */
};
extern const struct gpu_row gpu_rows[]; /* sorted by op */
extern const size_t n_gpu_rows;
/* The fact alone, as a kernel row without a function. */
struct kernel_def gpu_row_to_def(const struct gpu_row *row);

/* How one of our kernels serves an op. A process that does not compute has no functions. */
struct gpu_implementation {
    const char *op;
    const char *attr; /* the type attr that `types` limits; NULL: the facts' types */
    dtype_set types;
    uint32_t flags; /* enum kernel_flags; KERNEL_OF_CPU: the CPU's kernel touches no element */
    kernel_fn *compute;
    struct status *(*init)(struct kernel_init *init);
    void (*fini)(void *state);
    const void *arg;
};

/* Adds the device type "GPU" to the registry, with the rows above. `implementations` must live as
 * long as the process; NULL: those of implementations.inc without functions, for placing. Before
 * threads start, once. */
void gpu_add_device_type(const struct gpu_implementation *implementations, size_t n);

#endif
