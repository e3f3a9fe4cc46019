/* Loads libcurl and looks up each of its calls. */
#include "rpc/membership/curl_library.h"

#include <dlfcn.h>

static const char *const file_names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

struct status *curl_library_get(const struct curl_library **ret) {
    static struct curl_library library;
    static bool is_loaded;
    *ret = &library;
    if (is_loaded)
        return NULL;
    void *file = NULL;
    for (size_t i = 0; i < ARRAY_LEN(file_names) && !file; i++)
        file = dlopen(file_names[i], RTLD_NOW | RTLD_LOCAL);
    if (!file)
        return status_failed_precondition("etcd needs libcurl (Debian: libcurl4): %s", dlerror());
    struct {
        void **slot;
        const char *name;
    } calls[] = {
#define CALL(name) {(void **)&library.name, "curl_" #name},
#include "rpc/membership/curl_calls.inc"
#undef CALL
    };
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        if (!(*calls[i].slot = dlsym(file, calls[i].name)))
            return status_failed_precondition("libcurl is too old: %s", dlerror());
    if (library.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return status_failed_precondition("libcurl does not start");
    is_loaded = true; /* never unloaded, because TLS libraries do not support that */
    return NULL;
}
