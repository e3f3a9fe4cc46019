/* A mode of cuda_steps, and one of its programs: values through memory that tasks share, and
 * between devices. A mapping of the task's own arena stands for that of a peer's.
 *
 *   arena ──► GPU:0 ──► GPU:1 ──► arena ··· mapping ──► GPU:0 ──► private memory */
#include "tests/cuda/steps.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/tensor/shared_areas.h"
#include "common/tensor/shm_arena.h"
#include "rpc/shm/shm_map.h"

enum {
    N_FLOATS = (10 << 20) / 4 + 3, /* three pieces, the last one small */
    VALUE_BYTES = N_FLOATS * 4,
    ARENA_BYTES = 128 << 20,
};

static struct {
    struct loop *loop;
    struct shm_arena *arena;
    struct shm_map *map;
    uint64_t token;
    struct tensor kept;
} shared = {.kept = TENSOR_INIT};

static void on_released(void *arg) { (void)arg; }

static void open_shared(void) {
    shared.loop = loop_new();
    struct status *st = shm_arena_new(ARENA_BYTES, &shared.arena);
    CHECK(!st);
    allocator_host_set_arena(shared.arena);
    st = shm_map_new(shared.loop, dup(shm_arena_fd(shared.arena)), shm_arena_size(shared.arena),
                     on_released, NULL, &shared.map);
    CHECK(!st);
}

static void close_shared(void) {
    uint64_t *tokens;
    shm_map_take_released(shared.map, &tokens);
    free(tokens);
    shm_map_close(shared.map);
    allocator_host_set_arena(NULL);
    shm_arena_free(shared.arena);
    loop_stop(shared.loop);
    loop_run(shared.loop);
    loop_free(shared.loop);
    shared.arena = NULL;
}

/* ---- copies ---- */

static void on_copied(struct device_copy *copy) {
    atomic_store(&CONTAINER_OF(copy, struct transfer, copy)->has_ended, true);
}

static void start(struct transfer *transfer, const struct device_copy *copy,
                  const struct tensor *from) {
    *transfer = (struct transfer){.copy = *copy};
    transfer->copy.on_done = on_copied;
    tensor_copy(&transfer->copy.from, from);
    struct device *device = copy->dst ? copy->dst : copy->src;
    if (device->ops->copy_start(device, &transfer->copy))
        atomic_store(&transfer->has_ended, true);
}

void transfer_start(struct transfer *transfer, int src, int dst, struct allocator *allocator,
                    const struct tensor *from, struct tensor *ret) {
    start(transfer,
          &(struct device_copy){.src = src ? &devices[src] : NULL,
                                .dst = dst ? &devices[dst] : NULL,
                                .allocator = dst ? devices[dst].allocator : allocator,
                                .ret = ret},
          from);
}

void transfer_start_growing(struct transfer *transfer, int src, const struct tensor *from,
                            struct tensor *ret, struct buffer *growing) {
    start(transfer,
          &(struct device_copy){
              .src = &devices[src], .allocator = allocator_host(), .ret = ret, .growing = growing},
          from);
}

struct status *transfer_end(struct transfer *transfer) {
    while (!atomic_load(&transfer->has_ended))
        sched_yield();
    return transfer->copy.status;
}

static struct status *copy(int src, int dst, struct allocator *allocator, const struct tensor *from,
                           struct tensor *ret) {
    struct transfer transfer;
    transfer_start(&transfer, src, dst, allocator, from, ret);
    return transfer_end(&transfer);
}

/* ---- values ---- */

static void fill(struct tensor *value, struct allocator *allocator, uint32_t seed) {
    int64_t n = N_FLOATS;
    struct status *st = tensor_new(allocator, DT_FLOAT, (struct shape){1, &n}, value);
    CHECK(!st);
    uint32_t *bits = (uint32_t *)(uintptr_t)tensor_data(value);
    for (uint32_t i = 0; i < N_FLOATS; i++)
        bits[i] = i * 2654435761u + seed;
}

static struct status *check_bits(const struct tensor *value, uint32_t seed) {
    const uint32_t *bits = (const uint32_t *)(const void *)tensor_cdata(value);
    for (uint32_t i = 0; i < N_FLOATS; i++)
        if (bits[i] != i * 2654435761u + seed)
            return status_internal("a wrong value at %u", i);
    return NULL;
}

/* The value as a peer sees it. */
static void map_value(const struct tensor *value, struct tensor *ret) {
    struct buffer *buffer;
    uint64_t offset;
    CHECK(shm_arena_find(shared.arena, tensor_cdata(value), &offset));
    struct status *st = shm_map_take(shared.map, ++shared.token, offset, VALUE_BYTES, &buffer);
    CHECK(!st);
    shm_map_note_epoch(shared.map, offset, VALUE_BYTES,
                       shm_arena_epoch(shared.arena, offset, VALUE_BYTES));
    st = tensor_view(buffer, buffer->data, DT_FLOAT, tensor_shape(value), ret);
    CHECK(!st);
    buffer_unref(buffer);
}

