/* Pinned memory of the host, as the device's copies see it. Allocated memory is a file that both
 * processes map; registered memory is reached through the kernel's process_vm calls. */
#include "tests/cuda/sim/device_access.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

struct pinned {
    uint64_t size;
    unsigned char *memory;     /* NULL: registered */
    uint64_t host_address;     /* as the library's program knows it */
    uint64_t transfer_address; /* of registered memory: where the library's process has it open */
    struct access_history *pages;
};
static struct pinned pinned[SIM_MAX_PINNED];

void pinned_add(const struct sim_message *message, int file) {
    struct pinned *range = &pinned[message->value];
    *range = (struct pinned){
        .size = message->size, .host_address = message->at, .transfer_address = message->from};
    range->pages = calloc(message->size / SIM_PAGE + 1, sizeof *range->pages);
    if (file >= 0) {
        range->memory = mmap(NULL, message->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    }
    if (range->pages == NULL || range->memory == MAP_FAILED)
        abort();
}

void pinned_remove(uint64_t number) {
    struct pinned *range = &pinned[number];
    if (range->memory != NULL)
        munmap(range->memory, range->size);
    free(range->pages);
    *range = (struct pinned){0};
}

/* A page counts as used by a copy that covers its first byte: blocks of pinned memory begin on
 * pages of their own, and a block that ends on a page does not own the rest of it. */
static void note(struct pinned *range, uint64_t offset, size_t size, bool is_write) {
    if (!settings.is_checked)
        return;
    for (uint64_t p = (offset + SIM_PAGE - 1) / SIM_PAGE; p * SIM_PAGE < offset + size; p++)
        access_note(&range->pages[p], range->host_address + p * SIM_PAGE, is_write);
}

typedef ssize_t transfer_function(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                                  unsigned long, unsigned long);

/* Moves bytes between this process and registered memory of the library's. */
static void transfer(transfer_function *call, uint64_t there_at, void *own, size_t size) {
    while (size > 0) {
        struct iovec here = {own, size}, there = {(void *)there_at, size};
        ssize_t n = call(getppid(), &here, 1, &there, 1, 0);
        if (n <= 0) {
            report("registered memory at 0x%lx cannot be reached: %s", (unsigned long)there_at,
                   strerror(errno));
            device_fail(running->message.device, CUDA_ERROR_ILLEGAL_ADDRESS);
            return;
        }
        own = (char *)own + n;
        there_at += (uint64_t)n;
        size -= (size_t)n;
    }
}

void pinned_read(uint64_t number, uint64_t offset, void *to, size_t size) {
    struct pinned *range = &pinned[number];
    note(range, offset, size, false);
    if (range->memory == NULL)
        transfer(process_vm_readv, range->transfer_address + offset, to, size);
    else
        memcpy(to, range->memory + offset, size);
}

void pinned_write(uint64_t number, uint64_t offset, const void *from, size_t size) {
    struct pinned *range = &pinned[number];
    note(range, offset, size, true);
    if (range->memory == NULL)
        transfer(process_vm_writev, range->transfer_address + offset, (void *)from, size);
    else
        memcpy(range->memory + offset, from, size);
}
