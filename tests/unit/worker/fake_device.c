/* The device FAKE (fake_device.h): its queue, its two views of one memory, its kernels. */
#include "tests/unit/worker/fake_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEMORY_BYTES = 64 << 20, PAGE_BYTES = 4096 };

/* One piece of work, in the order of the queue. */
struct work {
    struct work *next;
    void (*run)(struct work *work);
    char *to;
    const char *from[2];
    float scalar[2]; /* an operand whose `from` is NULL */
    size_t size_bytes;
    struct tensor held[3]; /* what the work reads and writes stays alive until it is done */
    struct device_copy *copy;
    struct device_wait *wait;
    struct fake_device *fake;
};

struct fake_device {
    struct allocator allocator; /* first: the allocator's methods find the device by it */
    struct device device;
    char *seen, *real; /* the memory without access, and the same memory with it */
    size_t used_bytes;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first, **last; /* guarded by lock, as all that follows */
    bool is_held, is_closed;
    int n_queued, max_queued;
    struct device_wait *paused; /* until half of max_queued are done */
    struct status *failure;
    struct fake_counts counts;
    int n_buffers;
};

static char *real_of(struct fake_device *fake, const char *data) {
    CHECK(data >= fake->seen && data < fake->seen + MEMORY_BYTES);
    return fake->real + (data - fake->seen);
}

/* ---- memory ---- */

static struct buffer *fake_alloc(struct allocator *allocator, size_t size_bytes) {
    struct fake_device *fake = CONTAINER_OF(allocator, struct fake_device, allocator);
    size_t size = (size_bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
    struct buffer *buffer = xcalloc(1, sizeof *buffer);
    pthread_mutex_lock(&fake->lock);
    CHECK(fake->used_bytes + size <= MEMORY_BYTES);
    *buffer = (struct buffer){.size_bytes = size_bytes,
                              .data = fake->seen + fake->used_bytes,
                              .allocator = allocator,
                              .flags = BUFFER_IS_DEVICE};
    fake->used_bytes += size;
    fake->n_buffers++;
    pthread_mutex_unlock(&fake->lock);
    atomic_init(&buffer->n_refs, 1);
    return buffer;
}

static void fake_free(struct allocator *allocator, struct buffer *buffer) {
    struct fake_device *fake = CONTAINER_OF(allocator, struct fake_device, allocator);
    pthread_mutex_lock(&fake->lock);
    fake->n_buffers--;
    pthread_mutex_unlock(&fake->lock);
    free(buffer);
}

static bool fake_likes(const struct allocator *allocator, const struct buffer *buffer) {
    return buffer->allocator == allocator;
}

/* ---- the queue ---- */

static void enqueue(struct fake_device *fake, struct work *work) {
    work->fake = fake;
    pthread_mutex_lock(&fake->lock);
    *fake->last = work;
    fake->last = &work->next;
    fake->n_queued++;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->lock);
}

static struct work *work_new(void (*run)(struct work *work)) {
    struct work *work = aligned_alloc(_Alignof(struct work), sizeof *work);
    CHECK(work);
    memset(work, 0, sizeof *work);
    work->run = run;
    return work;
}

static void count(struct fake_device *fake, int *counter) {
    pthread_mutex_lock(&fake->lock);
    (*counter)++;
    pthread_mutex_unlock(&fake->lock);
}

static void *serve(void *arg) {
    struct fake_device *fake = arg;
    pthread_mutex_lock(&fake->lock);
    for (;;) {
        while ((!fake->first || fake->is_held) && !fake->is_closed)
            pthread_cond_wait(&fake->changed, &fake->lock);
        struct work *work = fake->first;
        if (!work)
            break;
        fake->first = work->next;
        if (!fake->first)
            fake->last = &fake->first;
        pthread_mutex_unlock(&fake->lock);
        work->run(work);
        for (size_t i = 0; i < ARRAY_LEN(work->held); i++)
            tensor_clear(&work->held[i]);
        free(work);
        pthread_mutex_lock(&fake->lock);
        struct device_wait *paused = --fake->n_queued <= fake->max_queued / 2 ? fake->paused : NULL;
        if (!paused)
            continue;
        fake->paused = NULL;
        pthread_mutex_unlock(&fake->lock);
        paused->on_done(paused);
        pthread_mutex_lock(&fake->lock);
    }
    pthread_mutex_unlock(&fake->lock);
    return NULL;
}

