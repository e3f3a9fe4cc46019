/* Is the process behind a registration alive? A task is asked over the worker wire, a master by
 * its status page. That it cannot be reached from here says nothing: it may be behind a
 * partition, a closed port, or TLS that only one side speaks. Loop thread only. */
#ifndef MILLRACE_RPC_MEMBERSHIP_PROBE_H
#define MILLRACE_RPC_MEMBERSHIP_PROBE_H

#include "rpc/membership/http_client.h"
#include "rpc/membership/member.h"

enum { PROBE_TIMEOUT_MS = 3000 };

enum probe_outcome {
    PROBE_ALIVE, /* the process with that incarnation answered */
    /* it cannot be there: another incarnation answered, or its own host, which is ours, refused
     * the connection */
    PROBE_GONE,
    PROBE_UNKNOWN, /* anything else: its lease will tell */
};

struct tls;
struct wire_conn;

/* Embedded in the caller's record. */
struct probe {
    /* Once. `why` (borrowed) says what happened where it is not PROBE_ALIVE. */
    void (*on_done)(struct probe *probe, enum probe_outcome outcome, const char *why);
    struct loop *loop;
    uint64_t incarnation;
    /* set by the user after probe_init: what a task is asked with; NULL: in the clear */
    struct tls *tls;
    const char *task; /* the name that it must have then */
    bool is_https;    /* likewise: a master's pages are */
    bool is_same_host;
    struct wire_conn *conn;
    struct http_call http;
    struct loop_timer timer;
    bool is_open; /* between init and close */
};

void probe_init(struct probe *probe, struct loop *loop);
/* Stops what runs; the memory may go when on_closed ran (the timer's). */
void probe_close(struct probe *probe, void (*on_closed)(struct loop_timer *timer));
void probe_stop(struct probe *probe); /* on_done will not come */

void probe_task(struct probe *probe, const struct cluster_member *member);
/* PROBE_UNKNOWN for one without an admin port. */
void probe_master(struct probe *probe, struct http_client *http,
                  const struct cluster_member *member);

#endif
