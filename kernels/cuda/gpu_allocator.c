/* The allocator of a GPU's memory, as tensors see it: buffers over blocks (gpu_memory.h), with the
 * name of the node or variable that holds each, for the message when memory runs out. */
#include "common/base/clock.h"
#include "kernels/cuda/gpu_device.h"

enum { MAX_WAIT_S = 10, MAX_HOLDERS_SHOWN = 5 };

static struct gpu_block *block_of(struct buffer *buffer) {
    return CONTAINER_OF(buffer, struct gpu_block, buffer);
}

static void count_bytes(struct allocator *allocator, int64_t change) {
    int64_t now =
        atomic_fetch_add_explicit(&allocator->in_use_bytes, change, memory_order_relaxed) + change;
    int64_t peak = atomic_load_explicit(&allocator->peak_bytes, memory_order_relaxed);
    while (now > peak &&
           !atomic_compare_exchange_weak_explicit(&allocator->peak_bytes, &peak, now,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* ---- when memory runs out ---- */

/* The largest used blocks, largest first. Copies, because a block may be freed meanwhile. */
struct holders {
    struct {
        size_t size_bytes;
        char name[GPU_HOLDER_BYTES];
    } largest[MAX_HOLDERS_SHOWN];
    int n;
};

static void keep_largest(void *arg, const struct gpu_block *block) {
    struct holders *holders = arg;
    int at = holders->n;
    while (at > 0 && holders->largest[at - 1].size_bytes < block->size_bytes)
        at--;
    if (at == MAX_HOLDERS_SHOWN)
        return;
    int n_after = MIN(holders->n, MAX_HOLDERS_SHOWN - 1) - at;
    memmove(&holders->largest[at + 1], &holders->largest[at],
            (size_t)n_after * sizeof holders->largest[0]);
    holders->largest[at].size_bytes = block->size_bytes;
    memcpy(holders->largest[at].name, block->holder, sizeof block->holder);
    holders->n = at + n_after + 1;
}

static struct status *with_holders(struct gpu_device *gpu, struct status *st) {
    struct holders holders = {.n = 0};
    struct str text = STR_INIT;
    gpu_memory_each_used(&gpu->memory, keep_largest, &holders);
    for (int i = 0; i < holders.n; i++)
        str_addf(&text, "%s%zu bytes by %s", i == 0 ? "; the largest blocks: " : ", ",
                 holders.largest[i].size_bytes,
                 holders.largest[i].name[0] ? holders.largest[i].name : "a copied value");
    /* If there is less than the limit promises, other processes hold it. */
    size_t free_bytes, total_bytes;
    struct status *asked = gpu_call(gpu, cuMemGetInfo, &free_bytes, &total_bytes);
    if (asked)
        str_addf(&text, "; %s", status_message(asked));
    else
        str_addf(&text, "; the driver has %zu of the GPU's %zu bytes left for all processes",
                 free_bytes, total_bytes);
    status_unref(asked);
    st = status_suffix_take(st, "%s", str_text(&text));
    str_fini(&text);
    return st;
}

/* Copies from the device and other steps hold buffers that they will free. */
static bool others_hold_memory(struct gpu_device *gpu) {
    return atomic_load(&gpu->n_copies) > 0 ||
           (gpu->device && atomic_load(&gpu->device->n_steps) > 1);
}

/* Gives what the driver needs for graphs back to it, and enqueues what is held back. */
static void give_back_graphs(struct gpu_device *gpu) {
    struct status *failure = gpu_lock(gpu);
    if (!failure) {
        gpu_segments_forget(gpu);
        gpu_unlock(gpu);
    }
    status_unref(failure);
}

/* As long as others hold memory, waits for them. */
static COLD struct status *alloc_patiently(struct gpu_device *gpu, size_t size_bytes,
                                           struct gpu_block **ret, uint64_t *ret_free_number) {
    int64_t until_ns = clock_now_ns() + MAX_WAIT_S * INT64_C(1000000000);
    give_back_graphs(gpu);
    for (;;) {
        bool may_come = others_hold_memory(gpu); /* what they free later is found, or told */
        uint64_t n_freed = gpu_memory_n_freed(&gpu->memory);
        struct status *st =
            gpu_memory_alloc(&gpu->memory, GPU_PLACE_NONE, size_bytes, ret, ret_free_number);
        if (!st)
            return NULL;
        if (status_code(st) != STATUS_RESOURCE_EXHAUSTED)
            return gpu_look_take(gpu, st);
        if (size_bytes > gpu->memory.limit_bytes || !may_come || clock_now_ns() >= until_ns)
            return with_holders(gpu, st);
        status_unref(st);
        gpu_memory_wait_freed(&gpu->memory, n_freed);
    }
}

/* ---- buffers ---- */

/* Makes a block the buffer of a value. */
static struct buffer *wrap(struct gpu_device *gpu, struct gpu_block *block, CUstream stream) {
    block->buffer = (struct buffer){
        .size_bytes = block->size_bytes,
        .data = (char *)(uintptr_t)block->address, /* NOLINT(performance-no-int-to-ptr) */
        .allocator = &gpu->allocator,
        .flags = BUFFER_IS_DEVICE};
    block->holder[0] = '\0';
    atomic_init(&block->buffer.n_refs, 1);
    count_bytes(&gpu->allocator, (int64_t)block->size_bytes);
    if (stream == gpu->compute)
        gpu_note_block(gpu, block->address, block->size_bytes, true);
    return &block->buffer;
}

struct status *gpu_buffer_try_new(struct gpu_device *gpu, size_t size_bytes, CUstream stream,
                                  struct buffer **ret, uint64_t *ret_free_number) {
    struct gpu_block *block;
    TRY(gpu_enter(gpu));
    struct status *st = gpu_memory_alloc(&gpu->memory, gpu_site_next(gpu, stream, size_bytes),
                                         MAX(size_bytes, (size_t)1), &block, ret_free_number);
    if (unlikely(st != NULL))
        return status_code(st) == STATUS_RESOURCE_EXHAUSTED ? st : gpu_look_take(gpu, st);
    *ret = wrap(gpu, block, stream);
    return NULL;
}

static struct status *buffer_new(struct gpu_device *gpu, size_t size_bytes, CUstream stream,
                                 struct buffer **ret, uint64_t *ret_free_number) {
    struct status *st = gpu_buffer_try_new(gpu, size_bytes, stream, ret, ret_free_number);
    if (likely(!st || status_code(st) != STATUS_RESOURCE_EXHAUSTED))
        return st;
    struct gpu_block *block;
    status_unref(st);
    TRY(alloc_patiently(gpu, MAX(size_bytes, (size_t)1), &block, ret_free_number));
    *ret = wrap(gpu, block, stream);
    return NULL;
}

struct status *gpu_buffer_new(struct gpu_device *gpu, size_t size_bytes, CUstream stream,
                              struct buffer **ret, uint64_t *ret_free_number) {
    struct status *st = buffer_new(gpu, size_bytes, stream, ret, ret_free_number);
    if (likely(!st || status_code(st) != STATUS_RESOURCE_EXHAUSTED))
        return st;
    return status_suffix_take(st, "; %lld of %lld bytes are in use",
                              (long long)atomic_load(&gpu->allocator.in_use_bytes),
                              (long long)gpu->allocator.limit_bytes);
}

/* Who makes the tensor says how much is in use. */
static struct status *device_alloc(struct allocator *allocator, size_t size_bytes,
                                   struct buffer **ret) {
    struct gpu_device *gpu = gpu_of_allocator(allocator);
    uint64_t free_number;
    return buffer_new(gpu, size_bytes, gpu->compute, ret, &free_number);
}

static struct buffer *device_alloc_buffer(struct allocator *allocator, size_t size_bytes) {
    struct buffer *buffer = NULL;
    struct status *st = device_alloc(allocator, size_bytes, &buffer);
    if (likely(!st))
        return buffer;
    status_unref(st);
    return NULL;
}

static void device_free_buffer(struct allocator *allocator, struct buffer *buffer) {
    struct gpu_device *gpu = gpu_of_allocator(allocator);
    struct gpu_block *block = block_of(buffer);
    if (gpu->checker) { /* a device that has failed is told nothing more */
        gpu_try_set_current(gpu);
        gpu_note_block(gpu, block->address, block->size_bytes, false);
    }
    count_bytes(allocator, -(int64_t)block->size_bytes);
    gpu_memory_free(&gpu->memory, block);
}

static bool is_own(const struct allocator *allocator, const struct buffer *buffer) {
    return buffer->allocator == allocator;
}

static struct status *copy_within(struct allocator *allocator, char *to, const char *from,
                                  size_t size_bytes) {
    struct gpu_device *gpu = gpu_of_allocator(allocator);
    TRY(gpu_lock(gpu));
    struct status *st = gpu_call(gpu, cuMemcpyDtoDAsync, (CUdeviceptr)to, (CUdeviceptr)from,
                                 size_bytes, gpu->compute);
    gpu_count_enqueued(gpu);
    gpu_unlock(gpu);
    return st;
}

static void set_holder(struct buffer *buffer, const char *name) {
    struct gpu_block *block = block_of(buffer);
    size_t len = strnlen(name, sizeof block->holder - 1);
    memcpy(block->holder, name, len);
    block->holder[len] = '\0';
}

void gpu_allocator_init(struct gpu_device *gpu, const struct device_engine *engine) {
    gpu->device_memory = (struct device_memory){
        .copy = copy_within, .alloc = device_alloc, .set_holder = set_holder, .engine = engine};
    gpu->allocator = (struct allocator){.name = "GPU",
                                        .alloc = device_alloc_buffer,
                                        .free = device_free_buffer,
                                        .likes = is_own,
                                        .device_memory = &gpu->device_memory};
}
