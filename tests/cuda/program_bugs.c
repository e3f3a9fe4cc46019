/* Scenarios with a planted bug each: the simulated device has to report it with every seed. */
#include "tests/cuda/program.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N = 3000 };

/* The copy to the device runs in its own stream, and the kernel does not wait for it. */
static void no_wait_before_a_kernel(void) {
    program_open();
    float *values = pinned_floats(N, 0);
    CUdeviceptr x = device_floats(N), y = device_floats(N);
    OK(cuda.cuMemcpyHtoDAsync(x, values, N * sizeof *values, copies));
    launch_map("scale", compute, x, y, 2, N);
    OK(cuda.cuCtxSynchronize());
}

static void no_wait_before_a_copy_out(void) {
    program_open();
    float *values = pinned_floats(N, 0);
    CUdeviceptr x = device_floats(N), y = device_floats(N);
    OK(cuda.cuMemcpyHtoDAsync(x, values, N * sizeof *values, compute));
    launch_map("scale", compute, x, y, 2, N);
    OK(cuda.cuMemcpyDtoHAsync(values, y, N * sizeof *values, copies));
    OK(cuda.cuStreamSynchronize(copies));
    OK(cuda.cuCtxSynchronize());
}

/* A block is freed while the copy stream reads it, and the compute stream writes it again. */
static void freed_block_is_reused(void) {
    program_open();
    float *values = pinned_floats(N, 0);
    CUdeviceptr block = device_floats(N);
    OK(cuda.cuMemsetD32Async(block, 0, N, compute));
    stream_follow(copies, compute);
    OK(cuda.cuMemcpyDtoHAsync(values, block, N * sizeof *values, copies));
    OK(cuda.cuMemsetD32Async(block, 1, N, compute));
    OK(cuda.cuCtxSynchronize());
}

/* The same, told by an allocator that divides its memory itself. */
static void freed_block_is_read(void) {
    program_open();
    float *values = pinned_floats(N, 0);
    CUdeviceptr memory = device_floats(65536);
    OK(sim_api.block_allocated(memory, N * sizeof *values, compute));
    OK(cuda.cuMemsetD32Async(memory, 0, N, compute));
    OK(sim_api.block_freed(memory, N * sizeof *values, compute));
    stream_follow(copies, compute);
    OK(cuda.cuMemcpyDtoHAsync(values, memory, N * sizeof *values, copies));
    RETURNS(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.cuCtxSynchronize());
}

