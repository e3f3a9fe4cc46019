/* Loads the plugin for local sessions. */
#include "client/local_link.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct local_plugin *loaded; /* guarded by lock */

/* Below the folder of this library: where packages install it, and where it is built. */
static const char *const places[] = {"", "local/"};

/* Appends the plugin's path, or only its name if it is not beside this library. */
static void find_file(struct str *out) {
    Dl_info here;
    /* A statically linked program gives what it was started as, which may be a relative path. */
    const char *slash = dladdr(&loaded, &here) && here.dli_fname && here.dli_fname[0] == '/'
                            ? strrchr(here.dli_fname, '/')
                            : NULL;
    for (size_t i = 0; slash && i < ARRAY_LEN(places); i++) {
        str_clear(out);
        str_addf(out, "%.*s%s%s", (int)(slash - here.dli_fname + 1), here.dli_fname, places[i],
                 LOCAL_PLUGIN_NAME);
        if (access(str_text(out), R_OK) == 0)
            return;
    }
    str_clear(out);
    str_add(out, LOCAL_PLUGIN_NAME);
}

static struct status *check(const struct local_plugin *plugin, const char *path) {
    if (!plugin)
        return status_unavailable("%s is no plugin for local sessions", path);
    if (strcmp(plugin->version, MILLRACE_VERSION) != 0 ||
        plugin->tensor_size != sizeof(struct tensor) ||
        plugin->buffer_size != sizeof(struct buffer) ||
        plugin->allocator_size != sizeof(struct allocator))
        return status_unavailable("%s is of another build (version %s, this is %s)", path,
                                  plugin->version, MILLRACE_VERSION);
    return NULL;
}

static struct status *load(void) {
    struct str path = STR_INIT;
    struct status *st = NULL;
    find_file(&path);
    void *library = dlopen(str_text(&path), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        st = status_unavailable("the target \"\" is a local session, which needs %s (package "
                                "libmillrace-local0): %s",
                                LOCAL_PLUGIN_NAME, why ? why : "it does not load");
    } else {
        const struct local_plugin *plugin = dlsym(library, LOCAL_PLUGIN_SYMBOL);
        st = check(plugin, str_text(&path));
        if (!st)
            loaded = plugin;
    }
    str_fini(&path);
    return st;
}

struct status *local_link_plugin(const struct local_plugin **ret) {
    pthread_mutex_lock(&lock);
    struct status *st = loaded ? NULL : load();
    *ret = loaded;
    pthread_mutex_unlock(&lock);
    return st;
}
