/* Pinned memory of the host. While a copy is under way its memory is protected: nobody may touch
 * the destination, nobody may write the source, until the host has waited for the copy.
 *
 * Registered memory is protected, too, if it is a shared mapping: the device's copies then use a
 * second mapping of the same pages (driver_registered.c). */
#include "tests/cuda/sim/driver_registered.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct pin {
    uint64_t number;
    bool is_registered;
    struct registered memory; /* of registered memory */
    /* Of each page, how many copies under way read it and write it. */
    struct page_users {
        uint16_t n_readers, n_writers;
    } * pages;
};

struct copy {
    struct pin *pin;
    unsigned char *first; /* page */
    size_t n_pages;
    bool is_written;
    uint32_t device, stream, clock;
    struct copy *next;
};

/* Guards all of this file; taken after the link's lock, and by the reader of answers alone. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ranges pins; /* data: struct pin */
static struct copy *copies;
static uint64_t numbers_used[SIM_MAX_PINNED / 64];

/* ---- protection ---- */

static void page_protect(const struct pin *pin, unsigned char *start, unsigned char *page) {
    const struct page_users *users = &pin->pages[(page - start) / SIM_PAGE];
    bool is_read_only = pin->is_registered && !pin->memory.is_writable;
    int protection = users->n_writers > 0                   ? PROT_NONE
                     : users->n_readers > 0 || is_read_only ? PROT_READ
                                                            : PROT_READ | PROT_WRITE;
    if (mprotect(page, SIM_PAGE, protection) != 0)
        abort();
}

static void pages_change(const struct copy *copy, uint64_t start, int by) {
    for (size_t p = 0; p < copy->n_pages; p++) {
        unsigned char *page = copy->first + p * SIM_PAGE;
        struct page_users *users = &copy->pin->pages[(page - (unsigned char *)start) / SIM_PAGE];
        if (copy->is_written)
            users->n_writers = (uint16_t)(users->n_writers + by);
        else
            users->n_readers = (uint16_t)(users->n_readers + by);
        if (!copy->pin->is_registered || copy->pin->memory.alias != NULL)
            page_protect(copy->pin, (unsigned char *)start, page);
    }
}

/* Pages whose first byte belongs to the copy: blocks of pinned memory begin on pages of their own.
 * A copy from or to private memory that was registered is noted, and its pages are left alone,
 * because the device's process can reach them at their one address only. */
void pinned_protect(const void *pointer, size_t size, bool is_written,
                    const struct sim_message *message) {
    uint64_t start = (uint64_t)pointer, first = (start + SIM_PAGE - 1) & ~(uint64_t)(SIM_PAGE - 1);
    if (sim.is_null || first >= start + size)
        return;
    pthread_mutex_lock(&lock);
    struct range *range = ranges_find(&pins, start);
    struct copy *copy = calloc(1, sizeof *copy);
    if (copy == NULL)
        abort();
    *copy = (struct copy){.pin = range->data,
                          .first = (unsigned char *)first,
                          .n_pages = (start + size - first + SIM_PAGE - 1) / SIM_PAGE,
                          .is_written = is_written,
                          .device = message->device,
                          .stream = message->stream,
                          .clock = message->clock,
                          .next = copies};
    copies = copy;
    pages_change(copy, range->start, 1);
    pthread_mutex_unlock(&lock);
}

static void copy_end(struct copy **at) {
    struct copy *copy = *at;
    *at = copy->next;
    struct range *range = ranges_find(&pins, (uint64_t)copy->first);
    if (range != NULL && range->data == copy->pin)
        pages_change(copy, range->start, -1);
    free(copy);
}

void pinned_release(const uint32_t *host_clocks) {
    pthread_mutex_lock(&lock);
    for (struct copy **at = &copies; *at != NULL;)
        if ((*at)->clock <= host_clocks[(*at)->stream])
            copy_end(at);
        else
            at = &(*at)->next;
    pthread_mutex_unlock(&lock);
}

void pinned_release_device(uint32_t device) {
    pthread_mutex_lock(&lock);
    for (struct copy **at = &copies; *at != NULL;)
        if ((*at)->device == device)
            copy_end(at);
        else
            at = &(*at)->next;
    pthread_mutex_unlock(&lock);
}

/* ---- faults of the host ---- */

static struct sigaction previous;

