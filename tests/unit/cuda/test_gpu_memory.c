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
    CUdevice_attribute lacks;         /* what it does not support; 0: nothing */
    size_t reserved_bytes, end_bytes; /* what is mapped is [0, end) */
    int n_access_calls;
    CUdevice lost;                         /* cuMemSetAccess fails for it; 0: none */
    char access[2 + GPU_MEMORY_MAX_USERS]; /* the devices that got access last, as digits */
} driver;

static CUresult next_call(void) {
    return driver.fail_in > 0 && --driver.fail_in == 0 ? driver.error : CUDA_SUCCESS;
}

static CUresult get_attribute(int *ret, CUdevice_attribute attribute, CUdevice device) {
    *ret = attribute == driver.lacks ? 0 : 512;
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
    bool has_descriptors =
        driver.lacks != CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
    assert_int_equal(properties->requested_handle_types,
                     has_descriptors ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0);
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
    CUresult error = next_call();
    driver.n_access_calls++;
    for (size_t i = 0; i < n; i++)
        if (driver.lost != 0 && access[i].location.id == driver.lost)
            error = CUDA_ERROR_UNKNOWN;
    for (size_t i = 0; error == CUDA_SUCCESS && i < n; i++) {
        size_t len = strlen(driver.access);
        assert_true(len + 1 < sizeof driver.access);
        driver.access[len] = (char)('0' + access[i].location.id);
    }
    return error;
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
    struct status *st = gpu_memory_alloc(&memory, GPU_PLACE_NONE, size_bytes, &block, &free_number);
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
    struct status *st = gpu_memory_alloc(&memory, GPU_PLACE_NONE, size_bytes, &block, &free_number);
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
    assert_null(gpu_memory_alloc(&memory, GPU_PLACE_NONE, 1024, &block, &free_number));
    assert_int_equal(free_number, 7);
    release_block(block);
}

static void each_part_of_a_block_carries_the_number_of_its_free(void **state) {
    struct gpu_block *parts[3] = {alloc(1536)};
    memory.enqueued = 7;
    release_block(parts[0]);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        uint64_t free_number = 0;
        assert_null(gpu_memory_alloc(&memory, GPU_PLACE_NONE, 512, &parts[i], &free_number));
        assert_int_equal(free_number, 7);
    }
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        release_block(parts[i]);
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

/* Never more than what was asked for, unless that is less than the driver can map. */
static void a_limit_is_rounded_down(void **state) {
    static const struct {
        size_t asked_mib, limit_mib, step_mib;
    } cases[] = {{0, 2, 2},    {1, 2, 2},       {3, 2, 2},        {31, 30, 30},
                 {32, 32, 32}, {33, 32, 32},    {40, 40, 20},     {63, 60, 30},
                 {96, 96, 32}, {1000, 992, 32}, {1884, 1856, 32}, {81559, 81536, 32}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        memset(&driver, 0, sizeof(driver));
        assert_null(gpu_memory_init(&memory, &api, 0, cases[i].asked_mib * MIB + 1));
        assert_int_equal(memory.limit_bytes, cases[i].limit_mib * MIB);
        assert_int_equal(memory.step_bytes, cases[i].step_mib * MIB);
        close_memory(state);
    }
}

/* Each call of the driver fails once: a status, and nothing is lost. */
static void a_driver_that_fails_loses_nothing(void **state) {
    for (int call = 1; call <= 3; call++) {
        struct gpu_block *block = NULL;
        uint64_t free_number;
        driver.fail_in = call;
        driver.error = CUDA_ERROR_OUT_OF_MEMORY;
        struct status *st = gpu_memory_alloc(&memory, GPU_PLACE_NONE, 512, &block, &free_number);
        assert_int_equal(status_code(st), STATUS_RESOURCE_EXHAUSTED);
        status_unref(st);
        gpu_memory_check(&memory);
        assert_int_equal(driver.n_created, 0);
        assert_int_equal(driver.n_mapped, 0);
    }
    release_block(alloc(512));
}

