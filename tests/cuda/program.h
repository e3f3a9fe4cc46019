/* What the scenarios of the simulated device's tests share: the table of calls, a device with a
 * compute stream and a copy stream, memory, launches. */
#ifndef MILLRACE_TESTS_CUDA_PROGRAM_H
#define MILLRACE_TESTS_CUDA_PROGRAM_H

#include "kernels/cuda/driver_api.h"
#include "tests/cuda/sim/sim.h"
#include <stdbool.h>

extern struct driver_api cuda;
extern struct sim_api {
    unsigned long (*report_count)(void);
    unsigned long (*call_count)(const char *);
    CUresult (*fail_call)(const char *, unsigned long, CUresult);
    CUresult (*fail_device)(CUdevice, CUresult);
    CUresult (*enqueue_host)(CUstream, const char *, const void *, size_t, const struct sim_range *,
                             size_t, const struct sim_range *, size_t);
    CUresult (*graph_block)(CUgraphExec, int, CUdeviceptr, size_t, int);
    CUresult (*block_allocated)(CUdeviceptr, size_t, CUstream);
    CUresult (*block_freed)(CUdeviceptr, size_t, CUstream);
    int (*device_process)(void);
} sim_api;

extern CUcontext context;
extern CUstream compute, copies; /* two streams of device 0 */
extern CUevent event;

/* Ends the program unless the condition holds. */
#define EXPECT(condition) expect((condition), #condition, __FILE__, __LINE__)
void expect(bool is_so, const char *what, const char *file, int line);
/* Ends the program unless the call returns the error. */
#define RETURNS(error, call) expect_result((call), error, #call, __FILE__, __LINE__)
#define OK(call) RETURNS(CUDA_SUCCESS, call)
void expect_result(CUresult result, CUresult expected, const char *what, const char *file,
                   int line);

/* Loads libcuda.so.1. */
void program_load(void);
/* Loads it unless it is loaded, makes the context and the streams. */
void program_open(void);

struct map_args {
    const float *x;
    float *y;
    float factor;
    long n;
};

CUdeviceptr device_floats(long n);
/* Pinned memory; element i is first + i. */
float *pinned_floats(long n, float first);
/* Zeros in a mapping that other processes could share. */
float *shared_floats(long n, int protection);
void launch(const char *kernel, CUstream stream, unsigned blocks, unsigned threads,
            unsigned shared_size, const void *args);
/* A kernel of kernels.cu on n elements, in blocks of 256 threads. */
void launch_map(const char *kernel, CUstream stream, CUdeviceptr x, CUdeviceptr y, float factor,
                long n);
/* waiter goes on when all that is enqueued in other has ended. */
void stream_follow(CUstream waiter, CUstream other);

struct scenario {
    const char *name;
    void (*run)(void);
};
extern const struct scenario bug_scenarios[], right_scenarios[], graph_scenarios[],
    registered_scenarios[];

#endif
