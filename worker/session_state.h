/* What kernels of a session keep from one registered graph to the next: a random op's place in
 * its sequence (KERNEL_SESSION_STATE), and tensors that a client has a handle to
 * (GetSessionHandle).
 *
 * A session registers a graph for each (feeds, fetches, targets) it asks for, and a node may be
 * in many of them. Its sequence is the session's, as in TensorFlow: a fetch list that grew must
 * not begin it anew. Kept by node name, for as long as a plan holds on to it. */
#ifndef MILLRACE_WORKER_SESSION_STATE_H
#define MILLRACE_WORKER_SESSION_STATE_H

#include "kernels/kernel.h"

struct session_state;

struct session_state *session_state_new(void); /* one reference */
struct session_state *session_state_ref(struct session_state *states);
void session_state_unref(struct session_state *states);

/* Any thread. A freshly made instance gets the state that its node had in an earlier graph in
 * place of its own; the first of a name gives its own away. Either way the state is the
 * session's from then on: the instance must go before its reference on `states`. */
void session_state_share(struct session_state *states, struct kernel_instance *instance);

/* Values by name, each a reference to the tensor that was put; they go with the session's last
 * plan. Any thread. A name is put once. */
void session_state_put_value(struct session_state *states, const char *name,
                             const struct tensor *value);
/* INVALID_ARGUMENT names the handle. *ret gets a reference. */
struct status *session_state_get_value(struct session_state *states, struct span name,
                                       struct tensor *ret) MUST_USE;
struct status *session_state_delete_value(struct session_state *states, struct span name) MUST_USE;

#endif
