/* Kernels that are compiled at run time, by an NVRTC of this program's own, which can hang. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/cuda/compiler.h"
#include "kernels/cuda/compiler_api.h"
#include "kernels/cuda/gpu_device.h"

/* ---- NVRTC ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_compiles;
    bool is_hanging;
} nvrtc = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

#define COMPILER_CALL(name, arguments) int name arguments;
#include "kernels/cuda/compiler_calls.inc"

int nvrtcVersion(int *ret_major, int *ret_minor) { return 0; }
int nvrtcCreateProgram(nvrtcProgram *ret, const char *source, const char *name, int n_headers,
                       const char *const *headers, const char *const *names) {
    return 0;
}
int nvrtcDestroyProgram(nvrtcProgram *program) { return 0; }

/* Fails, so that nothing is loaded into a device. */
int nvrtcCompileProgram(nvrtcProgram program, int n, const char *const *options) {
    pthread_mutex_lock(&nvrtc.lock);
    nvrtc.n_compiles++;
    pthread_cond_broadcast(&nvrtc.changed);
    while (nvrtc.is_hanging)
        pthread_cond_wait(&nvrtc.changed, &nvrtc.lock);
    pthread_mutex_unlock(&nvrtc.lock);
    return 6;
}

int nvrtcGetProgramLogSize(nvrtcProgram program, size_t *ret) { return 1; }
int nvrtcGetProgramLog(nvrtcProgram program, char *ret) { return 1; }
int nvrtcGetCUBINSize(nvrtcProgram program, size_t *ret) { return 1; }
int nvrtcGetCUBIN(nvrtcProgram program, char *ret) { return 1; }

static void let_hang(bool is_hanging) {
    pthread_mutex_lock(&nvrtc.lock);
    nvrtc.is_hanging = is_hanging;
    pthread_cond_broadcast(&nvrtc.changed);
    pthread_mutex_unlock(&nvrtc.lock);
}

static void await_compiles(int n) {
    pthread_mutex_lock(&nvrtc.lock);
    while (nvrtc.n_compiles < n)
        pthread_cond_wait(&nvrtc.changed, &nvrtc.lock);
    pthread_mutex_unlock(&nvrtc.lock);
}

/* ---- tests ---- */

static struct gpu_device gpu;

static int setup(void **state) {
    gpu = (struct gpu_device){.major = 9};
    nvrtc.n_compiles = 0;
    gpu_compiler_open(NULL, dlopen(NULL, RTLD_NOW));
    gpu.compiler = gpu_compiler_new(&gpu);
    assert_non_null(gpu.compiler);
    return 0;
}

static bool write_source(struct span key, const char *name, struct str *out) {
    str_add(out, "no source");
    return true;
}

static void ask(const char *key, int times) {
    for (int i = 0; i < times; i++)
        assert_null(gpu_compiled(&gpu, span_of(key), write_source));
}

enum { ENOUGH = 3, LONG_NS = 1000000000, SHORT_NS = 1000000 };

static void a_kernel_is_compiled_once_it_was_asked_for_a_few_times(void **state) {
    ask("once", 1);
    ask("often", ENOUGH + 2);
    await_compiles(1);
    assert_true(gpu_compiler_stop(gpu.compiler, 60ll * LONG_NS));
    assert_int_equal(nvrtc.n_compiles, 1);
    assert_int_equal(gpu_compiler_count(gpu.compiler).failed, 1);
    gpu_compiler_free(gpu.compiler);
}

/* The memory of the key has other bytes after the call. */
static void ask_by_passing_key(const char *text) {
    static char key[16];
    snprintf(key, sizeof key, "%s", text);
    assert_null(gpu_compiled(&gpu, span_of(key), write_source));
    memset(key, 'x', sizeof key);
}

static void a_key_may_be_gone_after_the_call(void **state) {
    ask_by_passing_key("a");
    ask("another", 1);
    for (int i = 1; i < ENOUGH; i++)
        ask("a", 1);
    await_compiles(1);
    assert_true(gpu_compiler_stop(gpu.compiler, 60ll * LONG_NS));
    gpu_compiler_free(gpu.compiler);
}

static void keys_that_came_once_do_not_keep_others_out(void **state) {
    enum { N = 40000 }; /* more than are kept */
    char key[16];
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "%d", i);
        ask(key, 1);
    }
    ask("often", ENOUGH);
    await_compiles(1);
    assert_true(gpu_compiler_stop(gpu.compiler, 60ll * LONG_NS));
    gpu_compiler_free(gpu.compiler);
}

static void a_compile_that_hangs_is_left_alone(void **state) {
    let_hang(true);
    ask("hangs", ENOUGH);
    await_compiles(1);
    assert_false(gpu_compiler_stop(gpu.compiler, SHORT_NS));
    assert_true(gpu_compiler_stop(gpu.compiler, SHORT_NS)); /* there is no thread to end any more */
    let_hang(false); /* the thread ends, and what it uses is still there */
}

static void a_compiler_that_was_never_asked_has_no_thread_to_end(void **state) {
    assert_true(gpu_compiler_stop(gpu.compiler, SHORT_NS));
    gpu_compiler_free(gpu.compiler);
    assert_true(gpu_compiler_stop(NULL, SHORT_NS));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_kernel_is_compiled_once_it_was_asked_for_a_few_times, setup),
        cmocka_unit_test_setup(a_compiler_that_was_never_asked_has_no_thread_to_end, setup),
        cmocka_unit_test_setup(a_key_may_be_gone_after_the_call, setup),
        cmocka_unit_test_setup(keys_that_came_once_do_not_keep_others_out, setup),
        cmocka_unit_test_setup(a_compile_that_hangs_is_left_alone, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
