/* A program that uses the simulated device as the plugin does: by dlopen, through a table of calls.
 *
 *     program SCENARIO    exit 0: all that the scenario expects came true */
#include "tests/cuda/program.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct driver_api cuda;
struct sim_api sim_api;
CUcontext context;
CUstream compute, copies;
CUevent event;

void expect(bool is_so, const char *what, const char *file, int line) {
    if (is_so)
        return;
    fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
    exit(1);
}

void expect_result(CUresult result, CUresult expected, const char *what, const char *file,
                   int line) {
    if (result == expected)
        return;
    fprintf(stderr, "%s:%d: %s returns %d instead of %d\n", file, line, what, (int)result,
            (int)expected);
    exit(1);
}

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

void program_load(void) {
    if (cuda.cuInit != NULL)
        return;
    const char *path = getenv("CUDA_LIBRARY");
    void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define DRIVER_CALL(name, exported, arguments) *(void **)&cuda.name = symbol(library, #exported);
#include "kernels/cuda/driver_calls.inc"
    *(void **)&sim_api.report_count = symbol(library, "simReportCount");
    *(void **)&sim_api.call_count = symbol(library, "simCallCount");
    *(void **)&sim_api.fail_call = symbol(library, "simFailCall");
    *(void **)&sim_api.fail_device = symbol(library, "simFailDevice");
    *(void **)&sim_api.enqueue_host = symbol(library, "simEnqueueHostOperation");
    *(void **)&sim_api.graph_block = symbol(library, "simGraphBlock");
    *(void **)&sim_api.block_allocated = symbol(library, "simBlockAllocated");
    *(void **)&sim_api.block_freed = symbol(library, "simBlockFreed");
    *(void **)&sim_api.device_process = symbol(library, "simDeviceProcess");
}

void program_open(void) {
    program_load();
    RETURNS(CUDA_ERROR_NOT_INITIALIZED, cuda.cuDeviceGetCount(&(int){0}));
    OK(cuda.cuInit(0));
    OK(cuda.cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuda.cuCtxSetCurrent(context));
    OK(cuda.cuStreamCreateWithPriority(&compute, CU_STREAM_NON_BLOCKING, 0));
    OK(cuda.cuStreamCreateWithPriority(&copies, CU_STREAM_NON_BLOCKING, 0));
    OK(cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
}

CUdeviceptr device_floats(long n) {
    CUdeviceptr pointer;
    OK(cuda.cuMemAlloc(&pointer, (size_t)n * sizeof(float)));
    return pointer;
}

float *pinned_floats(long n, float first) {
    float *values;
    OK(cuda.cuMemHostAlloc((void **)&values, (size_t)n * sizeof *values, CU_MEMHOSTALLOC_PORTABLE));
    for (long i = 0; i < n; i++)
        values[i] = first + (float)i;
    return values;
}

float *shared_floats(long n, int protection) {
    float *values =
        mmap(NULL, (size_t)n * sizeof *values, protection, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(values != MAP_FAILED);
    return values;
}

void launch(const char *kernel, CUstream stream, unsigned blocks, unsigned threads,
            unsigned shared_size, const void *args) {
    static CUlibrary library;
    CUkernel found;
    CUfunction function;
    if (library == NULL)
        OK(cuda.cuLibraryLoadData(&library, "fatbin", NULL, NULL, 0, NULL, NULL, 0));
    OK(cuda.cuLibraryGetKernel(&found, library, kernel));
    OK(cuda.cuKernelGetFunction(&function, found));
    OK(cuda.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared_size, stream,
                           (void *[]){(void *)args}, NULL));
}

void launch_map(const char *kernel, CUstream stream, CUdeviceptr x, CUdeviceptr y, float factor,
                long n) {
    struct map_args args = {(const float *)x, (float *)y, factor, n};
    launch(kernel, stream, (unsigned)((n + 255) / 256), 256, 0, &args);
}

void stream_follow(CUstream waiter, CUstream other) {
    OK(cuda.cuEventRecord(event, other));
    OK(cuda.cuStreamWaitEvent(waiter, event, 0));
}

int main(int argc, char **argv) {
    enum { N_LISTS = 4 };
    const struct scenario *const lists[N_LISTS] = {bug_scenarios, right_scenarios, graph_scenarios,
                                                   registered_scenarios};
    for (size_t l = 0; argc == 2 && l < N_LISTS; l++)
        for (const struct scenario *scenario = lists[l]; scenario->name != NULL; scenario++)
            if (strcmp(scenario->name, argv[1]) == 0) {
                scenario->run();
                return 0;
            }
    for (size_t l = 0; l < N_LISTS; l++) /* without a known name: the names */
        for (const struct scenario *scenario = lists[l]; scenario->name != NULL; scenario++)
            printf("%s %s\n", l == 0 ? "bug" : "right", scenario->name);
    return argc == 1 ? 0 : 64;
}
