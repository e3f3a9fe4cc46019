/* Keeps the entry of this process in etcd: claims the key under a lease, renews the lease, takes
 * the key over from a dead process, and removes the entry at the end.
 *
 * States (rpc/membership/etcd_registration.c checks each move; a test compares this drawing with
 * the table):
 *   (new) -> GRANTING
 *   GRANTING -> GRANTING   etcd does not answer: ask for a lease again after a second
 *            -> CLAIMING   etcd granted a lease
 *            -> LEAVING    etcd_registration_leave
 *   CLAIMING -> GRANTING   etcd does not know the lease any more
 *            -> CLAIMING   the key changed meanwhile, or held no valid entry or an old one of ours
 *            -> PROBING    another process holds the key, and it is not at our address
 *            -> HELD       the entry is written
 *            -> LEAVING    etcd_registration_leave
 *   PROBING -> GRANTING    the holder is dead: claim its key under a fresh lease
 *           -> WAITING     nobody can tell whether the holder lives
 *           -> HELD_BY_OTHER   the holder answered; on_taken is called
 *           -> LEAVING     etcd_registration_leave
 *   WAITING -> GRANTING    the holder's lease has lapsed
 *           -> HELD_BY_OTHER   the holder renewed its lease; on_taken is called
 *           -> LEAVING     etcd_registration_leave
 *   HELD -> GRANTING       our lease has lapsed, so the entry is gone
 *        -> CLAIMING       the key is gone or was changed: write the entry again
 *        -> HELD           every third of the time to live: the lease is renewed, the key is ours
 *        -> HELD_BY_OTHER  another process replaced the entry; on_taken is called
 *        -> LEAVING        etcd_registration_leave
 *   HELD_BY_OTHER -> LEAVING   etcd_registration_leave
 *
 * While etcd does not answer, the process works on and the registration tries again every second,
 * without end. An entry whose lease nothing has renewed for a whole time to live is shown as
 * lapsed. Loop thread only. */
#ifndef MILLRACE_RPC_MEMBERSHIP_ETCD_REGISTRATION_H
#define MILLRACE_RPC_MEMBERSHIP_ETCD_REGISTRATION_H

#include "rpc/membership/etcd.h"
#include "rpc/membership/member.h"

enum { ETCD_REGISTRATION_TTL_S = 10 };

struct etcd_registration;
struct state_machine;
struct tls;

struct etcd_registration_options {
    struct etcd *etcd;
    const char *key, *job_key;
    const struct cluster_member *member; /* what the entry says */
    bool is_master;   /* a holder of the key is probed as a master, by its status page */
    bool is_https;    /* a master's status page is HTTPS */
    struct tls *tls;  /* for probing a task; NULL: without TLS */
    const char *task; /* the name that a probed task's certificate must carry; with `tls` only */
    int64_t ttl_s;    /* time to live of the lease; 0: ETCD_REGISTRATION_TTL_S */
    /* Called each time that the entry has been written. May be NULL. */
    void (*on_held)(void *arg);
    /* Called once when another process holds the key; `why` names it. This process has to end:
     * the registration does nothing more until etcd_registration_leave. */
    void (*on_taken)(void *arg, const char *why);
    /* Called once when the job's key says that the job has ended. */
    void (*on_job_ended)(void *arg);
    void *arg;
};

/* Starts to register. Copies strings and the member; `etcd` and `tls` must outlive the
 * registration. No callback runs inside this call. */
struct etcd_registration *etcd_registration_new(struct loop *loop,
                                                const struct etcd_registration_options *options);
/* Revokes the lease, so that the entry disappears at once, and waits at most a second for etcd.
 * Then frees the registration and calls on_left. Call it once; none of the other callbacks runs
 * after it. */
void etcd_registration_leave(struct etcd_registration *registration, void (*on_left)(void *arg),
                             void *arg);
/* Was the entry written once, and has etcd not confirmed its lease for a whole time to live?
 * Then other processes may take this one for dead. */
bool etcd_registration_has_lapsed(const struct etcd_registration *registration);
/* Has the entry been written once, so that others could find this process? Otherwise appends why
 * not, in etcd's words. */
bool etcd_registration_is_ready(const struct etcd_registration *registration, struct str *why_not);
/* Appends a JSON object for the status page: key, state, lease, whether etcd answers, and what is
 * wrong. */
void etcd_registration_describe(const struct etcd_registration *registration, struct str *out);

extern const struct state_machine etcd_registration_machine; /* for tests */

#endif
