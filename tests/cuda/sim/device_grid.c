/* Runs a kernel: block after block in drawn order, the threads of a block as fibers that run in
 * drawn order from one barrier or warp operation to the next. */
#include "tests/cuda/sim/device_grid.h"
#include "tests/cuda/sim/device.h"
#include "tests/cuda/sim/device_kernels.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { DYNAMIC_MAX = 256 << 10 };

struct uint3 sim_block, sim_block_size, sim_grid_size;
struct thread *sim_thread;

struct grid grid;
static struct thread threads[MAX_THREADS];

/* What may run now. */
static uint32_t ready[MAX_THREADS];
static uint32_t n_ready;

void grid_make_ready(struct thread *thread) {
    thread->state = THREAD_READY;
    ready[n_ready++] = thread->number;
}

struct thread *grid_thread(uint32_t number) {
    return number < grid.n_threads ? &threads[number] : NULL;
}

void grid_where(char *text, size_t size) {
    if (sim_thread == NULL) {
        snprintf(text, size, "outside of a kernel's threads");
        return;
    }
    snprintf(text, size, "thread (%u, %u, %u) of block (%u, %u, %u)", sim_thread->index.x,
             sim_thread->index.y, sim_thread->index.z, sim_block.x, sim_block.y, sim_block.z);
}

/* ---- threads ---- */

static void thread_main(void *opaque) {
    struct thread *thread = opaque;
    grid.kernel->entry->call(grid.arguments);
    thread->state = THREAD_ENDED;
}

/* Runs a thread until it ends or waits. */
static void thread_run(struct thread *thread) {
    sim_thread = thread;
    race_position.thread = (uint16_t)thread->number;
    race_position.epoch = thread->epoch;
    race_position.warp_epoch = thread->warp_epoch;
    race_is_on = true;
    if (thread->fiber == NULL) {
        thread->fiber = fiber_get();
        fiber_start(thread->fiber, thread_main, thread);
    } else {
        fiber_resume(thread->fiber);
    }
    race_is_on = false;
    if (grid.is_abandoned)
        return;
    if (thread->state == THREAD_ENDED) {
        fiber_put(thread->fiber);
        thread->fiber = NULL;
        grid.n_ended++;
        warp_thread_ended(thread);
    }
}

void grid_wait(enum thread_state state) {
    sim_thread->state = state;
    race_is_on = false;
    fiber_yield();
    race_is_on = true;
}

void sim_barrier(const char *file, int line) {
    sim_thread->file = file;
    sim_thread->line = line;
    grid_wait(THREAD_AT_BARRIER);
}

static void report_divergence(const struct thread *a, const struct thread *b) {
    report("a divergent barrier: in kernel \"%s\" thread %u waits at %s:%d, and thread %u %s%s:%d",
           grid.kernel->name, a->number, a->file, a->line, b->number,
           b->state == THREAD_ENDED ? "has ended, so never comes to " : "waits at ",
           b->state == THREAD_ENDED ? a->file : b->file,
           b->state == THREAD_ENDED ? a->line : b->line);
}

/* Nothing is ready. True: all threads that have not ended are at a barrier, and go on. */
static bool barrier_release(void) {
    const struct thread *first = NULL, *other = NULL, *stuck = NULL;
    for (uint32_t t = 0; t < grid.n_threads; t++) {
        struct thread *thread = &threads[t];
        if (thread->state == THREAD_IN_WARP)
            stuck = thread;
        else if (thread->state == THREAD_AT_BARRIER && first == NULL)
            first = thread;
    }
    if (stuck != NULL) {
        report("a divergent warp operation: in kernel \"%s\" thread %u waits at %s:%d for lanes "
               "that never come",
               grid.kernel->name, stuck->number, stuck->file, stuck->line);
        return false;
    }
    for (uint32_t t = 0; t < grid.n_threads && other == NULL; t++)
        if (threads[t].state == THREAD_ENDED || threads[t].line != first->line ||
            strcmp(threads[t].file, first->file) != 0)
            other = &threads[t];
    if (other != NULL && !grid.is_divergence_reported) {
        grid.is_divergence_reported = true;
        report_divergence(first, other);
    }
    for (uint32_t t = 0; t < grid.n_threads; t++)
        if (threads[t].state == THREAD_AT_BARRIER) {
            threads[t].epoch++;
            grid_make_ready(&threads[t]);
        }
    return true;
}

/* ---- blocks ---- */