static void describe(uint64_t address) {
    char text[256];
    if (address - sim.base < (uint64_t)sim.n_devices * SIM_DEVICE_SPAN) {
        snprintf(text, sizeof text, "the host uses 0x%lx, which is memory of a device",
                 (unsigned long)address);
        link_report(text);
        return;
    }
    /* Without the lock: whoever faulted may hold it, and the process ends now. */
    for (const struct copy *copy = copies; copy != NULL; copy = copy->next)
        if (address - (uint64_t)copy->first < copy->n_pages * SIM_PAGE) {
            snprintf(
                text, sizeof text,
                "a missing wait: the host uses 0x%lx, pinned memory that a copy %s (stream %u, "
                "operation %u), and has not waited for it",
                (unsigned long)address, copy->is_written ? "writes" : "reads", copy->stream,
                copy->clock);
            link_report(text);
            return;
        }
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    describe((uint64_t)info->si_addr);
    sigaction(signal, &previous, NULL); /* the access is repeated, and faults as before */
}

void host_faults_init(void) {
    struct sigaction action = {.sa_sigaction = on_fault,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigaction(SIGSEGV, &action, &previous);
}

/* ---- the calls ---- */

/* A free number of pinned memory. Under the lock. */
static bool number_get(uint64_t *ret_number) {
    for (uint64_t w = 0; w < SIM_MAX_PINNED / 64; w++)
        if (numbers_used[w] != UINT64_MAX) {
            uint64_t bit = (uint64_t)__builtin_ctzll(~numbers_used[w]);
            numbers_used[w] |= 1ull << bit;
            *ret_number = w * 64 + bit;
            return true;
        }
    return false;
}

bool pinned_find(const void *pointer, size_t size, uint64_t *ret_number, uint64_t *ret_offset) {
    uint64_t start = (uint64_t)pointer;
    pthread_mutex_lock(&lock);
    const struct range *range = ranges_find(&pins, start);
    bool is_inside = range != NULL && start + size <= range->start + range->size;
    if (is_inside) {
        *ret_number = ((struct pin *)range->data)->number;
        *ret_offset = start - range->start;
    }
    pthread_mutex_unlock(&lock);
    return is_inside;
}

static CUresult pin_add(void *pointer, size_t size, int file, const struct registered *memory) {
    struct sim_message message = {
        .command = file < 0 ? SIM_REGISTER : SIM_PIN, .at = (uint64_t)pointer, .size = size};
    struct pin *pin = calloc(1, sizeof *pin);
    if (pin == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pin->is_registered = file < 0;
    if (memory != NULL) {
        pin->memory = *memory;
        message.from = registered_address(memory, pointer);
    }
    pin->pages = calloc(size / SIM_PAGE + 1, sizeof *pin->pages);
    link_lock();
    pthread_mutex_lock(&lock);
    CUresult result = pin->pages == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && !ranges_add(&pins, (struct range){(uint64_t)pointer, size, pin}))
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else if (result == CUDA_SUCCESS && !number_get(&pin->number)) {
        ranges_remove(&pins, (uint64_t)pointer);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&lock);
    message.value = pin->number;
    if (result == CUDA_SUCCESS)
        link_send(&message, NULL, file);
    link_unlock();
    if (result != CUDA_SUCCESS) {
        free(pin->pages);
        free(pin);
    }
    return result;
}

/* As the driver does when it frees pinned memory: it waits for all copies. */
static void wait_for_copies(void) {
    struct sim_answer answer;
    for (int d = 0; d < sim.n_devices; d++) {
        link_lock();
        link_request(
            &(struct sim_message){.command = SIM_SYNCHRONIZE_DEVICE, .device = (uint32_t)d}, NULL,
            &answer);
    }
}

/* Removes what begins at a pointer, once no copy uses it. */
static CUresult pin_remove(void *pointer, bool is_registered, size_t *ret_size) {
    struct registered memory = {0};
    wait_for_copies();
    link_lock();
    pthread_mutex_lock(&lock);
    struct range *range = ranges_find(&pins, (uint64_t)pointer);
    struct pin *pin = range != NULL && range->start == (uint64_t)pointer ? range->data : NULL;
    bool is_valid = pin != NULL && pin->is_registered == is_registered;
    uint64_t number = is_valid ? pin->number : 0;
    if (is_valid) {
        *ret_size = range->size;
        memory = pin->memory;
        ranges_remove(&pins, range->start);
        numbers_used[number / 64] &= ~(1ull << number % 64);
        free(pin->pages);
        free(pin);
    }
    pthread_mutex_unlock(&lock);
    if (is_valid)
        link_send(&(struct sim_message){.command = SIM_UNPIN, .value = number}, NULL, -1);
    link_unlock();
    registered_end(&memory);
    return is_valid
               ? CUDA_SUCCESS
               : (is_registered ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE);
}

static void report_gone(const void *pointer) {
    char text[128];
    snprintf(text, sizeof text,
             "the memory at %p was given back to the system while it was registered", pointer);
    link_report(text);
}

/* What is wrong with unregistering the memory now: a copy uses it that the host has not waited for,
 * or its pages are gone. The pages of a read-only mapping are another process', which may give them
 * back once no copy uses them. */
static void check_unregistered(const void *pointer) {
    char text[256] = "";
    pthread_mutex_lock(&lock);
    const struct range *range = ranges_find(&pins, (uint64_t)pointer);
    const struct pin *pin = range != NULL ? range->data : NULL;
    for (const struct copy *copy = copies; pin != NULL && copy != NULL; copy = copy->next)
        if (copy->pin == pin)
            snprintf(text, sizeof text,
                     "a missing wait: the host unregisters %p, memory that a copy %s (stream %u, "
                     "operation %u), and has not waited for it",
                     pointer, copy->is_written ? "writes" : "reads", copy->stream, copy->clock);
    bool is_gone = pin != NULL && pin->is_registered && !pin->memory.is_device_read_only &&
                   !registered_is_there(&pin->memory);
    pthread_mutex_unlock(&lock);
    if (text[0] != '\0')
        link_report(text);
    if (is_gone)
        report_gone(pointer);
}

void pinned_check_pages(const void *pointer) {
    pthread_mutex_lock(&lock);
    const struct range *range = ranges_find(&pins, (uint64_t)pointer);
    const struct pin *pin = range != NULL ? range->data : NULL;
    bool is_gone = pin != NULL && pin->is_registered && !registered_is_there(&pin->memory);
    pthread_mutex_unlock(&lock);
    if (is_gone)
        report_gone(pointer);
}

bool pinned_may_write(const void *pointer) {
    pthread_mutex_lock(&lock);
    const struct range *range = ranges_find(&pins, (uint64_t)pointer);
    const struct pin *pin = range != NULL ? range->data : NULL;
    bool may = pin != NULL && (!pin->is_registered || !pin->memory.is_device_read_only);
    pthread_mutex_unlock(&lock);
    return may;
}

CUresult cuMemHostAlloc(void **ret_pointer, size_t size, unsigned flags) {
    struct CUctx_st *context;
    BEGIN(cuMemHostAlloc);
    TRY(context_now(&context));
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    size_t whole = (size + SIM_PAGE - 1) & ~(size_t)(SIM_PAGE - 1);
    int file = memfd_create("sim_pinned_memory", MFD_CLOEXEC);
    void *memory = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)whole) == 0)
        memory = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CUresult result = memory == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        memset(memory, 0xff, whole);
        result = pin_add(memory, whole, file, NULL);
    }
    if (file >= 0)
        close(file);
    if (result == CUDA_SUCCESS)
        *ret_pointer = memory;
    else if (memory != MAP_FAILED)
        munmap(memory, whole);
    return result;
}

CUresult cuMemFreeHost(void *pointer) {
    size_t size = 0;
    BEGIN(cuMemFreeHost);
    TRY(pin_remove(pointer, false, &size));
    munmap(pointer, size);
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags) {
    enum { KNOWN_FLAGS = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY };
    struct CUctx_st *context;
    struct registered memory;
    BEGIN(cuMemHostRegister_v2);
    TRY(context_now(&context));
    if (pointer == NULL || size == 0 || (flags & ~(unsigned)KNOWN_FLAGS) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(registered_begin(pointer, size, (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0, &memory));
    CUresult result = pin_add(pointer, size, -1, &memory);
    if (result != CUDA_SUCCESS)
        registered_end(&memory);
    return result;
}

CUresult cuMemHostUnregister(void *pointer) {
    size_t size = 0;
    BEGIN(cuMemHostUnregister);
    check_unregistered(pointer);
    return pin_remove(pointer, true, &size);
}
