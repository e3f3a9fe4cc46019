/* Modes of cuda_steps: large values between private memory and a device, which several threads
 * copy. */
#include "tests/cuda/steps.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/tensor/growing_buffer.h"

enum { MIB = 1 << 20, ALONE_BYTES = 8 * MIB, LARGE_BYTES = 13 * MIB + 12 };

/* ---- values ---- */

static uint32_t bits_at(uint32_t seed, size_t i) { return (uint32_t)i * 2654435761u + seed; }

static void fill(struct tensor *value, size_t size_bytes, uint32_t seed) {
    int64_t n = (int64_t)size_bytes / 4;
    struct status *st = tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &n}, value);
    CHECK(!st);
    uint32_t *bits = (uint32_t *)(uintptr_t)tensor_data(value);
    for (size_t i = 0; i < (size_t)n; i++)
        bits[i] = bits_at(seed, i);
}

static bool is_filled(const void *data, size_t size_bytes, uint32_t seed) {
    const uint32_t *bits = data;
    for (size_t i = 0; i < size_bytes / 4; i++)
        if (bits[i] != bits_at(seed, i)) {
            printf("a wrong value at %zu of %zu\n", i, size_bytes / 4);
            return false;
        }
    return true;
}

static struct status *copy(int src, int dst, const struct tensor *from, struct tensor *ret) {
    struct transfer transfer;
    transfer_start(&transfer, src, dst, allocator_host(), from, ret);
    return transfer_end(&transfer);
}

/* To the device and back. */
static struct status *go_round(size_t size_bytes, uint32_t seed) {
    struct tensor values[3] = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT};
    fill(&values[0], size_bytes, seed);
    struct status *st = copy(0, 1, &values[0], &values[1]);
    if (!st)
        st = copy(1, 0, &values[1], &values[2]);
    if (!st && !is_filled(tensor_cdata(&values[2]), size_bytes, seed))
        st = status_internal("wrong values");
    for (int i = 0; i < 3; i++)
        tensor_clear(&values[i]);
    return st;
}

/* ---- sizes, and what they pin ---- */

static bool is_equal(const char *what, uint64_t value, uint64_t expected) {
    if (value != expected)
        printf("%s: %llu, %llu were expected\n", what, (unsigned long long)value,
               (unsigned long long)expected);
    return value == expected;
}

static bool goes_round(size_t size_bytes, uint32_t seed, uint64_t n_pinned) {
    struct status *st = go_round(size_bytes, seed);
    bool is_well = !st;
    printf("%zu bytes: %s\n", size_bytes, st ? status_message(st) : "ok");
    status_unref(st);
    return is_well & is_equal("pinned pieces", driver.count("cuMemHostAlloc"), n_pinned);
}

/* Two copiers with two pieces each, and at their first large copies the helpers'. */
static bool run_sizes(int n_threads) {
    uint64_t alone = driver.count("cuMemHostAlloc") + 4,
             n_pinned = alone + 4 * (uint64_t)(n_threads - 1);
    bool is_well = goes_round(ALONE_BYTES, 1, alone);
    is_well &= goes_round(ALONE_BYTES + 4, 2, n_pinned);
    for (size_t n = 9; n < 9 + 2 * (size_t)n_threads; n++) {
        is_well &= goes_round(n * MIB, 3 + (uint32_t)n, n_pinned);
        is_well &= goes_round(n * MIB + 4, 40 + (uint32_t)n, n_pinned);
    }
    return is_well;
}

/* ---- both ways at once ---- */

static bool run_both_ways(void) {
    enum { N = 4 };
    struct tensor from = TENSOR_INIT, on_device = TENSOR_INIT, ends[2 * N];
    struct transfer transfers[2 * N];
    bool is_well = true;
    fill(&from, LARGE_BYTES, 5);
    struct status *st = copy(0, 1, &from, &on_device);
    CHECK(!st);
    for (int i = 0; i < 2 * N; i++) {
        bool is_in = i % 2 == 0;
        ends[i] = TENSOR_INIT;
        transfer_start(&transfers[i], !is_in, is_in, allocator_host(), is_in ? &from : &on_device,
                       &ends[i]);
    }
    for (int i = 0; i < 2 * N; i++) {
        st = transfer_end(&transfers[i]);
        is_well &= !st && (i % 2 == 0 || is_filled(tensor_cdata(&ends[i]), LARGE_BYTES, 5));
        status_unref(st);
        tensor_clear(&ends[i]);
    }
    tensor_clear(&from);
    tensor_clear(&on_device);
    return is_well;
}