static void *static_shared(const struct kernel *kernel) {
    struct {
        unsigned long module, offset;
    } index = {kernel->tls_module, 0};
    extern void *__tls_get_addr(void *);
    return kernel->tls_size == 0 ? NULL : __tls_get_addr(&index);
}

static unsigned char *dynamic_memory; /* a page that is never open follows */

void *sim_dynamic_shared(void) { return grid.dynamic; }

static void block_init(uint32_t number) {
    struct uint3 *size = &sim_grid_size;
    sim_block =
        (struct uint3){number % size->x, number / size->x % size->y, number / size->x / size->y};
    race_position.block = number;
    void *shared = static_shared(grid.kernel);
    if (shared != NULL)
        memset(shared, 0xff, grid.kernel->tls_size);
    memset(grid.dynamic, 0xff, grid.dynamic_size);
    races_set_shared(shared, grid.kernel->tls_size, grid.dynamic, grid.dynamic_size);
    grid.n_ended = n_ready = 0;
    warps_init();
    for (uint32_t t = 0; t < grid.n_threads; t++) {
        struct thread *thread = &threads[t];
        thread->number = t;
        thread->epoch = thread->warp_epoch = 0;
        grid_make_ready(thread);
    }
}

static void block_run(uint32_t number) {
    block_init(number);
    while (!grid.is_abandoned) {
        if (n_ready == 0 && grid.n_ended == grid.n_threads)
            return;
        if (n_ready == 0 && !barrier_release()) {
            device_fail(running->message.device, CUDA_ERROR_LAUNCH_FAILED);
            grid.is_abandoned = true;
            return;
        }
        uint32_t at = (uint32_t)draw(n_ready), chosen = ready[at];
        ready[at] = ready[--n_ready];
        thread_run(&threads[chosen]);
        grid.is_abandoned |= device_errors[running->message.device] != 0;
    }
}

/* The blocks in drawn order; one after another where there are very many. */
static void blocks_run(uint32_t n) {
    enum { MAX_DRAWN = 1 << 20 };
    uint32_t *order = n <= MAX_DRAWN ? malloc(n * sizeof *order) : NULL;
    if (order == NULL) {
        for (uint32_t i = 0; i < n && !grid.is_abandoned; i++)
            block_run(i);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i > 0 && !grid.is_abandoned; i--) {
        uint32_t j = (uint32_t)draw(i), block = order[j];
        order[j] = order[i - 1];
        block_run(block);
    }
    free(order);
}

static void dynamic_init(uint32_t size) {
    if (dynamic_memory == NULL) {
        dynamic_memory = mmap(NULL, DYNAMIC_MAX + SIM_PAGE, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (dynamic_memory == MAP_FAILED ||
            mprotect(dynamic_memory + DYNAMIC_MAX, SIM_PAGE, PROT_NONE) != 0)
            abort();
    }
    grid.dynamic_size = (size + 15) & ~15u;
    grid.dynamic = dynamic_memory + DYNAMIC_MAX - grid.dynamic_size;
}

void grid_run(const struct sim_launch *launch, const void *arguments) {
    const uint32_t *g = launch->grid, *b = launch->block;
    sim_grid_size = (struct uint3){g[0], g[1], g[2]};
    sim_block_size = (struct uint3){b[0], b[1], b[2]};
    grid = (struct grid){.kernel = kernels_at(launch->kernel),
                         .arguments = arguments,
                         .n_threads = b[0] * b[1] * b[2]};
    dynamic_init(launch->shared_size);
    for (uint32_t t = 0; t < grid.n_threads; t++) {
        threads[t].index = (struct uint3){t % b[0], t / b[0] % b[1], t / b[0] / b[1]};
        threads[t].fiber = NULL;
    }
    races_launch_begin((const void *)grid.kernel->entry->call);
    blocks_run(g[0] * g[1] * g[2]);
    for (uint32_t t = 0; t < grid.n_threads; t++) /* of an abandoned kernel */
        if (threads[t].fiber != NULL)
            fiber_put(threads[t].fiber);
    sim_thread = NULL;
    races_launch_end();
}

void sim_assert_failed(const char *what, const char *file, int line) {
    char where[160];
    grid_where(where, sizeof where);
    report("an assertion failed: %s at %s:%d in kernel \"%s\" (%s)", what, file, line,
           grid.kernel->name, where);
    operation_abandon(CUDA_ERROR_ASSERT);
}