/* ---- the program ---- */

static struct status *go_round(uint32_t seed, struct tensor values[6]) {
    struct allocator *in_arena = allocator_host_shared(allocator_host());
    fill(&values[0], in_arena, seed);
    TRY(copy(0, 1, NULL, &values[0], &values[1]));
    TRY(copy(1, 2, NULL, &values[1], &values[2]));
    TRY(copy(2, 0, in_arena, &values[2], &values[3]));
    TRY(check_bits(&values[3], seed));
    map_value(&values[3], &values[4]);
    tensor_clear(&values[1]);
    TRY(copy(0, 1, NULL, &values[4], &values[1]));
    TRY(copy(1, 0, allocator_host(), &values[1], &values[5]));
    return check_bits(&values[5], seed);
}

static struct status *try_round(uint32_t seed) {
    struct tensor values[6] = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT,
                               TENSOR_INIT, TENSOR_INIT, TENSOR_INIT};
    struct status *st = go_round(seed, values);
    for (int i = 0; i < 6; i++)
        tensor_clear(&values[i]);
    return st;
}

bool run_transfers_program(void) {
    int n_ok = 0;
    open_shared();
    for (int tries = 0; n_ok < 2 && tries < 2 + MAX_TRIES; tries++) {
        struct status *st = try_round((uint32_t)tries);
        printf("transfers: %s%s\n", st ? "failed: " : "ok", st ? status_message(st) : "");
        n_ok += !st;
        status_unref(st);
        allocator_host_trim(); /* the blocks of the next round have other pages */
    }
    close_shared();
    return n_ok == 2;
}

/* ---- the mode ---- */

static bool is_equal(const char *what, uint64_t value, uint64_t expected) {
    printf("%s: %llu\n", what, (unsigned long long)value);
    if (value != expected)
        printf("%s: %llu were expected\n", what, (unsigned long long)expected);
    return value == expected;
}

/* What the counts of a device have grown by. */
static bool has_counted(int device, enum device_count which, uint64_t n, const char *what) {
    uint64_t counts[N_DEVICE_COUNTS];
    devices[device].ops->counts(&devices[device], counts);
    return is_equal(what, counts[which], n) &
           is_equal("its bytes", counts[which + 1], n * VALUE_BYTES);
}

static uint64_t n_registered(void) {
    return driver.count("cuMemHostRegister") - driver.count("cuMemHostUnregister");
}

/* The owner says that pages have changed while a copy from them is under way. */
static bool release_under_way(void) {
    struct tensor value = TENSOR_INIT, made = TENSOR_INIT;
    struct transfer transfer;
    fill(&value, allocator_host_shared(allocator_host()), 7);
    struct status *st = copy(0, 1, NULL, &value, &made); /* its memory is registered */
    CHECK(!st);
    tensor_clear(&made);
    uint64_t registered = n_registered();
    unsigned long n_begun = driver.count("cuMemcpyHtoDAsync");
    CHECK(driver.hold(1) == 0);
    transfer_start(&transfer, 0, 1, NULL, &value, &made);
    await_calls("cuMemcpyHtoDAsync", n_begun + 1);
    shared_areas_release(tensor_cdata(&value), VALUE_BYTES);
    bool is_well = is_equal("registered while a copy is under way", n_registered(), registered);
    CHECK(driver.hold(0) == 0);
    st = transfer_end(&transfer);
    CHECK(!st);
    is_well &= is_equal("registered after it", n_registered(), registered - 1);
    tensor_clear(&made);
    tensor_clear(&value);
    return is_well;
}

/* The arena outlives the devices, as it does in a worker. */
static bool leave_registered(void) {
    struct tensor made = TENSOR_INIT;
    fill(&shared.kept, allocator_host_shared(allocator_host()), 8);
    struct status *st = copy(0, 1, NULL, &shared.kept, &made);
    CHECK(!st);
    tensor_clear(&made);
    return is_equal("registered when the devices are closed", n_registered(), 1);
}

static bool has_peers(void) {
    const char *peers = getenv("MILLRACE_SIM_PEERS");
    return !peers || strcmp(peers, "0") != 0;
}

bool run_transfers(void) {
    bool is_well = run_transfers_program();
    is_well &= has_counted(1, DEVICE_FROM_HOST_DIRECT, 4, "to GPU:0 from shared memory");
    is_well &= has_counted(1, DEVICE_FROM_HOST_STAGED, 0, "to GPU:0 from private memory");
    is_well &= has_counted(2, DEVICE_TO_HOST_DIRECT, 2, "from GPU:1 to shared memory");
    is_well &= has_counted(1, DEVICE_TO_HOST_STAGED, 2, "from GPU:0 to private memory");
    is_well &= has_counted(2, DEVICE_FROM_PEER_DIRECT, has_peers() ? 2 : 0, "by the devices alone");
    is_well &= has_counted(2, DEVICE_FROM_PEER_STAGED, has_peers() ? 0 : 2, "through the host");
    /* in each round two blocks of the arena, and one of the mapping, once */
    is_well &= is_equal("registrations", driver.count("cuMemHostRegister"), 6);
    is_well &= is_equal("registered", n_registered(), 0);
    open_shared();
    is_well &= release_under_way();
    is_well &= leave_registered();
    return is_well;
}

