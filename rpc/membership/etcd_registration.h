/* A process' entry in etcd: held under a lease, kept alive, taken from a dead holder, given up
 * at the end.
 *
 *   GRANTING ──lease──► CLAIMING ──ours──────────────────────────► HELD ─┐ every third of the TTL: keep alive, then read our key and
 *      ▲                 ▲   │ another's, and not at our address     ▲   ├─┘ the job's
 *      │                 │   ▼                                       │   │ the lease or the key has gone: GRANTING
 *      │    it is gone:  │ PROBING ── it lives ──► on_taken: TAKEN   │   │ another's value: on_taken: TAKEN
 *      │ compare-and-swap├───┘                                       │   ▼
 *      │                 │   │ nobody can tell                       │
 *      │                 │   ▼                                       │
 *      │  it has lapsed  └ WAITING ── renewed ──► on_taken: TAKEN    │
 *      └──── etcd does not answer: again after a second ─────────────┘           any state ──etcd_registration_leave──► revoked, freed
 *
 * A lease that etcd let go (a stop, a partition) is asked for anew without end: the process
 * works on meanwhile. An entry that nothing has kept for a TTL is shown as lapsed. Loop thread
 * only. */
#ifndef MILLRACE_RPC_MEMBERSHIP_ETCD_REGISTRATION_H
#define MILLRACE_RPC_MEMBERSHIP_ETCD_REGISTRATION_H

#include "rpc/membership/etcd.h"
#include "rpc/membership/member.h"

enum { ETCD_REGISTRATION_TTL_S = 10 };

struct etcd_registration;
struct tls;

struct etcd_registration_options {
    struct etcd *etcd;
    const char *key, *job_key;
    const struct cluster_member *member; /* what is registered; copied */
    bool is_master;                      /* how a holder of the key is probed */
    bool is_https;                       /* a master: its pages are */
    struct tls *tls;                     /* a task: how it is asked; NULL: in the clear */
    const char *task;                    /* and who it must be; with tls only */
    int64_t ttl_s;                       /* 0: 10 */
    void (*on_held)(void *arg);          /* each time that the entry is there (again) */
    /* Another process is the holder, and `why` says who: this one has to end. Nothing more comes
     * but by etcd_registration_leave. */
    void (*on_taken)(void *arg, const char *why);
    void (*on_job_ended)(void *arg); /* the job's key says so; once */
    void *arg;
};

/* Everything is copied but the etcd and the TLS settings, which have to live longer. */
struct etcd_registration *etcd_registration_new(struct loop *loop,
                                                const struct etcd_registration_options *options);
/* Revokes the lease, so that the entry goes at once; waits a second for etcd at most. Then its
 * memory goes, and on_left runs. */
void etcd_registration_leave(struct etcd_registration *registration, void (*on_left)(void *arg),
                             void *arg);
/* It was registered, and for a TTL now etcd has not confirmed it: others may take it for gone. */
bool etcd_registration_has_lapsed(const struct etcd_registration *registration);
void etcd_registration_describe(const struct etcd_registration *registration,
                                struct str *out); /* a JSON object */

#endif
