/* What operations of a stream do, and what becomes of their faults. */
#include "tests/cuda/sim/device.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

struct operation *running;

/* ---- copies, fills, blocks ---- */

static void run_copy_in(const struct sim_message *m) {
    if (pages_open(m->at, m->size, true))
        pinned_read(m->value, m->from, (void *)m->at, m->size);
}

static void run_copy_out(const struct sim_message *m) {
    if (pages_open(m->from, m->size, false))
        pinned_write(m->value, m->at, (const void *)m->from, m->size);
}

static void run_copy(const struct sim_message *m) {
    if (pages_open(m->from, m->size, false) && pages_open(m->at, m->size, true))
        memmove((void *)m->at, (const void *)m->from, m->size);
}

static void run_fill(const struct sim_message *m) {
    if (!pages_open(m->at, m->size, true))
        return;
    if (m->from == 1) {
        memset((void *)m->at, (int)m->value, m->size);
        return;
    }
    uint32_t *to = (uint32_t *)m->at;
    for (uint64_t i = 0; i < m->size / 4; i++)
        to[i] = (uint32_t)m->value;
}

static void run_host(const struct operation *operation) {
    const struct sim_host_operation *host = (const void *)operation->bytes;
    const uint64_t *ranges = (const void *)(host + 1);
    for (uint32_t i = 0; i < host->n_reads + host->n_writes; i++)
        if (!pages_open(ranges[2 * i], ranges[2 * i + 1], i >= host->n_reads))
            return;
    host_function_run(host->function, ranges + 2 * (host->n_reads + host->n_writes));
}

void operation_run(struct operation *operation) {
    const struct sim_message *m = &operation->message;
    running = operation;
    switch (m->command) {
    case SIM_KERNEL:
        grid_run((const struct sim_launch *)operation->bytes,
                 operation->bytes + sizeof(struct sim_launch));
        break;
    case SIM_HOST:
        run_host(operation);
        break;
    case SIM_COPY_IN:
        run_copy_in(m);
        break;
    case SIM_COPY_OUT:
        run_copy_out(m);
        break;
    case SIM_COPY:
        run_copy(m);
        break;
    case SIM_FILL:
        run_fill(m);
        break;
    case SIM_BLOCK_NEW:
    case SIM_BLOCK_FREED:
        if (!pages_set_block(m->at, m->size, m->command == SIM_BLOCK_NEW))
            device_fail(m->device, CUDA_ERROR_ILLEGAL_ADDRESS);
        break;
    default:
        break;
    }
    pages_close();
    running = NULL;
}

/* ---- faults ---- */

void operation_abandon(int error) {
    race_is_on = false;
    device_fail(running->message.device, error);
    fiber_leave();
}

static int fault_error;
static _Alignas(16) unsigned char scratch_stack[16384];
static void abandon_entry(void) { operation_abandon(fault_error); }

/* After the handler returns, the fiber is left, from another stack: the fiber's may be full. */
static void leave_after_handler(ucontext_t *context, int error) {
    fault_error = error;
    context->uc_mcontext.gregs[REG_RIP] = (greg_t)abandon_entry;
    context->uc_mcontext.gregs[REG_RSP] =
        (greg_t)((uint64_t)(scratch_stack + sizeof scratch_stack) - 24);
}

static int describe_fault(int signal, uint64_t address, bool is_write) {
    char where[160];
    grid_where(where, sizeof where);
    const char *name = name_text(running->name);
    if (signal == SIGFPE) {
        report("kernel \"%s\" divides an integer by zero (%s)", name, where);
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    if (fiber_is_guard(address)) {
        report("kernel \"%s\" needs more stack than a simulated thread has (%s)", name, where);
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    report("an illegal address: kernel \"%s\" (stream %u, operation %u) %s 0x%lx, which is no "
           "memory of its device (%s)",
           name, running->message.stream, running->message.clock, is_write ? "writes" : "reads",
           (unsigned long)address, where);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void on_fault(int signal, siginfo_t *info, void *opaque) {
    ucontext_t *context = opaque;
    uint64_t address = (uint64_t)info->si_addr;
    bool is_write = context->uc_mcontext.gregs[REG_ERR] & 2;
    if (signal == SIGSEGV && running != NULL && pages_is_device(address) &&
        pages_fault(address, is_write))
        return;
    if (running == NULL || !fiber_is_running()) { /* a mistake of the simulator's */
        struct sigaction plain = {.sa_handler = SIG_DFL};
        sigaction(signal, &plain, NULL);
        return;
    }
    leave_after_handler(context, describe_fault(signal, address, is_write));
}

bool faults_init(void) {
    static unsigned char stack[65536];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = on_fault,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    return sigaltstack(&alternate, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0 &&
           sigaction(SIGBUS, &action, NULL) == 0 && sigaction(SIGFPE, &action, NULL) == 0;
}
