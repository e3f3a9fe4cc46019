/* Compiles kernels by NVRTC (compiler.h).
 *
 *   asked for  →  counted ASKS_BEFORE times  →  queued  →  ready or failed
 *
 * A kernel's key is what its source is written from. Kernels are kept for good, so their number has
 * a limit, beyond which nothing more is compiled. When there are too many keys, those that were not
 * asked for often enough so far are forgotten, and counted from the start. */
#include "kernels/cuda/compiler.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "kernels/cuda/compiler_api.h"
#include "kernels/cuda/gpu_device.h"
#include "kernels/cuda/library.h"

enum { ASKS_BEFORE = 3, MAX_KERNELS = 1024, MAX_KEYS = 16384, MAX_LOG_BYTES = 600 };

/* Set by gpu_compiler_open, then constant. */
static struct compiler_api api;
static bool has_compiler;
static struct str why_missing = STR_INIT;

static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
static const struct gpu_library_call calls[] = {
#define COMPILER_CALL(name, arguments) {#name, offsetof(struct compiler_api, name)},
#include "kernels/cuda/compiler_calls.inc"
};

void gpu_compiler_open(const char *folders, void *simulated) {
    int major, minor;
    void *library =
        simulated ? simulated : gpu_library_open(folders, names, ARRAY_LEN(names), &why_missing);
    has_compiler =
        library && gpu_library_find(library, calls, ARRAY_LEN(calls), &api, &why_missing);
    if (has_compiler && api.nvrtcVersion(&major, &minor) != 0) {
        str_add(&why_missing, "nvrtcVersion failed");
        has_compiler = false;
    }
}

const char *gpu_compiler_missing(void) {
    return has_compiler || !why_missing.len ? NULL : str_text(&why_missing);
}

/* ---- compiling ---- */

static struct status *check(int error, const char *call) {
    return likely(error == 0) ? NULL
                              : status_internal("%s failed with NVRTC status %d", call, error);
}

static struct status *compile_failed(nvrtcProgram program, int error) {
    size_t size = 0;
    if (api.nvrtcGetProgramLogSize(program, &size) != 0 || size == 0)
        return check(error, "nvrtcCompileProgram");
    char *log = xcalloc(1, size + 1);
    struct status *st = check(error, "nvrtcCompileProgram");
    if (api.nvrtcGetProgramLog(program, log) == 0)
        st = status_suffix_take(st, ": %.*s", MAX_LOG_BYTES, log);
    free(log);
    return st;
}

/* The caller frees *ret_code. Results have the bits of the kernels that nvcc compiles, so products
 * and sums are not contracted, as there. */
static struct status *compile(int capability, const char *source, char **ret_code,
                              size_t *ret_size) {
    char architecture[48];
    const char *options[] = {architecture, "--fmad=false", "--std=c++17", "-default-device",
                             "--disable-warnings"};
    nvrtcProgram program;
    snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d", capability);
    *ret_code = NULL;
    TRY(check(api.nvrtcCreateProgram(&program, source, "fused.cu", 0, NULL, NULL),
              "nvrtcCreateProgram"));
    int error = api.nvrtcCompileProgram(program, ARRAY_LEN(options), options);
    struct status *st = error ? compile_failed(program, error) : NULL;
    if (!st)
        st = check(api.nvrtcGetCUBINSize(program, ret_size), "nvrtcGetCUBINSize");
    if (!st) {
        *ret_code = xcalloc(1, *ret_size + 1);
        st = check(api.nvrtcGetCUBIN(program, *ret_code), "nvrtcGetCUBIN");
    }
    api.nvrtcDestroyProgram(&program);
    return st;
}

/* ---- what a device keeps ---- */

struct compiled {
    struct list link; /* while it is queued */
    struct gpu_function function;
    char *key;              /* its bytes, which the map refers to */
    char name[32], *source; /* the source until it is compiled */
    CUlibrary library;
    char *code;
    int n_asked;
    _Atomic bool is_ready;
};

static void compiled_free(struct compiled *kernel) {
    free(kernel->key);
    free(kernel->source);
    free(kernel->code);
    free(kernel);
}

