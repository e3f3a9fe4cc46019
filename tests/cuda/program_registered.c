/* Scenarios without a bug, about memory of the program that it registers. */
#include "tests/cuda/program.h"
#include <sys/mman.h>

enum { N = 3000 };

/* Memory that was pinned later, as the arena of shared memory is. */
static void registered_memory(void) {
    static _Alignas(4096) float in[N], out[N];
    program_open();
    OK(cuda.cuMemHostRegister(in, sizeof in, CU_MEMHOSTREGISTER_READ_ONLY));
    OK(cuda.cuMemHostRegister(out, sizeof out, CU_MEMHOSTREGISTER_PORTABLE));
    RETURNS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuda.cuMemHostRegister(in, 4096, 0));
    in[N - 1] = 5;
    CUdeviceptr x = device_floats(N);
    OK(cuda.cuMemcpyHtoDAsync(x, in, sizeof in, compute));
    OK(cuda.cuMemcpyDtoHAsync(out, x, sizeof out, compute));
    OK(cuda.cuStreamSynchronize(compute));
    EXPECT(out[N - 1] == 5);
    OK(cuda.cuMemHostUnregister(in));
    RETURNS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuda.cuMemHostUnregister(in));
    EXPECT(sim_api.report_count() == 0);
}

/* The same in mappings that other processes share. A read-only one, as that of a peer's arena, must
 * be registered as such. */
static void registered_shared_memory(void) {
    const size_t size = N * sizeof(float);
    program_open();
    float *out = shared_floats(N, PROT_READ | PROT_WRITE), *in = shared_floats(N, PROT_READ);
    float *unmapped = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    RETURNS(CUDA_ERROR_INVALID_VALUE, cuda.cuMemHostRegister(in, size, 0));
    RETURNS(CUDA_ERROR_INVALID_VALUE, cuda.cuMemHostRegister(unmapped, 4096, 0));
    OK(cuda.cuMemHostRegister(in, size, CU_MEMHOSTREGISTER_READ_ONLY));
    OK(cuda.cuMemHostRegister(out, size, CU_MEMHOSTREGISTER_PORTABLE));
    CUdeviceptr x = device_floats(N);
    for (int round = 0; round < 3; round++) {
        out[N - 1] = 5;
        OK(cuda.cuMemcpyHtoDAsync(x, out, size, compute));
        OK(cuda.cuStreamSynchronize(compute));
        out[N - 1] = 0;
        OK(cuda.cuMemcpyDtoHAsync(out, x, size, compute));
        OK(cuda.cuStreamSynchronize(compute));
        EXPECT(out[N - 1] == 5);
        OK(cuda.cuMemcpyHtoDAsync(x, in, size, compute));
        EXPECT(in[N - 1] == 0);
        OK(cuda.cuMemcpyDtoHAsync(out, x, size, compute));
        OK(cuda.cuStreamSynchronize(compute));
        EXPECT(out[N - 1] == 0);
    }
    OK(cuda.cuMemHostUnregister(in));
    OK(cuda.cuMemHostUnregister(out));
    out[0] = 1;
    EXPECT(sim_api.report_count() == 0);
}

const struct scenario registered_scenarios[] = {
    {"registered_memory", registered_memory},
    {"registered_shared_memory", registered_shared_memory},
    {0, 0},
};
