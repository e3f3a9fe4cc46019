/* Keeps what kernels of a session need from one registered graph to the next: the position of a
 * random op in its sequence (KERNEL_SESSION_STATE), and tensors that a client has a handle to
 * (GetSessionHandle).
 *
 * A session registers a graph for each (feeds, fetches, targets) that it asks for, and a node may
 * be in many of them. As in TensorFlow, the node's sequence belongs to the session, so another
 * fetch list does not restart it. State is found by node_state_name, so the copies of a function's
 * node share one state. The state lives as long as any plan of the session does. */
#ifndef MILLRACE_WORKER_SESSION_STATE_H
#define MILLRACE_WORKER_SESSION_STATE_H

#include "kernels/kernel.h"

struct session_state;

struct session_state *session_state_new(void); /* one reference */
struct session_state *session_state_ref(struct session_state *states);
void session_state_unref(struct session_state *states);

/* Gives a freshly made instance the state that its node had in an earlier graph, and frees the
 * instance's own. The first instance of a name gives its own state to the session instead. The
 * state is the session's either way, so the instance must be freed before its plan's reference to
 * `states`. Any thread. */
void session_state_share(struct session_state *states, struct kernel_instance *instance);

/* Keeps a value by name, as a reference to the tensor; it is freed with the session's last plan, or
 * when it is deleted. A name is put once. Any thread. */
void session_state_put_value(struct session_state *states, const char *name,
                             const struct tensor *value);
/* *ret gets a reference to the value. Errors: INVALID_ARGUMENT, which names the handle. */
struct status *session_state_get_value(struct session_state *states, struct span name,
                                       struct tensor *ret) MUST_USE;
struct status *session_state_delete_value(struct session_state *states, struct span name) MUST_USE;

#endif
