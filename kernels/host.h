/* What a kernel may ask of its host: one small table that the worker fills in. A member that a host
 * cannot serve is NULL (the master's folding host has no containers). Only kernels marked
 * KERNEL_STATEFUL or KERNEL_ASYNC use it. */
#ifndef MILLRACE_KERNELS_HOST_H
#define MILLRACE_KERNELS_HOST_H

#include "common/base/alarm.h"
#include "common/base/list.h"
#include "kernels/kernel.h"

/* A wait that a cancel ends. The waiting kernel embeds it in its record. */
struct kernel_cancel_hook {
    struct list link;                                                    /* the host's */
    void (*cancel)(struct kernel_cancel_hook *hook, struct status *why); /* `why` is borrowed */
};

/* Work that a kernel leaves for the end of its execution: it begins when all nodes have run, or
 * when the execution has failed, and the execution ends only after it. The kernel owns the record,
 * and keeps it until end_hook_done has been called. */
struct kernel_end_hook {
    struct list link;                            /* the host's */
    void (*begin)(struct kernel_end_hook *hook); /* must not block */
    const char *what;                            /* "to …", for /stepz */
    struct status *status; /* set before end_hook_done: the failure of the execution, or NULL */
    void *record;          /* the host's */
};

/* A call to a gRPC server outside the cluster that sends and receives messages, for a thread of a
 * kernel's own: each function but duplex_close may block. `address` is "HOST:PORT". Errors name the
 * address. One thread at a time. */
struct grpc_duplex;
struct duplex_options {
    const char *address, *path; /* "/tensorflow.EventListener/SendEvents" */
    int64_t connect_ms;         /* a server that is away is tried again for this long */
    int64_t stall_ms;           /* the longest time in which a server takes nothing of a message */
    bool (*is_unwanted)(void *arg); /* asked 20 times a second: true ends every call */
    void *arg;
};

/* Makes a resource for lookup_or_create. It is called without a lock; when two callers race, one of
 * the two resources is dropped. */
typedef struct status *resource_create_fn(struct kernel_ctx *ctx, void *arg,
                                          struct object **ret_resource);

/* A function that kernels call. It keeps its graph's functions and the containers that it runs with
 * alive, so a resource that holds a function may outlive the step and the graph that it comes from.
 * Immutable. Any thread. */
struct function {
    struct object object;
    const struct kernel_host *host;
    const char *name;                     /* in the function library */
    const uint8_t *arg_types, *ret_types; /* DT_INVALID: the argument is not used */
    /* n_args counts up to the last argument that is used; a call may give more */
    int n_args, n_rets;
    struct pool *pool; /* may be NULL */
};

/* One call. The caller owns the memory. */
struct function_call {
    struct function *function; /* borrowed until function_finish */
    struct tensor *args;       /* n_args values, borrowed until the call has ended */
    struct tensor *rets;       /* function->n_rets, holding nothing: set on success */
    int n_args;
    struct status *status; /* set at the end, for the caller to take */
    void (*on_done)(struct function_call *call);
    void *record; /* the host's */
};

/* One call to the kernels of another task of the cluster: a peer_handler_fn there replies. It
 * is for files that only the other task has. The caller owns the memory and leaves it alone from
 * peer_call_start until on_done. */
struct peer_call {
    int task;            /* the number of the other task: 0 … peer_count - 1 */
    struct span request; /* copied by peer_call_start */
    /* Set at the end, and then owned by the caller. `status` is what the other task's handler
     * returned, or UNAVAILABLE naming the task when that task cannot be reached, stops responding
     * or is lost. `reply` and `payload` are set on success. */
    struct status *status;
    struct str reply;
    struct buffer *payload; /* may be NULL */
    size_t payload_bytes;
    /* Called exactly once, never inside peer_call_start, on a loop thread, where nothing may
     * block. It may start another call. */
    void (*on_done)(struct peer_call *call);
    struct list link; /* the host's */
    void *record;     /* the host's */
    uint64_t id;      /* the host's */
};

enum {
    PEER_MAX_REQUEST_BYTES = 64 << 10,
    PEER_MAX_REPLY_BYTES = 4 << 20,   /* without its payload */
    PEER_MAX_PAYLOAD_BYTES = 1 << 20, /* a caller requests longer values in pieces */
    /* calls of one task to one other that have no reply yet; one more closes the connection */
    PEER_MAX_CALLS = 64,
};

