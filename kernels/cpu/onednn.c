/* Loads oneDNN and makes its engine and streams; see onednn.h. */
#include "kernels/cpu/onednn.h"

#include <dlfcn.h>
#include <pthread.h>

/* Our descriptors have the layout of version 2, so no other version may be loaded. */
static const char *const candidates[] = {"libdnnl.so.2"};

static struct onednn table;
static bool is_there;
static void (*set_openmp_threads)(int);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool find_functions(void *handle) {
    const struct {
        const char *name;
        void *to;
    } symbols[] = {
#define ONEDNN_SYMBOL(name) {"dnnl_" #name, &table.name},
        ONEDNN_FUNCTIONS(ONEDNN_SYMBOL)
#undef ONEDNN_SYMBOL
    };
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
        void *symbol = dlsym(handle, symbols[i].name);
        if (!symbol)
            return false;
        memcpy(symbols[i].to, &symbol, sizeof(symbol));
    }
    /* dlsym also searches the libraries that this library needs */
    void *symbol = dlsym(handle, "omp_set_num_threads");
    if (symbol)
        memcpy(&set_openmp_threads, &symbol, sizeof(symbol));
    return true;
}

static bool make_engine(void) {
    return table.engine_create(&table.engine, dnnl_cpu, 0) == dnnl_success &&
           table.stream_create(&table.stream, table.engine, dnnl_stream_default_flags) ==
               dnnl_success &&
           table.primitive_attr_create(&table.attr) == dnnl_success &&
           table.primitive_attr_set_scratchpad_mode(table.attr, dnnl_scratchpad_mode_user) ==
               dnnl_success;
}

static void load(void) {
    for (size_t i = 0; i < ARRAY_LEN(candidates) && !is_there; i++) {
        void *handle = dlopen(candidates[i], RTLD_NOW | RTLD_LOCAL);
        if (!handle)
            continue;
        is_there = find_functions(handle) && make_engine();
        if (!is_there)
            dlclose(handle);
    }
}

const struct onednn *onednn_get(void) {
    static __thread bool is_single;
    pthread_once(&once, load);
    if (!is_there)
        return NULL;
    if (!is_single && set_openmp_threads) {
        set_openmp_threads(1);
        is_single = true;
    }
    return &table;
}
