/* The plugin for local sessions, libmillrace-local.so: what it exports. It holds a master and a
 * worker with all kernels, which a client of a remote master does not need, so the client library
 * stays small and loads it when a session has the target "".
 *
 * Both libraries have their own copies of what they share (buffers, the loop), so they must come
 * from one build. Loaded by dlopen, never unloaded. */
#ifndef MILLRACE_CLIENT_LOCAL_LOCAL_PLUGIN_H
#define MILLRACE_CLIENT_LOCAL_LOCAL_PLUGIN_H

#include "common/tensor/tensor.h"
#include "rpc/grpc/grpc_inproc.h"

struct local_cluster;

struct local_plugin {
    const char *version; /* MILLRACE_VERSION of its build */
    size_t tensor_size, buffer_size, allocator_size;
    /* Starts a master and its one task, /job:localhost/task:0, on a loop that nobody runs yet.
     * `config` is a serialized ConfigProto, of which device_count["CPU"] and the numbers of threads
     * count. Errors: INVALID_ARGUMENT, a config that cannot be. */
    struct status *(*start)(struct loop *loop, struct span config, struct local_cluster **ret);
    /* Calls a method of the master, as grpc_inproc_start and grpc_inproc_cancel do. */
    struct grpc_inproc *(*call)(struct local_cluster *cluster, const char *path,
                                struct grpc_body *body, int64_t timeout_ms, grpc_align_fn *align,
                                grpc_done_fn *on_done, void *arg);
    void (*cancel)(struct grpc_inproc *call);
    /* Ends every step, and then the loop: the caller runs it (loop_run) until it returns. Loop
     * thread. */
    void (*stop)(struct local_cluster *cluster);
    /* Ends the threads and frees the devices; before loop_free. */
    void (*free)(struct local_cluster *cluster);
};

#define LOCAL_PLUGIN_NAME "libmillrace-local.so.0"
#define LOCAL_PLUGIN_SYMBOL "millrace_local_export"

#endif
