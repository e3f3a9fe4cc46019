/* The allocator of a GPU's memory, over a driver made of counters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/base.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/gpu_memory.h"

enum { MIB = 1 << 20, STEP = 32 * MIB, BASE = 0x10000000 };

/* ---- the driver ---- */

static struct {
    int n_created, n_mapped, n_accessible; /* alive */
    int fail_in;                           /* the call that fails, counted down; 0: none does */
    CUresult error;
    size_t reserved_bytes, end_bytes; /* what is mapped is [0, end) */
} driver;

static CUresult next_call(void) {
    return driver.fail_in > 0 && --driver.fail_in == 0 ? driver.error : CUDA_SUCCESS;
}

static CUresult get_attribute(int *ret, CUdevice_attribute attribute, CUdevice device) {
    *ret = 512;
    return next_call();
}
static CUresult get_granularity(size_t *ret, const CUmemAllocationProp *properties,
                                unsigned option) {
    *ret = 2 * MIB;
    return next_call();
}
static CUresult reserve(CUdeviceptr *ret, size_t size, size_t alignment, CUdeviceptr hint,
                        unsigned long long flags) {
    CUresult error = next_call();
    if (error == CUDA_SUCCESS) {
        *ret = BASE;
        driver.reserved_bytes = size;
    }
    return error;
}
static CUresult unreserve(CUdeviceptr address, size_t size) {
    assert_int_equal(address, BASE);
    assert_int_equal(size, driver.reserved_bytes);
    driver.reserved_bytes = 0;
    return CUDA_SUCCESS;
}
static CUresult create(CUmemGenericAllocationHandle *ret, size_t size,
                       const CUmemAllocationProp *properties, unsigned long long flags) {
    CUresult error = next_call();
    assert_int_equal(size, STEP);
    if (error == CUDA_SUCCESS)
        *ret = (CUmemGenericAllocationHandle)++driver.n_created;
    return error;
}
static CUresult release(CUmemGenericAllocationHandle handle) {
    driver.n_created--;
    return CUDA_SUCCESS;
}
static CUresult map(CUdeviceptr address, size_t size, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags) {
    CUresult error = next_call();
    if (error != CUDA_SUCCESS)
        return error;
    assert_int_equal(address, BASE + driver.end_bytes);
    driver.end_bytes += size;
    assert_true(driver.end_bytes <= driver.reserved_bytes);
    driver.n_mapped++;
    return CUDA_SUCCESS;
}
static CUresult unmap(CUdeviceptr address, size_t size) {
    driver.end_bytes -= size;
    assert_int_equal(address, BASE + driver.end_bytes);
    driver.n_mapped--;
    return CUDA_SUCCESS;
}
static CUresult set_access(CUdeviceptr address, size_t size, const CUmemAccessDesc *access,
                           size_t n) {
    return next_call();
}

static const struct driver_api api = {.cuDeviceGetAttribute = get_attribute,
                                      .cuMemGetAllocationGranularity = get_granularity,
                                      .cuMemAddressReserve = reserve,
                                      .cuMemAddressFree = unreserve,
                                      .cuMemCreate = create,
                                      .cuMemRelease = release,
                                      .cuMemMap = map,
                                      .cuMemUnmap = unmap,
                                      .cuMemSetAccess = set_access};

/* ---- tests ---- */

static struct gpu_memory memory;

static int open_memory(void **state) {
    memset(&driver, 0, sizeof(driver));
    assert_null(gpu_memory_init(&memory, &api, 0, 4 * (size_t)STEP));
    return 0;
}

static int close_memory(void **state) {
    gpu_memory_fini(&memory);
    assert_int_equal(driver.n_created, 0);
    assert_int_equal(driver.n_mapped, 0);
    assert_int_equal(driver.reserved_bytes, 0);
    return 0;
}

static struct gpu_block *alloc(size_t size_bytes) {
    struct gpu_block *block = NULL;
    uint64_t free_number;
    struct status *st = gpu_memory_alloc(&memory, size_bytes, &block, &free_number);
    if (st)
        fail_msg("%s", status_message(st));
    gpu_memory_check(&memory);
    return block;
}

static void release_block(struct gpu_block *block) {
    gpu_memory_free(&memory, block);
    gpu_memory_check(&memory);
}

static void expect_exhausted(size_t size_bytes) {
    struct gpu_block *block = NULL;
    uint64_t free_number;
    struct status *st = gpu_memory_alloc(&memory, size_bytes, &block, &free_number);
    assert_int_equal(status_code(st), STATUS_RESOURCE_EXHAUSTED);
    status_unref(st);
    assert_null(block);
    gpu_memory_check(&memory);
}