bool end_transfers(void) {
    if (!shared.arena)
        return true;
    tensor_clear(&shared.kept);
    close_shared();
    return is_equal("registered after the devices were closed", n_registered(), 0) &
           is_equal("registrations at the end", driver.count("cuMemHostRegister"), 8);
}

/* A GPU gets more memory although another one, which may use all of its memory, has failed. */
static bool grows(struct device *device) {
    enum { MORE_BYTES = 40 << 20 /* than any step that is mapped */ };
    const int64_t n = MORE_BYTES;
    struct tensor more = TENSOR_INIT;
    struct status *st =
        tensor_new_on_device(device->allocator, DT_UINT8, (struct shape){1, &n}, &more);
    printf("more memory beside it: %s\n", st ? status_message(st) : "ok");
    bool is_well = st == NULL;
    status_unref(st);
    tensor_clear(&more);
    return is_well;
}

/* GPU:0 fails while GPU:1 copies to it: that is not a failure of GPU:1. */
bool run_failing_peer(void) {
    struct tensor from = TENSOR_INIT, on_device = TENSOR_INIT, on_failed = TENSOR_INIT,
                  to = TENSOR_INIT;
    struct transfer transfer;
    fill(&from, allocator_host(), 3);
    struct status *st = copy(0, 2, NULL, &from, &on_device);
    CHECK(!st);
    CHECK(driver.hold(1) == 0);
    unsigned long n_waits = driver.count("cuStreamSynchronize");
    transfer_start(&transfer, 2, 1, NULL, &on_device, &on_failed);
    if (!has_peers()) /* the copier waits for the end */
        await_calls("cuStreamSynchronize", n_waits + 1);
    CHECK(driver.fail_device(0, CUDA_ERROR_ECC_UNCORRECTABLE) == CUDA_SUCCESS);
    CHECK(driver.hold(0) == 0);
    st = transfer_end(&transfer);
    printf("to a device that fails: %s\n", st ? status_message(st) : "ok");
    bool is_well = !st || strstr(status_message(st), "CUDA error 214");
    status_unref(st);
    tensor_clear(&on_failed);
    st = copy(0, 1, NULL, &from, &on_failed);
    printf("to it from the host: %s\n", st ? status_message(st) : "ok");
    is_well &= st != NULL;
    status_unref(st);
    st = copy(2, 0, allocator_host(), &on_device, &to);
    printf("from the other device: %s\n", st ? status_message(st) : "ok");
    is_well &= !st && !check_bits(&to, 3);
    status_unref(st);
    is_well &= grows(&devices[2]) && !devices[2].ops->failure(&devices[2]);
    tensor_clear(&from);
    tensor_clear(&on_device);
    tensor_clear(&to);
    return is_well;
}

/* ---- devices that are closed while they copy ---- */

enum { N_LEFT = 30 };

static struct last_copy {
    struct device_copy copy;
    struct tensor made;
    _Atomic int n_ended;
} last_copies[N_LEFT];

/* The value is freed before its device is. */
static void on_last_copied(struct device_copy *copy) {
    struct last_copy *last = CONTAINER_OF(copy, struct last_copy, copy);
    tensor_clear(&last->made);
    atomic_fetch_add(&last->n_ended, 1);
}

/* GPU:1 copies to GPU:0, which is closed first and has nothing to do itself. */
bool run_closing(void) {
    struct tensor from = TENSOR_INIT, on_device = TENSOR_INIT;
    struct device *src = &devices[2], *dst = &devices[1];
    fill(&from, allocator_host(), 9);
    struct status *st = copy(0, 2, NULL, &from, &on_device);
    CHECK(!st);
    for (int i = 0; i < N_LEFT; i++) {
        struct last_copy *last = &last_copies[i];
        last->made = TENSOR_INIT;
        last->copy = (struct device_copy){.src = src,
                                          .dst = dst,
                                          .allocator = dst->allocator,
                                          .ret = &last->made,
                                          .on_done = on_last_copied};
        tensor_copy(&last->copy.from, &on_device);
        if (src->ops->copy_start(src, &last->copy))
            on_last_copied(&last->copy);
    }
    is_copy_left = true;
    tensor_clear(&from);
    tensor_clear(&on_device);
    return true;
}

bool end_closing(void) {
    bool is_well = true;
    for (int i = 0; i < N_LEFT && last_copies[i].copy.on_done; i++) {
        is_well &= is_equal("copies that have ended", (uint64_t)last_copies[i].n_ended, 1);
        if (last_copies[i].copy.status)
            printf("copy %d: %s\n", i, status_message(last_copies[i].copy.status));
        is_well &= !last_copies[i].copy.status;
        status_unref(last_copies[i].copy.status);
    }
    return is_well;
}
