/* A kernel of a shared object, as device_runtime.h declares it, and where its shared memory is. */
#ifndef MILLRACE_TESTS_CUDA_SIM_DEVICE_KERNELS_H
#define MILLRACE_TESTS_CUDA_SIM_DEVICE_KERNELS_H

#include <stdint.h>

/* The same struct as in device_runtime.h. */
struct sim_kernel {
    unsigned size, alignment;
    void (*call)(const void *arguments);
};

struct kernel {
    char *name;
    const struct sim_kernel *entry;
    uint64_t tls_module, tls_size; /* 0: no static shared memory */
};

const struct kernel *kernels_at(uint32_t kernel);

#endif