/* Captures a kernel on a block of which nothing else is told. */
static CUgraphExec capture_scale(CUdeviceptr x, CUdeviceptr y) {
    CUgraph graph;
    CUgraphExec exec;
    OK(cuda.cuStreamBeginCapture(compute, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch_map("scale", compute, x, y, 2, N);
    OK(cuda.cuStreamEndCapture(compute, &graph));
    OK(cuda.cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

/* The graph's launch does not wait for the copy that its kernel needs. */
static void no_wait_before_a_graph(void) {
    program_open();
    float *values = pinned_floats(N, 0);
    CUdeviceptr x = device_floats(N), y = device_floats(N);
    CUgraphExec exec = capture_scale(x, y);
    OK(cuda.cuMemcpyHtoDAsync(x, values, N * sizeof *values, copies));
    OK(cuda.cuGraphLaunch(exec, compute));
    OK(cuda.cuCtxSynchronize());
}

/* A block has moved since the capture, and the graph is launched with its old address. */
static void graph_with_an_old_address(void) {
    program_open();
    CUdeviceptr memory = device_floats(65536), old = memory, new = memory + 131072;
    OK(sim_api.block_allocated(old, N * sizeof(float), compute));
    OK(cuda.cuMemsetD32Async(old, 0, N, compute));
    CUgraphExec exec = capture_scale(old, old);
    OK(cuda.cuGraphLaunch(exec, compute));
    OK(sim_api.block_freed(old, N * sizeof(float), compute));
    OK(sim_api.block_allocated(new, N * sizeof(float), compute));
    OK(cuda.cuMemsetD32Async(new, 0, N, compute));
    OK(cuda.cuGraphLaunch(exec, compute));
    RETURNS(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.cuCtxSynchronize());
}

/* What the graph's kernel writes was freed, and is the copy stream's now. */
static void graph_with_a_block_of_others(void) {
    program_open();
    float *values = pinned_floats(N, 0);
    CUdeviceptr block = device_floats(65536);
    OK(sim_api.block_allocated(block, N * sizeof(float), compute));
    OK(cuda.cuMemsetD32Async(block, 0, N, compute));
    CUgraphExec exec = capture_scale(block, block);
    OK(sim_api.block_freed(block, N * sizeof(float), compute));
    stream_follow(copies, compute);
    OK(sim_api.block_allocated(block, N * sizeof(float), copies));
    OK(cuda.cuMemcpyHtoDAsync(block, values, N * sizeof *values, copies));
    OK(cuda.cuGraphLaunch(exec, compute));
    cuda.cuCtxSynchronize(); /* fails where the kernel ran while the block was nobody's */
}

static void run_on_input(const char *kernel, CUresult result) {
    program_open();
    float *values = pinned_floats(N, 1);
    CUdeviceptr x = device_floats(N), y = device_floats(N);
    OK(cuda.cuMemcpyHtoDAsync(x, values, N * sizeof *values, compute));
    OK(cuda.cuMemsetD32Async(y, 0, N, compute));
    launch_map(kernel, compute, x, y, 2, N - N % 256);
    RETURNS(result, cuda.cuStreamSynchronize(compute));
}

static void missing_syncthreads(void) { run_on_input("sum_without_barrier", CUDA_SUCCESS); }
static void missing_syncwarp(void) { run_on_input("rotate_without_wait", CUDA_SUCCESS); }
static void update_without_atomic(void) { run_on_input("sum_plain", CUDA_SUCCESS); }
static void divergent_barrier(void) { run_on_input("diverge", CUDA_SUCCESS); }

/* Out of bounds by one element, inside the last page: then by a page. The error stays until a
 * reset, and then the device works again. */
static void out_of_bounds(const char *kernel) {
    program_open();
    CUdeviceptr y = device_floats(N);
    launch_map(kernel, compute, 0, y, 2, N);
    RETURNS(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.cuStreamSynchronize(compute));
    RETURNS(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.cuMemAlloc(&y, 4096));
    RETURNS(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.cuStreamQuery(compute));
    OK(cuda.cuDevicePrimaryCtxReset(0));
    OK(cuda.cuStreamCreateWithPriority(&compute, CU_STREAM_NON_BLOCKING, 0));
    y = device_floats(N);
    OK(cuda.cuMemsetD32Async(y, 0, N, compute));
    OK(cuda.cuStreamSynchronize(compute));
}

static void write_one_beyond(void) { out_of_bounds("scale_beyond"); }
static void write_a_page_beyond(void) { out_of_bounds("scale_far"); }

static void kernel_uses_host_memory(void) {
    static float values[4];
    program_open();
    launch_map("write_host", compute, 0, (CUdeviceptr)values, 2, 1);
    RETURNS(CUDA_ERROR_ILLEGAL_ADDRESS, cuda.cuStreamSynchronize(compute));
}

/* The host ends by SIGSEGV, after a report. */
static void host_reads_device_memory(void) {
    program_open();
    CUdeviceptr x = device_floats(N);
    float value = *(volatile float *)x;
    EXPECT(value == value);
}

static void host_reads_before_the_copy_has_ended(void) {
    program_open();
    float *values = pinned_floats(N, 0);
    CUdeviceptr x = device_floats(N);
    OK(cuda.cuMemsetD32Async(x, 0, N, compute));
    OK(cuda.cuMemcpyDtoHAsync(values, x, N * sizeof *values, compute));
    float value = *(volatile float *)values;
    EXPECT(value == 0);
}

static CUgraphExec capture_copy_out(float *to, CUdeviceptr from) {
    CUgraph graph;
    CUgraphExec exec;
    OK(cuda.cuMemsetD32Async(from, 0, N, compute));
    OK(cuda.cuStreamBeginCapture(compute, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuda.cuMemcpyDtoHAsync(to, from, N * sizeof *to, compute));
    OK(cuda.cuStreamEndCapture(compute, &graph));
    OK(cuda.cuGraphInstantiate(&exec, graph, 0));
    OK(cuda.cuGraphLaunch(exec, compute));
    OK(cuda.cuStreamSynchronize(compute));
    EXPECT(*(volatile float *)to == 0);
    return exec;
}

/* The graph's copy is under way again after its second launch. */
static void host_reads_what_a_graph_writes(void) {
    program_open();
    float *values = pinned_floats(N, 0);
    CUgraphExec exec = capture_copy_out(values, device_floats(N));
    OK(cuda.cuGraphLaunch(exec, compute));
    float value = *(volatile float *)values;
    EXPECT(value == 0);
}

static void graph_writes_memory_that_is_not_pinned(void) {
    program_open();
    float *values = pinned_floats(N, 0);
    CUgraphExec exec = capture_copy_out(values, device_floats(N));
    OK(cuda.cuMemFreeHost(values));
    RETURNS(CUDA_ERROR_INVALID_VALUE, cuda.cuGraphLaunch(exec, compute));
}

static void host_writes_what_a_copy_reads(void) {
    program_open();
    float *values = pinned_floats(N, 0);
    CUdeviceptr x = device_floats(N);
    OK(cuda.cuMemcpyHtoDAsync(x, values, N * sizeof *values, compute));
    *(volatile float *)values = 1;
}

static void copy_of_memory_that_is_not_pinned(void) {
    static float values[N];
    program_open();
    CUdeviceptr x = device_floats(N);
    RETURNS(CUDA_ERROR_INVALID_VALUE, cuda.cuMemcpyHtoDAsync(x, values, sizeof values, compute));
}

/* ---- memory that the program registers, as the arena of shared memory ---- */

static float *registered_floats(int protection, unsigned flags) {
    float *values = shared_floats(N, protection);
    OK(cuda.cuMemHostRegister(values, N * sizeof *values, flags));
    return values;
}

static void host_reads_registered_memory_before_the_copy_has_ended(void) {
    program_open();
    float *values = registered_floats(PROT_READ | PROT_WRITE, 0);
    CUdeviceptr x = device_floats(N);
    OK(cuda.cuMemsetD32Async(x, 0, N, compute));
    OK(cuda.cuMemcpyDtoHAsync(values, x, N * sizeof *values, compute));
    float value = *(volatile float *)values;
    EXPECT(value == 0);
}

static void host_writes_registered_memory_that_a_copy_reads(void) {
    program_open();
    float *values = registered_floats(PROT_READ | PROT_WRITE, 0);
    CUdeviceptr x = device_floats(N);
    OK(cuda.cuMemcpyHtoDAsync(x, values, N * sizeof *values, compute));
    *(volatile float *)values = 1;
}

static void device_writes_read_only_memory(void) {
    program_open();
    float *values = registered_floats(PROT_READ, CU_MEMHOSTREGISTER_READ_ONLY);
    CUdeviceptr x = device_floats(N);
    OK(cuda.cuMemsetD32Async(x, 0, N, compute));
    RETURNS(CUDA_ERROR_INVALID_VALUE,
            cuda.cuMemcpyDtoHAsync(values, x, N * sizeof *values, compute));
}

static void unregistered_too_early(void) {
    program_open();
    float *values = registered_floats(PROT_READ | PROT_WRITE, 0);
    CUdeviceptr x = device_floats(N);
    OK(cuda.cuMemcpyHtoDAsync(x, values, N * sizeof *values, compute));
    OK(cuda.cuMemHostUnregister(values));
    OK(cuda.cuStreamSynchronize(compute));
}

static void given_back_while_registered(void) {
    program_open();
    float *values = registered_floats(PROT_READ | PROT_WRITE, 0);
    EXPECT(madvise(values, 4096, MADV_REMOVE) == 0);
    OK(cuda.cuMemHostUnregister(values));
}

static void copied_after_it_was_given_back(void) {
    program_open();
    float *values = registered_floats(PROT_READ | PROT_WRITE, CU_MEMHOSTREGISTER_READ_ONLY);
    CUdeviceptr x = device_floats(N);
    EXPECT(madvise(values, 4096, MADV_REMOVE) == 0);
    OK(cuda.cuMemcpyHtoDAsync(x, values, N * sizeof *values, compute));
    OK(cuda.cuStreamSynchronize(compute));
}

/* Memory is unmapped, and the host has not waited for the kernel that uses it. */
static void unmapped_too_early(void) {
    enum { SIZE = 2 << 20 };
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory;
    program_open();
    OK(cuda.cuMemAddressReserve(&memory, SIZE, 0, 0, 0));
    OK(cuda.cuMemCreate(&handle, SIZE, &properties, 0));
    OK(cuda.cuMemMap(memory, SIZE, 0, handle, 0));
    OK(cuda.cuMemSetAccess(memory, SIZE, &access, 1));
    OK(cuda.cuMemsetD32Async(memory, 0, N, compute));
    OK(cuda.cuMemUnmap(memory, SIZE));
    cuda.cuStreamSynchronize(compute); /* fails where the fill had not run yet */
}

const struct scenario bug_scenarios[] = {
    {"no_wait_before_a_kernel", no_wait_before_a_kernel},
    {"no_wait_before_a_copy_out", no_wait_before_a_copy_out},
    {"freed_block_is_reused", freed_block_is_reused},
    {"freed_block_is_read", freed_block_is_read},
    {"no_wait_before_a_graph", no_wait_before_a_graph},
    {"graph_with_an_old_address", graph_with_an_old_address},
    {"graph_with_a_block_of_others", graph_with_a_block_of_others},
    {"missing_syncthreads", missing_syncthreads},
    {"missing_syncwarp", missing_syncwarp},
    {"update_without_atomic", update_without_atomic},
    {"divergent_barrier", divergent_barrier},
    {"write_one_beyond", write_one_beyond},
    {"write_a_page_beyond", write_a_page_beyond},
    {"kernel_uses_host_memory", kernel_uses_host_memory},
    {"host_reads_device_memory", host_reads_device_memory},
    {"host_reads_before_the_copy_has_ended", host_reads_before_the_copy_has_ended},
    {"host_reads_what_a_graph_writes", host_reads_what_a_graph_writes},
    {"graph_writes_memory_that_is_not_pinned", graph_writes_memory_that_is_not_pinned},
    {"host_writes_what_a_copy_reads", host_writes_what_a_copy_reads},
    {"copy_of_memory_that_is_not_pinned", copy_of_memory_that_is_not_pinned},
    {"unmapped_too_early", unmapped_too_early},
    {"host_reads_registered_memory_before_the_copy_has_ended",
     host_reads_registered_memory_before_the_copy_has_ended},
    {"host_writes_registered_memory_that_a_copy_reads",
     host_writes_registered_memory_that_a_copy_reads},
    {"device_writes_read_only_memory", device_writes_read_only_memory},
    {"unregistered_too_early", unregistered_too_early},
    {"given_back_while_registered", given_back_while_registered},
    {"copied_after_it_was_given_back", copied_after_it_was_given_back},
    {NULL, NULL},
};
