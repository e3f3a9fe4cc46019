/* libcupti.so.13: the part of CUPTI's activity API that the plugin calls, for the operations of the
 * simulated device.
 *
 *   a thread that enqueues ── watch ──► noted operations, with the thread's mark
 *   cuptiActivityFlushAll  ───────────► CUPTI's own thread asks the device when they ran, writes
 *                                       records into the program's buffers, and hands these back
 *
 * Records have the sizes of CUDA 13.0's, and what the plugin does not read of them is filled with
 * bytes that mean nothing. */
#include "tests/cuda/sim/cupti.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/activity_api.h"
#include "tests/cuda/sim/protocol.h"
#include "tests/cuda/sim/sim.h"

#define EXPORTED __attribute__((visibility("default")))
#define ACTIVITY_CALL(name, arguments) EXPORTED int name arguments;
#include "kernels/cuda/activity_calls.inc"

enum {
    INVALID_PARAMETER = 1,
    MAX_LIMIT_REACHED = 12,
    NOT_INITIALIZED = 15,
    INVALID_KIND = 21,
    QUEUE_EMPTY = 18,
    KIND_UNKNOWN = 177,
    EXTERNAL_OTHER = 4,
    MAX_KIND = 64,
    MAX_DEPTH = 16,
    MAX_RECORD_BYTES = 256,
    FILLER = 0xa5,
};

static const size_t record_sizes[] = {
    [CUPTI_KIND_MEMCPY] = 96,  [CUPTI_KIND_MEMSET] = 88,      [CUPTI_KIND_DRIVER] = 48,
    [CUPTI_KIND_KERNEL] = 216, [CUPTI_KIND_MEMCPY_PEER] = 96, [CUPTI_KIND_EXTERNAL] = 24,
    [KIND_UNKNOWN] = 40,
};

/* The thread's marks. */
static _Thread_local uint64_t marks[MAX_DEPTH];
static _Thread_local int depth;

