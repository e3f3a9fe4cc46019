/* The allocator of a GPU's memory, as tensors see it: buffers over blocks (gpu_memory.h), with the
 * name of the node or variable that holds each, for the message when memory runs out. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "kernels/cuda/gpu_device.h"

enum { WAIT_FOR_COPIES_S = 10, MAX_HOLDERS_SHOWN = 5 };

struct gpu_buffer {
    struct buffer buffer; /* first */
    struct gpu_block *block;
    struct list link; /* gpu_device.buffers */
    char holder[GPU_HOLDER_BYTES];
};

static void count_bytes(struct allocator *allocator, int64_t change) {
    int64_t now =
        atomic_fetch_add_explicit(&allocator->in_use_bytes, change, memory_order_relaxed) + change;
    int64_t peak = atomic_load_explicit(&allocator->peak_bytes, memory_order_relaxed);
    while (now > peak &&
           !atomic_compare_exchange_weak_explicit(&allocator->peak_bytes, &peak, now,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

static void add_buffer(struct gpu_device *gpu, struct gpu_buffer *buffer) {
    pthread_mutex_lock(&gpu->buffers_lock);
    list_push_back(&gpu->buffers, &buffer->link);
    pthread_mutex_unlock(&gpu->buffers_lock);
}

/* Waits until some buffer has been freed. False: none was in time, or no copy is under way that
 * could free one. */
static bool wait_for_free(struct gpu_device *gpu, uint64_t n_freed_before) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_FOR_COPIES_S;
    pthread_mutex_lock(&gpu->buffers_lock);
    while (gpu->n_freed == n_freed_before && atomic_load(&gpu->n_copies) > 0)
        if (pthread_cond_timedwait(&gpu->buffer_freed, &gpu->buffers_lock, &until) == ETIMEDOUT)
            break;
    bool was_freed = gpu->n_freed != n_freed_before;
    pthread_mutex_unlock(&gpu->buffers_lock);
    return was_freed;
}

static uint64_t n_freed_of(struct gpu_device *gpu) {
    pthread_mutex_lock(&gpu->buffers_lock);
    uint64_t n = gpu->n_freed;
    pthread_mutex_unlock(&gpu->buffers_lock);
    return n;
}

/* Copies under way hold buffers that they will free soon, so a full memory waits for them. */
static struct status *block_alloc(struct gpu_device *gpu, size_t size_bytes, struct gpu_block **ret,
                                  uint64_t *ret_free_number) {
    for (;;) {
        uint64_t n_freed = n_freed_of(gpu);
        struct status *st =
            gpu_memory_alloc(&gpu->memory, MAX(size_bytes, (size_t)1), ret, ret_free_number);
        if (!st || status_code(st) != STATUS_RESOURCE_EXHAUSTED || !wait_for_free(gpu, n_freed))
            return st;
        status_unref(st);
    }
}

struct status *gpu_buffer_new(struct gpu_device *gpu, size_t size_bytes, CUstream stream,
                              struct buffer **ret, uint64_t *ret_free_number) {
    struct gpu_block *block;
    gpu_set_current(gpu);
    TRY(block_alloc(gpu, size_bytes, &block, ret_free_number));
    struct gpu_buffer *buffer = xcalloc(1, sizeof *buffer);
    buffer->buffer = (struct buffer){
        .size_bytes = gpu_block_size(block),
        .data = (char *)(uintptr_t)gpu_block_address(block), /* NOLINT(performance-no-int-to-ptr) */
        .allocator = &gpu->allocator,
        .flags = BUFFER_IS_DEVICE};
    buffer->block = block;
    atomic_init(&buffer->buffer.n_refs, 1);
    count_bytes(&gpu->allocator, (int64_t)buffer->buffer.size_bytes);
    add_buffer(gpu, buffer);
    if (stream == gpu->compute && gpu->checker)
        gpu->checker->block_allocated(gpu_block_address(block), gpu_block_size(block), stream);
    *ret = &buffer->buffer;
    return NULL;
}

static struct buffer *device_alloc_buffer(struct allocator *allocator, size_t size_bytes) {
    struct gpu_device *gpu = gpu_of_allocator(allocator);
    struct buffer *buffer;
    uint64_t free_number;
    struct status *st = gpu_buffer_new(gpu, size_bytes, gpu->compute, &buffer, &free_number);
    if (likely(!st))
        return buffer;
    status_unref(st);
    return NULL;
}

static void device_free_buffer(struct allocator *allocator, struct buffer *freed) {
    struct gpu_device *gpu = gpu_of_allocator(allocator);
    struct gpu_buffer *buffer = CONTAINER_OF(freed, struct gpu_buffer, buffer);
    gpu_set_current(gpu);
    if (gpu->checker)
        gpu->checker->block_freed(gpu_block_address(buffer->block), gpu_block_size(buffer->block),
                                  gpu->compute);
    count_bytes(allocator, -(int64_t)buffer->buffer.size_bytes);
    gpu_memory_free(&gpu->memory, buffer->block);
    pthread_mutex_lock(&gpu->buffers_lock);
    list_remove(&buffer->link);
    gpu->n_freed++;
    pthread_cond_broadcast(&gpu->buffer_freed);
    pthread_mutex_unlock(&gpu->buffers_lock);
    free(buffer);
}

static bool is_own(const struct allocator *allocator, const struct buffer *buffer) {
    return buffer->allocator == allocator;
}

static struct status *copy_within(struct allocator *allocator, char *to, const char *from,
                                  size_t size_bytes) {
    struct gpu_device *gpu = gpu_of_allocator(allocator);
    TRY(gpu_lock(gpu));
    struct status *st = gpu_check(
        gpu,
        gpu->api->cuMemcpyDtoDAsync((CUdeviceptr)to, (CUdeviceptr)from, size_bytes, gpu->compute),
        "a copy within the device");
    gpu_count_enqueued(gpu);
    gpu_unlock(gpu);
    return st;
}

static struct status *zero_within(struct allocator *allocator, char *to, size_t size_bytes) {
    struct gpu_device *gpu = gpu_of_allocator(allocator);
    TRY(gpu_lock(gpu));
    struct status *st = gpu_check(
        gpu, gpu->api->cuMemsetD8Async((CUdeviceptr)to, 0, size_bytes, gpu->compute), "a fill");
    gpu_count_enqueued(gpu);
    gpu_unlock(gpu);
    return st;
}

static void set_holder(struct buffer *held, const char *name) {
    struct gpu_buffer *buffer = CONTAINER_OF(held, struct gpu_buffer, buffer);
    size_t len = MIN(strlen(name), sizeof buffer->holder - 1);
    memcpy(buffer->holder, name, len);
    buffer->holder[len] = '\0';
}

/* Keeps the largest ones, largest first. */
static void keep_largest(const struct gpu_buffer **largest, const struct gpu_buffer *buffer) {
    for (int i = 0; i < MAX_HOLDERS_SHOWN; i++) {
        if (largest[i] && largest[i]->buffer.size_bytes >= buffer->buffer.size_bytes)
            continue;
        const struct gpu_buffer *smaller = largest[i];
        largest[i] = buffer;
        buffer = smaller;
        if (!buffer)
            return;
    }
}

static void describe_holders(struct allocator *allocator, struct str *out) {
    struct gpu_device *gpu = gpu_of_allocator(allocator);
    const struct gpu_buffer *largest[MAX_HOLDERS_SHOWN] = {NULL};
    pthread_mutex_lock(&gpu->buffers_lock);
    LIST_FOR_EACH (link, &gpu->buffers)
        keep_largest(largest, LIST_ENTRY(link, struct gpu_buffer, link));
    str_addf(out, "%lld of %lld bytes are in use", (long long)atomic_load(&allocator->in_use_bytes),
             (long long)allocator->limit_bytes);
    for (int i = 0; i < MAX_HOLDERS_SHOWN && largest[i]; i++)
        str_addf(out, "%s%zu bytes by %s", i == 0 ? ", the largest: " : ", ",
                 largest[i]->buffer.size_bytes,
                 largest[i]->holder[0] ? largest[i]->holder : "a copied value");
    pthread_mutex_unlock(&gpu->buffers_lock);
}

void gpu_allocator_init(struct gpu_device *gpu, const struct device_engine *engine) {
    gpu->device_memory = (struct device_memory){.copy = copy_within,
                                                .set_holder = set_holder,
                                                .describe_holders = describe_holders,
                                                .zero = zero_within,
                                                .engine = engine};
    gpu->allocator = (struct allocator){.name = "GPU",
                                        .alloc = device_alloc_buffer,
                                        .free = device_free_buffer,
                                        .likes = is_own,
                                        .device_memory = &gpu->device_memory};
    list_init(&gpu->buffers);
    pthread_mutex_init(&gpu->buffers_lock, NULL);
    pthread_cond_init(&gpu->buffer_freed, NULL);
}

void gpu_allocator_fini(struct gpu_device *gpu) {
    pthread_mutex_destroy(&gpu->buffers_lock);
    pthread_cond_destroy(&gpu->buffer_freed);
}
