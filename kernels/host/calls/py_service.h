/* Calls of Python functions (PyFunc and its like) that live in the process of a client.
 *
 * The client's process serves them with steps of a session of its own: a step of the reserved
 * token PY_SERVE_TOKEN delivers the result of the last call and waits for the next one. So calls
 * need no connection of their own, and the session handles TLS, relays and restarts.
 *
 *   node PyFunc ──► py_service_call ──► pending ──► in flight ──► settled ──► outputs
 *                                         │             ▲ │          ▲
 *   serving step ──► py_service_serve ────┴─────────────┘ └──────────┴── the server's next step
 *
 * One service exists for each client process and task, shared by that client's sessions
 * (kernel_host.client_object). A server is one `with millrace.py_functions(...)` of the client; it
 * may serve with many steps at a time, and each has at most one call in flight. Any thread. */
#ifndef MILLRACE_KERNELS_HOST_CALLS_PY_SERVICE_H
#define MILLRACE_KERNELS_HOST_CALLS_PY_SERVICE_H

#include "kernels/host/calls/py_message.h"
#include "kernels/kernel.h"

#define PY_SERVE_TOKEN "millrace.serve"

enum {
    PY_MAX_SERVERS = 64,
    /* A call without any server waits this long for one, e.g. while a client finds a restarted
     * task again. Then it fails with FAILED_PRECONDITION. */
    PY_SERVER_WAIT_MS = 5000,
};

struct py_service;

/* The service of the client whose session runs ctx, with one reference. Errors: UNIMPLEMENTED
 * where the host has no clients (folding). */
struct status *py_service_of(struct kernel_ctx *ctx, struct py_service **ret) MUST_USE;
void py_service_unref(struct py_service *service);

/* Calls the function of `token` with the inputs of ctx; its results become the outputs of ctx.
 * Errors, at the end of the execution: what the function raised, INVALID_ARGUMENT for results of
 * another number or type than the outputs, FAILED_PRECONDITION without a server. */
enum kernel_result py_service_call(struct py_service *service, struct kernel_ctx *ctx,
                                   const char *token, uint32_t flags);

/* Handles the request in input 0 of ctx; output 0 is the next call's blob, or an empty one where
 * the request wants none. For a PY_JOIN it has one byte when the task maps the memory that the
 * message names (py_memory.h), and none otherwise. */
enum kernel_result py_service_serve(struct py_service *service, struct kernel_ctx *ctx);

#endif
