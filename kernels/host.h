/* What a kernel may ask of its host: one small table, filled in by the worker. A member that a host cannot serve is NULL
 * (the master's folding host has no containers), and only kernels marked KERNEL_STATEFUL or KERNEL_ASYNC use it. */
#ifndef MILLRACE_KERNELS_HOST_H
#define MILLRACE_KERNELS_HOST_H

#include "common/base/list.h"
#include "kernels/kernel.h"

/* A wait that cancellation ends: embedded in the waiting kernel's record. */
struct kernel_cancel_hook {
    struct list link;                                                    /* the host's */
    void (*cancel)(struct kernel_cancel_hook *hook, struct status *why); /* `why` is borrowed */
};

/* Makes a resource for lookup_or_create; called under no lock, may be called and its result dropped when two race. */
typedef struct status *resource_create_fn(struct kernel_ctx *ctx, void *arg, struct object **ret_resource);

struct kernel_host {
    /* Asynchronous kernels: the execution of ctx has ended (ctx->status, ctx->outputs are final). Any thread, exactly once. */
    void (*done)(struct kernel_ctx *ctx);

    /* ---- resources: named objects in the containers of ctx's device's task ----
     * `container` "" means the default; NULL means the step's own container, dropped when the step ends (TensorArrays, stacks).
     * `type` is the kind by address: a name that is taken by another kind is INVALID_ARGUMENT.
     * Found or made resources are returned with one reference. Any thread. */
    struct status *(*resource_lookup)(struct kernel_ctx *ctx, const char *container, const char *name, const struct object_type *type,
                                      struct object **ret_resource); /* NOT_FOUND names container, name, kind */
    struct status *(*resource_lookup_or_create)(struct kernel_ctx *ctx, const char *container, const char *name,
                                                const struct object_type *type, resource_create_fn *create, void *arg,
                                                struct object **ret_resource);
    struct status *(*resource_delete)(struct kernel_ctx *ctx, const struct resource_handle *handle);
    /* A handle to a name (the resource need not exist yet), and the resource of a handle. The handle's entry makes this quick.
     * Errors: NOT_FOUND; INVALID_ARGUMENT for a handle of another device or kind. */
    struct resource_handle *(*handle_make)(struct kernel_ctx *ctx, const char *container, const char *name, const struct object_type *type,
                                           enum dtype dtype);
    struct status *(*handle_lookup)(struct kernel_ctx *ctx, const struct resource_handle *handle, const struct object_type *type,
                                    struct object **ret_resource);
    struct status *(*handle_lookup_or_create)(struct kernel_ctx *ctx, const struct resource_handle *handle, const struct object_type *type,
                                              resource_create_fn *create, void *arg, struct object **ret_resource);

    /* ---- cancellation: for kernels that wait ----
     * False: the step is cancelled already, the hook is not registered and the kernel must end now with *ret_why (a new reference). */
    bool (*cancel_register)(struct kernel_ctx *ctx, struct kernel_cancel_hook *hook, struct status **ret_why);
    /* False: cancel has run or is running; the record stays until it has. */
    bool (*cancel_deregister)(struct kernel_ctx *ctx, struct kernel_cancel_hook *hook);
    bool (*is_cancelled)(struct kernel_ctx *ctx);

    /* Runs blocking work (files) on a thread of its own kind, never on the pool. */
    void (*submit_io)(struct kernel_ctx *ctx, struct pool_task *task);
    /* Calls a function of the graph's library; NULL until the master leaves any un-inlined. */
    void (*call_function)(struct kernel_ctx *ctx, const char *name, struct tensor *args, int n_args,
                          void (*on_done)(void *arg, struct status *status_take), void *arg);
    /* Unique per process and never 0: names of anonymous resources. */
    uint64_t (*unique_id)(void);
};

#endif
