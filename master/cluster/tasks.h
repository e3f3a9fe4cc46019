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

/* A call that waits for its reply; embedded in the caller's record. on_reply is called exactly
 * once, with the message or with a status, which it takes; not at all after task_call_forget. */
struct task_call {
    void (*on_reply)(struct task_call *call, struct status *status_take,
                     struct wire_message *message);
    /* a WIRE_STEP_FETCHED has arrived before the reply; may be NULL */
    void (*on_fetched)(struct task_call *call, struct wire_message *message);
    /* a WIRE_INPUTS_TAKEN has arrived before the reply; may be NULL */
    void (*on_taken)(struct task_call *call);
    struct task *task;
    struct task_call *next_lost; /* used by the table */
    struct status *refused; /* why it was not sent; NULL: the task was lost; used by the table */
    uint64_t id;
};

/* Called when a task has become READY, or was READY and is lost. */
typedef void task_event_fn(void *arg, struct task *task);
/* Appends a KeepGraphs message: what the master still uses at a task that it had lost. */
typedef void task_holdings_fn(void *arg, const struct task *task, struct str *out);

/* `incarnation` is what the tasks know the master by. */
struct tasks *tasks_new(struct loop *loop, const struct cluster_spec *cluster, uint64_t incarnation,
                        int64_t heartbeat_ms, task_event_fn *on_ready, task_event_fn *on_lost,
                        task_holdings_fn *holdings, void *arg);
struct tls;
/* Messages carry checksums (rpc/wire/wire.h). Call it right after tasks_new. */
void tasks_set_checksums(struct tasks *tasks, bool uses_checksums);
/* TCP connections use TLS, and each task must prove its name. Call it right after tasks_new. */
void tasks_set_tls(struct tasks *tasks, struct tls *tls);
/* Tells the tasks where the master listens for clients, HOST:PORT, so that they can tell clients
 * who dial them. The host of a wildcard is left out. Call it right after tasks_new. */
void tasks_set_client_address(struct tasks *tasks, const char *listen, int port);
/* Closes all connections. Calls fail soon, new ones too. */
void tasks_close(struct tasks *tasks);
/* Closes the table. Its memory is freed after the last on_reply. */
void tasks_free(struct tasks *tasks);

/* ---- a cluster whose tasks come and go (membership.h) ----
 *
 *            tasks_expect            tasks_register              tasks_deregister
 *   unknown ────────────► missing ────────────────► registered ────────────────► gone, once it
 *                                                                                is not READY
 * The tasks that tasks_new was given never leave. A task that is gone is not waited for; its row
 * stays for sessions that used it. */
/* Tasks may come and go, and a cluster without tasks is not ready. Call it before the calls
 * below. */
void tasks_set_dynamic(struct tasks *tasks);
/* Sessions wait for this task from now on, also while it is not registered. */
void tasks_expect(struct tasks *tasks, const char *name);
/* The task is at this address under this incarnation: the master connects to it. A connection to
 * another incarnation of it is closed at once, because that process has been replaced. */
void tasks_register(struct tasks *tasks, const char *name, const char *address,
                    uint64_t incarnation);
/* The task has left. A READY one keeps its connection until that is lost. */
void tasks_deregister(struct tasks *tasks, const char *name);

/* ---- the cluster of a session (master/service/session_cluster.h) ----
 *
 * Its tasks belong to clusters of their own, under other names than the session gives them. To the
 * tasks its table is a master like any other, with an incarnation of its own, except that each task
 * is told its name in the session's cluster. */
/* Makes the table of a session's cluster. Tasks that tasks_expect_own does not name may have any
 * name of their own. */
struct tasks *tasks_new_session(struct loop *loop, const struct cluster_spec *cluster,
                                uint64_t incarnation, int64_t heartbeat_ms, task_event_fn *on_ready,
                                task_event_fn *on_lost, task_holdings_fn *holdings, void *arg);
/* The process at the task's address must be this task of its own cluster. Call it right after
 * tasks_new_session. */
void task_expect_own(struct task *task, const char *own_name);
/* The task's name in its own cluster; NULL: it is not known yet, or the task is not of a session's
 * cluster. */
const char *task_own_name(const struct task *task);
/* Errors: INVALID_ARGUMENT if one process answered at the addresses of two tasks. It accepts one
 * name and closes the connections under the other, so at most one of the two stays READY. */
struct status *tasks_check_distinct(const struct tasks *tasks) MUST_USE;
/* Tells the tasks to free what this master has there, then frees the table, at most
 * TASKS_LEAVE_MS later. No callback is called any more. Calls must have ended. Accepts NULL. */
