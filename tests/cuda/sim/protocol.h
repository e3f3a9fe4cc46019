/* The messages between libcuda.so.1 and the device process, over a Unix socket of sequenced
 * packets. A message is a struct and the bytes behind it. The library numbers the operations of
 * each stream from 1 (their clock), so both ends name an operation by (stream, clock). */
#ifndef MILLRACE_TESTS_CUDA_SIM_PROTOCOL_H
#define MILLRACE_TESTS_CUDA_SIM_PROTOCOL_H

#include <stdint.h>

enum {
    SIM_MAX_DEVICES = 8,
    SIM_MAX_STREAMS = 64, /* at one time */
    SIM_MAX_EVENTS = 65536,
    SIM_MAX_PINNED = 65536, /* pinned and registered ranges */
    SIM_PAGE = 4096,
    SIM_MAX_MESSAGE = 65536,
    SIM_SOCKET = 3, /* the device process' descriptors */
    SIM_MEMORY = 4, /* and one more for each device */
};
#define SIM_DEVICE_SPAN (32ull << 30) /* addresses of each device */

enum sim_command {
    /* Memory. device, at: address, size, from: offset in the device's memory file. */
    SIM_MAP,         /* value: 1: the device may use it at once */
    SIM_UNMAP,       /* value: 1: a free, which waits for all operations */
    SIM_SET_ACCESS,  /* value: 0: no access for the device, 1: access */
    SIM_ENABLE_PEER, /* value: the device whose plain allocations become usable */
    /* Pinned memory. value: its number, size, at: the library's address. A file comes along, or
     * from: the address at which the library's process has registered memory open. */
    SIM_PIN,
    SIM_REGISTER,
    SIM_UNPIN,
    /* Operations of a stream. */
    SIM_KERNEL,   /* bytes: struct sim_launch, arguments */
    SIM_HOST,     /* bytes: struct sim_host_operation, ranges, arguments */
    SIM_COPY_IN,  /* at: to, from: offset in pinned memory value, size */
    SIM_COPY_OUT, /* at: offset in pinned memory value, from, size */
    SIM_COPY,     /* at: to, from, size; value 1: between devices */
    SIM_FILL,     /* at, size: bytes, from: width 1 or 4, value */
    SIM_RECORD,   /* event */
    SIM_WAIT,     /* event */
    SIM_NOTHING,
    SIM_BLOCK_NEW,   /* at, size */
    SIM_BLOCK_FREED, /* at, size */
    /* Requests, which are answered. */
    SIM_HELLO,
    SIM_FIND_KERNEL,  /* bytes: a name. The answer: its number; value: the size of its arguments */
    SIM_LOAD_KERNELS, /* bytes: the path of a shared object */
    SIM_FIND_HOST,    /* bytes: a name. The answer: its number */
    SIM_SYNCHRONIZE,  /* stream, clock: until this operation has ended. value 1: do not wait */
    SIM_SYNCHRONIZE_DEVICE,
    SIM_ELAPSED, /* events at and from. The answer: nanoseconds */
    /* When did the operation (stream, clock) run? The answer: value to value2, nanoseconds of the
     * monotonic clock; 0: it has not ended. Times are kept from the first SIM_TIME with value 1. */
    SIM_TIME,
    SIM_RESET, /* device */
    SIM_FAIL,  /* device, value: its error from now on */
    SIM_HOLD,  /* value 1: nothing runs until value 0 */
};

struct sim_message {
    uint32_t command, device;
    uint32_t stream, clock; /* the operation */
    uint32_t event;
    uint32_t n_bytes; /* behind the struct */
    uint64_t request; /* returned in the answer */
    uint64_t at, from, size, value;
};

struct sim_launch {
    uint32_t kernel;
    uint32_t grid[3], block[3];
    uint32_t shared_size;
};

struct sim_host_operation {
    uint32_t function;
    uint32_t n_reads, n_writes, padding;
};

enum sim_answer_kind {
    SIM_ANSWER, /* to a request */
    SIM_REPORT, /* a mistake was found: bytes are its text */
    SIM_ERROR,  /* device has the sticky error result */
};

struct sim_answer {
    uint32_t kind;
    int32_t result; /* a CUresult */
    uint32_t device;
    uint32_t n_bytes;
    uint64_t request, value, value2;
    /* Of each stream the last operation that the host knows to have ended. */
    uint32_t host_clocks[SIM_MAX_STREAMS];
};

#endif