static void nothing_is_mapped_before_it_is_needed(void **state) {
    assert_int_equal(driver.n_mapped, 0);
    struct gpu_block *block = alloc(1);
    assert_int_equal(driver.n_mapped, 1);
    assert_int_equal(block->size_bytes, 512);
    assert_int_equal(block->address, BASE);
    release_block(block);
}

/* A block may be larger than a step, and it uses the free end of the step before. */
static void a_large_block_spans_steps(void **state) {
    struct gpu_block *small = alloc(STEP / 2), *large = alloc(2 * (size_t)STEP);
    assert_int_equal(driver.n_mapped, 3);
    assert_int_equal(large->address, BASE + STEP / 2);
    release_block(small);
    release_block(large);
    struct gpu_block *all = alloc(4 * (size_t)STEP);
    assert_int_equal(driver.n_mapped, 4);
    release_block(all);
}

static void the_best_fit_is_taken(void **state) {
    struct gpu_block *blocks[7];
    static const size_t sizes[] = {4096, 512, 2048, 512, 2560, 512, MIB};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        blocks[i] = alloc(sizes[i]);
    CUdeviceptr middle = blocks[2]->address;
    release_block(blocks[0]);
    release_block(blocks[4]);
    release_block(blocks[2]);
    struct gpu_block *block = alloc(2000);
    assert_int_equal(block->address, middle);
    release_block(block);
    for (int i = 1; i < 7; i += 2)
        release_block(blocks[i]);
    release_block(blocks[6]);
}

static void what_does_not_fit_is_refused_and_costs_nothing(void **state) {
    struct gpu_block *block = alloc(3 * (size_t)STEP + 1);
    expect_exhausted(STEP);
    expect_exhausted(5 * (size_t)STEP);
    expect_exhausted(SIZE_MAX);
    release_block(block);
    release_block(alloc(4 * (size_t)STEP));
}

/* The caller learns how far the compute stream had come when some part of the block was freed. */
static void a_block_carries_the_number_of_its_latest_free(void **state) {
    struct gpu_block *a = alloc(512), *b = alloc(512), *block = NULL;
    uint64_t free_number;
    memory.enqueued = 7;
    release_block(b);
    memory.enqueued = 5;
    release_block(a);
    assert_null(gpu_memory_alloc(&memory, 1024, &block, &free_number));
    assert_int_equal(free_number, 7);
    release_block(block);
}

static void what_is_unused_returns_to_the_driver(void **state) {
    struct gpu_block *first = alloc(512), *last = alloc(3 * (size_t)STEP);
    assert_int_equal(driver.n_mapped, 4);
    release_block(last);
    gpu_memory_trim(&memory);
    gpu_memory_check(&memory);
    assert_int_equal(driver.n_mapped, 1);
    release_block(first);
    gpu_memory_trim(&memory);
    assert_int_equal(driver.n_mapped, 0);
    release_block(alloc(MIB));
}

static size_t n_announced;

static void note_release(void *arg, const char *data, size_t size_bytes) {
    assert_int_equal((uintptr_t)data, BASE + driver.end_bytes - STEP); /* it is mapped still */
    assert_int_equal(size_bytes, STEP);
    n_announced++;
}

static void who_has_registered_memory_hears_before_it_is_unmapped(void **state) {
    n_announced = 0;
    allocator_host_set_release_hook(note_release, NULL);
    release_block(alloc(3 * (size_t)STEP));
    assert_int_equal(n_announced, 0);
    gpu_memory_trim(&memory);
    allocator_host_set_release_hook(NULL, NULL);
    assert_int_equal(n_announced, 3);
    assert_int_equal(driver.n_mapped, 0);
}

static void a_range_grows_to_whole_steps(void **state) {
    static const struct {
        size_t offset, size_bytes, begin, end;
    } cases[] = {{0, 1, 0, STEP},
                 {STEP - 1, 1, 0, STEP},
                 {STEP - 1, 2, 0, 2 * (size_t)STEP},
                 {STEP, STEP, STEP, 2 * (size_t)STEP}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CUdeviceptr start = BASE + cases[i].offset;
        size_t size_bytes = cases[i].size_bytes;
        gpu_memory_widen(&memory, &start, &size_bytes);
        assert_int_equal(start, BASE + cases[i].begin);
        assert_int_equal(size_bytes, cases[i].end - cases[i].begin);
    }
}

