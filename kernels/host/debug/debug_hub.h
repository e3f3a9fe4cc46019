/* The hub sends what one task has to tell debug servers (URLs grpc://HOST:PORT/PATH) in one step.
 * It has a thread, which blocks for slow servers, so that nothing else of the task does.
 *
 *   first task of the cluster               every task that watches
 *   _MrDebugOpen ─ metadata ─► server
 *        │  ◄──── open gates ──┘
 *        └─ a string ───────────────► _MrDebugGates ─► hub: the gates are known
 *                                     debug ops ─────► hub: jobs, in order, once they are
 *                                     end of step ───► hub: ends its streams, reads all replies
 *
 * A hub has one stream (a call of EventListener/SendEvents) for each URL. A step ends when servers
 * have ended the streams of its hubs, so they have seen everything when the client gets its
 * fetches. A server that is away, or takes nothing for a while, fails the step by its address. */
#ifndef MILLRACE_KERNELS_HOST_DEBUG_DEBUG_HUB_H
#define MILLRACE_KERNELS_HOST_DEBUG_DEBUG_HUB_H

#include "kernels/host.h"
#include "kernels/host/debug/debug_gates.h"

enum {
    DEBUG_MAX_HUBS = 64, /* of the process: steps that have a hub at one time */
    DEBUG_MAX_URLS = 8,  /* of a hub */
    DEBUG_CONNECT_MS = 5 * 1000,
    DEBUG_STALL_MS = 30 * 1000, /* in which a server takes nothing, or does not end a stream */
};

struct debug_hub;

static inline bool debug_url_is_grpc(struct span url) {
    return url.len >= 7 && memcmp(url.data, "grpc://", 7) == 0;
}
/* The path of such a URL, "/…" or "". */
struct span debug_url_path(struct span url);

/* The hub of the step on this task, made at first use; the caller unrefs *ret. Errors:
 * RESOURCE_EXHAUSTED; UNIMPLEMENTED where the host has no servers. Any thread. */
struct status *debug_hub_of(struct kernel_ctx *ctx, struct debug_hub **ret) MUST_USE;
void debug_hub_unref(struct debug_hub *hub); /* accepts NULL */

/* A kernel's work on the hub's thread. It sets outputs on ctx, and may block in the functions
 * below. */
typedef struct status *debug_job_fn(struct kernel_ctx *ctx, struct debug_hub *hub, void *arg);
/* Queues work, for when the gates are known if it needs them, and returns KERNEL_PENDING. When
 * `run` returns, the execution ends with its status. Any thread. */
enum kernel_result debug_hub_run(struct debug_hub *hub, struct kernel_ctx *ctx, debug_job_fn *run,
                                 void *arg, bool needs_gates);
/* The gates are known now (debug_gates_write). Any thread. */
struct status *debug_hub_set_gates(struct debug_hub *hub, struct span gates) MUST_USE;

/* ---- on the hub's thread ---- */
enum debug_gate debug_hub_gate(struct debug_hub *hub, struct span url, const char *key);
/* Sends an event; opens the URL's stream at first. */
struct status *debug_hub_send(struct debug_hub *hub, struct span url, struct span event) MUST_USE;
/* Waits for the next reply of the URL's stream, for at most wait_ms (< 0: without limit), and does
 * what it says about gates. */
struct status *debug_hub_receive(struct debug_hub *hub, struct span url, int64_t wait_ms) MUST_USE;
/* From now on, changes of gates are kept for later steps in a resource of the task. */
struct status *debug_hub_keep_gates(struct debug_hub *hub, struct kernel_ctx *ctx) MUST_USE;
/* Appends those gates. */
void debug_hub_write_gates(struct debug_hub *hub, struct str *out);

#endif
