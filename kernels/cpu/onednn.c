/* Loads oneDNN and makes its engine and streams; see onednn.h. */
#include "kernels/cpu/onednn.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

/* Our descriptors have the layout of version 2, so no other version may be loaded. */
static const char *const candidates[] = {"libdnnl.so.2"};

static struct onednn table;
static bool is_there;
static void (*set_openmp_threads)(int);
static atomic_bool has_loaded; /* for threads that did not load it */
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

static const char *isa_name(dnnl_cpu_isa_t isa) {
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } names[] = {{dnnl_cpu_isa_sse41, "sse41"},
                 {dnnl_cpu_isa_avx, "avx"},
                 {dnnl_cpu_isa_avx2, "avx2"},
                 {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
                 {dnnl_cpu_isa_avx512_core, "avx512_core"},
                 {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
                 {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
                 {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (names[i].isa == isa)
            return names[i].name;
    return "another instruction set";
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
    atomic_store(&has_loaded, is_there);
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

bool onednn_describe(struct str *out) {
    if (!atomic_load(&has_loaded))
        return false;
    const dnnl_version_t *version = table.version();
    str_addf(out, "oneDNN %d.%d.%d, %s", version->major, version->minor, version->patch,
             isa_name(table.get_effective_cpu_isa()));
    return true;
}
