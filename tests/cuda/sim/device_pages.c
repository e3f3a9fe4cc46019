/* The devices' memory, page by page: which pages exist, who has used them, and which are open. All
 * pages are closed before each operation, so faults tell what a kernel reads and writes. */
#include "tests/cuda/sim/device.h"
#include "tests/cuda/sim/device_access.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    PAGE_MAPPED = 1,
    PAGE_FRESH = 2, /* is filled with NaN before its first use */
    PAGE_READABLE = 4,
    PAGE_WRITABLE = 8,
    PAGE_FREED = 16, /* belongs to no block of the allocator */
};

struct page {
    uint8_t flags;
    uint8_t users;  /* a bit for each device that may use it */
    uint16_t limit; /* bytes that belong to the block; 0: all */
    struct access_history history;
};
static struct page *pages;
static uint64_t n_pages;
static uint8_t users_of[SIM_MAX_DEVICES]; /* of plain allocations: the device itself, its peers */

/* Runs of pages that the running operation has opened. */
static struct run { uint64_t first, n; } * runs;
static size_t n_runs, max_runs;

static unsigned char *page_address(uint64_t page) {
    return (unsigned char *)(settings.base + page * SIM_PAGE);
}

bool pages_init(void) {
    uint64_t size = (uint64_t)settings.n_devices * SIM_DEVICE_SPAN;
    void *memory = mmap((void *)settings.base, size, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory != (void *)settings.base)
        return false;
    n_pages = size / SIM_PAGE;
    for (int d = 0; d < SIM_MAX_DEVICES; d++)
        users_of[d] = (uint8_t)(1 << d);
    pages = mmap(NULL, n_pages * sizeof *pages, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return pages != MAP_FAILED;
}

bool pages_is_device(uint64_t address) {
    return address >= settings.base && address < settings.base + n_pages * SIM_PAGE;
}

static uint64_t page_of(uint64_t address) { return (address - settings.base) / SIM_PAGE; }

void pages_map(const struct sim_message *message) {
    int file = SIM_MEMORY + (int)message->device;
    if (mmap((void *)message->at, message->size, PROT_NONE, MAP_SHARED | MAP_FIXED, file,
             (off_t)message->from) == MAP_FAILED)
        abort();
    uint64_t first = page_of(message->at), n = message->size / SIM_PAGE;
    for (uint64_t p = first; p < first + n; p++)
        pages[p] = (struct page){.flags = PAGE_MAPPED | PAGE_FRESH,
                                 .users = message->value != 0 ? users_of[message->device] : 0};
    pages[first + n - 1].limit = (uint16_t)(message->clock % SIM_PAGE);
}

/* Unmapping is the host's use of the memory: what it has not waited for may still come. */
static void check_unmapped(uint64_t first, uint64_t n) {
    for (uint64_t p = first; p < first + n; p++) {
        const struct access *access = access_unknown_to(&pages[p].history, &host_clocks);
        if (access != NULL) {
            report("a missing wait: the host unmaps 0x%lx, which %s \"%s\" (stream %u, operation "
                   "%u) used, and has not waited for it",
                   (unsigned long)page_address(p), "operation", name_text(access->name),
                   access->stream, access->clock);
            return;
        }
    }
}

void pages_unmap(const struct sim_message *message) {
    uint64_t first = page_of(message->at), n = message->size / SIM_PAGE;
    if (message->value == 0 && settings.is_checked)
        check_unmapped(first, n);
    if (mmap((void *)message->at, message->size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        abort();
    memset(&pages[first], 0, n * sizeof *pages);
}

void pages_set_access(uint64_t start, uint64_t size, uint32_t device, bool may) {
    uint8_t bit = (uint8_t)(1 << device);
    for (uint64_t p = page_of(start); p < page_of(start + size - 1) + 1; p++)
        pages[p].users = may ? pages[p].users | bit : pages[p].users & (uint8_t)~bit;
}

void pages_enable_peer(uint32_t device, uint32_t owner) {
    uint64_t each = SIM_DEVICE_SPAN / SIM_PAGE, first = owner * each;
    users_of[owner] |= (uint8_t)(1 << device);
    for (uint64_t p = first; p < first + each; p++)
        if (pages[p].users >> owner & 1)
            pages[p].users |= (uint8_t)(1 << device);
}

void pages_reset(uint32_t device) {
    uint64_t each = SIM_DEVICE_SPAN / SIM_PAGE, first = device * each;
    if (mmap(page_address(first), SIM_DEVICE_SPAN, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        abort();
    madvise(&pages[first], each * sizeof *pages, MADV_DONTNEED);
    for (int d = 0; d < SIM_MAX_DEVICES; d++)
        users_of[d] &= (uint8_t) ~(d == (int)device ? 0 : 1 << device);
    users_of[device] = (uint8_t)(1 << device);
}

/* ---- opening and closing ---- */

static void run_add(uint64_t first, uint64_t n) {
    if (n_runs > 0 && runs[n_runs - 1].first + runs[n_runs - 1].n == first) {
        runs[n_runs - 1].n += n;
        return;
    }
    if (n_runs == max_runs) {
        max_runs = max_runs == 0 ? 1024 : 2 * max_runs;
        runs = realloc(runs, max_runs * sizeof *runs);
        if (runs == NULL)
            abort();
    }
    runs[n_runs++] = (struct run){first, n};
}

static void protect(uint64_t first, uint64_t n, int protection) {
    if (mprotect(page_address(first), n * SIM_PAGE, protection) != 0) {
        report("the device process cannot protect memory: an operation uses too many separate "
               "pages; MILLRACE_SIM_CHECK=0 runs it");
        abort();
    }
}

/* Kernels and copies reach what their device was given access to. A real driver copies between
 * devices without access, too, but through the host: that is a mistake, as nobody meant it. */
static bool is_usable(const struct page *page) {
    return (page->flags & PAGE_MAPPED) && !(page->flags & PAGE_FREED) &&
           (page->users >> running->message.device & 1);
}

/* Notes the use of a page and makes its protection right, except for what mprotect does. */
static void page_use(uint64_t p, bool is_write) {
    struct page *page = &pages[p];
    if (settings.is_checked)
        access_note(&page->history, (uint64_t)page_address(p), is_write);
    page->flags |= is_write ? PAGE_READABLE | PAGE_WRITABLE : PAGE_READABLE;
}

static void page_fill(uint64_t p) {
    if (pages[p].flags & PAGE_FRESH) {
        protect(p, 1, PROT_READ | PROT_WRITE);
        memset(page_address(p), 0xff, SIM_PAGE);
        pages[p].flags &= (uint8_t)~PAGE_FRESH;
    }
}

bool pages_fault(uint64_t address, bool is_write) {
    uint64_t p = page_of(address);
    if (!is_usable(&pages[p]))
        return false;
    bool was_open = pages[p].flags & PAGE_READABLE;
    page_fill(p);
    page_use(p, is_write);
    protect(p, 1, is_write ? PROT_READ | PROT_WRITE : PROT_READ);
    if (!was_open)
        run_add(p, 1);
    return true;
}

bool pages_open(uint64_t start, uint64_t size, bool is_write) {
    if (size == 0)
        return true;
    uint64_t first = page_of(start), end = page_of(start + size - 1) + 1;
    for (uint64_t p = first; p < end; p++) {
        if (!pages_is_device(start) || p >= n_pages || !is_usable(&pages[p])) {
            report("an illegal address: %s (stream %u, operation %u) uses 0x%lx, which is no "
                   "memory of its device",
                   name_text(running->name), running->message.stream, running->message.clock,
                   (unsigned long)(pages_is_device(start) ? (uint64_t)page_address(p) : start));
            device_fail(running->message.device, CUDA_ERROR_ILLEGAL_ADDRESS);
            return false;
        }
    }
    for (uint64_t p = first; p < end; p++) {
        page_fill(p);
        page_use(p, is_write);
    }
    protect(first, end - first, is_write ? PROT_READ | PROT_WRITE : PROT_READ);
    run_add(first, end - first);
    return true;
}

void pages_close(void) {
    enum { MANY = 64 };
    if (n_runs == 0 || !settings.is_checked)
        return;
    uint64_t low = UINT64_MAX, high = 0;
    for (size_t r = 0; r < n_runs; r++) {
        uint64_t end = runs[r].first + runs[r].n;
        for (uint64_t p = runs[r].first; p < end; p++)
            pages[p].flags &= (uint8_t) ~(PAGE_READABLE | PAGE_WRITABLE);
        low = runs[r].first < low ? runs[r].first : low;
        high = end > high ? end : high;
        if (n_runs <= MANY)
            protect(runs[r].first, runs[r].n, PROT_NONE);
    }
    if (n_runs > MANY)
        protect(low, high - low, PROT_NONE);
    n_runs = 0;
}

bool pages_set_block(uint64_t start, uint64_t size, bool is_block) {
    uint64_t first = page_of(start), end = page_of(start + size - 1) + 1;
    for (uint64_t p = first; p < end; p++) {
        if (!pages_is_device(start) || p >= n_pages || !(pages[p].flags & PAGE_MAPPED)) {
            report("a block that is not mapped: 0x%lx, %lu bytes", (unsigned long)start,
                   (unsigned long)size);
            return false;
        }
        if (settings.is_checked)
            access_note(&pages[p].history, (uint64_t)page_address(p), true);
        pages[p].flags &= (uint8_t) ~(PAGE_FREED | PAGE_FRESH);
        pages[p].flags |= is_block ? PAGE_FRESH : PAGE_FREED;
        pages[p].limit = 0;
    }
    pages[end - 1].limit = (uint16_t)(is_block ? size % SIM_PAGE : 0);
    if (!settings.is_checked) /* the next use has to fault, to be filled or refused */
        protect(first, end - first, PROT_NONE);
    return true;
}

bool pages_is_inside(uint64_t address, size_t size) {
    const struct page *page = &pages[page_of(address)];
    return page->limit == 0 || address % SIM_PAGE + size <= page->limit;
}