/* ---- the device's table ---- */

static void run_copy(struct work *work) { memcpy(work->to, work->from[0], work->size_bytes); }

static void run_copy_staged(struct work *work) {
    run_copy(work);
    free((void *)(uintptr_t)work->from[0]);
}

static struct status *enqueue_copy_in(struct fake_device *fake, const struct tensor *value,
                                      struct tensor *ret) {
    TRY(tensor_new_on_device(&fake->allocator, (enum dtype)value->dtype, tensor_shape(value), ret));
    struct work *work = work_new(run_copy_staged);
    work->size_bytes = tensor_size_bytes(value);
    work->to = real_of(fake, ret->data);
    work->from[0] = memcpy(xmalloc(work->size_bytes), tensor_cdata(value), work->size_bytes);
    tensor_copy(&work->held[0], ret);
    enqueue(fake, work);
    return NULL;
}

static void run_copy_out(struct work *work) {
    struct device_copy *copy = work->copy;
    struct tensor *from = &copy->from;
    copy->status =
        tensor_new(copy->allocator, (enum dtype)from->dtype, tensor_shape(from), copy->ret);
    if (!copy->status)
        memcpy(tensor_data(copy->ret), real_of(work->fake, from->data), tensor_size_bytes(from));
    tensor_clear(from);
    copy->on_done(copy);
}

static bool fake_copy_start(struct device *device, struct device_copy *copy) {
    struct fake_device *fake = device->state;
    CHECK(!copy->src || !copy->dst);
    if (copy->dst) {
        CHECK(!tensor_is_on_device(&copy->from));
        count(fake, &fake->counts.in);
        copy->status = enqueue_copy_in(fake, &copy->from, copy->ret);
        tensor_clear(&copy->from);
        return true;
    }
    CHECK(tensor_is_on_device(&copy->from));
    count(fake, &fake->counts.out);
    struct work *work = work_new(run_copy_out);
    work->copy = copy;
    enqueue(fake, work);
    return false;
}

static struct status *fake_upload(struct device *device, const struct tensor *value,
                                  struct tensor *ret) {
    struct fake_device *fake = device->state;
    count(fake, &fake->counts.uploads);
    return enqueue_copy_in(fake, value, ret);
}

static void run_wait(struct work *work) {
    pthread_mutex_lock(&work->fake->lock);
    work->wait->status = work->fake->failure;
    work->fake->failure = NULL;
    pthread_mutex_unlock(&work->fake->lock);
    work->wait->on_done(work->wait);
}

static bool fake_wait_start(struct device *device, struct device_wait *wait) {
    struct work *work = work_new(run_wait);
    work->wait = wait;
    enqueue(device->state, work);
    return false;
}

static struct status *fake_flush(struct device *device, const void *owner) {
    struct fake_device *fake = device->state;
    pthread_mutex_lock(&fake->lock);
    fake->counts.flushes++;
    fake->counts.flushes_in_pauses += fake->paused != NULL;
    pthread_mutex_unlock(&fake->lock);
    return NULL;
}

static bool fake_is_far_ahead(struct device *device) {
    struct fake_device *fake = device->state;
    pthread_mutex_lock(&fake->lock);
    bool is_far = fake->max_queued > 0 && fake->n_queued >= fake->max_queued;
    pthread_mutex_unlock(&fake->lock);
    return is_far;
}

static bool fake_catch_up_start(struct device *device, struct device_wait *wait) {
    struct fake_device *fake = device->state;
    pthread_mutex_lock(&fake->lock);
    bool has_ended = fake->n_queued <= fake->max_queued / 2;
    CHECK(!fake->paused);
    if (!has_ended)
        fake->paused = wait;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->lock);
    return has_ended;
}

static void fake_describe(struct device *device, struct str *out) { str_add(out, "a fake"); }

static const struct device_ops fake_ops = {.copy_start = fake_copy_start,
                                           .upload = fake_upload,
                                           .wait_start = fake_wait_start,
                                           .flush = fake_flush,
                                           .is_far_ahead = fake_is_far_ahead,
                                           .catch_up_start = fake_catch_up_start,
                                           .describe = fake_describe};

