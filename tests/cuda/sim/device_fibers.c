/* Fibers: stacks that the one thread of the device process switches between. */
#include "tests/cuda/sim/device.h"
#include <stdlib.h>
#include <sys/mman.h>

#ifndef __x86_64__
#error "the simulated device is written for x86-64: switches and fault codes"
#endif

enum { STACK_SIZE = 256 << 10, GUARD_SIZE = SIM_PAGE };

struct fiber {
    void *stack_pointer;  /* where it stands */
    unsigned char *stack; /* its lowest page is the guard */
    struct fiber *next;
    void (*function)(void *);
    void *argument;
};
static struct fiber *free_fibers, *current;
static void *main_stack_pointer;

/* Saves the callee's registers on the stack, stores the stack pointer, and continues at another. */
void fiber_switch(void **ret_stack_pointer, void *stack_pointer);
__asm__(".text\n"
        ".type fiber_switch, @function\n"
        "fiber_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".size fiber_switch, .-fiber_switch\n");

static void fiber_entry(void) {
    current->function(current->argument);
    fiber_leave();
}

struct fiber *fiber_get(void) {
    struct fiber *fiber = free_fibers;
    if (fiber != NULL) {
        free_fibers = fiber->next;
        return fiber;
    }
    fiber = calloc(1, sizeof *fiber);
    if (fiber == NULL)
        abort();
    fiber->stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fiber->stack == MAP_FAILED || mprotect(fiber->stack, GUARD_SIZE, PROT_NONE) != 0)
        abort();
    return fiber;
}

void fiber_put(struct fiber *fiber) {
    fiber->next = free_fibers;
    free_fibers = fiber;
}

void fiber_start(struct fiber *fiber, void (*function)(void *), void *argument) {
    fiber->function = function;
    fiber->argument = argument;
    /* Six registers, then the address that the switch returns to. At its entry the stack is 8 bytes
     * off a multiple of 16, as after a call. */
    uint64_t *top = (uint64_t *)(fiber->stack + STACK_SIZE) - 3;
    top[-1] = (uint64_t)fiber_entry;
    for (int i = 2; i <= 7; i++)
        top[-i] = 0;
    fiber->stack_pointer = top - 7;
    fiber_resume(fiber);
}

void fiber_resume(struct fiber *fiber) {
    current = fiber;
    fiber_switch(&main_stack_pointer, fiber->stack_pointer);
    current = NULL;
}

void fiber_yield(void) { fiber_switch(&current->stack_pointer, main_stack_pointer); }

void fiber_leave(void) {
    void *nobody;
    fiber_switch(&nobody, main_stack_pointer);
    __builtin_unreachable();
}

bool fiber_is_running(void) { return current != NULL; }

bool fiber_is_guard(uint64_t address) {
    return current != NULL && address - (uint64_t)current->stack < GUARD_SIZE;
}
