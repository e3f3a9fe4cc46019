/* Questions of this task's kernels to those of other tasks (kernels/host.h): files that only
 * they have.
 *
 *   asker      peer_call_start (any thread) ──► loop: connected? ──► WIRE_PEER_REQUEST ──► … WIRE_PEER_REPLY ──► on_done
 *                                          │ no: opened, greeted with CHANNEL_PEER_CALLS, closed when idle
 *   answerer   service_peer_calls.c ──► an I/O thread: peer_handler_fn ──► loop ──► WIRE_PEER_REPLY
 *
 * A connection of its own for each asker, so that no file stands in the way of a step's values.
 * It is watched while it is open: three pings without a sign of life end it
 * (rpc/wire/heartbeat.h). Whatever ends it ends its calls with UNAVAILABLE and the task's
 * name; nothing is calls twice, since a call may change what the other task has. Where a
 * Unix socket does not come about, TCP is tried.
 *
 * With TLS both ends prove who they are before anything is calls (rpc/wire/wire.h); without,
 * whoever reaches the port is trusted as far as a master is, as everywhere on this wire.
 *
 * Backpressure is the asker's: it asks for so much as it has room for, and no more than
 * PEER_MAX_CALLS at a time; further calls wait for an answer. Who asks for more, or does
 * not read what it calls for, is cut off. */
#ifndef MILLRACE_WORKER_EXCHANGE_PEER_CALL_H
#define MILLRACE_WORKER_EXCHANGE_PEER_CALL_H

#include "kernels/host.h"
#include "rpc/loop.h"
#include "worker/exchange/transport.h"

enum {
    CHANNEL_PEER_CALLS = CHANNEL_ARENA + 1,
    PEER_CALL_IDLE_MS = 30000,
    PEER_CALL_MAX_TASKS = 65536
};

struct peer_call_table;
struct peer_call_task;

/* Loop thread, but for peer_call_start and peer_call_task_name. */
struct peer_call_table *peer_call_table_new(struct loop *loop, const char *task,
                                            uint64_t incarnation, int64_t heartbeat_ms);
/* the same for checksums (rpc/wire/wire.h); default: none */
void peer_call_table_set_checksums(struct peer_call_table *table, bool uses_checksums);
/* before the first call; NULL, the default: in the clear */
void peer_call_table_set_tls(struct peer_call_table *table, struct tls *tls);
/* Ends all connections and calls, and refuses new ones: UNAVAILABLE. */
void peer_call_table_stop(struct peer_call_table *table);
/* Stops it; no call may be on its way. The memory goes when the last connection has closed.
 * Accepts NULL. */
void peer_call_table_free(struct peer_call_table *table);

/* A task that may be calls, by what a registration says of it. Kept as long as the table.
 * Errors: RESOURCE_EXHAUSTED. */
struct status *peer_call_table_know(struct peer_call_table *table, const char *task,
                                    const char *address, const char *unix_address,
                                    struct peer_call_task **ret) MUST_USE;
const char *peer_call_task_name(const struct peer_call_task *task);
void peer_call_start(struct peer_call_task *task, struct peer_call *call);

#endif
