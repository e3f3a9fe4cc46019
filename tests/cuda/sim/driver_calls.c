/* What every call begins with: it is counted, and it may have been told to fail. */
#include "tests/cuda/sim/driver.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const symbols[N_CALLS] = {
#define DRIVER_CALL(name, symbol, arguments) #symbol,
#include "kernels/cuda/driver_calls.inc"
#define BLAS_CALL(name, arguments) #name,
#include "kernels/cuda/blas_calls.inc"
#define DNN_CALL(name, arguments) #name,
#include "kernels/cuda/dnn_calls.inc"
#define COMPILER_CALL(name, arguments) #name,
#include "kernels/cuda/compiler_calls.inc"
};

static const char *const base_names[N_CALLS] = {
#define DRIVER_CALL(name, symbol, arguments) #name,
#include "kernels/cuda/driver_calls.inc"
#define BLAS_CALL(name, arguments) #name,
#include "kernels/cuda/blas_calls.inc"
#define DNN_CALL(name, arguments) #name,
#include "kernels/cuda/dnn_calls.inc"
#define COMPILER_CALL(name, arguments) #name,
#include "kernels/cuda/compiler_calls.inc"
};

static atomic_ulong counts[N_CALLS];
enum { ODD_CALLS = -1 };
static struct failure {
    atomic_ulong at; /* the count of the call that fails; 0: none; (unsigned long)ODD_CALLS */
    CUresult error;
} failures[N_CALLS];

/* Calls that wait until they are released, as calls of a driver that hangs do. */
static atomic_bool is_blocked[N_CALLS];
static pthread_mutex_t block_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;

static void wait_for_release(enum call call) {
    pthread_mutex_lock(&block_lock);
    while (atomic_load(&is_blocked[call]))
        pthread_cond_wait(&released, &block_lock);
    pthread_mutex_unlock(&block_lock);
}

/* The call that ends the device process, and which one of its kind. */
static atomic_int killer = -1;
static atomic_ulong killer_at;

/* The call in which the program itself is killed, and which one of its kind. */
static int last = -1;
static unsigned long last_at;

/* The call that waits for a test, which one of its kind, and the named pipe that the test opens. */
static int gate = -1;
static unsigned long gate_at;
static char gate_path[256];

/* Opening one end of a named pipe waits for the other end. */
static void wait_at_gate(void) {
    int fd = open(gate_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        link_report("MILLRACE_SIM_GATE: the named pipe cannot be opened");
    else
        close(fd);
}

static bool is_free_of_init(enum call call) {
    return call == CALL_cuInit || call == CALL_cuDriverGetVersion || call == CALL_cuGetErrorName ||
           call == CALL_cuGetErrorString || call == CALL_cuGetProcAddress_v2;
}

static bool fails(enum call call, unsigned long n) {
    unsigned long at = atomic_load_explicit(&failures[call].at, memory_order_acquire);
    return at == n || (at == (unsigned long)ODD_CALLS && n % 2 == 1);
}

CUresult call_begin(enum call call) {
    unsigned long n = atomic_fetch_add_explicit(&counts[call], 1, memory_order_relaxed) + 1;
    if (atomic_load_explicit(&is_blocked[call], memory_order_relaxed))
        wait_for_release(call);
    if ((int)call == last && n == last_at)
        raise(SIGKILL);
    if ((int)call == gate && n == gate_at)
        wait_at_gate();
    if ((int)call == atomic_load_explicit(&killer, memory_order_acquire) && n == killer_at)
        link_kill();
    if (fails(call, n))
        return failures[call].error;
    if (!atomic_load_explicit(&sim.is_initialized, memory_order_acquire) && !is_free_of_init(call))
        return CUDA_ERROR_NOT_INITIALIZED;
    return capture_allows(call);
}

struct kept {
    void *object;
    struct kept *next;
};
static _Atomic(struct kept *) kept;

CUresult call_begin_destroy(enum call call, void *object) {
    CUresult result = call_begin(call);
    if (result == CUDA_SUCCESS || object == NULL)
        return result;
    struct kept *more = malloc(sizeof *more);
    if (more == NULL)
        abort();
    *more = (struct kept){object, atomic_load(&kept)};
    while (!atomic_compare_exchange_weak(&kept, &more->next, more))
        ;
    return result;
}

int call_find(const char *symbol) {
    for (int i = 0; i < N_CALLS; i++)
        if (strcmp(symbols[i], symbol) == 0 || strcmp(base_names[i], symbol) == 0)
            return i;
    return -1;
}

EXPORTED unsigned long simCallCount(const char *symbol) {
    int call = call_find(symbol);
    return call < 0 ? 0 : atomic_load(&counts[call]);
}

EXPORTED CUresult simFailCall(const char *symbol, unsigned long n, CUresult error) {
    int call = call_find(symbol);
    if (call < 0)
        return CUDA_ERROR_NOT_FOUND;
    failures[call].error = error;
    atomic_store_explicit(&failures[call].at, n == 0 ? 0 : atomic_load(&counts[call]) + n,
                          memory_order_release);
    return CUDA_SUCCESS;
}

EXPORTED CUresult simKillAtCall(const char *symbol, unsigned long n) {
    int call = call_find(symbol);
    if (call < 0)
        return CUDA_ERROR_NOT_FOUND;
    killer_at = atomic_load(&counts[call]) + n;
    atomic_store_explicit(&killer, call, memory_order_release);
    return CUDA_SUCCESS;
}

EXPORTED CUresult simBlockCall(const char *symbol, int blocks) {
    int call = call_find(symbol);
    if (call < 0)
        return CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&block_lock);
    atomic_store(&is_blocked[call], blocks != 0);
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&block_lock);
    return CUDA_SUCCESS;
}

