/* The parts of the simulated libcuda.so.1 and what they share. Files in reading order:
 * driver_calls.c (every call begins there), driver_link.c (the device process), driver_devices.c,
 * driver_ranges.c, driver_memory.c, driver_shared.c, driver_pinned.c, driver_registered.c,
 * driver_streams.c, driver_kernels.c, driver_graphs.c, driver_watch.c, driver_blas.c (cuBLASLt, in
 * the same library), driver_dnn.c (cuDNN). All functions of the API may be called by any thread. */
#ifndef MILLRACE_TESTS_CUDA_SIM_DRIVER_H
#define MILLRACE_TESTS_CUDA_SIM_DRIVER_H

#include "kernels/cuda/driver_api.h"
#include "tests/cuda/sim/protocol.h"
#include "tests/cuda/sim/sim.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Every exported function of the API, as the table of calls declares it. */
#define EXPORTED __attribute__((visibility("default")))
#define DRIVER_CALL(name, symbol, arguments) EXPORTED CUresult symbol arguments;
#include "kernels/cuda/driver_calls.inc"

/* ---- calls (driver_calls.c) ---- */

enum call {
#define DRIVER_CALL(name, symbol, arguments) CALL_##symbol,
#include "kernels/cuda/driver_calls.inc"
#define BLAS_CALL(name, arguments) CALL_##name,
#include "kernels/cuda/blas_calls.inc"
#define DNN_CALL(name, arguments) CALL_##name,
#include "kernels/cuda/dnn_calls.inc"
#define COMPILER_CALL(name, arguments) CALL_##name,
#include "kernels/cuda/compiler_calls.inc"
    N_CALLS
};

/* Counts the call. Returns the error that it was told to fail with, or CUDA_ERROR_NOT_INITIALIZED.
 */