static struct status *fake_memory_copy(struct allocator *allocator, char *to, const char *from,
                                       size_t size_bytes) {
    struct fake_device *fake = CONTAINER_OF(allocator, struct fake_device, allocator);
    struct work *work = work_new(run_copy);
    count(fake, &fake->counts.within);
    work->to = real_of(fake, to);
    work->from[0] = real_of(fake, from);
    work->size_bytes = size_bytes;
    enqueue(fake, work);
    return NULL;
}

static const struct device_memory fake_memory = {fake_memory_copy};

/* ---- kernels ---- */

static float operand(const struct work *work, int i, size_t k) {
    return work->from[i] ? ((const float *)(const void *)work->from[i])[k] : work->scalar[i];
}

static void run_add(struct work *work) {
    for (size_t k = 0; k < work->size_bytes / sizeof(float); k++)
        ((float *)(void *)work->to)[k] = operand(work, 0, k) + operand(work, 1, k);
}

static void run_multiply(struct work *work) {
    for (size_t k = 0; k < work->size_bytes / sizeof(float); k++)
        ((float *)(void *)work->to)[k] = operand(work, 0, k) * operand(work, 1, k);
}

static void run_less(struct work *work) { /* scalars */
    *(bool *)work->to = operand(work, 0, 0) < operand(work, 1, 0);
}

static void take_operand(struct work *work, int i, const struct tensor *value) {
    if (tensor_is_on_device(value)) {
        work->from[i] = real_of(work->fake, value->data);
        tensor_copy(&work->held[i], value);
    } else {
        CHECK(value->storage == TENSOR_INLINE && value->n_elements == 1);
        work->scalar[i] = *(const float *)tensor_cdata(value);
    }
}

static struct fake_device *fake_of(const struct kernel_ctx *ctx) {
    return CONTAINER_OF(ctx->instance->allocator, struct fake_device, allocator);
}

/* Two operands of one shape, or scalars. */
static enum kernel_result launch(struct kernel_ctx *ctx, enum dtype dtype,
                                 void (*run)(struct work *work)) {
    const struct tensor *a = kernel_input(ctx, 0), *b = kernel_input(ctx, 1);
    struct work *work = work_new(run);
    work->fake = fake_of(ctx);
    count(work->fake, &work->fake->counts.launches);
    take_operand(work, 0, a);
    take_operand(work, 1, b);
    struct status *st = kernel_new_on_device(ctx, dtype, tensor_shape(a->rank >= b->rank ? a : b),
                                             false, &ctx->outputs[0]);
    CHECK(!st);
    work->to = real_of(work->fake, ctx->outputs[0].data);
    work->size_bytes = tensor_size_bytes(&ctx->outputs[0]);
    tensor_copy(&work->held[2], &ctx->outputs[0]);
    enqueue(work->fake, work);
    return KERNEL_DONE;
}

static enum kernel_result fake_add(struct kernel_ctx *ctx) {
    return launch(ctx, DT_FLOAT, run_add);
}
static enum kernel_result fake_multiply(struct kernel_ctx *ctx) {
    return launch(ctx, DT_FLOAT, run_multiply);
}
static enum kernel_result fake_less(struct kernel_ctx *ctx) {
    return launch(ctx, DT_BOOL, run_less);
}

#define HOST(...) \
    .host_args = (const char *const[]) { __VA_ARGS__, NULL }
#define OF_CPU .flags = KERNEL_OF_CPU
#define FLOAT                 \
    {                         \
        { "T", DTYPES_FLOAT } \
    }
#define INT32                        \
    {                                \
        { "T", DTYPE_BIT(DT_INT32) } \
    }
// clang-format off
static const struct kernel_def fake_rows[] = {
    {"AddV2", INT32, HOST("x", "y", "z"), OF_CPU},
    {"AddV2", FLOAT, .compute = fake_add, .flags = KERNEL_TAKES_INLINE},
    {"Mul", FLOAT, .compute = fake_multiply},
    {"Less", INT32, HOST("x", "y", "z"), OF_CPU},
    {"Less", FLOAT, .compute = fake_less},
    {"Const", {{"dtype", DTYPE_BIT(DT_INT32)}}, HOST("output"), OF_CPU},
    {"Const", OF_CPU},
    {"Shape", HOST("output"), OF_CPU},
    {"Reshape", INT32, HOST("tensor", "shape", "output"), OF_CPU},
    {"Reshape", HOST("shape"), OF_CPU},
    {"Identity", OF_CPU},
    {"Switch", HOST("pred"), OF_CPU},
    {"Merge", HOST("value_index"), OF_CPU},
    {"Enter", INT32, HOST("data", "output"), OF_CPU},
    {"Enter", OF_CPU},
    {"Exit", OF_CPU},
    {"NextIteration", OF_CPU},
    {"LoopCond", HOST("input", "output"), OF_CPU},
    {"VariableV2", OF_CPU},
    {"Assign", OF_CPU},
    {"VarHandleOp", HOST("resource"), OF_CPU},
    {"AssignVariableOp", HOST("resource"), OF_CPU},
    {"ReadVariableOp", HOST("resource"), OF_CPU},
    {"TensorListFromTensor", HOST("element_shape"), OF_CPU},
    {"TensorListGetItem", HOST("index", "element_shape"), OF_CPU},
};
// clang-format on
static const struct kernel_list fake_list = {fake_rows, ARRAY_LEN(fake_rows)};