/* The reply of a handler to a call of another task's kernel. */
struct peer_reply {
    struct str bytes;
    struct buffer *payload; /* at most PEER_MAX_PAYLOAD_BYTES, or NULL */
    size_t payload_bytes;
};
/* Handles a call. Runs on an I/O thread, which it may block. `request` holds a stranger's bytes. */
typedef struct status *peer_handler_fn(struct span request, struct peer_reply *ret);

struct kernel_host {
    /* Called by an asynchronous kernel: the execution of ctx has ended, and ctx->status and
     * ctx->outputs are final. Any thread, exactly once for each execution. */
    void (*done)(struct kernel_ctx *ctx);
    /* Between the two calls, the executions that this thread wakes do not run. So a kernel can wake
     * several, and the first does not run before the last is woken. Pairs nest; the end of the
     * outermost pair runs the woken executions. NULL where `done` never runs an execution. */
    void (*defer_wakes_begin)(void);
    void (*defer_wakes_end)(void);

    /* ---- resources: named objects in the containers of the task of ctx's device ---- */
    /* Find a resource, or make a missing one. `container` "" is the default container; NULL is the
     * step's own, which is dropped when the step ends (TensorArrays, stacks). `type` is compared by
     * address. *ret_resource gets one reference. Errors: NOT_FOUND, which names container, name and
     * kind; INVALID_ARGUMENT for a name that another kind uses; those of `create`. Any thread. */
    struct status *(*resource_lookup)(struct kernel_ctx *ctx, const char *container,
                                      const char *name, const struct object_type *type,
                                      struct object **ret_resource);
    struct status *(*resource_lookup_or_create)(struct kernel_ctx *ctx, const char *container,
                                                const char *name, const struct object_type *type,
                                                resource_create_fn *create, void *arg,
                                                struct object **ret_resource);
    /* Removes the handle's resource from its container. Errors: NOT_FOUND. Any thread. */
    struct status *(*resource_delete)(struct kernel_ctx *ctx, const struct resource_handle *handle);
    /* Makes a handle to a name; the resource need not exist yet. The caller gets one reference. Any
     * thread. */
    struct resource_handle *(*handle_make)(struct kernel_ctx *ctx, const char *container,
                                           const char *name, const struct object_type *type,
                                           enum dtype dtype);
    /* Find the resource of a handle, quickly by the handle's entry. *ret_resource gets one
     * reference. Errors: NOT_FOUND; INVALID_ARGUMENT for a handle of another device or kind; those
     * of `create`. Any thread. */
    struct status *(*handle_lookup)(struct kernel_ctx *ctx, const struct resource_handle *handle,
                                    const struct object_type *type, struct object **ret_resource);
    struct status *(*handle_lookup_or_create)(struct kernel_ctx *ctx,
                                              const struct resource_handle *handle,
                                              const struct object_type *type,
                                              resource_create_fn *create, void *arg,
                                              struct object **ret_resource);

    /* ---- cancellation, for kernels that wait; any thread ---- */
    /* Registers the hook, which is called when the step is cancelled. False: the step is cancelled
     * already and the hook is not registered; the kernel must end now with *ret_why, a new
     * reference. */
    bool (*cancel_register)(struct kernel_ctx *ctx, struct kernel_cancel_hook *hook,
                            struct status **ret_why);
    /* False: `cancel` of the hook has run or is running, and the hook's record must stay valid
     * until it has returned. */
    bool (*cancel_deregister)(struct kernel_ctx *ctx, struct kernel_cancel_hook *hook);
    bool (*is_cancelled)(struct kernel_ctx *ctx);

    /* ---- the end of the execution; any thread ---- */
    void (*at_end)(struct kernel_ctx *ctx, struct kernel_end_hook *hook);
    void (*end_hook_done)(struct kernel_end_hook *hook); /* once for each hook that has begun */

    /* ---- servers outside the cluster: rpc/grpc/grpc_duplex.h ---- */
    struct status *(*duplex_open)(const struct duplex_options *options, struct grpc_duplex **ret);
    struct status *(*duplex_send)(struct grpc_duplex *duplex, struct span message);
    /* Waits for a message, for at most wait_ms (< 0: without limit). *ret_is_ended: the server has
     * ended the call well, and there is no message. */
    struct status *(*duplex_receive)(struct grpc_duplex *duplex, int64_t wait_ms, struct str *ret,
                                     bool *ret_is_ended);
    /* No more messages will be sent. */
    struct status *(*duplex_finish)(struct grpc_duplex *duplex);
    void (*duplex_close)(struct grpc_duplex *duplex); /* accepts NULL */

