/* Scenarios of CUDA graphs without a bug: what is captured, launched, changed and refused. */
#include "tests/cuda/program.h"
#include <pthread.h>

enum { N = 3000 };

static CUfunction find_scale(void) {
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    OK(cuda.cuLibraryLoadData(&library, "fatbin", NULL, NULL, 0, NULL, NULL, 0));
    OK(cuda.cuLibraryGetKernel(&kernel, library, "scale"));
    OK(cuda.cuKernelGetFunction(&function, kernel));
    return function;
}

static CUgraphNode last_node(CUstream stream) {
    const CUgraphNode *nodes;
    CUgraph graph;
    unsigned status;
    uint64_t id;
    size_t n;
    OK(cuda.cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &n));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && n == 1);
    return nodes[0];
}

static void check(CUdeviceptr x, float expected) {
    float *out = pinned_floats(N, 0);
    OK(cuda.cuMemcpyDtoHAsync(out, x, N * sizeof *out, compute));
    OK(cuda.cuStreamSynchronize(compute));
    EXPECT(out[7] == expected);
    OK(cuda.cuMemFreeHost(out));
}

/* A fill, a kernel and a copy run only when the graph is launched, each time, between what is
 * enqueued before and after. Then the kernel gets another factor. */
static void graph_of_a_chain(void) {
    program_open();
    CUdeviceptr x = device_floats(N), y = device_floats(N), z = device_floats(N);
    CUgraph graph;
    CUgraphExec exec;
    size_t n = 0;
    OK(cuda.cuMemsetD8Async(z, 0, N * sizeof(float), compute));
    OK(cuda.cuStreamBeginCapture(compute, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuda.cuMemsetD32Async(x, 0x40000000, N, compute)); /* 2.0f */
    launch_map("scale", compute, x, y, 3, N);
    CUgraphNode node = last_node(compute);
    OK(cuda.cuMemcpyDtoDAsync(z, y, N * sizeof(float), compute));
    OK(cuda.cuStreamEndCapture(compute, &graph));
    OK(cuda.cuGraphGetNodes(graph, NULL, &n));
    EXPECT(n == 3);
    OK(cuda.cuGraphInstantiate(&exec, graph, 0));
    check(z, 0);
    OK(cuda.cuGraphLaunch(exec, compute));
    launch_map("scale", compute, z, z, 10, N);
    check(z, 60);
    struct map_args args = {(const float *)x, (float *)y, 5, N};
    void *arguments[] = {&args};
    CUDA_KERNEL_NODE_PARAMS params = {.function = find_scale(),
                                      .grid_x = (N + 255) / 256,
                                      .grid_y = 1,
                                      .grid_z = 1,
                                      .block_x = 256,
                                      .block_y = 1,
                                      .block_z = 1,
                                      .arguments = arguments};
    OK(cuda.cuGraphLaunch(exec, compute)); /* keeps its factor */
    check(z, 6);
    OK(cuda.cuGraphExecKernelNodeSetParams(exec, node, &params));
    OK(cuda.cuGraphLaunch(exec, compute));
    check(z, 10);
    OK(cuda.cuGraphDestroy(graph)); /* which names the nodes */
    RETURNS(CUDA_ERROR_INVALID_VALUE, cuda.cuGraphExecKernelNodeSetParams(exec, node, &params));
    OK(cuda.cuGraphLaunch(exec, compute));
    check(z, 10);
    OK(cuda.cuGraphExecDestroy(exec));
    RETURNS(CUDA_ERROR_INVALID_VALUE, cuda.cuGraphLaunch(exec, compute));
    EXPECT(sim_api.report_count() == 0);
}

/* Blocks that begin and end between the nodes of a launch. */
static void graph_with_blocks(void) {
    program_open();
    CUdeviceptr memory = device_floats(65536), x = memory, y = memory + 65536, z = memory + 131072;
    size_t size = N * sizeof(float);
    CUgraph graph;
    CUgraphExec exec;
    OK(cuda.cuStreamBeginCapture(compute, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuda.cuMemsetD32Async(x, 0x40000000, N, compute));
    launch_map("scale", compute, x, y, 3, N);
    launch_map("scale", compute, y, z, 2, N);
    OK(cuda.cuStreamEndCapture(compute, &graph));
    OK(cuda.cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        OK(sim_api.graph_block(exec, 0, x, size, 1));
        OK(sim_api.graph_block(exec, 1, y, size, 1));
        OK(sim_api.graph_block(exec, 2, x, size, 0));
        OK(sim_api.graph_block(exec, 2, z, size, 1));
        OK(sim_api.graph_block(exec, 3, y, size, 0));
        OK(cuda.cuGraphLaunch(exec, compute));
        check(z, 12);
        OK(sim_api.block_freed(z, size, compute));
    }
    EXPECT(sim_api.report_count() == 0);
}

/* A graph's copy to the host writes into the same pinned memory each time. */
static void graph_with_a_copy_out(void) {
    program_open();
    CUdeviceptr x = device_floats(N), y = device_floats(N);
    float *out = pinned_floats(N, 0);
    CUgraph graph;
    CUgraphExec exec;
    OK(cuda.cuMemsetD32Async(x, 0x40000000, N, compute));
    OK(cuda.cuStreamBeginCapture(compute, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch_map("scale", compute, x, y, 3, N);
    OK(cuda.cuMemcpyDtoHAsync(out, y, N * sizeof *out, compute));
    launch_map("scale", compute, y, x, 1, N);
    OK(cuda.cuStreamEndCapture(compute, &graph));
    OK(cuda.cuGraphInstantiate(&exec, graph, 0));
    EXPECT(out[7] == 7); /* nothing is under way */
    for (float expected = 6; expected < 100; expected *= 3) {
        OK(cuda.cuGraphLaunch(exec, compute));
        OK(cuda.cuEventRecord(event, compute));
        OK(cuda.cuEventSynchronize(event));
        EXPECT(out[7] == expected);
        out[7] = 0;
    }
    OK(cuda.cuGraphExecDestroy(exec));
    OK(cuda.cuGraphDestroy(graph));
    EXPECT(sim_api.report_count() == 0);
}

static void *end_capture(void *unused) {
    CUgraph graph;
    OK(cuda.cuCtxSetCurrent(context));
    RETURNS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuda.cuStreamEndCapture(compute, &graph));
    OK(cuda.cuStreamSynchronize(copies)); /* another thread may wait for another stream */
    return unused;
}

static void expect_invalid(CUdeviceptr x) {
    CUgraph graph;
    RETURNS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuda.cuMemsetD32Async(x, 0, N, compute));
    RETURNS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuda.cuStreamEndCapture(compute, &graph));
    EXPECT(graph == NULL);
    OK(cuda.cuMemsetD32Async(x, 0, N, compute));
}

/* What may not be done while a stream captures gives the driver's error, and ends the capture. */
static void calls_during_a_capture(void) {
    program_open();
    CUdeviceptr x = device_floats(N), other;
    float *host = pinned_floats(N, 0);
    CUgraph graph;
    pthread_t thread;
    const unsigned mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    const CUresult refused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    RETURNS(CUDA_ERROR_ILLEGAL_STATE, cuda.cuStreamEndCapture(compute, &graph));
    OK(cuda.cuStreamBeginCapture(compute, mode));
    RETURNS(CUDA_ERROR_ILLEGAL_STATE, cuda.cuStreamBeginCapture(compute, mode));
    EXPECT(pthread_create(&thread, NULL, end_capture, NULL) == 0);
    pthread_join(thread, NULL);
    RETURNS(refused, cuda.cuStreamSynchronize(compute));
    expect_invalid(x);
    OK(cuda.cuStreamBeginCapture(compute, mode));
    RETURNS(refused, cuda.cuStreamQuery(compute));
    expect_invalid(x);
    OK(cuda.cuStreamBeginCapture(compute, mode));
    RETURNS(refused, cuda.cuEventRecord(event, compute));
    expect_invalid(x);
    OK(cuda.cuStreamBeginCapture(compute, mode));
    RETURNS(refused, cuda.cuMemcpyHtoDAsync(x, host, N * sizeof *host, compute));
    expect_invalid(x);
    OK(cuda.cuStreamBeginCapture(compute, mode));
    RETURNS(refused, cuda.cuMemAlloc(&other, 4096));
    expect_invalid(x);
    OK(cuda.cuStreamBeginCapture(compute, mode));
    RETURNS(refused, cuda.cuCtxSynchronize());
    expect_invalid(x);
    OK(cuda.cuStreamBeginCapture(compute, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuda.cuMemAlloc(&other, 4096));
    OK(cuda.cuStreamEndCapture(compute, &graph));
    OK(cuda.cuGraphDestroy(graph));
    OK(cuda.cuCtxSynchronize());
    EXPECT(sim_api.report_count() == 0);
}

const struct scenario graph_scenarios[] = {
    {"graph_of_a_chain", graph_of_a_chain},
    {"graph_with_blocks", graph_with_blocks},
    {"graph_with_a_copy_out", graph_with_a_copy_out},
    {"calls_during_a_capture", calls_during_a_capture},
    {NULL, NULL},
};