void fake_device_add_type(void) {
    static const struct kernel_list *const lists[] = {&fake_list};
    kernel_add_device_type("FAKE", lists, 1);
}

/* ---- life ---- */

struct fake_device *fake_device_new(const char *full_name) {
    struct fake_device *fake = xcalloc(1, sizeof *fake);
    int memory = memfd_create("fake device", MFD_CLOEXEC);
    CHECK(memory >= 0 && ftruncate(memory, MEMORY_BYTES) == 0);
    fake->seen = mmap(NULL, MEMORY_BYTES, PROT_NONE, MAP_SHARED, memory, 0);
    fake->real = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    CHECK(fake->seen != MAP_FAILED && fake->real != MAP_FAILED);
    close(memory);
    fake->allocator = (struct allocator){.name = "FAKE",
                                         .alloc = fake_alloc,
                                         .free = fake_free,
                                         .likes = fake_likes,
                                         .device_memory = &fake_memory};
    fake->device = (struct device){.full_name = (char *)(uintptr_t)full_name,
                                   .type = "FAKE",
                                   .ops = &fake_ops,
                                   .allocator = &fake->allocator,
                                   .state = fake};
    status_unref(device_name_parse(span_of(full_name), &fake->device.name));
    fake->last = &fake->first;
    pthread_mutex_init(&fake->lock, NULL);
    pthread_cond_init(&fake->changed, NULL);
    CHECK(pthread_create(&fake->thread, NULL, serve, fake) == 0);
    return fake;
}

void fake_device_free(struct fake_device *fake) {
    pthread_mutex_lock(&fake->lock);
    fake->is_closed = true;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->lock);
    pthread_join(fake->thread, NULL);
    munmap(fake->seen, MEMORY_BYTES);
    munmap(fake->real, MEMORY_BYTES);
    status_unref(fake->failure);
    pthread_mutex_destroy(&fake->lock);
    pthread_cond_destroy(&fake->changed);
    free(fake);
}

const struct device *fake_device_of(struct fake_device *fake) { return &fake->device; }

static void set_held(struct fake_device *fake, bool is_held) {
    pthread_mutex_lock(&fake->lock);
    fake->is_held = is_held;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->lock);
}

void fake_device_hold(struct fake_device *fake) { set_held(fake, true); }
void fake_device_release(struct fake_device *fake) { set_held(fake, false); }

void fake_device_limit(struct fake_device *fake, int max_queued) {
    pthread_mutex_lock(&fake->lock);
    fake->max_queued = max_queued;
    pthread_mutex_unlock(&fake->lock);
}

void fake_device_await_pause(struct fake_device *fake) {
    pthread_mutex_lock(&fake->lock);
    while (!fake->paused)
        pthread_cond_wait(&fake->changed, &fake->lock);
    pthread_mutex_unlock(&fake->lock);
}

void fake_device_fail(struct fake_device *fake, struct status *status_take) {
    pthread_mutex_lock(&fake->lock);
    status_unref(fake->failure);
    fake->failure = status_take;
    pthread_mutex_unlock(&fake->lock);
}

struct fake_counts fake_device_counts(struct fake_device *fake) {
    pthread_mutex_lock(&fake->lock);
    struct fake_counts counts = fake->counts;
    pthread_mutex_unlock(&fake->lock);
    return counts;
}

int fake_device_n_buffers(struct fake_device *fake) {
    pthread_mutex_lock(&fake->lock);
    int n = fake->n_buffers;
    pthread_mutex_unlock(&fake->lock);
    return n;
}
