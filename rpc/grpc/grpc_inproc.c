/* Hands a request of this process to its server, and the answer back. Each way the message is
 * copied once, into one buffer with its first large tensor aligned. */
#include "rpc/grpc/grpc_inproc.h"

#include <inttypes.h>
#include <stdlib.h>

#include "rpc/grpc/grpc_call.h"

struct grpc_inproc {
    struct list link;       /* of the server's, until it is answered */
    struct grpc_call *call; /* NULL: the server has no such call, or not any more */
    struct grpc_server *server;
    grpc_align_fn *align;
    grpc_done_fn *on_done;
    void *arg;
    struct loop_task tell; /* calls on_done */
    bool is_answered;
    struct status *status;
    struct grpc_message message;
};

static void tell(struct loop_task *task) {
    struct grpc_inproc *inproc = CONTAINER_OF(task, struct grpc_inproc, tell);
    if (inproc->call)
        inproc->call->inproc = NULL;
    inproc->on_done(inproc->arg, inproc->status, inproc->message);
    free(inproc);
}

void grpc_inproc_answer(struct grpc_inproc *inproc, struct status *status_take,
                        const struct grpc_body *body) {
    if (inproc->is_answered) {
        status_unref(status_take);
        return;
    }
    inproc->is_answered = true;
    inproc->status = body ? grpc_body_gather(body, inproc->align, &inproc->message) : status_take;
    list_remove(&inproc->link);
    loop_defer(inproc->server->loop, &inproc->tell);
}

void grpc_inproc_forget(struct grpc_inproc *inproc) { inproc->call = NULL; }

void grpc_inproc_cancel(struct grpc_inproc *inproc) {
    if (inproc->is_answered)
        return;
    grpc_inproc_answer(
        inproc, status_new(STATUS_CANCELLED, "%s was cancelled", grpc_call_path(inproc->call)),
        NULL);
    grpc_call_abandon(inproc->call);
}

void grpc_inproc_close_all(struct grpc_server *server) {
    LIST_FOR_EACH_SAFE (link, next, &server->inprocs) {
        struct grpc_inproc *inproc = LIST_ENTRY(link, struct grpc_inproc, link);
        grpc_inproc_answer(inproc, status_unavailable("the server closed the connection"), NULL);
        grpc_call_abandon(inproc->call);
    }
}

/* What a connection would refuse, too. */
static struct status *check(const struct grpc_server *server, const struct grpc_method *method,
                            const char *path, size_t size_bytes) {
    int64_t max_bytes = MIN(server->options.limits.max_message_bytes, (int64_t)INT32_MAX);
    if (server->is_draining || server->is_closing)
        return status_unavailable("%s: the server takes no more calls", path);
    if (!method || grpc_health_owns(method))
        return status_unimplemented("unknown method %s", path);
    if ((int64_t)size_bytes > max_bytes)
        return status_exhausted("%s: a message of %zu bytes exceeds the limit of %" PRId64 " bytes",
                                path, size_bytes, max_bytes);
    return NULL;
}

struct grpc_inproc *grpc_inproc_start(struct grpc_server *server, const char *path,
                                      struct grpc_body *body, int64_t timeout_ms,
                                      grpc_align_fn *align, grpc_done_fn *on_done, void *arg) {
    const struct grpc_method *method = strmap_get(&server->methods, path);
    struct grpc_message message = {0};
    struct grpc_inproc *inproc = xcalloc(1, sizeof(*inproc));
    *inproc = (struct grpc_inproc){
        .server = server, .align = align, .on_done = on_done, .arg = arg, .tell = {.run = tell}};
    list_push_back(&server->inprocs, &inproc->link);
    struct status *why = check(server, method, path, body->size_bytes);
    if (!why)
        why = grpc_body_gather(body, method->align, &message);
    grpc_body_fini(body);
    if (why) {
        grpc_inproc_answer(inproc, why, NULL);
        return inproc;
    }
    inproc->call = grpc_call_new_inproc(server, method, inproc, message, timeout_ms);
    grpc_call_deliver(inproc->call);
    return inproc;
}