/* As if another process held the rest. The steps before the refused one are given back to it. */
static void steps_that_do_not_suffice_are_given_back(void **state) {
    struct gpu_block *half = alloc(STEP / 2);
    for (int call = 4; call <= 6; call++) { /* of the second step of three */
        driver.fail_in = call;
        driver.error = CUDA_ERROR_OUT_OF_MEMORY;
        expect_exhausted(3 * (size_t)STEP);
        assert_int_equal(driver.n_created, 1);
        assert_int_equal(driver.n_mapped, 1);
    }
    release_block(alloc(STEP / 2)); /* what was free at the end still is */
    assert_int_equal(driver.n_mapped, 1);
    release_block(half);
    driver.fail_in = 7;
    expect_exhausted(4 * (size_t)STEP);
    assert_int_equal(driver.n_mapped, 1);
    release_block(alloc(4 * (size_t)STEP));
    assert_int_equal(driver.n_mapped, 4);
}

static void a_reservation_that_fails_is_told(void **state) {
    memset(&driver, 0, sizeof(driver));
    enum { N_CALLS = 7 }; /* four questions, alignment, granularity, the reservation */
    for (int call = 1; call <= N_CALLS; call++) {
        driver.fail_in = call;
        driver.error = CUDA_ERROR_UNKNOWN;
        struct status *st = gpu_memory_init(&memory, &api, 0, STEP);
        assert_int_equal(status_code(st), STATUS_INTERNAL);
        status_unref(st);
        gpu_memory_fini(&memory);
    }
}

static void memory_without_descriptors_asks_for_none(void **state) {
    memset(&driver, 0, sizeof(driver));
    driver.lacks = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
    assert_null(gpu_memory_init(&memory, &api, 0, STEP));
    release_block(alloc(512)); /* create() looks */
    close_memory(NULL);
}