static CUresult failures_result;

static void killer_read(void) {
    const char *text = getenv("MILLRACE_SIM_KILL");
    char symbol[64];
    unsigned long n;
    if (text == NULL || *text == '\0')
        return;
    if (sscanf(text, "%63[^:]:%lu", symbol, &n) != 2 || simKillAtCall(symbol, n) != CUDA_SUCCESS) {
        link_report("MILLRACE_SIM_KILL: not SYMBOL:N, or no such call");
        failures_result = CUDA_ERROR_INVALID_VALUE;
    }
}

static void last_read(void) {
    const char *text = getenv("MILLRACE_SIM_LAST");
    char symbol[64];
    if (text == NULL || *text == '\0')
        return;
    if (sscanf(text, "%63[^:]:%lu", symbol, &last_at) == 2)
        last = call_find(symbol);
    if (last < 0) {
        link_report("MILLRACE_SIM_LAST: not SYMBOL:N, or no such call");
        failures_result = CUDA_ERROR_INVALID_VALUE;
    }
}

static void gate_read(void) {
    const char *text = getenv("MILLRACE_SIM_GATE");
    char symbol[64];
    if (text == NULL || *text == '\0')
        return;
    if (sscanf(text, "%63[^:]:%lu:%255s", symbol, &gate_at, gate_path) == 3)
        gate = call_find(symbol);
    if (gate < 0) {
        link_report("MILLRACE_SIM_GATE: not SYMBOL:N:PATH, or no such call");
        failures_result = CUDA_ERROR_INVALID_VALUE;
    }
}

/* SYMBOL:N:ERROR or SYMBOL:odd:ERROR */
static bool failure_read(const char *item) {
    char symbol[64];
    unsigned long n;
    int error;
    if (sscanf(item, "%63[^:]:odd:%d", symbol, &error) == 2) {
        int call = call_find(symbol);
        if (call < 0)
            return false;
        failures[call].error = (CUresult)error;
        atomic_store_explicit(&failures[call].at, (unsigned long)ODD_CALLS, memory_order_release);
        return true;
    }
    return sscanf(item, "%63[^:]:%lu:%d", symbol, &n, &error) == 3 &&
           simFailCall(symbol, n, (CUresult)error) == CUDA_SUCCESS;
}

static void failures_read(void) {
    const char *text = getenv("MILLRACE_SIM_FAIL");
    char *copy = strdup(text != NULL ? text : ""), *rest = copy, *item;
    failures_result = copy != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    while (failures_result == CUDA_SUCCESS && (item = strsep(&rest, ",")) != NULL &&
           *item != '\0') {
        if (!failure_read(item)) {
            link_report("MILLRACE_SIM_FAIL: not SYMBOL:N:ERROR, or no such call");
            failures_result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    free(copy);
    killer_read();
    last_read();
    gate_read();
}

CUresult calls_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, failures_read);
    return failures_result;
}

/* ---- names ---- */

static const struct {
    CUresult number;
    const char *name, *text;
} errors[] = {
#define DRIVER_ERROR(name, number, text) {name, #name, text},
#include "kernels/cuda/driver_errors.inc"
};

CUresult cuGetErrorName(CUresult error, const char **ret_name) {
    BEGIN(cuGetErrorName);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].number == error) {
            *ret_name = errors[i].name;
            return CUDA_SUCCESS;
        }
    *ret_name = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **ret_text) {
    BEGIN(cuGetErrorString);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].number == error) {
            *ret_text = errors[i].text;
            return CUDA_SUCCESS;
        }
    *ret_text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetProcAddress_v2(const char *name, void **ret_function, int version, uint64_t flags,
                             int *ret_status) {
    static void *const functions[N_CALLS] = {
#define DRIVER_CALL(base, symbol, arguments) (void *)symbol,
#include "kernels/cuda/driver_calls.inc"
    };
    BEGIN(cuGetProcAddress_v2);
    int call = call_find(name);
    if (ret_status != NULL)
        *ret_status = call < 0 ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
    *ret_function = call < 0 ? NULL : functions[call];
    return call < 0 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