/* ---- growing buffers ---- */

/* Reads what is said to be filled, at each mebibyte. */
struct reader {
    struct growing_wait wait;
    struct buffer *buffer;
    bool is_well;
};

static void on_reached(struct growing_wait *wait) {
    struct reader *reader = CONTAINER_OF(wait, struct reader, wait);
    size_t filled = growing_buffer_filled(reader->buffer);
    if (growing_buffer_failure(reader->buffer))
        return;
    reader->is_well &= filled >= wait->n_bytes && is_filled(reader->buffer->data, filled, 6);
}

static bool run_growing(void) {
    enum { N = LARGE_BYTES / MIB };
    struct tensor from = TENSOR_INIT, on_device = TENSOR_INIT, none = TENSOR_INIT;
    struct reader readers[N];
    struct transfer transfer;
    fill(&from, LARGE_BYTES, 6);
    struct status *st = copy(0, 1, &from, &on_device);
    CHECK(!st);
    struct buffer *buffer = growing_buffer_new(allocator_host(), LARGE_BYTES);
    CHECK(buffer);
    for (size_t i = 0; i < N; i++) {
        readers[i] = (struct reader){.wait.on_reached = on_reached, .buffer = buffer, .is_well = 1};
        CHECK(!growing_buffer_wait(buffer, &readers[i].wait, (i + 1) * MIB));
    }
    transfer_start_growing(&transfer, 1, &on_device, &none, buffer);
    st = transfer_end(&transfer);
    bool is_well = !st && is_equal("filled", growing_buffer_filled(buffer), LARGE_BYTES);
    growing_buffer_end(buffer, st);
    for (size_t i = 0; i < N; i++)
        is_well &= readers[i].is_well;
    is_well = is_well && is_filled(buffer->data, LARGE_BYTES, 6);
    status_unref(st);
    buffer_unref(buffer);
    tensor_clear(&from);
    tensor_clear(&on_device);
    return is_well;
}

/* ---- failures ---- */

/* The nth call of a kind from now fails, in whichever thread makes it: the copy fails with its
 * error, and the next one succeeds. */
static bool fails_once(const char *call, unsigned long n) {
    char expected[128];
    CHECK(driver.fail(call, n, CUDA_ERROR_UNKNOWN) == 0);
    struct status *st = go_round(LARGE_BYTES, (uint32_t)n);
    snprintf(expected, sizeof expected, "%s failed", call);
    const char *named = st ? strstr(status_message(st), expected) : NULL;
    bool is_well = named && strstr(status_message(st), "CUDA error 999") &&
                   !strstr(named + strlen(expected), " failed");
    if (!is_well)
        printf("%s %lu: %s\n", call, n, st ? status_message(st) : "no failure");
    status_unref(st);
    st = go_round(LARGE_BYTES, 7);
    if (st)
        printf("after %s %lu: %s\n", call, n, status_message(st));
    is_well &= !st;
    status_unref(st);
    return is_well;
}

static bool run_failing(void) {
    static const char *const calls[] = {"cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuEventRecord",
                                        "cuEventSynchronize"};
    unsigned long n_calls = n_copy_threads > 1 ? 8 : 4; /* one thread copies larger pieces */
    bool is_well = true;
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        for (unsigned long n = 1; n <= n_calls; n++)
            is_well &= fails_once(calls[i], n);
    return is_well;
}

/* ---- the end ---- */

static struct {
    struct transfer transfer;
    struct tensor from, to;
} left = {.from = TENSOR_INIT, .to = TENSOR_INIT};

/* The device is closed while a copy is under way. */
static void leave_copy(void) {
    struct tensor from = TENSOR_INIT;
    fill(&from, LARGE_BYTES, 8);
    struct status *st = copy(0, 1, &from, &left.from);
    CHECK(!st);
    tensor_clear(&from);
    transfer_start(&left.transfer, 1, 0, allocator_host(), &left.from, &left.to);
    tensor_clear(&left.from);
    is_copy_left = true;
}

bool end_team(void) {
    if (!left.transfer.copy.on_done)
        return true;
    CHECK(atomic_load(&left.transfer.has_ended));
    struct status *st = transfer_end(&left.transfer);
    bool is_well = !st && is_filled(tensor_cdata(&left.to), LARGE_BYTES, 8);
    status_unref(st);
    tensor_clear(&left.to);
    return is_well;
}

bool run_team(void) {
    bool is_well = run_sizes(n_copy_threads);
    is_well &= run_both_ways();
    is_well &= run_growing();
    is_well &= run_failing();
    leave_copy();
    return is_well;
}
