/* Processes of the simulation: a coroutine each, which runs from one wait to the next. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/sim/sim.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define START_SWITCH(save, bottom, size) __sanitizer_start_switch_fiber((save), (bottom), (size))
#define FINISH_SWITCH(saved, bottom, size) \
    __sanitizer_finish_switch_fiber((saved), (bottom), (size))
#else
#define START_SWITCH(save, bottom, size) ((void)(save), (void)(bottom), (void)(size))
#define FINISH_SWITCH(saved, bottom, size) ((void)(saved), (void)(bottom), (void)(size))
#endif

enum { STACK_BYTES = 1 << 20, FIRST_PORT = 32768 };

struct job {
    struct list link;
    struct sim_process *process;
    int thread;
    void (*run)(void *arg);
    void *arg;
};

struct sim_process *sim_current;
int sim_thread;

static struct sim_process processes[SIM_MAX_PROCESSES];
static int n_processes;
static ucontext_t scheduler;
static struct {
    const void *bottom;
    size_t size;
    void *fake;
} main_stack; /* AddressSanitizer's names of the scheduler's own stack */

/* ---- switching ---- */

static void to_scheduler(struct sim_process *process, bool is_last) {
    START_SWITCH(is_last ? NULL : &process->fake_stack, main_stack.bottom, main_stack.size);
    swapcontext(&process->context, &scheduler);
    FINISH_SWITCH(process->fake_stack, &main_stack.bottom, &main_stack.size);
}

static void begin(void) {
    struct sim_process *process = sim_current;
    FINISH_SWITCH(NULL, &main_stack.bottom, &main_stack.size);
    process->main(process->arg);
    if (process->is_alive) {
        sim_trace("exits");
        process->is_alive = false;
        sim_sockets_of_dead(process, false);
    }
    to_scheduler(process, true);
}

/* Until it waits, or ends. */
static void resume(struct sim_process *process) {
    struct sim_process *before = sim_current;
    sim_current = process;
    sim_thread = 0;
    process->is_parked = false;
    process->n_parks++;
    START_SWITCH(&main_stack.fake, process->stack, STACK_BYTES);
    swapcontext(&scheduler, &process->context);
    FINISH_SWITCH(main_stack.fake, NULL, NULL);
    sim_current = before;
}

/* ---- waking ---- */

static void on_wake(void *arg, uint64_t park) {
    struct sim_process *process = arg;
    if (!process->is_alive || process->n_parks != park)
        return;
    if (process->is_stopped) {
        process->is_woken = true; /* stays; going on wakes it */
        return;
    }
    process->is_woken = false;
    resume(process);
}

/* A thread that is woken runs some microseconds later, and now and then much later: its core had
 * something else to do. */
static int64_t dispatch_ns(void) {
    return sim_chance(10) ? sim_between(100 * SIM_US, 8 * SIM_MS)
                          : sim_between(2 * SIM_US, 40 * SIM_US);
}

void sim_process_wake(struct sim_process *process, int64_t delay_ns) {
    if (!process->is_alive || !process->is_parked || process->is_woken)
        return;
    process->is_woken = true;
    sim_at(sim_now_ns() + delay_ns + dispatch_ns(), on_wake, process, process->n_parks);
}

/* The deadline's event is another one than that of a wake-up, and whichever comes first resumes. */
static void on_deadline(void *arg, uint64_t park) {
    struct sim_process *process = arg;
    if (process->n_parks == park)
        on_wake(process, park);
}

void sim_process_park(struct sim_loop *loop, int64_t deadline_ns) {
    struct sim_process *process = sim_current;
    CHECK(process && sim_thread == 0);
    process->is_woken = false;
    process->is_parked = process->is_alive;
    process->polling = loop;
    if (process->is_alive) {
        if (deadline_ns != INT64_MAX)
            sim_at(deadline_ns + dispatch_ns(), on_deadline, process, process->n_parks);
        if (loop && sim_loop_is_ready(loop))
            sim_process_wake(process, 0);
    }
    to_scheduler(process, false);
    process->polling = NULL;
}