struct gpu_compiler {
    struct gpu_device *gpu;
    pthread_t thread;
    bool is_started;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed, ended;
    struct strmap kernels; /* key → struct compiled */
    struct list queue;
    int n_kernels; /* that were queued */
    bool is_closed, has_ended, is_logged;
    bool is_full; /* of keys that are never forgotten */
    struct gpu_compiler_counts counts;
};

static struct status *load(struct gpu_device *gpu, struct compiled *kernel) {
    CUkernel found;
    TRY(gpu_enter(gpu));
    TRY(gpu_call(gpu, cuLibraryLoadData, &kernel->library, kernel->code, NULL, NULL, 0, NULL, NULL,
                 0));
    TRY(gpu_call(gpu, cuLibraryGetKernel, &found, kernel->library, kernel->name));
    return gpu_call(gpu, cuKernelGetFunction, &kernel->function.function, found);
}

static void serve(struct gpu_compiler *compiler, struct compiled *kernel) {
    struct gpu_device *gpu = compiler->gpu;
    size_t size;
    struct status *st = compile(10 * gpu->major + gpu->minor, kernel->source, &kernel->code, &size);
    if (!st)
        st = load(gpu, kernel);
    free(kernel->source);
    kernel->source = NULL;
    pthread_mutex_lock(&compiler->lock);
    if (st)
        compiler->counts.failed++;
    else
        compiler->counts.compiled++;
    bool is_first = st && !compiler->is_logged;
    compiler->is_logged |= is_first;
    pthread_mutex_unlock(&compiler->lock);
    if (is_first)
        log_event(EVENT_GPU_TROUBLE,
                  "GPU %d: a fused program is interpreted, since it cannot be "
                  "compiled: %s",
                  gpu->ordinal, status_message(st));
    if (!st)
        atomic_store_explicit(&kernel->is_ready, true, memory_order_release);
    status_unref(st);
}

static void *compiler_run(void *arg) {
    struct gpu_compiler *compiler = arg;
    pthread_mutex_lock(&compiler->lock);
    for (;;) {
        while (list_is_empty(&compiler->queue) && !compiler->is_closed)
            pthread_cond_wait(&compiler->changed, &compiler->lock);
        if (compiler->is_closed)
            break;
        struct list *link = list_pop_front(&compiler->queue);
        pthread_mutex_unlock(&compiler->lock);
        serve(compiler, LIST_ENTRY(link, struct compiled, link));
        pthread_mutex_lock(&compiler->lock);
    }
    compiler->has_ended = true;
    pthread_cond_signal(&compiler->ended);
    pthread_mutex_unlock(&compiler->lock);
    return NULL;
}

struct gpu_compiler *gpu_compiler_new(struct gpu_device *gpu) {
    if (!has_compiler)
        return NULL;
    struct gpu_compiler *compiler = xcalloc(1, sizeof *compiler);
    compiler->gpu = gpu;
    pthread_mutex_init(&compiler->lock, NULL);
    pthread_cond_init(&compiler->changed, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&compiler->ended, &attr);
    pthread_condattr_destroy(&attr);
    strmap_init(&compiler->kernels);
    list_init(&compiler->queue);
    return compiler;
}

/* Returns whether there is a thread to end. */
static bool close_queue(struct gpu_compiler *compiler) {
    if (!compiler)
        return false;
    pthread_mutex_lock(&compiler->lock);
    bool is_started = compiler->is_started;
    compiler->is_closed = true;
    compiler->is_started = false;
    pthread_cond_signal(&compiler->changed);
    pthread_mutex_unlock(&compiler->lock);
    return is_started;
}

/* False: it has not ended when the patience is over. */
static bool wait_for_end(struct gpu_compiler *compiler, int64_t patience_ns) {
    int64_t until_ns = clock_now_ns() + patience_ns;
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    pthread_mutex_lock(&compiler->lock);
    while (!compiler->has_ended &&
           pthread_cond_timedwait(&compiler->ended, &compiler->lock, &until) != ETIMEDOUT)
        ;
    bool has_ended = compiler->has_ended;
    pthread_mutex_unlock(&compiler->lock);
    return has_ended;
}

bool gpu_compiler_stop(struct gpu_compiler *compiler, int64_t patience_ns) {
    if (!close_queue(compiler))
        return true;
    bool has_ended = wait_for_end(compiler, patience_ns);
    if (has_ended)
        pthread_join(compiler->thread, NULL);
    else
        pthread_detach(compiler->thread);
    return has_ended;
}

