/* Loads the plugin for GPUs (gpu_plugin.h). */
#include "kernels/cuda/rows/gpu_plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <unistd.h>

static const char FILE_NAME[] = "millrace-cuda.so";
/* Below the folder of the program: beside it, where it is built, where packages install it. */
static const char *const places[] = {"", "../kernels/cuda/", "../lib/millrace/"};

static bool find_beside(const char *folder, struct str *out) {
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        str_clear(out);
        str_addf(out, "%s/%s%s", folder, places[i], FILE_NAME);
        if (access(str_text(out), R_OK) == 0)
            return true;
    }
    return false;
}

static struct status *find_file(const struct gpu_plugin_options *options, struct str *out) {
    if (options->plugin) {
        str_add(out, options->plugin);
        return access(options->plugin, R_OK) == 0
                   ? NULL
                   : status_unavailable("no plugin %s: %s", options->plugin, strerror(errno));
    }
    char path[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    if (len <= 0)
        return status_unavailable("the program does not know its own path");
    path[len] = '\0';
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    if (!find_beside(path, out))
        return status_unavailable("no %s in %s or ../lib/millrace", FILE_NAME, path);
    return NULL;
}

/* A host without a driver need not load the plugin, whose pages would stay for nothing. The driver
 * stays loaded for the plugin. */
static struct status *find_driver(void) {
    if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL))
        return NULL;
    const char *why = dlerror();
    return status_unavailable("no CUDA driver: %s", why ? why : "libcuda.so.1");
}

static struct status *check_plugin(const struct gpu_plugin *plugin, const char *path) {
    static const struct gpu_plugin_abi here = GPU_PLUGIN_ABI_HERE;
    if (memcmp(&plugin->abi, &here, sizeof here) != 0 ||
        strcmp(plugin->version, MILLRACE_VERSION) != 0)
        return status_unavailable("%s is of another build (version %s, this is %s)", path,
                                  plugin->abi.number == here.number ? plugin->version : "unknown",
                                  MILLRACE_VERSION);
    return NULL;
}

static struct status *load(const struct gpu_plugin_options *options,
                           const struct gpu_plugin **ret) {
    struct str path = STR_INIT;
    struct status *st = find_file(options, &path);
    if (!st)
        st = find_driver();
    void *library = st ? NULL : dlopen(str_text(&path), RTLD_NOW | RTLD_LOCAL);
    if (!st && !library) {
        const char *why = dlerror();
        st = status_unavailable("cannot load %s: %s", str_text(&path), why ? why : "");
    }
    const struct gpu_plugin *plugin = library ? dlsym(library, "gpu_plugin_export") : NULL;
    if (!st && !plugin)
        st = status_unavailable("%s is no plugin of Millrace", str_text(&path));
    if (!st)
        st = check_plugin(plugin, str_text(&path));
    str_fini(&path);
    if (!st)
        *ret = plugin;
    return st;
}

struct status *gpu_plugin_open(const struct gpu_plugin_options *options, struct device *devices,
                               int *ret_n, const struct gpu_plugin **ret) {
    const struct gpu_plugin *plugin;
    TRY(load(options, &plugin));
    TRY(plugin->open(options, devices, ret_n));
    gpu_add_device_type(plugin->implementations, plugin->n_implementations);
    *ret = plugin;
    return NULL;
}
