/* Finds kernels and host functions by name in shared objects that were compiled for the host. */
#include "tests/cuda/sim/device_kernels.h"
#include "tests/cuda/sim/device.h"
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OBJECTS = 1200 };
static void *objects[MAX_OBJECTS];
static int n_objects;

static struct kernel *kernels;
static uint32_t n_kernels;

static struct host_function {
    char *name;
    void (*call)(const void *);
} * host_functions;
static uint32_t n_host_functions;

bool kernels_load(const char *paths) {
    char *copy = strdup(paths), *rest = copy, *path;
    bool is_done = true;
    while (is_done && (path = strsep(&rest, ":")) != NULL) {
        if (*path == '\0')
            continue;
        if (n_objects == MAX_OBJECTS) {
            report("no kernels: there are more than %d objects", MAX_OBJECTS);
            is_done = false;
            break;
        }
        objects[n_objects] = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (objects[n_objects] == NULL) {
            report("no kernels: %s", dlerror());
            is_done = false;
        } else {
            n_objects++;
        }
    }
    free(copy);
    return is_done;
}

static void *symbol_find(const char *name) {
    for (int i = 0; i < n_objects; i++) {
        void *symbol = dlsym(objects[i], name);
        if (symbol != NULL)
            return symbol;
    }
    return NULL;
}

struct search {
    uint64_t address;
    struct kernel *kernel;
};

/* The thread-local memory of the shared object that has the kernel is its static shared memory. */
static int note_module(struct dl_phdr_info *info, size_t size, void *opaque) {
    struct search *search = opaque;
    uint64_t tls_size = 0;
    bool is_it = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_TLS)
            tls_size = part->p_memsz;
        is_it |= part->p_type == PT_LOAD &&
                 search->address - (info->dlpi_addr + part->p_vaddr) < part->p_memsz;
    }
    if (!is_it)
        return 0;
    search->kernel->tls_module = tls_size == 0 ? 0 : info->dlpi_tls_modid;
    search->kernel->tls_size = tls_size;
    return 1;
}

int kernels_find(const char *name, uint64_t *ret_size) {
    for (uint32_t i = 0; i < n_kernels; i++)
        if (strcmp(kernels[i].name, name) == 0) {
            *ret_size = kernels[i].entry->size;
            return (int)i;
        }
    char symbol[512];
    snprintf(symbol, sizeof symbol, "sim_kernel_%s", name);
    const struct sim_kernel *entry = symbol_find(symbol);
    if (entry == NULL)
        return -1;
    kernels = realloc(kernels, (n_kernels + 1) * sizeof *kernels);
    if (kernels == NULL)
        abort();
    kernels[n_kernels] = (struct kernel){.name = strdup(name), .entry = entry};
    dl_iterate_phdr(note_module, &(struct search){(uint64_t)entry->call, &kernels[n_kernels]});
    *ret_size = entry->size;
    return (int)n_kernels++;
}

const struct kernel *kernels_at(uint32_t kernel) { return &kernels[kernel]; }

const char *kernels_name(uint32_t kernel) { return kernels[kernel].name; }

int host_functions_find(const char *name) {
    for (uint32_t i = 0; i < n_host_functions; i++)
        if (strcmp(host_functions[i].name, name) == 0)
            return (int)i;
    void *symbol = symbol_find(name);
    if (symbol == NULL)
        return -1;
    host_functions = realloc(host_functions, (n_host_functions + 1) * sizeof *host_functions);
    if (host_functions == NULL)
        abort();
    host_functions[n_host_functions].name = strdup(name);
    memcpy(&host_functions[n_host_functions].call, &symbol, sizeof symbol);
    return (int)n_host_functions++;
}

const char *host_functions_name(uint32_t function) { return host_functions[function].name; }

void host_function_run(uint32_t function, const void *arguments) {
    host_functions[function].call(arguments);
}
