/* Questions of this task's kernels to those of other tasks (kernels/host.h): files that only
 * they have.
 *
 *   asker      ask_start (any thread) ──► loop: connected? ──► WIRE_ASK ──► … WIRE_ANSWER ──► on_done
 *                                          │ no: opened, greeted with ASK_CHANNEL, closed when idle
 *   answerer   service_ask.c ──► an I/O thread: peer_handler_fn ──► loop ──► WIRE_ANSWER
 *
 * A connection of its own for each asker, so that no file stands in the way of a step's values.
 * It is watched while it is open: three pings without a sign of life end it
 * (rpc/wire/heartbeat.h). Whatever ends it ends its questions with UNAVAILABLE and the task's
 * name; nothing is asked twice, since a question may change what the other task has. Where a
 * Unix socket does not come about, TCP is tried.
 *
 * With TLS both ends prove who they are before anything is asked (rpc/wire/wire.h); without,
 * whoever reaches the port is trusted as far as a master is, as everywhere on this wire.
 *
 * Backpressure is the asker's: it asks for so much as it has room for, and no more than
 * PEER_MAX_CALLS at a time; further questions wait for an answer. Who asks for more, or does
 * not read what it asked for, is cut off. */
#ifndef MILLRACE_WORKER_EXCHANGE_ASK_H
#define MILLRACE_WORKER_EXCHANGE_ASK_H

#include "kernels/host.h"
#include "rpc/loop.h"
#include "worker/exchange/transport.h"

enum { ASK_CHANNEL = TRANSPORT_ARENA + 1, ASK_IDLE_MS = 30000, ASK_MAX_TASKS = 65536 };

struct ask_table;
struct ask_task;

/* Loop thread, but for ask_start and ask_task_name. */
struct ask_table *ask_table_new(struct loop *loop, const char *task, uint64_t incarnation,
                                int64_t heartbeat_ms);
/* the same for checksums (rpc/wire/wire.h); default: none */
void ask_table_set_sums(struct ask_table *table, bool uses_sums);
/* before the first question; NULL, the default: in the clear */
void ask_table_set_tls(struct ask_table *table, struct tls *tls);
/* Ends all connections and questions, and refuses new ones: UNAVAILABLE. */
void ask_table_stop(struct ask_table *table);
/* Stops it; no question may be on its way. The memory goes when the last connection has closed.
 * Accepts NULL. */
void ask_table_free(struct ask_table *table);

/* A task that may be asked, by what a registration says of it. Kept as long as the table.
 * Errors: RESOURCE_EXHAUSTED. */
struct status *ask_table_know(struct ask_table *table, const char *task, const char *address,
                              const char *unix_address, struct ask_task **ret) MUST_USE;
const char *ask_task_name(const struct ask_task *task);
void ask_start(struct ask_task *task, struct peer_call *question);

#endif
