/* The threads of the block that runs, shared by device_grid.c and device_warps.c. */
#ifndef MILLRACE_TESTS_CUDA_SIM_DEVICE_GRID_H
#define MILLRACE_TESTS_CUDA_SIM_DEVICE_GRID_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_THREADS = 1024, WARP = 32 };

struct uint3 {
    unsigned x, y, z;
};

enum thread_state { THREAD_READY, THREAD_AT_BARRIER, THREAD_IN_WARP, THREAD_ENDED };

struct thread {
    struct uint3 index; /* first: device_runtime.h reads it as threadIdx */
    uint32_t number;
    enum thread_state state;
    struct fiber *fiber; /* NULL: has not begun, or has ended */
    const char *file;    /* where it waits */
    int line;
    uint32_t epoch;      /* barriers passed */
    uint16_t warp_epoch; /* __syncwarp passed */
    /* Its part in a warp operation. */
    uint32_t kind, mask;
    unsigned long value, result;
    int source;
};

struct grid {
    const struct kernel *kernel;
    const void *arguments;
    uint32_t n_threads, n_ended;
    bool is_abandoned; /* a fault ended it */
    bool is_divergence_reported;
    unsigned char *dynamic;
    uint32_t dynamic_size;
};
extern struct grid grid;

/* The running thread. */
extern struct thread *sim_thread;

struct thread *grid_thread(uint32_t number);
void grid_make_ready(struct thread *thread);
/* Lets others run until somebody makes the running thread ready again. */
void grid_wait(enum thread_state state);

/* ---- device_warps.c ---- */

void warps_init(void);
/* The rest of its warp no longer waits for the thread. */
void warp_thread_ended(const struct thread *thread);

/* What device_runtime.h calls. */
extern struct uint3 sim_block, sim_block_size, sim_grid_size;
void sim_barrier(const char *file, int line);
void sim_warp_barrier(unsigned mask, const char *file, int line);
unsigned long sim_shuffle(unsigned mask, unsigned long value, int source, const char *file,
                          int line);
unsigned sim_match(unsigned mask, unsigned long value, const char *file, int line);
unsigned sim_ballot(unsigned mask, int predicate, const char *file, int line);
unsigned sim_lane(void);
unsigned sim_active_mask(void);
void *sim_dynamic_shared(void);
void sim_assert_failed(const char *what, const char *file, int line);

#endif
