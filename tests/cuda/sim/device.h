/* The parts of the device process and what they share. One thread; the files in reading order:
 * device_main.c (the loop), device_streams.c (queues, order), device_clocks.c (what is ordered by
 * what), device_pages.c (memory), device_operations.c (what operations do), device_grid.c and
 * device_fibers.c (kernels), device_races.c (accesses inside kernels, told by
 * device_instrumentation.c), device_reports.c. */
#ifndef MILLRACE_TESTS_CUDA_SIM_DEVICE_H
#define MILLRACE_TESTS_CUDA_SIM_DEVICE_H

#include "kernels/cuda/driver_api.h"
#include "tests/cuda/sim/protocol.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the process (device_main.c) ---- */

struct device_settings {
    int n_devices;
    uint64_t base; /* the address of the first device's memory */
    uint64_t seed;
    enum { ORDER_DRAWN, ORDER_LAZY, ORDER_EAGER } order;
    bool is_checked; /* missing waits are searched for */
};
extern struct device_settings settings;

/* Draws a number below n, which is at least 1. */
uint64_t draw(uint64_t n);

void answer_send(struct sim_answer *answer, const void *bytes);

/* ---- reports (device_reports.c) ---- */

/* Tells the library of a mistake. The text is one line. */
void report(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Interned names, so that an access remembers its operation's in 24 bits. */
uint32_t name_intern(const char *name);
const char *name_text(uint32_t name);

/* "file:line" of an address in a shared object of kernels, or its offset. */
void source_of(const void *address, char *text, size_t size);

/* ---- clocks (device_clocks.c) ---- */

/* Operation number of[s] of stream s, and all before it, happen before. */
struct clocks {
    uint32_t of[SIM_MAX_STREAMS];
};
extern struct clocks host_clocks; /* what the host has waited for */
void clocks_join(struct clocks *clocks, const struct clocks *other);

/* ---- streams (device_streams.c) ---- */

struct operation {
    struct sim_message message;
    struct clocks clocks;               /* what is ordered before it, and itself */
    uint32_t waits_stream, waits_clock; /* of SIM_WAIT: the operation that was recorded */
    uint32_t name;
    struct operation *next;
    _Alignas(16) unsigned char bytes[];
};

void stream_enqueue(const struct sim_message *message, const void *bytes);
/* Runs what has to run, in an order that is drawn, until the operation has ended. */
void stream_run_until(uint32_t stream, uint32_t clock);
bool stream_has_ended(uint32_t stream, uint32_t clock);
/* Runs some operations, or none, as drawn. True: operations are left. */
bool streams_run_some(void);
/* Runs one operation: any; or one that the stream needs to go on. */
void streams_run_one(void);
void stream_run_one_for(uint32_t stream);
/* Runs all that is enqueued for a device. */
void streams_run_device(uint32_t device);
/* Drops all operations of a device. */
void streams_drop(uint32_t device);
/* The clocks after the last operation that was enqueued; for all streams of the device. */
struct clocks streams_clocks_after(uint32_t device);
struct clocks stream_clocks(uint32_t stream);
struct clocks event_clocks(uint32_t event);
uint64_t event_elapsed_ns(uint32_t start, uint32_t end);
/* From now on times are kept. False: the operation has not ended, or before that. */
void streams_keep_times(void);
bool stream_time(uint32_t stream, uint32_t clock, uint64_t *ret_start_ns, uint64_t *ret_end_ns);
/* The device's sticky error; 0: none. */
extern int device_errors[SIM_MAX_DEVICES];
extern bool devices_are_held; /* nothing runs */
void device_fail(uint32_t device, int error);

/* ---- memory (device_pages.c) ---- */

bool pages_init(void);
void pages_map(const struct sim_message *message);
void pages_unmap(const struct sim_message *message);
void pages_set_access(uint64_t start, uint64_t size, uint32_t device, bool may);
void pages_enable_peer(uint32_t device, uint32_t owner);
void pages_reset(uint32_t device);
/* Opens a range for the running operation and notes the access. False: it is not all usable; then
 * the operation has failed. */
bool pages_open(uint64_t start, uint64_t size, bool is_write);
/* Notes that a range becomes a new block, or is none any more. */
bool pages_set_block(uint64_t start, uint64_t size, bool is_block);
/* Closes all that the operation has opened. */
void pages_close(void);
/* Called for a fault: true: the page is open now, the access may be repeated. */
bool pages_fault(uint64_t address, bool is_write);
bool pages_is_device(uint64_t address);
/* False: the access reaches past the end of a block whose last page it is in. */
bool pages_is_inside(uint64_t address, size_t size);

/* Pinned memory, by its number. */
void pinned_add(const struct sim_message *message, int file);
void pinned_remove(uint64_t number);
/* Copies between device memory, which is open, and pinned memory, and notes the access there. When
 * the memory cannot be reached, the device fails. */
void pinned_read(uint64_t number, uint64_t offset, void *to, size_t size);
void pinned_write(uint64_t number, uint64_t offset, const void *from, size_t size);

/* ---- operations and kernels (device_operations.c, device_grid.c) ---- */

extern struct operation *running; /* NULL: none */
void operation_run(struct operation *operation);
/* Ends the running operation from inside, with a sticky error. Never returns. */
void operation_abandon(int error) __attribute__((noreturn));

bool faults_init(void);

bool kernels_load(const char *paths);
int kernels_find(const char *name, uint64_t *ret_size);
int host_functions_find(const char *name);
const char *kernels_name(uint32_t kernel);
const char *host_functions_name(uint32_t function);
void grid_run(const struct sim_launch *launch, const void *arguments);
void host_function_run(uint32_t function, const void *arguments);
/* Says which thread of which block runs now, for reports. */
void grid_where(char *text, size_t size);

/* ---- fibers (device_fibers.c) ---- */

struct fiber; /* a stack that runs one function at a time */
struct fiber *fiber_get(void);
void fiber_put(struct fiber *fiber);
/* Runs the fiber from where it stands, or from the beginning of function, until it yields or its
 * function returns. */
void fiber_start(struct fiber *fiber, void (*function)(void *), void *argument);
void fiber_resume(struct fiber *fiber);
void fiber_yield(void);
/* Leaves the running fiber for good. */
void fiber_leave(void) __attribute__((noreturn));
bool fiber_is_running(void);
/* Is the address in the guard page below a fiber's stack? */
bool fiber_is_guard(uint64_t address);

/* ---- accesses inside kernels (device_races.c; called by device_instrumentation.c) ---- */

/* Who runs: for every access. Kept by the grid. */
struct race_position {
    uint32_t launch, block; /* numbers; block 0 is the first */
    uint32_t epoch;         /* barriers that the thread has passed */
    uint16_t thread, warp_epoch;
};
extern struct race_position race_position;
extern bool race_is_on;                     /* a thread of a kernel runs */
void races_launch_begin(const void *entry); /* an address in the kernel's object */
void races_launch_end(void);
/* The running thread's access to device or shared memory. One out of bounds does not return. */
void race_note(uint64_t address, size_t size, bool is_write, bool is_atomic, const void *code);
void race_note_fence(void);
/* Where the block's shared memory is. */
void races_set_shared(const void *static_start, size_t static_size, const void *dynamic_start,
                      size_t dynamic_size);

#endif
