/* Gates of watches: a debug op with gated_grpc sends its tensor to a server only while the server
 * wants it. Servers open and close gates with the EventReply messages of TensorFlow's EventListener
 * service. A gate is closed until a server has opened it. Threads: one at a time. */
#ifndef MILLRACE_KERNELS_HOST_DEBUG_DEBUG_GATES_H
#define MILLRACE_KERNELS_HOST_DEBUG_DEBUG_GATES_H

#include "common/base/map.h"
#include "common/base/status.h"
#include "common/base/str.h"

enum { DEBUG_MAX_GATES = 100 * 1000, DEBUG_MAX_GATE_BYTES = 4096 /* of the names of one gate */ };

/* EventReply.DebugOpStateChange.State, but for the closed one. */
enum debug_gate {
    GATE_CLOSED = 1,
    GATE_READ = 2,
    GATE_WRITE = 3, /* and the op waits for a reply of the server: a breakpoint */
};

struct debug_gates {
    struct strmap by_name; /* "ADDRESS NODE:SLOT:OP" → struct gate, an open one */
};

void debug_gates_init(struct debug_gates *gates);
void debug_gates_fini(struct debug_gates *gates);
/* `key` is "NODE:SLOT:OP". */
enum debug_gate debug_gates_find(const struct debug_gates *gates, const char *address,
                                 const char *key);
/* Does what an EventReply of the server says. Errors: INVALID_ARGUMENT for a malformed one,
 * RESOURCE_EXHAUSTED for too many gates. */
struct status *debug_gates_apply(struct debug_gates *gates, const char *address,
                                 struct span reply) MUST_USE;
/* Append all open gates, and make the gates those of such a text. Errors: INVALID_ARGUMENT. */
void debug_gates_write(const struct debug_gates *gates, struct str *out);
struct status *debug_gates_read(struct debug_gates *gates, struct span text) MUST_USE;

#endif