void sim_sleep(int64_t ns) {
    int64_t until = sim_now_ns() + ns;
    while (sim_now_ns() < until)
        sim_process_park(NULL, until);
}

/* ---- threads ---- */

static void run_as(struct sim_process *process, int thread, void (*run)(void *arg), void *arg) {
    struct sim_process *before = sim_current;
    int thread_before = sim_thread;
    sim_current = process;
    sim_thread = thread;
    run(arg);
    sim_current = before;
    sim_thread = thread_before;
}

void sim_process_run(struct sim_process *process, int thread, void (*run)(void *arg), void *arg) {
    if (!process->is_alive)
        return;
    if (!process->is_stopped) {
        run_as(process, thread, run, arg);
        return;
    }
    struct job *job = xcalloc(1, sizeof(*job));
    *job = (struct job){.process = process, .thread = thread, .run = run, .arg = arg};
    list_push_back(&process->held, &job->link);
}

static void on_held_job(void *arg, uint64_t number) {
    struct job *job = arg;
    sim_process_run(job->process, job->thread, job->run, job->arg);
    free(job);
}

/* ---- life ---- */

struct sim_process *sim_process_at(int host) {
    for (int i = n_processes - 1; i >= 0; i--)
        if (processes[i].host == host && processes[i].is_alive)
            return &processes[i];
    return NULL;
}

bool sim_host_is_off(int host) {
    for (int i = n_processes - 1; i >= 0; i--)
        if (processes[i].host == host)
            return processes[i].has_vanished;
    return false;
}

static void on_begin(void *arg, uint64_t number) {
    struct sim_process *process = arg;
    if (process->is_alive)
        resume(process);
}

struct sim_process *sim_process_new(const char *name, int host, void (*main)(void *arg),
                                    void *arg) {
    CHECK(n_processes < SIM_MAX_PROCESSES && host < SIM_MAX_HOSTS);
    struct sim_process *process = &processes[n_processes];
    *process = (struct sim_process){.id = n_processes++,
                                    .host = host,
                                    .is_alive = true,
                                    .main = main,
                                    .arg = arg,
                                    .next_port = FIRST_PORT};
    snprintf(process->name, sizeof(process->name), "%s", name);
    list_init(&process->held);
    process->next_port += (uint16_t)sim_below(1000);
    process->clock_offset_us = sim_between(-200000, 200000);
    process->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(process->stack != MAP_FAILED && mprotect(process->stack, 4096, PROT_NONE) == 0);
    CHECK(getcontext(&process->context) == 0);
    process->context.uc_stack.ss_sp = process->stack;
    process->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&process->context, begin, 0);
    sim_trace("begin %s as process %d", process->name, process->id);
    sim_at(sim_now_ns() + sim_between(SIM_MS, 30 * SIM_MS), on_begin, process, 0);
    return process;
}

void sim_process_kill(struct sim_process *process, bool is_vanished) {
    if (!process->is_alive)
        return;
    sim_trace("%s %s", is_vanished ? "power cut of" : "kill", process->name);
    process->is_alive = process->is_stopped = process->is_parked = false;
    process->has_vanished = is_vanished;
    sim_sockets_of_dead(process, is_vanished);
}

void sim_process_stop(struct sim_process *process) {
    if (!process->is_alive || process->is_stopped)
        return;
    sim_trace("stop %s", process->name);
    process->is_stopped = true;
}

void sim_process_signal(struct sim_process *process, int signo) {
    if (!process->is_alive)
        return;
    sim_trace("signal %d to %s", signo, process->name);
    process->signal = signo;
    sim_process_wake(process, 0);
}

void sim_process_continue(struct sim_process *process) {
    if (!process->is_alive || !process->is_stopped)
        return;
    sim_trace("go on %s", process->name);
    process->is_stopped = false;
    struct list *link;
    while ((link = list_pop_front(&process->held)))
        sim_at(sim_now_ns() + dispatch_ns(), on_held_job, LIST_ENTRY(link, struct job, link), 0);
    process->is_woken = false;
    sim_process_wake(process, 0); /* it looks what there is, as after an interrupted wait */
}