void tasks_leave(struct tasks *tasks);
enum { TASKS_LEAVE_MS = 2000 };
/* The table that the task is in. */
const struct tasks *task_table(const struct task *task);

int tasks_count(const struct tasks *tasks); /* of all rows, also of tasks that are gone */
struct task *tasks_at(struct tasks *tasks, int index);
struct task *tasks_find(struct tasks *tasks, const char *name);
/* Are all members READY? With a config: those that its device filters allow. False if every task
 * has been drained. */
bool tasks_all_ready(const struct tasks *tasks, const struct session_config *config);
/* Has the first attempt to connect to each member ended, one way or the other? Before, nobody knows
 * whether a task can be reached. A member that has not registered has no address to try. */
bool tasks_all_tried(const struct tasks *tasks);
/* Appends "/job:ps/replica:0/task:0 at 127.0.0.1:2400 (connection refused)" for each member that
 * is not READY, separated by ", ". */
void tasks_describe_missing(const struct tasks *tasks, const struct session_config *config,
                            struct str *out);
/* The devices of all READY tasks at this moment; a new reference. */
struct device_table *tasks_devices(struct tasks *tasks);
/* The devices for a session with that config: those that its filters allow, with the number of CPU
 * devices per task that it asks for. A new reference. */
struct device_table *tasks_session_devices(struct tasks *tasks,
                                           const struct session_config *config);
/* What values between the tasks cost. It lives as long as the table of tasks. Any thread. */
struct link_table *tasks_links(struct tasks *tasks);
/* By task of the device table: it is not READY now. In `arena`; NULL: all are READY. */
const bool *tasks_find_away(const struct tasks *tasks, const struct device_table *devices,
                            struct arena *arena);
/* Appends JSON rows for /statusz: at most max_rows, and then {"more":N}. */
void tasks_describe(struct tasks *tasks, int max_rows, struct str *out);

/* Drains a task on purpose: it takes no new sessions and steps, lets its steps end and exits. From
 * now on it is no member: nothing new is placed on it, and nobody waits for it. Another process of
 * that name is a member again. A second call tells it again. The task is also told again when it
 * has lost its connection and is READY again. Errors: FAILED_PRECONDITION, it is not connected;
 * UNIMPLEMENTED, its program is older and does not know how. */
struct status *task_drain(struct task *task) MUST_USE;
/* What the task can be sent (WIRE_REVISION). */
uint32_t task_revision(const struct task *task);

int task_index(const struct task *task);
const char *task_name(const struct task *task);
bool task_is_gone(const struct task *task); /* it has left the cluster */
enum task_state task_state(const struct task *task);
uint64_t task_incarnation(const struct task *task); /* the last one known; 0: none yet */
/* When it changes, a device of the task with a memory of its own has failed, or the task has
 * restarted. Never 0. */
uint64_t task_devices_incarnation(const struct task *task);
/* when it changes, the task has dropped our graphs */
uint64_t task_membership(const struct task *task);
/* How far its clock is ahead of this one; 0 while that is not known. */
int64_t task_clock_ahead_us(const struct task *task);
const char *task_address(const struct task *task);
const char *task_unix_address(const struct task *task); /* "" when it has none */
const char *task_host_id(const struct task *task);

/* A new id for calls and steps: unique among all masters that a worker may meet. */
uint64_t tasks_new_id(struct tasks *tasks);
/* Queues a message whose reply carries the same id (out->id; 0: an id is chosen). If the task is
 * not READY, on_reply is called with UNAVAILABLE soon, never inside this call. */
void task_call_start(struct task *task, struct task_call *call, struct wire_out *out);
/* In place of task_call_start, if the message cannot be made: on_reply is called with `why_take`
 * soon, never inside this call. */
void task_call_refuse(struct task *task, struct task_call *call, struct status *why_take);
/* The caller no longer wants the reply: on_reply is not called. */
void task_call_forget(struct task_call *call);
/* Sends a message that has no reply. It is dropped if the task is not READY. */
void task_send(struct task *task, const struct wire_out *out);
/* The same for a message that releases something at the task. It is sent also while the master is
 * connecting again, once the task has received KeepGraphs; before that, KeepGraphs will not name
 * what was released. */
void task_send_release(struct task *task, const struct wire_out *out);
/* The same for a message that must stay in order with small messages: it is sent over the control
 * connection whatever its size. */
void task_send_in_order(struct task *task, const struct wire_out *out);

#endif