void gpu_compiler_detach(struct gpu_compiler *compiler) {
    if (close_queue(compiler))
        pthread_detach(compiler->thread);
}

void gpu_compiler_free(struct gpu_compiler *compiler) {
    size_t cursor = 0;
    struct span key;
    void *value;
    if (!compiler)
        return;
    while (strmap_next(&compiler->kernels, &cursor, &key, &value)) {
        struct compiled *kernel = value;
        if (kernel->library)
            gpu_give_back(compiler->gpu, cuLibraryUnload, kernel->library);
        compiled_free(kernel);
    }
    strmap_fini(&compiler->kernels);
    pthread_mutex_destroy(&compiler->lock);
    pthread_cond_destroy(&compiler->changed);
    pthread_cond_destroy(&compiler->ended);
    free(compiler);
}

struct gpu_compiler_counts gpu_compiler_count(struct gpu_compiler *compiler) {
    struct gpu_compiler_counts counts = {0};
    if (!compiler)
        return counts;
    pthread_mutex_lock(&compiler->lock);
    counts = compiler->counts;
    pthread_mutex_unlock(&compiler->lock);
    return counts;
}

/* ---- asking ---- */

/* With the lock. A thread is started with the first kernel. */
static void enqueue(struct gpu_compiler *compiler, struct span key, struct compiled *kernel,
                    gpu_source_fn *write_source) {
    struct str source = STR_INIT;
    if (compiler->is_closed || compiler->n_kernels >= MAX_KERNELS)
        return;
    snprintf(kernel->name, sizeof kernel->name, "fused_%d_%d", compiler->gpu->ordinal,
             compiler->n_kernels);
    kernel->function.name = kernel->name;
    if (!write_source(key, kernel->name, &source)) {
        str_fini(&source);
        return;
    }
    if (!compiler->is_started)
        compiler->is_started = pthread_create(&compiler->thread, NULL, compiler_run, compiler) == 0;
    if (!compiler->is_started) {
        str_fini(&source);
        return;
    }
    kernel->source = xstrdup(str_text(&source));
    str_fini(&source);
    compiler->n_kernels++;
    list_push_back(&compiler->queue, &kernel->link);
    pthread_cond_signal(&compiler->changed);
}

/* With the lock, and without it nobody has what was not queued yet. */
static void forget_unqueued(struct gpu_compiler *compiler) {
    size_t cursor = 0;
    struct span key;
    void *value;
    while (strmap_next(&compiler->kernels, &cursor, &key, &value)) {
        struct compiled *kernel = value;
        if (kernel->n_asked >= ASKS_BEFORE)
            continue;
        strmap_remove_span(&compiler->kernels, key);
        compiled_free(kernel);
    }
}

/* With the lock. The key is the caller's. NULL: there are too many. */
static struct compiled *add_key(struct gpu_compiler *compiler, struct span key) {
    if (compiler->kernels.n_entries >= MAX_KEYS && !compiler->is_full) {
        forget_unqueued(compiler);
        compiler->is_full = compiler->kernels.n_entries >= MAX_KEYS;
    }
    if (compiler->is_full)
        return NULL;
    struct compiled *kernel = xcalloc(1, sizeof *kernel);
    kernel->key = xmalloc(key.len);
    memcpy(kernel->key, key.data, key.len);
    strmap_put_span(&compiler->kernels, (struct span){kernel->key, key.len}, kernel);
    return kernel;
}

const struct gpu_function *gpu_compiled(struct gpu_device *gpu, struct span key,
                                        gpu_source_fn *write_source) {
    struct gpu_compiler *compiler = gpu->compiler;
    if (!compiler)
        return NULL;
    pthread_mutex_lock(&compiler->lock);
    struct compiled *kernel = strmap_get_span(&compiler->kernels, key);
    if (!kernel)
        kernel = add_key(compiler, key);
    if (kernel && kernel->n_asked < ASKS_BEFORE && ++kernel->n_asked == ASKS_BEFORE)
        enqueue(compiler, key, kernel, write_source);
    /* One that is ready stays; another one may be forgotten as soon as the lock is free. */
    bool is_ready = kernel && atomic_load_explicit(&kernel->is_ready, memory_order_acquire);
    pthread_mutex_unlock(&compiler->lock);
    return is_ready ? &kernel->function : NULL;
}