/* Each call of the driver fails once: a status, and nothing is lost. */
static void a_driver_that_fails_loses_nothing(void **state) {
    for (int call = 1; call <= 3; call++) {
        struct gpu_block *block = NULL;
        uint64_t free_number;
        driver.fail_in = call;
        driver.error = CUDA_ERROR_OUT_OF_MEMORY;
        struct status *st = gpu_memory_alloc(&memory, 512, &block, &free_number);
        assert_int_equal(status_code(st), STATUS_RESOURCE_EXHAUSTED);
        status_unref(st);
        gpu_memory_check(&memory);
        assert_int_equal(driver.n_created, 0);
        assert_int_equal(driver.n_mapped, 0);
    }
    release_block(alloc(512));
}

static void a_reservation_that_fails_is_told(void **state) {
    memset(&driver, 0, sizeof(driver));
    for (int call = 1; call <= 3; call++) {
        driver.fail_in = call;
        driver.error = CUDA_ERROR_UNKNOWN;
        struct status *st = gpu_memory_init(&memory, &api, 0, STEP);
        assert_int_equal(status_code(st), STATUS_INTERNAL);
        status_unref(st);
        gpu_memory_fini(&memory);
    }
}

enum { N_LIVE = 64, N_RANDOM = 20000 };

static void random_blocks_never_overlap(void **state) {
    struct gpu_block *live[N_LIVE] = {NULL};
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < N_RANDOM; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        struct gpu_block **slot = &live[random % N_LIVE];
        uint64_t free_number;
        if (*slot) {
            gpu_memory_free(&memory, *slot);
            *slot = NULL;
            continue;
        }
        size_t size = (size_t)1 << (random >> 8) % 24;
        struct status *st =
            gpu_memory_alloc(&memory, size + (random >> 16) % size, slot, &free_number);
        assert_true(!st || status_code(st) == STATUS_RESOURCE_EXHAUSTED);
        status_unref(st);
        if (i % 64 == 0)
            gpu_memory_check(&memory);
    }
    for (int i = 0; i < N_LIVE; i++)
        gpu_memory_free(&memory, live[i]);
    gpu_memory_check(&memory);
    assert_int_equal(memory.used_bytes, 0);
    release_block(alloc(4 * (size_t)STEP));
}

static void errors_are_told_in_words(void **state) {
    assert_null(driver_status(CUDA_SUCCESS, "cuInit"));
    struct status *st = driver_status(CUDA_ERROR_ILLEGAL_ADDRESS, "cuLaunchKernel");
    assert_int_equal(status_code(st), STATUS_INTERNAL);
    assert_non_null(strstr(status_message(st), "cuLaunchKernel failed: "));
    assert_non_null(strstr(status_message(st), "CUDA_ERROR_ILLEGAL_ADDRESS, CUDA error 700"));
    status_unref(st);
    assert_true(driver_error_is_sticky(CUDA_ERROR_ILLEGAL_ADDRESS));
    assert_false(driver_error_is_sticky(CUDA_ERROR_OUT_OF_MEMORY));
}

static void a_machine_without_a_driver_says_so(void **state) {
    struct driver_api none;
    const struct driver_checker *checker;
    struct status *st = driver_open("libno-such-driver.so.1", &none, &checker);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    assert_non_null(strstr(status_message(st), "no CUDA driver: "));
    assert_non_null(strstr(status_message(st), "libno-such-driver.so.1"));
    status_unref(st);
    st = driver_open("libm.so.6", &none, &checker);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    assert_non_null(strstr(status_message(st), "libm.so.6 has no cuInit"));
    status_unref(st);
}

#define WITH_MEMORY(name) cmocka_unit_test_setup_teardown(name, open_memory, close_memory)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_MEMORY(nothing_is_mapped_before_it_is_needed),
        WITH_MEMORY(a_large_block_spans_steps),
        WITH_MEMORY(the_best_fit_is_taken),
        WITH_MEMORY(what_does_not_fit_is_refused_and_costs_nothing),
        WITH_MEMORY(a_block_carries_the_number_of_its_latest_free),
        WITH_MEMORY(what_is_unused_returns_to_the_driver),
        WITH_MEMORY(who_has_registered_memory_hears_before_it_is_unmapped),
        WITH_MEMORY(a_range_grows_to_whole_steps),
        WITH_MEMORY(a_driver_that_fails_loses_nothing),
        cmocka_unit_test(a_reservation_that_fails_is_told),
        WITH_MEMORY(random_blocks_never_overlap),
        cmocka_unit_test(errors_are_told_in_words),
        cmocka_unit_test(a_machine_without_a_driver_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
