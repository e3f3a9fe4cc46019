/* Registered host memory, over a driver of this program's own, whose calls fail or hang. Nothing
 * touches the memory, so it is only reserved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "common/tensor/shared_areas.h"
#include "kernels/cuda/gpu_host_memory.h"

#define GIB ((size_t)1 << 30)
#define AREA_BYTES (20 * GIB)

/* ---- the driver ---- */

static struct {
    pthread_mutex_t lock; /* guards all of this */
    pthread_cond_t changed;
    int n_registered, n_unregistered; /* calls that succeeded */
    int n_hanging;
    bool is_hanging; /* calls of cuMemHostRegister */
    CUcontext refusing;
    CUresult refusal;
    int n_failures_left; /* of cuMemHostUnregister */
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Thread_local CUcontext context;

static CUresult set_current(CUcontext wanted) {
    context = wanted;
    return CUDA_SUCCESS;
}

static CUresult get_attribute(int *ret, CUdevice_attribute which, CUdevice device) {
    *ret = 1;
    return CUDA_SUCCESS;
}

static CUresult host_register(void *pointer, size_t size_bytes, unsigned flags) {
    pthread_mutex_lock(&driver.lock);
    driver.n_hanging += driver.is_hanging;
    pthread_cond_broadcast(&driver.changed);
    while (driver.is_hanging)
        pthread_cond_wait(&driver.changed, &driver.lock);
    CUresult error = driver.refusing && context == driver.refusing ? driver.refusal : CUDA_SUCCESS;
    driver.n_registered += error == CUDA_SUCCESS;
    pthread_mutex_unlock(&driver.lock);
    return error;
}

static CUresult host_unregister(void *pointer) {
    pthread_mutex_lock(&driver.lock);
    bool fails = driver.n_failures_left > 0;
    driver.n_failures_left -= fails;
    driver.n_unregistered += !fails;
    pthread_mutex_unlock(&driver.lock);
    return fails ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static const struct driver_api api = {.cuCtxSetCurrent = set_current,
                                      .cuDeviceGetAttribute = get_attribute,
                                      .cuMemHostRegister = host_register,
                                      .cuMemHostUnregister = host_unregister};

static void let_hang(bool is_hanging) {
    pthread_mutex_lock(&driver.lock);
    driver.is_hanging = is_hanging;
    pthread_cond_broadcast(&driver.changed);
    pthread_mutex_unlock(&driver.lock);
}

static void await_hanging(void) {
    pthread_mutex_lock(&driver.lock);
    while (driver.n_hanging == 0)
        pthread_cond_wait(&driver.changed, &driver.lock);
    pthread_mutex_unlock(&driver.lock);
}

/* ---- values ---- */

static struct gpu_device gpus[2];
static char *area;

struct value {
    struct buffer buffer;
    struct tensor tensor;
};

static void place(struct value *value, size_t offset, size_t size_bytes) {
    value->buffer = (struct buffer){.n_refs = 1, .size_bytes = size_bytes, .data = area + offset};
    value->tensor = (struct tensor){.dtype = DT_UINT8,
                                    .rank = 1,
                                    .storage = TENSOR_BUFFER,
                                    .n_elements = (int64_t)size_bytes,
                                    .dims = {(int64_t)size_bytes},
                                    .buffer = &value->buffer,
                                    .data = value->buffer.data};
}

static struct gpu_host_range *use(int gpu, size_t offset, size_t size_bytes) {
    struct value value;
    place(&value, offset, size_bytes);
    return gpu_host_memory_use(&gpus[gpu], &value.tensor, true);
}

static bool is_used_once(int gpu, size_t offset, size_t size_bytes) {
    struct gpu_host_range *range = use(gpu, offset, size_bytes);
    gpu_host_memory_unuse(range);
    return range;
}

static int setup(void **state) {
    for (int i = 0; i < 2; i++)
        gpus[i] = (struct gpu_device){
            .api = &api, .ordinal = i, .context = (CUcontext)(uintptr_t)(i + 1)};
    driver.n_registered = driver.n_unregistered = driver.n_hanging = driver.n_failures_left = 0;
    driver.refusing = NULL;
    area = mmap(NULL, AREA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(area, MAP_FAILED);
    shared_areas_add(area, AREA_BYTES, false);
    gpu_host_memory_open();
    return 0;
}

static int teardown(void **state) {
    for (int i = 0; i < 2; i++)
        gpu_host_memory_forget(&gpus[i]);
    gpu_host_memory_close();
    shared_areas_remove(area);
    munmap(area, AREA_BYTES);
    return 0;
}

/* ---- tests ---- */

static void memory_is_registered_once_for_all_devices(void **state) {
    assert_true(is_used_once(0, 0, GIB));
    assert_true(is_used_once(1, 0, GIB));
    assert_true(is_used_once(1, 4096, 4096));
    assert_int_equal(driver.n_registered, 1);
}

static void a_device_that_is_closed_leaves_memory_to_its_user(void **state) {
    struct gpu_host_range *range = use(0, 0, GIB); /* by a thread that hangs with another device */
    assert_true(is_used_once(0, 2 * GIB, GIB));
    gpu_host_memory_forget(&gpus[0]);
    assert_int_equal(driver.n_unregistered, 1); /* the other one */
    gpu_host_memory_unuse(range);
    assert_int_equal(driver.n_unregistered, 1);
    assert_true(is_used_once(1, 0, GIB)); /* nobody's any more */
}

static void *use_first(void *arg) {
    (void)arg;
    assert_true(is_used_once(0, 0, GIB));
    return NULL;
}

static void a_registration_that_hangs_holds_up_its_memory_only(void **state) {
    pthread_t thread;
    assert_true(is_used_once(1, 4 * GIB, GIB));
    assert_true(is_used_once(1, 6 * GIB, GIB));
    let_hang(true);
    assert_int_equal(pthread_create(&thread, NULL, use_first, NULL), 0);
    await_hanging();
    assert_false(is_used_once(1, 0, GIB)); /* copied through pinned memory */
    assert_true(is_used_once(1, 4 * GIB, GIB));
    shared_areas_release(area + 6 * GIB, GIB);
    assert_int_equal(driver.n_unregistered, 1);
    let_hang(false);
    pthread_join(thread, NULL);
    assert_true(is_used_once(1, 0, GIB)); /* it is registered */
    assert_int_equal(driver.n_registered, 3);
}

static void memory_that_is_released_while_it_is_registered_gets_no_new_user(void **state) {
    pthread_t thread;
    let_hang(true);
    assert_int_equal(pthread_create(&thread, NULL, use_first, NULL), 0);
    await_hanging();
    shared_areas_release(area, GIB);
    let_hang(false);
    pthread_join(thread, NULL);
    assert_int_equal(driver.n_unregistered, 1); /* by its last user */
    assert_true(is_used_once(1, 0, GIB));
    assert_int_equal(driver.n_registered, 2);
}

static void the_refusal_of_one_device_is_not_another_ones(void **state) {
    driver.refusing = gpus[0].context;
    driver.refusal = CUDA_ERROR_NOT_SUPPORTED;
    assert_false(is_used_once(0, 0, GIB));
    assert_false(is_used_once(0, 2 * GIB, GIB));
    assert_true(is_used_once(1, 0, GIB));
    driver.refusing = NULL;
    assert_false(is_used_once(0, 2 * GIB, GIB)); /* for good */
    assert_true(is_used_once(0, 0, GIB));        /* of the other device */
}

static void a_range_that_is_registered_by_others_does_not_end_registration(void **state) {
    driver.refusing = gpus[0].context;
    driver.refusal = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    assert_false(is_used_once(0, 0, GIB));
    driver.refusing = NULL;
    assert_true(is_used_once(0, 0, GIB));
}

static void memory_that_is_not_unregistered_is_asked_for_again(void **state) {
    assert_true(is_used_once(0, 0, GIB));
    driver.n_failures_left = 1;
    shared_areas_release(area, GIB);
    assert_int_equal(driver.n_unregistered, 1); /* at the second try */
    assert_true(is_used_once(0, 0, GIB));
    driver.n_failures_left = 6;
    shared_areas_release(area, GIB);
    assert_false(is_used_once(0, 0, GIB)); /* it would be registered twice */
    assert_int_equal(driver.n_failures_left, 0);
    assert_true(is_used_once(0, 0, GIB));
    assert_int_equal(driver.n_registered, 3);
    assert_int_equal(driver.n_unregistered, 2);
}

static void what_can_never_fit_takes_no_place(void **state) {
    struct gpu_host_range *used = use(0, 0, 3 * GIB);
    assert_true(is_used_once(0, 3 * GIB, GIB));
    assert_false(is_used_once(0, 4 * GIB, 9 * GIB)); /* more than may be registered */
    assert_false(is_used_once(0, 4 * GIB, 6 * GIB)); /* the used one stays */
    assert_false(is_used_once(0, 3 * GIB, 6 * GIB)); /* nor does it take what it overlaps */
    assert_int_equal(driver.n_unregistered, 0);
    assert_true(is_used_once(0, 4 * GIB, 5 * GIB));
    assert_int_equal(driver.n_unregistered, 1);
    gpu_host_memory_unuse(used);
}

static void what_was_not_used_for_the_longest_time_makes_place(void **state) {
    assert_true(is_used_once(0, 0, 4 * GIB));
    assert_true(is_used_once(0, 4 * GIB, 4 * GIB));
    assert_true(is_used_once(0, 0, 4 * GIB));
    assert_true(is_used_once(0, 8 * GIB, GIB));
    assert_int_equal(driver.n_unregistered, 1);
    assert_true(is_used_once(0, 0, 4 * GIB));
    assert_int_equal(driver.n_registered, 3);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(memory_is_registered_once_for_all_devices),
        TEST(a_device_that_is_closed_leaves_memory_to_its_user),
        TEST(a_registration_that_hangs_holds_up_its_memory_only),
        TEST(memory_that_is_released_while_it_is_registered_gets_no_new_user),
        TEST(the_refusal_of_one_device_is_not_another_ones),
        TEST(a_range_that_is_registered_by_others_does_not_end_registration),
        TEST(memory_that_is_not_unregistered_is_asked_for_again),
        TEST(what_can_never_fit_takes_no_place),
        TEST(what_was_not_used_for_the_longest_time_makes_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
