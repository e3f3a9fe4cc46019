/* Loads OpenBLAS and finds its functions; see blas.h. */
#include "kernels/cpu/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* We load a threaded build and tell it to use one thread, because our pool has the threads. The
 * serial build does not do: it hands out its work buffers without a lock, so two of our threads
 * that multiply at once may get the same buffer, and now and then a product is wrong. */
static const char *const candidates[] = {
    "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
    "/usr/lib/aarch64-linux-gnu/openblas-pthread/libopenblas.so.0",
    "/usr/lib64/libopenblasp.so.0",
    "libopenblas.so.0",
};

static struct blas table;
static const char *library;
static void *library_handle;
static atomic_bool has_loaded; /* for threads that did not load it */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool is_serial_build(void *handle) {
    int (*get_parallel)(void);
    void *symbol = dlsym(handle, "openblas_get_parallel");
    if (!symbol)
        return false;
    memcpy(&get_parallel, &symbol, sizeof(symbol));
    return get_parallel() == 0;
}

static bool load(const char *name) {
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return false;
    if (is_serial_build(handle)) {
        dlclose(handle);
        return false;
    }
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"cblas_sgemm", &table.sgemm}, {"cblas_dgemm", &table.dgemm},
                   {"cblas_cgemm", &table.cgemm}, {"cblas_zgemm", &table.zgemm},
                   {"cblas_sgemv", &table.sgemv}, {"cblas_dgemv", &table.dgemv}};
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
        void *symbol = dlsym(handle, symbols[i].name);
        if (!symbol) {
            dlclose(handle);
            return false;
        }
        memcpy(symbols[i].to, &symbol, sizeof(symbol));
    }
    void (*set_num_threads)(int);
    void *symbol = dlsym(handle, "openblas_set_num_threads");
    if (symbol) {
        memcpy(&set_num_threads, &symbol, sizeof(symbol));
        set_num_threads(1);
    }
    library_handle = handle;
    return true;
}

static void load_any(void) {
    setenv("OPENBLAS_NUM_THREADS", "1", 0); /* the library starts its threads while it is loaded */
    for (size_t i = 0; i < ARRAY_LEN(candidates) && !library; i++) {
        if (load(candidates[i]))
            library = candidates[i];
    }
    atomic_store(&has_loaded, library != NULL);
}

const struct blas *blas_get(void) {
    pthread_once(&once, load_any);
    return library ? &table : NULL;
}

void *blas_symbol(const char *name) { return blas_get() ? dlsym(library_handle, name) : NULL; }

bool blas_describe(struct str *out) {
    if (!atomic_load(&has_loaded))
        return false;
    char *(*get_config)(void);
    void *symbol = dlsym(library_handle, "openblas_get_config");
    str_add(out, library);
    if (symbol) {
        memcpy(&get_config, &symbol, sizeof(symbol));
        str_addf(out, ": %s", get_config());
    }
    return true;
}
