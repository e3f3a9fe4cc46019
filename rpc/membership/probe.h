/* Finds out whether the process behind an etcd entry is alive. It asks a task over the worker
 * wire and a master for its status page. A process that cannot be reached may still live: behind
 * a network partition, a closed port, or TLS that only one end speaks. Loop thread only. */
#ifndef MILLRACE_RPC_MEMBERSHIP_PROBE_H
#define MILLRACE_RPC_MEMBERSHIP_PROBE_H

#include "rpc/membership/http_client.h"
#include "rpc/membership/member.h"

enum { PROBE_TIMEOUT_MS = 3000 };

enum probe_outcome {
    PROBE_ALIVE, /* the process with that incarnation answered */
    /* it is dead: another incarnation answered, or it was on this host and the connection was
     * refused */
    PROBE_GONE,
    PROBE_UNKNOWN, /* nobody can tell; its lease will */
};

struct tls;
struct wire_conn;

/* Is part of the caller's own object. */
struct probe {
    /* Called once. `why` (borrowed) says what happened, unless the outcome is PROBE_ALIVE. */
    void (*on_done)(struct probe *probe, enum probe_outcome outcome, const char *why);
    struct loop *loop;
    uint64_t incarnation;
    /* Set by the user after probe_init: the TLS settings for asking a task; NULL: no TLS. */
    struct tls *tls;
    const char *task; /* the name that its certificate must carry then */
    bool is_https;    /* set by the user, too: a master's pages are HTTPS */
    bool is_same_host;
    struct wire_conn *conn;
    struct http_call http;
    struct loop_timer timer;
    bool is_open; /* between init and close */
};

void probe_init(struct probe *probe, struct loop *loop);
/* Stops a running probe. The memory may be freed after on_closed. */
void probe_close(struct probe *probe, void (*on_closed)(struct loop_timer *timer));
void probe_stop(struct probe *probe); /* without on_done */

void probe_task(struct probe *probe, const struct cluster_member *member);
/* The outcome is PROBE_UNKNOWN for a master without an admin port. */
void probe_master(struct probe *probe, struct http_client *http,
                  const struct cluster_member *member);

#endif