CUresult call_begin(enum call call);
int call_find(const char *symbol); /* by its exported symbol or its name; -1: there is none */
#define BEGIN(symbol)                               \
    do {                                            \
        CUresult begun = call_begin(CALL_##symbol); \
        if (begun != CUDA_SUCCESS)                  \
            return begun;                           \
    } while (0)
/* The same for a library's call, which returns an int. */
#define BEGIN_LIBRARY(symbol)                       \
    do {                                            \
        CUresult begun = call_begin(CALL_##symbol); \
        if (begun != CUDA_SUCCESS)                  \
            return (int)begun;                      \
    } while (0)
/* The same for a call that gives an object of the heap back. If it fails, the object is kept where
 * LeakSanitizer finds it, because the caller cannot give it back any more. */
CUresult call_begin_destroy(enum call call, void *object);
#define BEGIN_DESTROY(symbol, object)                               \
    do {                                                            \
        CUresult begun = call_begin_destroy(CALL_##symbol, object); \
        if (begun != CUDA_SUCCESS)                                  \
            return begun;                                           \
    } while (0)
#define TRY(expression)                \
    do {                               \
        CUresult tried = (expression); \
        if (tried != CUDA_SUCCESS)     \
            return tried;              \
    } while (0)

/* Reads MILLRACE_SIM_FAIL, the first time. */
CUresult calls_init(void);

/* ---- devices and contexts (driver_devices.c) ---- */

struct sim {
    atomic_bool is_initialized;
    bool is_null;                  /* no device process, calls return at once */
    int n_devices;                 /* that this process sees */
    int physical[SIM_MAX_DEVICES]; /* which of the host's devices each of them is */
    uint64_t base, memory;
    const char *name;
    bool has_peers;      /* devices can use each other's memory */
    bool rounds_to_tf32; /* products and convolutions that may do so */
    int memory_files[SIM_MAX_DEVICES];
};
extern struct sim sim;

/* ---- driver_visible.c ---- */
/* The devices of a CUDA_VISIBLE_DEVICES, as numbers of the host's; returns how many. */
int devices_visible(const char *list, int n_physical, int *ret_physical);
void device_uuid(int physical, CUuuid *ret_uuid);

struct CUctx_st {
    int device;
    int n_retained;
    unsigned flags;
    bool peers[SIM_MAX_DEVICES]; /* whose memory its kernels may use */
};

/* The thread's context, and no sticky error; else the error. */
CUresult context_now(struct CUctx_st **ret_context);
extern atomic_int device_errors[SIM_MAX_DEVICES]; /* sticky */

/* ---- the device process (driver_link.c) ---- */

/* Starts the process. */
CUresult link_start(void);
/* Messages are sent in the order of the lock, which also guards what numbers them: the clocks of
 * streams, all tables of the library. */
void link_lock(void);
void link_unlock(void);
/* Sends under the lock; file -1: none. A device that is lost shows in device_errors. */
void link_send(const struct sim_message *message, const void *bytes, int file);
/* Sends under the lock, releases it, waits for the answer. */
CUresult link_request(struct sim_message *message, const void *bytes, struct sim_answer *answer);
void link_report(const char *text);
/* Kills the process, and returns when all devices are lost. */
void link_kill(void);
/* Moves a descriptor away from the numbers that the process is given. -1: it is none. */
int file_moved(int file);

/* ---- ranges of addresses (driver_ranges.c) ---- */

struct range {
    uint64_t start, size;
    void *data;
};
struct ranges {
    struct range *list; /* sorted, without overlaps */
    size_t n, max;
};
/* The range that has the address; NULL: none. Valid until the next change. */
struct range *ranges_find(const struct ranges *ranges, uint64_t address);
/* False: it overlaps, or memory is out. */
bool ranges_add(struct ranges *ranges, struct range range);
void ranges_remove(struct ranges *ranges, uint64_t start);
/* The lowest gap in [from, to) of a size, at a multiple of alignment. False: none. */
bool ranges_find_gap(const struct ranges *ranges, uint64_t from, uint64_t to, uint64_t size,
                     uint64_t alignment, uint64_t *ret_start);
void ranges_clear(struct ranges *ranges);

/* ---- memory (driver_memory.c, driver_shared.c, driver_pinned.c) ---- */

/* Forgets all memory of a device, after a reset. Under the lock. */
void memory_reset(int device);

/* Opens what MILLRACE_SIM_SHARED names (driver_shared.c). */
CUresult shared_init(void);
/* False: this process and those that it shares the device with would hold more than there is. The
 * functions that follow are called under the lock. */
bool shared_take(int device, uint64_t size);
void shared_give_back(int device, uint64_t size);
uint64_t shared_used_by_others(int device);

/* Finds a range of pinned memory. False: some of it is not. Under the lock. */
bool pinned_find(const void *pointer, size_t size, uint64_t *ret_number, uint64_t *ret_offset);
/* May the device write to pinned memory? Not to what was registered as READ_ONLY. */
bool pinned_may_write(const void *pointer);
/* Before a copy: reports registered memory whose pages were given back. */
void pinned_check_pages(const void *pointer);
/* Protects a range while a copy is under way, until the host knows that the operation has ended. */
void pinned_protect(const void *pointer, size_t size, bool is_written, const struct sim_message *m);
/* Lifts the protection of all copies that have ended as the clocks say; of a device's copies. */
void pinned_release(const uint32_t *host_clocks);
void pinned_release_device(uint32_t device);
/* From now on a fault on memory that a copy uses, or on device memory, is told before it ends the
 * process as it would without the simulator. */
void host_faults_init(void);

/* ---- streams (driver_streams.c) ---- */

struct CUstream_st {
    uint32_t magic, number;
    int device, priority;
    struct CUstream_st *next;
    struct CUgraph_st *capture; /* what it captures; NULL: nothing */
    bool is_capture_invalid;
    unsigned capture_mode;
    pthread_t capture_thread;
};
/* Sends an operation of a stream, with the stream's next number. On success the lock is held and
 * message is complete: the caller does what belongs to the operation, sends and unlocks. */
CUresult stream_begin(CUstream stream, enum sim_command command, struct sim_message *message);
void stream_finish(const struct sim_message *message, const void *bytes);
/* The stream is one, of the context unless that is NULL. */
CUresult stream_check(CUstream stream, const struct CUctx_st *context);
/* Forgets the streams and events of a device. Under the lock. */
void streams_reset(int device);

/* ---- watching (driver_watch.c) ---- */

/* An operation of a stream was sent. Without the lock. */
void watch_operation(const struct sim_message *message, const void *bytes);
/* Until watch_graph_end, the thread's operations are those of one launch of a graph. */
void watch_graph_begin(void);
void watch_graph_node(uint64_t number);
void watch_graph_end(void);

/* ---- kernels (driver_kernels.c) ---- */

/* The name of a kernel by the device process' number; NULL: there is none. */
const char *kernel_name(uint32_t number);

/* What the code of a program that was compiled at run time begins with. */
#define SIM_CODE_MARK "SIM-CODE:"

/* The bytes of SIM_KERNEL: a struct sim_launch and arguments, malloc'd. */
CUresult kernel_bytes(const CUlaunchConfig *config, CUfunction function, void **arguments,
                      void **extra, void **ret, uint32_t *ret_size);

/* ---- graphs (driver_graphs.c) ---- */

/* Called for each call: a call that is not allowed while the thread captures invalidates the
 * capture, and fails. */
CUresult capture_allows(enum call call);
/* The stream captures: may the operation be captured? If not, the capture becomes invalid. */
CUresult capture_check(CUstream stream, enum sim_command command);
/* Adds an operation to what the stream with the message's number captures. False: it captures
 * nothing. Under the lock. */
bool capture_add(const struct sim_message *message, const void *bytes);
/* The last captured operation of a stream is a copy to this pinned memory. Under the lock. */
void capture_name_host(CUstream stream, void *host);
/* What this thread captures from now on uses a plan; 0: none. */
void capture_name_plan(uint32_t plan);
/* Has a plan not been destroyed (driver_dnn.c)? */
bool dnn_plan_is_there(uint32_t plan);
/* The stream is destroyed, and with it what it captures. Under the lock. */
void capture_drop(CUstream stream);
/* The stream captures, and cannot be waited for. */
CUresult capture_refuse(CUstream stream);

#endif