struct noted {
    struct sim_operation operation;
    uint64_t mark;
    bool has_mark;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct noted *noted;
static size_t n_noted, max_noted;
static bool is_enabled[MAX_KIND];
static int n_enabled;
static bool has_thread;
static unsigned long n_asked, n_served; /* flushes */
static cupti_wanted_fn *buffer_wanted;
static cupti_filled_fn *buffer_filled;
static cupti_clock_fn *program_clock;

static struct {
    CUresult (*watch)(void (*)(const struct sim_operation *));
    CUresult (*time)(const struct sim_operation *, uint64_t *, uint64_t *);
} driver;

/* With the lock. */
static void append(struct noted entry) {
    if (n_noted == max_noted) {
        max_noted = 2 * max_noted + 256;
        noted = realloc(noted, max_noted * sizeof *noted);
        if (noted == NULL)
            abort();
    }
    noted[n_noted++] = entry;
}

static void note(const struct sim_operation *operation) {
    pthread_mutex_lock(&lock);
    bool has_mark = depth > 0 && depth <= MAX_DEPTH;
    append((struct noted){*operation, has_mark ? marks[depth - 1] : 0, has_mark});
    pthread_mutex_unlock(&lock);
}

/* ---- CUPTI's thread, which alone writes records ---- */

static uint8_t *buffer;
static size_t buffer_size, buffer_used;
static unsigned long n_activities;

static void hand_back(void) {
    if (buffer != NULL && !cupti_faults()->keep)
        buffer_filled(NULL, 0, buffer, buffer_size, buffer_used);
    buffer = NULL;
}

/* Without a buffer the record is lost. */
static void write_record(const void *record, size_t size) {
    size_t n_max = 0;
    if (buffer != NULL && buffer_size - buffer_used < size)
        hand_back();
    if (buffer == NULL) {
        buffer_wanted(&buffer, &buffer_size, &n_max);
        buffer_used = 0;
    }
    if (buffer == NULL || buffer_size < size)
        return;
    memcpy(buffer + buffer_used, record, size);
    buffer_used += size;
}

/* A record that begins with `start`, of the kind's size. */
static void write_kind(uint32_t kind, const void *start, size_t start_size) {
    unsigned char bytes[MAX_RECORD_BYTES];
    memset(bytes, FILLER, sizeof bytes);
    memcpy(bytes, start, start_size);
    write_record(bytes, record_sizes[kind]);
}

static void write_marks(const struct noted *from) {
    struct cupti_external external = {.kind = CUPTI_KIND_EXTERNAL,
                                      .external_kind = EXTERNAL_OTHER,
                                      .mark = from->mark + 1,
                                      .correlation = from->operation.call};
    if (cupti_faults()->unknown) {
        write_kind(KIND_UNKNOWN, &(struct cupti_record){KIND_UNKNOWN}, sizeof(struct cupti_record));
        write_kind(CUPTI_KIND_EXTERNAL, &external, sizeof external);
    }
    external.external_kind = CUPTI_EXTERNAL_CUSTOM;
    external.mark = from->mark;
    if (from->has_mark)
        write_kind(CUPTI_KIND_EXTERNAL, &external, sizeof external);
    write_kind(CUPTI_KIND_DRIVER, &(struct cupti_record){CUPTI_KIND_DRIVER},
               sizeof(struct cupti_record));
}

static void write_activity(const struct sim_operation *operation, uint64_t start_ns,
                           uint64_t end_ns) {
    bool is_fill = operation->command == SIM_FILL,
         is_kernel = operation->command == SIM_KERNEL || operation->command == SIM_HOST;
    uint64_t graph_node = cupti_faults()->anonymous ? 0 : operation->graph_node;
    if (is_kernel) {
        struct cupti_kernel kernel = {.kind = CUPTI_KIND_KERNEL,
                                      .start_ns = start_ns,
                                      .end_ns = end_ns,
                                      .device = operation->device,
                                      .stream = operation->stream,
                                      .correlation = operation->call,
                                      .name = operation->kernel,
                                      .graph_node = graph_node};
        if (graph_node != 0 && cupti_faults()->alien)
            kernel.name = "another";
        write_kind(CUPTI_KIND_KERNEL, &kernel, sizeof kernel);
        return;
    }
    struct cupti_memcpy copy = {.kind = is_fill ? CUPTI_KIND_MEMSET : CUPTI_KIND_MEMCPY,
                                .size_bytes = operation->size,
                                .start_ns = start_ns,
                                .end_ns = end_ns,
                                .device = operation->device,
                                .stream = operation->stream,
                                .correlation = operation->call,
                                .graph_node = graph_node};
    write_kind(copy.kind, &copy, sizeof copy);
}

/* Returns whether the operation has ended, so that its records are complete. */
static bool write_operation(const struct noted *from) {
    const struct cupti_faults *faults = cupti_faults();
    uint64_t start_ns = 0, end_ns = 0;
    bool is_known = driver.time(&from->operation, &start_ns, &end_ns) == CUDA_SUCCESS;
    if (is_known && end_ns == 0)
        return false;
    if (faults->zero)
        start_ns = end_ns = 0;
    if (faults->wild) {
        start_ns = UINT64_MAX / 2 + start_ns;
        end_ns = 1;
    }
    n_activities++;
    bool is_dropped =
        !is_known || (faults->n_drop > 0 && n_activities % (unsigned long)faults->n_drop == 0);
    bool is_first = n_activities % 2 == 0; /* CUPTI promises no order */
    if (is_first && !is_dropped)
        write_activity(&from->operation, start_ns, end_ns);
    write_marks(from);
    if (!is_first && !is_dropped)
        write_activity(&from->operation, start_ns, end_ns);
    return true;
}

/* Takes what is noted; what has not ended is noted again. */
static void serve(void) {
    pthread_mutex_lock(&lock);
    bool waits = cupti_faults()->late && n_enabled > 0;
    struct noted *taken = waits ? NULL : noted;
    size_t n = waits ? 0 : n_noted;
    if (!waits) {
        noted = NULL;
        n_noted = max_noted = 0;
    }
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < n; i++) {
        const struct noted *from = &taken[cupti_faults()->shuffle ? n - 1 - i : i];
        if (write_operation(from))
            continue;
        pthread_mutex_lock(&lock);
        append(*from);
        pthread_mutex_unlock(&lock);
    }
    free(taken);
    hand_back();
}

