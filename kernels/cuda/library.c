/* Opens libraries for GPUs (library.h). */
#include "kernels/cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PATH = 4096 };

static void *open_in(const char *folder, size_t len, const char *const *names, size_t n,
                     struct str *why) {
    char path[MAX_PATH];
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%.*s%s%s", (int)len, folder, len ? "/" : "", names[i]);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    const char *error = dlerror();
    str_addf(why, "%s%s", why->len ? ", " : "", error ? error : path);
    return NULL;
}

void *gpu_library_open(const char *folders, const char *const *names, size_t n, struct str *why) {
    while (folders && *folders) {
        size_t len = strcspn(folders, ":");
        void *library = open_in(folders, len, names, n, why);
        if (library)
            return library;
        folders += len + (folders[len] == ':');
    }
    return open_in("", 0, names, n, why);
}

bool gpu_library_find(void *library, const struct gpu_library_call *calls, size_t n, void *table,
                      struct str *why) {
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(library, calls[i].name);
        if (!symbol) {
            str_addf(why, "the library has no %s", calls[i].name);
            return false;
        }
        memcpy((char *)table + calls[i].offset, &symbol, sizeof symbol);
    }
    return true;
}
