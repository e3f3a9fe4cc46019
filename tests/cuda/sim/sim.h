/* What the simulated device offers beyond the driver API. Tests find these functions by dlsym in
 * libcuda.so.1; a real libcuda has none of them.
 *
 * The environment, read by cuInit:
 *   MILLRACE_SIM_COMPILER the host's compiler and its options, for NVRTC's calls
 *   MILLRACE_SIM_KERNELS  shared objects of kernels and host operations, joined by ":"
 *   MILLRACE_SIM_DEVICES  how many devices the host has, 1 to 8 (default 1)
 *   CUDA_VISIBLE_DEVICES  which of them a process sees, and in which order (driver_visible.c)
 *   MILLRACE_SIM_MEMORY   bytes of memory of each device (default 2 GiB)
 *   MILLRACE_SIM_SHARED   a file by which processes share the memory of their devices: what one
 *                         holds, the others cannot have. Nothing else of the devices is shared
 *   MILLRACE_SIM_SEED     the seed of all that is drawn (default 1)
 *   MILLRACE_SIM_ORDER    "drawn" (default), "lazy" (an operation runs when something waits for it)
 *                         or "eager" (at once)
 *   MILLRACE_SIM_CHECK    "0" turns off the search for missing waits, for speed
 *   MILLRACE_SIM_MODE     "null": all calls return at once, there is no device process
 *   MILLRACE_SIM_FAIL     calls to fail, as SYMBOL:N:ERROR, joined by ",": the Nth call of SYMBOL
 *                         returns the number ERROR and does nothing, once; with "odd" for N every
 *                         second call does, from the first on. One row for each SYMBOL
 *   MILLRACE_SIM_KILL     SYMBOL:N: the Nth call of SYMBOL kills the device process before it does
 *                         anything, so all devices are lost
 *   MILLRACE_SIM_LAST     SYMBOL:N: the program is killed (SIGKILL) in the Nth call of SYMBOL
 *   MILLRACE_SIM_GATE     SYMBOL:N:PATH: the Nth call of SYMBOL waits until another process opens
 *                         the named pipe PATH for writing
 *   MILLRACE_SIM_REPORT   the file that reports are appended to (default standard error)
 *   MILLRACE_SIM_PROCESS  the program of the device process (default sim_device beside the library)
 *   MILLRACE_SIM_TF32     "1": products and convolutions that may round their inputs to TF32 do so
 *   MILLRACE_SIM_PEERS    "0": no device can use another one's memory, and cuMemcpyPeerAsync, which
 *                         a real driver would do through the host, is refused
 *   MILLRACE_SIM_NAME     the name of the devices
 *   MILLRACE_SIM_CUPTI    what is wrong with CUPTI (cupti.c) */
#ifndef MILLRACE_TESTS_CUDA_SIM_SIM_H
#define MILLRACE_TESTS_CUDA_SIM_SIM_H

#include "kernels/cuda/driver_api.h"
#include <stddef.h>

/* Memory of the device that a host operation uses. */
struct sim_range {
    CUdeviceptr start;
    size_t size;
};

/* Enqueues a function of a shared object of MILLRACE_SIM_KERNELS, extern "C" void name(const void
 * *args). It runs in the device process, in the order of the stream, with a copy of args. It may
 * use the ranges only, which count as its reads and writes. Errors: CUDA_ERROR_NOT_FOUND. */
CUresult simEnqueueHostOperation(CUstream stream, const char *name, const void *args, size_t size,
                                 const struct sim_range *reads, size_t n_reads,
                                 const struct sim_range *writes, size_t n_writes);

/* An allocator that divides its memory itself tells where its blocks begin and end, in the order of
 * the stream. A new block is filled with NaN, which counts as a write. A freed block may not be
 * used before its memory belongs to a new one. Blocks begin at multiples of 4,096. */
CUresult simBlockAllocated(CUdeviceptr start, size_t size, CUstream stream);
CUresult simBlockFreed(CUdeviceptr start, size_t size, CUstream stream);

/* The same for the next launch of a graph: before its node with the number `at`, in the order of
 * the capture; behind all nodes for their count. */
CUresult simGraphBlock(CUgraphExec exec, int at, CUdeviceptr start, size_t size, int is_new);

/* 1 in the mode "null", else 0. After cuInit. */
int simIsNull(void);

/* How many mistakes have been reported. */
unsigned long simReportCount(void);

/* How often a call was made, by its exported symbol. */
unsigned long simCallCount(const char *symbol);

/* The nth call from now of a symbol fails with an error, once. */
CUresult simFailCall(const char *symbol, unsigned long n, CUresult error);

/* The next call of a symbol that a thread makes while it captures is refused, once, as if it did
 * what cannot be captured, and the capture is invalid. */
CUresult simRefuseCaptured(const char *symbol);

/* The nth call of a symbol from now on kills the device process, as MILLRACE_SIM_KILL. */
CUresult simKillAtCall(const char *symbol, unsigned long n);

/* Calls of a symbol wait from now on, as those of a driver that hangs, until they are released. A
 * waiting call is counted already. */
CUresult simBlockCall(const char *symbol, int is_blocked);

/* How many bytes of workspace cuDNN's best engine wants for a convolution with an even number of
 * channels. 0: as few as at the beginning. */
void simSetWorkspace(int64_t size_bytes);

/* The device has a sticky error from now on, as after an ECC error. */
CUresult simFailDevice(CUdevice device, CUresult error);

/* Called in each cuFlushGPUDirectRDMAWrites. A test's RDMA device brings its writes into the memory
 * then, and no earlier. NULL: nothing is called. */
void simOnFlush(void (*flush)(void));

/* ---- for the simulated CUPTI (cupti.c) ---- */

/* An operation that a thread has enqueued: a kernel, a copy or a fill. */
struct sim_operation {
    uint32_t command; /* enum sim_command */
    uint32_t device, stream, clock;
    uint32_t call;       /* the number of the call that enqueued it */
    uint64_t graph_node; /* in a launch of a graph, its node's number; else 0 */
    const char *kernel;  /* a kernel's name; lives as long as the process */
    uint64_t size;       /* of a copy or a fill */
};
/* Calls `watch` for each operation, in the thread that enqueues it, after it was enqueued. NULL:
 * nobody watches. From the first watch on, times are kept. */
CUresult simWatchOperations(void (*watch)(const struct sim_operation *operation));
/* When an operation ran. *ret_end_ns is 0: it has not ended. */
CUresult simOperationTime(const struct sim_operation *operation, uint64_t *ret_start_ns,
                          uint64_t *ret_end_ns);

/* Holds all devices: nothing that is enqueued runs, and who waits for it waits, until the devices
 * are released. Meanwhile an enqueueing call that a real driver would make wait is reported. */
CUresult simHold(int is_held);

/* The id of the device process, for a test that kills it. 0: there is none. */
int simDeviceProcess(void);

#endif
