#include "kernels/cpu/blas.h"

#include <dlfcn.h>
#include <pthread.h>

/* The serial build first: our pool has the threads. Of a threaded one we ask for a single thread. */
static const char *const candidates[] = {
    "/usr/lib/x86_64-linux-gnu/openblas-serial/libopenblas.so.0",
    "/usr/lib/aarch64-linux-gnu/openblas-serial/libopenblas.so.0",
    "/usr/lib64/libopenblas.so.0",
    "libopenblas.so.0",
};

static struct blas table;
static const char *library;
static void *library_handle;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool load(const char *name) {
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return false;
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"cblas_sgemm", &table.sgemm}, {"cblas_dgemm", &table.dgemm}, {"cblas_cgemm", &table.cgemm},
                   {"cblas_zgemm", &table.zgemm}, {"cblas_sgemv", &table.sgemv}, {"cblas_dgemv", &table.dgemv}};
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
    for (size_t i = 0; i < ARRAY_LEN(candidates) && !library; i++) {
        if (load(candidates[i]))
            library = candidates[i];
    }
}

const struct blas *blas_get(void) {
    pthread_once(&once, load_any);
    return library ? &table : NULL;
}

void *blas_symbol(const char *name) { return blas_get() ? dlsym(library_handle, name) : NULL; }
