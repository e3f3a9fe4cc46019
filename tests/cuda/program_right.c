/* Scenarios without a bug: the results are right with every seed, and nothing is reported. */
#include "tests/cuda/program.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 3000 };

static void expect_no_report(void) { EXPECT(sim_api.report_count() == 0); }

/* In, twice through a kernel, out, over two streams with every wait that is needed. */
static void two_streams(void) {
    program_open();
    float *in = pinned_floats(N, 1), *out = pinned_floats(N, 0);
    CUdeviceptr x = device_floats(N), y = device_floats(N);
    OK(cuda.cuMemcpyHtoDAsync(x, in, N * sizeof *in, copies));
    stream_follow(compute, copies);
    launch_map("scale", compute, x, y, 2, N);
    launch_map("scale", compute, y, x, 3, N);
    stream_follow(copies, compute);
    OK(cuda.cuMemcpyDtoHAsync(out, x, N * sizeof *out, copies));
    launch_map("scale", compute, x, y, 4, N); /* reads, as the copy does */
    EXPECT(in[5] == 6);                       /* the source may be read */
    OK(cuda.cuStreamSynchronize(copies));
    for (int i = 0; i < N; i++)
        EXPECT(out[i] == 6 * (float)(1 + i));
    OK(cuda.cuMemFree(x));
    OK(cuda.cuMemFree(y));
    OK(cuda.cuMemFreeHost(in));
    expect_no_report();
}

/* The host's wait orders what it enqueues afterwards. */
static void waits_of_the_host(void) {
    program_open();
    float *values = pinned_floats(N, 1);
    CUdeviceptr x = device_floats(N);
    for (int round = 0; round < 5; round++) {
        values[0] = (float)round;
        OK(cuda.cuMemcpyHtoDAsync(x, values, N * sizeof *values, copies));
        OK(cuda.cuEventRecord(event, copies));
        if (round % 2 == 0)
            OK(cuda.cuEventSynchronize(event));
        else
            while (cuda.cuEventQuery(event) == CUDA_ERROR_NOT_READY)
                ;
        launch_map("scale", compute, x, x, 2, N);
        OK(cuda.cuMemcpyDtoHAsync(values, x, N * sizeof *values, compute));
        OK(cuda.cuStreamSynchronize(compute));
        EXPECT(values[0] == 2 * (float)round);
    }
    expect_no_report();
}

static float result_of(const char *kernel, unsigned blocks, unsigned shared_size, long at) {
    float *in = pinned_floats(N, 1), *out = pinned_floats(N, 0);
    CUdeviceptr x = device_floats(N), y = device_floats(N);
    struct map_args args = {(const float *)x, (float *)y, 0, N};
    OK(cuda.cuMemcpyHtoDAsync(x, in, N * sizeof *in, compute));
    OK(cuda.cuMemsetD32Async(y, 0, N, compute));
    launch(kernel, compute, blocks, 256, shared_size, &args);
    OK(cuda.cuMemcpyDtoHAsync(out, y, N * sizeof *out, compute));
    OK(cuda.cuStreamSynchronize(compute));
    return out[at];
}

static void kernels_of_blocks(void) {
    program_open();
    EXPECT(result_of("sum_blocks", 11, 0, 1) == 256 * 257 + 256 * 255.0f / 2);
    EXPECT(result_of("reverse_block", 11, 1024, 3) == 253);
    EXPECT(result_of("rotate", 11, 0, 31) == 1);
    EXPECT(result_of("sum_last_block", 11, 0, 0) == 66);
    expect_no_report();
}

static void kernels_of_warps(void) {
    program_open();
    EXPECT(result_of("sum_warps", 12, 0, 0) == (float)N * (N + 1) / 2);
    float even = result_of("count_even", 12, 0, 0);
    int n_even;
    memcpy(&n_even, &even, sizeof n_even);
    EXPECT(n_even == N / 2);
    expect_no_report();
}

/* Elements smaller than a word: neighbours are no race. Fresh memory is NaN. */
static void small_elements(void) {
    struct {
        CUdeviceptr bytes, halves;
        long n;
    } args = {.n = N};
    program_open();
    unsigned short *out;
    OK(cuda.cuMemHostAlloc((void **)&out, N * sizeof *out, 0));
    args.bytes = device_floats(N);
    args.halves = device_floats(N);
    OK(cuda.cuMemsetD8Async(args.bytes, 7, N, compute));
    launch("increment_small", compute, 12, 256, 0, &args);
    OK(cuda.cuMemcpyDtoHAsync(out, args.halves, N * sizeof *out, compute));
    OK(cuda.cuStreamSynchronize(compute));
    EXPECT((out[N - 1] & 0x7c00) == 0x7c00 && (out[N - 1] & 0x3ff) != 0);
    OK(cuda.cuMemcpyDtoHAsync(out, args.bytes, N, compute));
    OK(cuda.cuStreamSynchronize(compute));
    EXPECT(((unsigned char *)out)[N - 1] == 8);
    expect_no_report();
}