    /* Runs work that blocks on files on an I/O thread, never on the pool. */
    void (*submit_io)(struct kernel_ctx *ctx, struct pool_task *task);
    /* Returns the pool of the I/O threads, for work that outlives the step. */
    struct pool *(*io_pool)(struct kernel_ctx *ctx);
    /* A save calls this once for each execution, when it holds all of its inputs. Any thread. The
     * member may be NULL. */
    void (*inputs_taken)(struct kernel_ctx *ctx);
    /* Returns the alarms of the task (common/base/alarm.h). They may ring after the step has ended,
     * on a loop thread, where nothing may block. Any thread. The member or the result is NULL where
     * there are no alarms. */
    struct alarm_clock *(*alarms)(struct kernel_ctx *ctx);

    /* ---- calls to the other tasks of the cluster, which the graph's registration names; NULL
     * where there are no other tasks; any thread ---- No thread waits for a reply. At the other
     * task, a handler blocks an I/O thread only while it reads a file. */
    int (*peer_count)(struct kernel_ctx *ctx);
    /* "/job:ps/replica:0/task:1"; valid while the step runs */
    const char *(*peer_name)(struct kernel_ctx *ctx, int task);
    void (*peer_call_start)(struct kernel_ctx *ctx, struct peer_call *call);

    /* ---- functions that the node's attrs of type func name, and that the master has compiled for
     * this task; NULL where the host has no functions ---- */
    /* Finds the function of an attr. *ret gets one reference. Errors: NOT_FOUND when the graph was
     * registered without the function; RESOURCE_EXHAUSTED when function calls nest too deep. Any
     * thread. */
    struct status *(*function_find)(struct kernel_ctx *ctx, const char *attr,
                                    struct function **ret);
    /* Makes the same function with state of its own (random streams), which all functions of one
     * scope share. *scope is NULL at first; the call makes the scope, and the caller keeps it and
     * releases it. A function that has no state, or was made by this call, is returned itself. *ret
     * gets one reference. Only one thread at a time may use a scope. */
    struct status *(*function_fresh)(struct function *function, struct object **scope,
                                     struct function **ret);
    /* A call is prepared, called and finished, in this order. It may be cancelled once it is
     * prepared. function_call runs the function, at first on the caller's thread. It returns
     * KERNEL_DONE when the function has ended, and then on_done is not called. Otherwise on_done is
     * called once, on any thread. */
    void (*function_prepare)(struct function_call *call);
    enum kernel_result (*function_call)(struct function_call *call);
    /* Ends a call soon. Any thread, between prepare and finish. The caller must hold no lock that
     * on_done takes. */
    void (*function_cancel)(struct function_call *call, struct status *why);
    void (*function_finish)(struct function_call *call);

    /* Returns the object of that type which all sessions of a client's process share on this task,
     * with one reference; `make` makes it at first use. Errors: FAILED_PRECONDITION for a session
     * without a client. Any thread. NULL where the host has no clients. */
    struct status *(*client_object)(struct kernel_ctx *ctx, const struct object_type *type,
                                    struct object *(*make)(void), struct object **ret);

    /* ---- values that the session of ctx's step keeps in this task, by name; NULL where there are
     * no sessions; any thread ---- Errors: FAILED_PRECONDITION for nodes of a function, which have
     * no such values; INVALID_ARGUMENT for a name without a value. */
    struct status *(*session_value_put)(struct kernel_ctx *ctx, const char *name,
                                        const struct tensor *value);
    struct status *(*session_value_get)(struct kernel_ctx *ctx, struct span name,
                                        struct tensor *ret);
    struct status *(*session_value_delete)(struct kernel_ctx *ctx, struct span name);

    /* Returns a number that is unique in the process and never 0: for names of anonymous
     * resources. */
    uint64_t (*unique_id)(void);
};

static inline void kernel_defer_wakes_begin(const struct kernel_host *host) {
    if (host->defer_wakes_begin)
        host->defer_wakes_begin();
}
static inline void kernel_defer_wakes_end(const struct kernel_host *host) {
    if (host->defer_wakes_end)
        host->defer_wakes_end();
}

#endif
