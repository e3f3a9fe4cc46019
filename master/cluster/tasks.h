/* The master's view of the worker tasks: who they are, whether they can be reached, their devices,
 * and calls to them.
 *
 * The states of a task:
 *
 *   (new) -> DOWN
 *   DOWN    -> PROBING   a connection to the task's address is made: hello, status, kept graphs
 *   PROBING -> DOWN      the connection is lost, or the task is silent (task_health.h)
 *           -> LINKING   the status has been read; the control and bulk connections are made
 *   LINKING -> DOWN      a connection is lost, or the task is silent
 *           -> READY     the task has greeted on both connections
 *   READY   -> DOWN      a connection is lost, or the task is silent
 *
 * Control and bulk use a Unix socket if the task is on this host. When a task leaves READY, every
 * call to it ends with UNAVAILABLE, which names the task.
 * A task's incarnation tells a restart from a lost connection. Its membership tells whether the
 * task still holds our graphs. Loop thread only. */
#ifndef MILLRACE_MASTER_CLUSTER_TASKS_H
#define MILLRACE_MASTER_CLUSTER_TASKS_H

#include "common/base/list.h"
#include "common/base/state_machine.h"
#include "master/compile/device_table.h"
#include "master/request/session_config.h"
#include "rpc/membership/cluster.h"
#include "rpc/wire/wire.h"

enum task_state { TASK_DOWN, TASK_PROBING, TASK_LINKING, TASK_READY };
extern const struct state_machine task_machine;

struct tasks;
struct task;

/* A call that awaits its reply; embedded in the caller's record. Exactly one on_reply: with the
 * message, or with a status (taken). */
struct task_call {
    void (*on_reply)(struct task_call *call, struct status *status_take,
                     struct wire_message *message);
    /* a WIRE_STEP_FETCHED before the reply; may be NULL */
    void (*on_fetched)(struct task_call *call, struct wire_message *message);
    /* a WIRE_INPUTS_TAKEN before the reply; may be NULL */
    void (*on_taken)(struct task_call *call);
    struct task *task;
    struct task_call *next_lost; /* the table's */
    struct status *refused;      /* the table's: why it was not sent; NULL: the task was lost */
    uint64_t id;
};

/* Told of a task that became ready or was lost. */
typedef void task_event_fn(void *arg, struct task *task);
/* Says what the master still holds at a task that it had lost: a KeepGraphs message, appended to
 * `out`. */
typedef void task_holdings_fn(void *arg, const struct task *task, struct str *out);

struct tasks *tasks_new(struct loop *loop, const struct cluster_spec *cluster, uint64_t incarnation,
                        int64_t heartbeat_ms, task_event_fn *on_ready, task_event_fn *on_lost,
                        task_holdings_fn *holdings, void *arg);
struct tls;
/* at once: messages carry checksums (rpc/wire/wire.h) */
void tasks_set_sums(struct tasks *tasks, bool uses_checksums);
/* at once: TCP speaks TLS, and each task must show that it is the one */
void tasks_set_tls(struct tasks *tasks, struct tls *tls);
/* connections end now, calls soon; new calls fail */
void tasks_close(struct tasks *tasks);
/* closes it; the memory goes when the last call has been told */
void tasks_free(struct tasks *tasks);

/* ---- a membership that changes: of a cluster that is registered somewhere; tasks of the
 * cluster that tasks_new got stay for ever ----
 *
 *            tasks_expect           tasks_register: connected to
 *   unknown ─────────────► missing ◄───────────────────────► listed ── tasks_deregister ──► stays while it is connected, then gone
 *
 * A task that is gone counts no more; its row stays for those who used it. */
/* before the first one: a cluster without tasks is not ready */
void tasks_set_dynamic(struct tasks *tasks);
void tasks_expect(struct tasks *tasks, const char *name); /* sessions wait for it */
/* Here it is, or here it is now. One that is connected to under another incarnation is dropped
 * at once: it has been replaced. */
void tasks_register(struct tasks *tasks, const char *name, const char *address,
                    uint64_t incarnation);
void tasks_deregister(struct tasks *tasks, const char *name);
bool task_is_registered(const struct task *task);

int tasks_count(const struct tasks *tasks); /* of all rows, gone ones included */
struct task *tasks_at(struct tasks *tasks, int index);
struct task *tasks_find(struct tasks *tasks, const char *name);
/* `config`: only the tasks that its device filters leave; NULL: all. */
bool tasks_all_ready(const struct tasks *tasks, const struct session_config *config);
/* "/job:ps/replica:0/task:0 at 127.0.0.1:2400 (connection refused)" for each that is not ready,
 * joined by ", ". */
void tasks_describe_missing(const struct tasks *tasks, const struct session_config *config,
                            struct str *out);
/* The devices of all ready tasks; a new reference. Changes when a task comes or restarts. */
struct device_table *tasks_devices(struct tasks *tasks);
/* Those that a session with that config sees: filtered, and with as many CPU devices per task as
 * it asks for. A new reference. */
struct device_table *tasks_session_devices(struct tasks *tasks,
                                           const struct session_config *config);
void tasks_describe(struct tasks *tasks, struct str *out); /* JSON rows for /statusz */

int task_index(const struct task *task);
const char *task_name(const struct task *task);
bool task_is_gone(const struct task *task); /* it has left the cluster */
enum task_state task_state(const struct task *task);
uint64_t task_incarnation(const struct task *task); /* of the last time it was ready; 0 never */
/* another one: graphs registered under the last one have gone */
uint64_t task_membership(const struct task *task);
const char *task_address(const struct task *task);
const char *task_unix_address(const struct task *task); /* "" when it has none */
const char *task_host_id(const struct task *task);
/* UNAVAILABLE with its name, the last error and its last sign of life. */
struct status *task_unavailable(const struct task *task) MUST_USE;

/* A new id for calls and steps: unique among all masters that a worker may meet. */
uint64_t tasks_new_id(struct tasks *tasks);
/* Sends a message whose reply pairs by out->id (0: an id is chosen). A task that is not ready:
 * on_reply comes soon with UNAVAILABLE, never inside this call. The message is queued;
 * tasks_flush or the loop's quiescence writes it. */
void task_call_start(struct task *task, struct task_call *call, struct wire_out *out);
/* The caller no longer wants the reply: on_reply will not come. */
/* In place of task_call_start: the message could not be made. on_reply gets `why_take`, never
 * inside this call. */
void task_call_refuse(struct task *task, struct task_call *call, struct status *why_take);
void task_call_forget(struct task_call *call);
/* no reply; dropped when the task is not ready */
void task_send(struct task *task, const struct wire_out *out);
/* The same for what is no longer held there. It is said even while the task is connected to anew
 * and has been told what is held; one that is down is told then. */
void task_send_release(struct task *task, const struct wire_out *out);
/* The same for what must not overtake, or be overtaken by, small messages: whatever its size it
 * goes over the control connection. */
void task_send_in_order(struct task *task, const struct wire_out *out);

#endif