static void *run(void *arg) {
    pthread_mutex_lock(&lock);
    for (;;) {
        while (n_served == n_asked)
            pthread_cond_wait(&changed, &lock);
        unsigned long until = n_asked;
        pthread_mutex_unlock(&lock);
        serve();
        pthread_mutex_lock(&lock);
        n_served = until;
        pthread_cond_broadcast(&changed);
    }
    return arg;
}

/* ---- calls ---- */

int cuptiGetVersion(uint32_t *ret) {
    *ret = (uint32_t)cupti_faults()->version;
    return 0;
}

int cuptiGetResultString(int result, const char **ret) {
    *ret = result == CUPTI_INSUFFICIENT_PRIVILEGES ? "SIMULATED_INSUFFICIENT_PRIVILEGES"
                                                   : "SIMULATED_ERROR";
    return 0;
}

int cuptiActivityRegisterTimestampCallback(cupti_clock_fn *now) {
    if (now == NULL)
        return INVALID_PARAMETER;
    program_clock = now;
    return 0;
}

int cuptiActivityRegisterCallbacks(cupti_wanted_fn *wanted, cupti_filled_fn *filled) {
    if (wanted == NULL || filled == NULL)
        return INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    buffer_wanted = wanted;
    buffer_filled = filled;
    pthread_mutex_unlock(&lock);
    return 0;
}

static bool find_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL)
        return false;
    *(void **)&driver.watch = dlsym(library, "simWatchOperations");
    *(void **)&driver.time = dlsym(library, "simOperationTime");
    return driver.watch != NULL && driver.time != NULL;
}

/* Times are of the clock that the program has given, which is the device's already. */
int cuptiActivityEnable(uint32_t kind) {
    pthread_t thread;
    if (cupti_faults()->refusal != 0)
        return cupti_faults()->refusal;
    if (kind == 0 || kind >= MAX_KIND || buffer_wanted == NULL)
        return INVALID_PARAMETER;
    if (program_clock == NULL || (driver.watch == NULL && !find_driver()))
        return NOT_INITIALIZED;
    pthread_mutex_lock(&lock);
    if (!has_thread && pthread_create(&thread, NULL, run, NULL) == 0) {
        has_thread = true;
        pthread_detach(thread);
    }
    n_enabled += !is_enabled[kind];
    is_enabled[kind] = true;
    bool is_first = n_enabled == 1;
    pthread_mutex_unlock(&lock);
    if (is_first)
        driver.watch(note);
    return has_thread ? 0 : NOT_INITIALIZED;
}

int cuptiActivityDisable(uint32_t kind) {
    if (kind == 0 || kind >= MAX_KIND)
        return INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    n_enabled -= is_enabled[kind];
    is_enabled[kind] = false;
    bool is_last = n_enabled == 0;
    if (is_last && cupti_faults()->late) {
        n_asked++; /* nobody waits for it */
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    if (is_last)
        driver.watch(NULL);
    return 0;
}

int cuptiActivityFlushAll(uint32_t flags) {
    if ((flags & ~(uint32_t)CUPTI_FLUSH_FORCED) != 0)
        return INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    if (has_thread) {
        unsigned long until = ++n_asked;
        pthread_cond_broadcast(&changed);
        while (n_served < until)
            pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuptiActivityGetNextRecord(uint8_t *from, size_t n_valid, struct cupti_record **record) {
    uint8_t *next = from;
    if (*record != NULL)
        next = (uint8_t *)*record + record_sizes[(*record)->kind];
    if (next >= from + n_valid)
        return MAX_LIMIT_REACHED;
    *record = (struct cupti_record *)(void *)next;
    uint32_t kind = (*record)->kind;
    bool is_kind = kind < sizeof record_sizes / sizeof *record_sizes && record_sizes[kind] > 0;
    return is_kind ? 0 : INVALID_KIND;
}

int cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t mark) {
    if (kind != CUPTI_EXTERNAL_CUSTOM || depth == MAX_DEPTH)
        return INVALID_PARAMETER;
    marks[depth++] = mark;
    return 0;
}

int cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t *ret_mark) {
    if (kind != CUPTI_EXTERNAL_CUSTOM)
        return INVALID_PARAMETER;
    if (depth == 0)
        return QUEUE_EMPTY;
    depth--;
    if (ret_mark != NULL)
        *ret_mark = marks[depth];
    return 0;
}