static void host_operation(void) {
    enum { SIDE = 20, SIZE = SIDE * SIDE };
    program_open();
    float *a = pinned_floats(SIZE, 1), *out = pinned_floats(SIZE, 0);
    CUdeviceptr x = device_floats(SIZE), y = device_floats(SIZE);
    struct {
        CUdeviceptr a, b, y;
        int n;
    } args = {x, x, y, SIDE};
    struct sim_range reads = {x, SIZE * sizeof *a}, writes = {y, SIZE * sizeof *a};
    OK(cuda.cuMemcpyHtoDAsync(x, a, SIZE * sizeof *a, compute));
    OK(sim_api.enqueue_host(compute, "test_product", &args, sizeof args, &reads, 1, &writes, 1));
    OK(cuda.cuMemcpyDtoHAsync(out, y, SIZE * sizeof *out, compute));
    OK(cuda.cuStreamSynchronize(compute));
    float sum = 0;
    for (int k = 0; k < SIDE; k++)
        sum += a[k] * a[k * SIDE];
    EXPECT(out[0] == sum);
    RETURNS(CUDA_ERROR_NOT_FOUND,
            sim_api.enqueue_host(compute, "no_such", &args, sizeof args, NULL, 0, NULL, 0));
    expect_no_report();
}

/* Addresses and memory apart, in two pieces; blocks in it, freed and given again in one stream. */
static void blocks_in_a_range(void) {
    enum { PIECE = 2 << 20 };
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handles[2];
    CUdeviceptr memory;
    size_t free_before, free_after, total;
    program_open();
    float *out = pinned_floats(N, 0);
    OK(cuda.cuMemGetInfo(&free_before, &total));
    OK(cuda.cuMemAddressReserve(&memory, 4 * PIECE, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        OK(cuda.cuMemCreate(&handles[i], PIECE, &properties, 0));
        OK(cuda.cuMemMap(memory + i * PIECE, PIECE, 0, handles[i], 0));
        OK(cuda.cuMemRelease(handles[i]));
    }
    OK(cuda.cuMemSetAccess(memory, 2 * PIECE, &access, 1));
    CUdeviceptr block = memory + PIECE - 4096; /* over both pieces */
    for (int i = 0; i < 3; i++) {
        OK(sim_api.block_allocated(block, N * sizeof *out, compute));
        OK(cuda.cuMemsetD32Async(block, 0x3f800000, N, compute));
        launch_map("scale", compute, block, block, 2, N);
        OK(cuda.cuMemcpyDtoHAsync(out, block, N * sizeof *out, compute));
        OK(sim_api.block_freed(block, N * sizeof *out, compute));
    }
    OK(cuda.cuStreamSynchronize(compute));
    EXPECT(out[N - 1] == 2);
    OK(cuda.cuMemUnmap(memory, 2 * PIECE));
    OK(cuda.cuMemAddressFree(memory, 4 * PIECE));
    OK(cuda.cuMemGetInfo(&free_after, &total));
    EXPECT(free_before == free_after);
    expect_no_report();
}

/* Two devices: a copy between them, and a kernel of one on the other's memory. */
static void two_devices(void) {
    CUcontext second;
    CUstream stream;
    CUevent done;
    int can;
    program_open();
    float *in = pinned_floats(N, 1), *out = pinned_floats(N, 0);
    CUdeviceptr x = device_floats(N);
    OK(cuda.cuMemcpyHtoDAsync(x, in, N * sizeof *in, compute));
    OK(cuda.cuEventRecord(event, compute));
    OK(cuda.cuDeviceCanAccessPeer(&can, 1, 0));
    EXPECT(can);
    OK(cuda.cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuda.cuCtxSetCurrent(second));
    OK(cuda.cuCtxEnablePeerAccess(context, 0));
    OK(cuda.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    OK(cuda.cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr y = device_floats(N), z = device_floats(N);
    OK(cuda.cuStreamWaitEvent(stream, event, 0));
    OK(cuda.cuMemcpyPeerAsync(y, second, x, context, N * sizeof *in, stream));
    launch_map("scale", stream, y, z, 2, N);
    launch_map("scale", stream, x, y, 3, N);
    OK(cuda.cuMemcpyDtoHAsync(out, z, N * sizeof *out, stream));
    OK(cuda.cuStreamSynchronize(stream));
    EXPECT(out[1] == 4);
    OK(cuda.cuMemcpyDtoHAsync(out, y, N * sizeof *out, stream));
    OK(cuda.cuStreamSynchronize(stream));
    EXPECT(out[1] == 6);
    RETURNS(CUDA_ERROR_INVALID_HANDLE, cuda.cuMemsetD8Async(x, 0, 4, compute));
    expect_no_report();
}

/* Threads that enqueue and wait at the same time, each with its stream and memory. */
static void *enqueue_and_wait(void *unused) {
    CUstream stream;
    OK(cuda.cuCtxSetCurrent(context));
    OK(cuda.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    float *values = pinned_floats(N, 1);
    CUdeviceptr x = device_floats(N);
    for (int i = 0; i < 5; i++) {
        OK(cuda.cuMemcpyHtoDAsync(x, values, N * sizeof *values, stream));
        launch_map("scale", stream, x, x, 2, N);
        OK(cuda.cuMemcpyDtoHAsync(values, x, N * sizeof *values, stream));
        OK(cuda.cuStreamSynchronize(stream));
    }
    EXPECT(values[0] == 32);
    return unused;
}

static void several_threads(void) {
    pthread_t threads[4];
    program_open();
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_create(&threads[i], NULL, enqueue_and_wait, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    expect_no_report();
}

static void *wait_for_event(void *unused) {
    OK(cuda.cuCtxSetCurrent(context));
    RETURNS(CUDA_ERROR_UNKNOWN, cuda.cuEventSynchronize(event));
    return unused;
}

/* A device that vanishes while a thread waits: the wait ends, and all later calls say so. */
static void killed_device(void) {
    pthread_t thread;
    program_open();
    CUdeviceptr x = device_floats(N);
    EXPECT(kill(sim_api.device_process(), SIGSTOP) == 0);
    OK(cuda.cuMemsetD32Async(x, 0, N, compute));
    OK(cuda.cuEventRecord(event, compute));
    EXPECT(pthread_create(&thread, NULL, wait_for_event, NULL) == 0);
    EXPECT(kill(sim_api.device_process(), SIGKILL) == 0);
    pthread_join(thread, NULL);
    RETURNS(CUDA_ERROR_UNKNOWN, cuda.cuMemAlloc(&x, 4));
    RETURNS(CUDA_ERROR_UNKNOWN, cuda.cuStreamSynchronize(compute));
    RETURNS(CUDA_ERROR_UNKNOWN, cuda.cuDevicePrimaryCtxReset(0));
    expect_no_report();
}

/* A sticky error of one device leaves the other alone, and ends with a reset. */
static void failed_device(void) {
    CUcontext second;
    program_open();
    CUdeviceptr x = device_floats(N);
    OK(cuda.cuDevicePrimaryCtxRetain(&second, 1));
    OK(sim_api.fail_device(0, CUDA_ERROR_ECC_UNCORRECTABLE));
    RETURNS(CUDA_ERROR_ECC_UNCORRECTABLE, cuda.cuMemsetD32Async(x, 0, N, compute));
    OK(cuda.cuCtxSetCurrent(second));
    x = device_floats(N);
    OK(cuda.cuDevicePrimaryCtxReset(0));
    OK(cuda.cuCtxSetCurrent(context));
    x = device_floats(N);
    expect_no_report();
}

/* Each call of the table fails once when it is told to, and the next works. */
static void failed_calls(void) {
    program_open();
    CUdeviceptr x;
    unsigned long before = sim_api.call_count("cuMemAlloc_v2");
    OK(sim_api.fail_call("cuMemAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY));
    x = device_floats(N);
    RETURNS(CUDA_ERROR_OUT_OF_MEMORY, cuda.cuMemAlloc(&x, 4));
    x = device_floats(N);
    EXPECT(sim_api.call_count("cuMemAlloc_v2") == before + 3);
    RETURNS(CUDA_ERROR_NOT_FOUND, sim_api.fail_call("cuNoSuch", 1, CUDA_ERROR_UNKNOWN));
    expect_no_report();
}

/* Failures that the environment asks for, from the first call on. */
static void calls_that_fail_from_the_start(void) {
    EXPECT(setenv("MILLRACE_SIM_FAIL", "cuInit:1:100,cuStreamSynchronize:2:214", 1) == 0);
    program_load();
    RETURNS(CUDA_ERROR_NO_DEVICE, cuda.cuInit(0));
    program_open();
    OK(cuda.cuStreamSynchronize(compute));
    RETURNS(CUDA_ERROR_ECC_UNCORRECTABLE, cuda.cuStreamSynchronize(compute));
    OK(cuda.cuStreamSynchronize(compute));
    expect_no_report();
}

/* The laziest device runs what is waited for and nothing else; an event says what has run. */
static void laziest_device(void) {
    EXPECT(setenv("MILLRACE_SIM_ORDER", "lazy", 1) == 0);
    program_open();
    CUevent other;
    CUdeviceptr x = device_floats(N), y = device_floats(N);
    OK(cuda.cuEventCreate(&other, 0));
    OK(cuda.cuMemsetD32Async(x, 0, N, copies));
    OK(cuda.cuMemsetD32Async(x, 0, N, copies));
    OK(cuda.cuEventRecord(other, copies));
    OK(cuda.cuMemsetD32Async(y, 0, N, compute));
    OK(cuda.cuStreamSynchronize(compute));
    RETURNS(CUDA_ERROR_NOT_READY, cuda.cuEventQuery(other));
    OK(cuda.cuStreamWaitEvent(compute, other, 0));
    OK(cuda.cuStreamSynchronize(compute));
    OK(cuda.cuEventQuery(other));
    expect_no_report();
}

/* Calls that return at once: nothing runs, everything succeeds. */
static void null_driver(void) {
    EXPECT(setenv("MILLRACE_SIM_MODE", "null", 1) == 0);
    program_open();
    float *values = pinned_floats(N, 1);
    CUdeviceptr x = device_floats(N);
    OK(cuda.cuMemcpyHtoDAsync(x, values, N * sizeof *values, compute));
    launch_map("no_such_kernel", compute, x, x, 2, N);
    OK(cuda.cuMemcpyDtoHAsync(values, x, N * sizeof *values, compute));
    values[0] = 2;
    stream_follow(copies, compute);
    OK(cuda.cuEventSynchronize(event));
    OK(cuda.cuStreamQuery(copies));
    OK(cuda.cuCtxSynchronize());
    OK(cuda.cuMemFree(x));
    OK(cuda.cuMemFreeHost(values));
    EXPECT(sim_api.device_process() == 0);
    expect_no_report();
}

/* Limits are those of a device. */
static void limits(void) {
    CUlibrary library;
    CUkernel kernel;
    struct map_args args = {0};
    void *arguments[] = {&args};
    size_t free_size, total;
    program_open();
    OK(cuda.cuMemGetInfo(&free_size, &total));
    RETURNS(CUDA_ERROR_OUT_OF_MEMORY, cuda.cuMemAlloc(&(CUdeviceptr){0}, total + 1));
    OK(cuda.cuLibraryLoadData(&library, "fatbin", NULL, NULL, 0, NULL, NULL, 0));
    RETURNS(CUDA_ERROR_NOT_FOUND, cuda.cuLibraryGetKernel(&kernel, library, "no_such"));
    OK(cuda.cuLibraryGetKernel(&kernel, library, "scale"));
    CUfunction function = (CUfunction)kernel;
    RETURNS(CUDA_ERROR_INVALID_VALUE,
            cuda.cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, compute, arguments, NULL));
    RETURNS(CUDA_ERROR_INVALID_VALUE,
            cuda.cuLaunchKernel(function, 0, 1, 1, 32, 1, 1, 0, compute, arguments, NULL));
    RETURNS(CUDA_ERROR_INVALID_VALUE,
            cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 49153, compute, arguments, NULL));
    OK(cuda.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
    OK(cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 100000, compute, arguments, NULL));
    RETURNS(CUDA_ERROR_NOT_SUPPORTED, cuda.cuStreamSynchronize(NULL));
    expect_no_report();
}

const struct scenario right_scenarios[] = {
    {"two_streams", two_streams},
    {"waits_of_the_host", waits_of_the_host},
    {"kernels_of_blocks", kernels_of_blocks},
    {"kernels_of_warps", kernels_of_warps},
    {"small_elements", small_elements},
    {"host_operation", host_operation},
    {"blocks_in_a_range", blocks_in_a_range},
    {"two_devices", two_devices},
    {"several_threads", several_threads},
    {"killed_device", killed_device},
    {"failed_device", failed_device},
    {"failed_calls", failed_calls},
    {"calls_that_fail_from_the_start", calls_that_fail_from_the_start},
    {"laziest_device", laziest_device},
    {"null_driver", null_driver},
    {"limits", limits},
    {NULL, NULL},
};
