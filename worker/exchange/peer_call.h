/* Calls from this task's kernels to the kernels of other tasks (kernels/host.h): for files that
 * only the other task has.
 *
 *   caller   peer_call_start (any thread) ─► loop ─► PeerRequest ─► … ─► PeerReply ─► on_done
 *   callee   service_peer_calls.c ─► an I/O thread: peer_handler_fn ─► loop ─► PeerReply
 *
 * Each caller has its own connection to a callee, so that files do not delay a step's values. The
 * connection is opened by the first call, and closed after PEER_CALL_IDLE_MS without one. Three
 * unanswered pings end it (rpc/wire/heartbeat.h). When it ends, its calls end with UNAVAILABLE and
 * the callee's name. No request is sent twice, because a request may change what the callee has.
 * If the Unix socket cannot be reached, TCP is tried.
 *
 * With TLS both ends prove who they are before a request is sent (rpc/wire/wire.h). Without TLS
 * whoever reaches the port is trusted as a master is.
 *
 * At most PEER_MAX_CALLS of a caller wait for their replies at one time; further ones are kept
 * here until replies come. A caller that exceeds the limit, or does not read its replies, loses the
 * connection. */
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

/* Threads: the loop's, except for peer_call_start and peer_call_task_name. */
struct peer_call_table *peer_call_table_new(struct loop *loop, const char *task,
                                            uint64_t incarnation, int64_t heartbeat_ms);
/* Before the first call: whether messages carry checksums (rpc/wire/wire.h); default: no. */
void peer_call_table_set_checksums(struct peer_call_table *table, bool uses_checksums);
/* Before the first call. NULL, the default: without TLS. Borrowed for the table's life. */
void peer_call_table_set_tls(struct peer_call_table *table, struct tls *tls);
/* Before the first call: the table is that of a session's cluster (peer_table_set_cluster). */
void peer_call_table_set_cluster(struct peer_call_table *table, uint64_t cluster,
                                 const char *own_task);
/* Ends all connections and calls, and refuses new ones with UNAVAILABLE. */
void peer_call_table_stop(struct peer_call_table *table);
/* Stops the table; no call may be under way. The memory is freed when the last connection has
 * closed. Accepts NULL. */
void peer_call_table_free(struct peer_call_table *table);

/* Takes in what a registration says of a task that may be called. *ret lives as long as the table.
 * Errors: RESOURCE_EXHAUSTED. */
struct status *peer_call_table_know(struct peer_call_table *table, const char *task,
                                    const char *address, const char *unix_address,
                                    struct peer_call_task **ret) MUST_USE;
/* As peer_set_own_task. */
void peer_call_task_set_own(struct peer_call_task *task, const char *own_task);
const char *peer_call_task_name(const struct peer_call_task *task);
void peer_call_start(struct peer_call_task *task, struct peer_call *call);

#endif
