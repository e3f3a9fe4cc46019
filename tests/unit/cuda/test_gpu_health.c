/* What a GPU that has failed tells, over an NVML made of counters. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "kernels/cuda/gpu_device.h"
#include "kernels/cuda/gpu_xid.h"

enum { TIMEOUT = 10, XID_EVENT = 8 };

/* ---- NVML ---- */

struct nvml_event {
    void *device;
    unsigned long long type, xid;
    unsigned gpu_instance, compute_instance;
};

static int n_waits;
static unsigned long long next_xid; /* 0: a wait ends with a timeout */

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **ret_device);
int nvmlEventSetCreate(void **ret_set);
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set);
int nvmlEventSetWait_v2(void *set, struct nvml_event *ret, unsigned timeout_ms);
int nvmlEventSetFree(void *set);

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **ret_device) {
    *ret_device = &n_waits;
    return 0;
}
int nvmlEventSetCreate(void **ret_set) {
    *ret_set = &n_waits;
    return 0;
}
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) { return 0; }
int nvmlEventSetWait_v2(void *set, struct nvml_event *ret, unsigned timeout_ms) {
    n_waits++;
    *ret = (struct nvml_event){.type = XID_EVENT, .xid = next_xid};
    return next_xid ? 0 : TIMEOUT;
}
int nvmlEventSetFree(void *set) { return 0; }

/* ---- tests ---- */

static struct gpu_device gpu;

static int setup(void **state) {
    gpu = (struct gpu_device){.bus_id = "0000:01:00.0", .lock = PTHREAD_MUTEX_INITIALIZER};
    gpu.xid = gpu_xid_new(gpu.bus_id, dlopen(NULL, RTLD_NOW));
    assert_non_null(gpu.xid);
    n_waits = 0;
    return 0;
}

static int teardown(void **state) {
    gpu_xid_free(gpu.xid);
    status_unref(gpu.failure);
    return 0;
}

/* Whatever the code of the error, TensorFlow's monitored sessions begin again after UNAVAILABLE. */
static void fail_and_expect(const char *message) {
    struct status *st = gpu_fail_take(&gpu, status_internal("an error"));
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    assert_string_equal(status_message(st), message);
    status_unref(st);
}

static void only_the_first_error_waits_for_an_xid(void **state) {
    next_xid = 0;
    for (int i = 0; i < 3; i++)
        fail_and_expect("an error");
    assert_int_equal(n_waits, 1);
}

static void later_errors_have_the_xid_of_the_first(void **state) {
    next_xid = 79;
    for (int i = 0; i < 3; i++)
        fail_and_expect("an error, Xid 79");
    assert_int_equal(n_waits, 1);
}

/* ---- a device that makes no progress ---- */

static const int64_t S = INT64_C(1000000000);

/* Whether a device that is busy has failed after a probe, whose last one was some time ago, and
 * which had made no progress for some time then. */
static bool fails_after(int64_t since_last_probe_ns, int64_t stuck_ns) {
    enum { HANG_S = 60 };
    struct device device = {.state = &gpu};
    int64_t now_ns = clock_now_ns();
    gpu.watch.looked_ns = now_ns - since_last_probe_ns;
    gpu.watch.since_ns = gpu.watch.looked_ns - stuck_ns;
    pthread_mutex_lock(&gpu.lock);
    gpu_probe(&device, HANG_S * S);
    pthread_mutex_unlock(&gpu.lock);
    return gpu_failure(&device) != NULL;
}

static void a_device_without_progress_fails_after_ten_times_the_timeout(void **state) {
    assert_false(fails_after(S, 0));
    assert_false(fails_after(S, 590 * S));
    assert_true(fails_after(S, 600 * S));
}

static void time_in_which_the_process_was_stopped_does_not_count(void **state) {
    assert_false(fails_after(3600 * S, 0));
    assert_false(fails_after(3600 * S, 590 * S));
    assert_true(fails_after(3600 * S, 600 * S));
}

static void the_first_probe_fails_no_device(void **state) {
    assert_false(fails_after(clock_now_ns(), 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_the_first_error_waits_for_an_xid, setup, teardown),
        cmocka_unit_test_setup_teardown(later_errors_have_the_xid_of_the_first, setup, teardown),
        cmocka_unit_test_setup_teardown(a_device_without_progress_fails_after_ten_times_the_timeout,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(time_in_which_the_process_was_stopped_does_not_count, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_first_probe_fails_no_device, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