static void a_device_that_cannot_map_is_not_implemented(void **state) {
    memset(&driver, 0, sizeof(driver));
    driver.lacks = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    struct status *st = gpu_memory_init(&memory, &api, 0, STEP);
    assert_int_equal(status_code(st), STATUS_UNIMPLEMENTED);
    status_unref(st);
    gpu_memory_fini(&memory);
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
        struct status *st = gpu_memory_alloc(&memory, GPU_PLACE_NONE, size + (random >> 16) % size,
                                             slot, &free_number);
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

/* ---- places ---- */

static struct gpu_block *alloc_at_site(uint64_t site, size_t size_bytes) {
    struct gpu_block *block = NULL;
    uint64_t free_number;
    struct status *st = gpu_memory_alloc(&memory, site, size_bytes, &block, &free_number);
    if (st)
        fail_msg("%s", status_message(st));
    gpu_memory_check(&memory);
    return block;
}

/* A value that another thread still holds is where the best fit would be. */
static void a_site_keeps_its_place_whatever_else_is_free(void **state) {
    struct gpu_block *first = alloc(4096), *own = alloc_at_site(1, 4096);
    CUdeviceptr place = own->address;
    release_block(own);
    release_block(first); /* now the best fit is elsewhere */
    own = alloc_at_site(1, 4096);
    assert_int_equal(own->address, place);
    release_block(own);
    struct gpu_block *other = alloc_at_site(2, 4096);
    assert_int_equal(other->address, BASE);
    release_block(other);
    assert_int_equal(memory.n_moved, 0);
}

static void who_finds_its_place_taken_moves_once(void **state) {
    struct gpu_block *own = alloc_at_site(1, MIB);
    CUdeviceptr before = own->address;
    release_block(own);
    struct gpu_block *intruder = alloc(MIB);
    assert_int_equal(intruder->address, before);
    own = alloc_at_site(1, MIB);
    CUdeviceptr after = own->address;
    assert_int_not_equal(after, before);
    assert_int_equal(memory.n_moved, 1);
    release_block(own);
    release_block(intruder);
    own = alloc_at_site(1, MIB); /* it does not go back */
    assert_int_equal(own->address, after);
    assert_int_equal(memory.n_moved, 1);
    release_block(own);
}

enum { N_ROW = 6 };

/* The next free hole is the next site's place, so a block that went there would move all others. */
static void a_value_that_moves_takes_nobodys_place(void **state) {
    struct gpu_block *row[N_ROW];
    CUdeviceptr places[N_ROW];
    for (uint64_t i = 0; i < N_ROW; i++) {
        row[i] = alloc_at_site(10 + i, 4096);
        places[i] = row[i]->address;
    }
    for (int i = 0; i < N_ROW; i++)
        release_block(row[i]);
    struct gpu_block *intruder = alloc(4096);
    assert_int_equal(intruder->address, places[0]);
    for (uint64_t i = 0; i < N_ROW; i++) {
        row[i] = alloc_at_site(10 + i, 4096);
        assert_true(i == 0 ? row[i]->address > places[N_ROW - 1] : row[i]->address == places[i]);
    }
    assert_int_equal(memory.n_moved, 1);
    for (int i = 0; i < N_ROW; i++)
        release_block(row[i]);
    release_block(intruder);
}

/* Both places of the site are taken each time. Fresh memory is given to the values until its share
 * of the limit is used up. */
static void values_that_move_for_ever_need_no_more_memory(void **state) {
    enum { N_MOVES = 200, N_HELD = 4 };
    struct gpu_block *live[N_HELD] = {NULL};
    for (int i = 0; i < N_MOVES; i++) {
        struct gpu_block *block = alloc_at_site(1, MIB / 2);
        release_block(live[i % N_HELD]);
        live[i % N_HELD] = block;
    }
    for (int i = 0; i < N_HELD; i++)
        release_block(live[i]);
    assert_int_equal(memory.n_moved, N_MOVES - 1);
    assert_int_equal(memory.fresh_bytes, memory.limit_bytes / 16);
    assert_true(memory.mapped_bytes <= STEP);
}

enum { N_ASSIGNED = 3, N_PASSING = 8, N_SETTLING = 3, N_TRAINED = 40 };

/* Each step computes the next value of some variables, which hold their blocks until then, among
 * blocks that pass. After a few steps all that passes has its address, and a variable has two. */
static void values_that_move_in_each_step_move_nothing_else(void **state) {
    struct gpu_block *variables[N_ASSIGNED], *passing[N_PASSING];
    CUdeviceptr places[N_PASSING] = {0}, held[2][N_ASSIGNED] = {{0}};
    for (int v = 0; v < N_ASSIGNED; v++)
        variables[v] = alloc(512);
    for (int step = 0; step < N_TRAINED; step++) {
        for (uint64_t i = 0; i < N_PASSING; i++) {
            passing[i] = alloc_at_site(100 + i, i % 2 ? 512 : 8192 * (i + 1));
            if (step > N_SETTLING)
                assert_int_equal(passing[i]->address, places[i]);
            places[i] = passing[i]->address;
        }
        for (int i = 0; i < N_PASSING; i++)
            release_block(passing[i]);
        for (uint64_t v = 0; v < N_ASSIGNED; v++) {
            struct gpu_block *value = alloc_at_site(200 + v, 512);
            release_block(variables[v]);
            variables[v] = value;
            if (step > N_SETTLING)
                assert_int_equal(value->address, held[step % 2][v]);
            held[step % 2][v] = value->address;
        }
    }
    for (int v = 0; v < N_ASSIGNED; v++)
        release_block(variables[v]);
}

/* They part what is free. */
static void no_place_is_taken_once_half_of_the_limit_was_used(void **state) {
    struct gpu_block *first = alloc(STEP), *middle = alloc_at_site(1, MIB);
    CUdeviceptr place = middle->address;
    release_block(middle);
    release_block(first);
    middle = alloc_at_site(1, MIB);
    assert_int_equal(middle->address, place);
    release_block(middle);
    release_block(alloc(2 * (size_t)STEP + MIB));
    middle = alloc_at_site(1, MIB);
    assert_int_equal(middle->address, BASE);
    release_block(middle);
    release_block(alloc(4 * (size_t)STEP));
}

/* More sites than are kept, in an order that no step repeats. */
static void random_sites_never_overlap(void **state) {
    struct gpu_block *live[N_LIVE] = {NULL};
    uint64_t random = 2463534242u;
    for (int i = 0; i < N_RANDOM; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        struct gpu_block **slot = &live[random % N_LIVE];
        if (*slot) {
            gpu_memory_free(&memory, *slot);
            *slot = NULL;
            continue;
        }
        uint64_t site = random >> 40 & (i % 2 ? 0xff : 0xfffff), free_number;
        size_t size = (size_t)512 << site % 14;
        struct status *st = gpu_memory_alloc(&memory, site, size, slot, &free_number);
        assert_null(st);
        for (int k = 0; k < N_LIVE; k++)
            assert_true(!live[k] || &live[k] == slot ||
                        live[k]->address + live[k]->size_bytes <= (*slot)->address ||
                        (*slot)->address + (*slot)->size_bytes <= live[k]->address);
        if (i % 64 == 0)
            gpu_memory_check(&memory);
    }
    for (int i = 0; i < N_LIVE; i++)
        gpu_memory_free(&memory, live[i]);
    gpu_memory_check(&memory);
    assert_int_equal(memory.used_bytes, 0);
    release_block(alloc(4 * (size_t)STEP));
}

static void expect_access(struct gpu_block *block, int n_calls, const char *devices) {
    assert_non_null(block);
    assert_int_equal(driver.n_access_calls, n_calls);
    assert_string_equal(driver.access, devices);
    memset(driver.access, 0, sizeof driver.access);
    driver.n_access_calls = 0;
}

/* The peer has fallen off the bus. The others use what is mapped then, too. */
static void a_peer_that_is_lost_is_left_out(void **state) {
    struct gpu_block *blocks[3];
    for (CUdevice peer = 1; peer <= 3; peer++)
        gpu_memory_let_use(&memory, peer);
    expect_access(blocks[0] = alloc(STEP), 1, "0123");
    driver.lost = 2;
    expect_access(blocks[1] = alloc(STEP), 1 + 4, "013");
    expect_access(blocks[2] = alloc(STEP), 1, "013");
    for (CUdevice device = 0; device <= 4; device++)
        assert_int_equal(gpu_memory_is_usable_by(&memory, device), device != 2 && device != 4);
    for (int i = 0; i < 3; i++)
        release_block(blocks[i]);
}

static void a_failure_of_the_device_itself_leaves_nobody_out(void **state) {
    struct gpu_block *block = NULL;
    uint64_t free_number;
    gpu_memory_let_use(&memory, 1);
    driver.lost = memory.device = 5;
    memory.users[0] = 5;
    struct status *st = gpu_memory_alloc(&memory, GPU_PLACE_NONE, STEP, &block, &free_number);
    assert_non_null(strstr(status_message(st), "cuMemSetAccess failed: "));
    status_unref(st);
    assert_true(gpu_memory_is_usable_by(&memory, 1));
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
        WITH_MEMORY(each_part_of_a_block_carries_the_number_of_its_free),
        WITH_MEMORY(what_is_unused_returns_to_the_driver),
        WITH_MEMORY(who_has_registered_memory_hears_before_it_is_unmapped),
        WITH_MEMORY(a_range_grows_to_whole_steps),
        cmocka_unit_test(a_limit_is_rounded_down),
        WITH_MEMORY(a_driver_that_fails_loses_nothing),
        WITH_MEMORY(steps_that_do_not_suffice_are_given_back),
        cmocka_unit_test(a_reservation_that_fails_is_told),
        cmocka_unit_test(memory_without_descriptors_asks_for_none),
        cmocka_unit_test(a_device_that_cannot_map_is_not_implemented),
        WITH_MEMORY(random_blocks_never_overlap),
        WITH_MEMORY(a_site_keeps_its_place_whatever_else_is_free),
        WITH_MEMORY(who_finds_its_place_taken_moves_once),
        WITH_MEMORY(a_value_that_moves_takes_nobodys_place),
        WITH_MEMORY(values_that_move_for_ever_need_no_more_memory),
        WITH_MEMORY(values_that_move_in_each_step_move_nothing_else),
        WITH_MEMORY(no_place_is_taken_once_half_of_the_limit_was_used),
        WITH_MEMORY(random_sites_never_overlap),
        WITH_MEMORY(a_peer_that_is_lost_is_left_out),
        WITH_MEMORY(a_failure_of_the_device_itself_leaves_nobody_out),
        cmocka_unit_test(errors_are_told_in_words),
        cmocka_unit_test(a_machine_without_a_driver_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
