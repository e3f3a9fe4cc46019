/* A client of etcd (v3, by its JSON gateway) on the loop: calls, leases, a watch, several
 * endpoints.
 *
 * A call goes to the endpoint that answered last; where that one cannot be reached, or says that
 * it has no leader, the next is asked, and only when all have failed the call fails, with
 * UNAVAILABLE. A call may so happen twice: those here bear it. A watch lasts until its
 * connection ends, or a call finds its endpoint silent; its owner begins anew. Loop thread only. */
#ifndef MILLRACE_RPC_MEMBERSHIP_ETCD_H
#define MILLRACE_RPC_MEMBERSHIP_ETCD_H

#include "rpc/membership/etcd_message.h"
#include "rpc/membership/http_client.h"

enum { ETCD_MAX_ENDPOINTS = 16 };

struct etcd_options {
    /* "http://etcd0:2379,https://etcd1:2379"; without a scheme it is http */
    const char *urls;
    int64_t timeout_ms;                         /* of one endpoint's answer; 0: 2 s */
    const char *ca_file, *cert_file, *key_file; /* for https; may be NULL */
};

struct etcd;

/* Embedded in the caller's record. on_reply comes once, with the reply (borrowed) or a status. */
struct etcd_call {
    void (*on_reply)(struct etcd_call *call, struct status *status_take,
                     const struct etcd_reply *reply);
    struct etcd *etcd; /* while it runs */
    struct http_call http;
    struct str body;
    const char *path;
    int n_tries, endpoint;
    struct list link;
};

/* Embedded likewise. */
struct etcd_watch {
    void (*on_events)(struct etcd_watch *watch, const struct etcd_reply *reply);
    /* once; OUT_OF_RANGE: the revision was compacted away */
    void (*on_end)(struct etcd_watch *watch, struct status *status_take);
    struct etcd *etcd; /* while it runs */
    struct http_call http;
    struct str pending; /* of a line that is not whole */
    int endpoint;
    struct list link;
};

/* Are they URLs that etcd_new takes? */
struct status *etcd_check_urls(const char *urls) MUST_USE;
/* Errors: INVALID_ARGUMENT (the URLs), FAILED_PRECONDITION (no libcurl). */
struct status *etcd_new(struct loop *loop, const struct etcd_options *options,
                        struct etcd **ret_etcd) MUST_USE;
/* Calls and watches end silently. on_closed (may be NULL) when the memory is gone. Accepts NULL. */
void etcd_close(struct etcd *etcd, void (*on_closed)(void *arg), void *arg);
/* False from a call that failed everywhere until one that did not; `why_not` (may be NULL) gets
 * since when, and why. */
bool etcd_is_up(const struct etcd *etcd, struct str *why_not);
struct http_client *etcd_http(struct etcd *etcd);

/* one range; none: no key */
void etcd_range(struct etcd *etcd, struct etcd_call *call, const char *key, bool is_prefix);
/* a range per key */
void etcd_read(struct etcd *etcd, struct etcd_call *call, const char *const *keys, int n);
void etcd_put(struct etcd *etcd, struct etcd_call *call, const char *key, struct span value,
              int64_t lease);
/* Puts if the key's last change was at mod_revision (0: it must not exist): has_succeeded; else
 * ranges[0] has what is there. */
void etcd_claim(struct etcd *etcd, struct etcd_call *call, const char *key, int64_t mod_revision,
                struct span value, int64_t lease);
void etcd_delete(struct etcd *etcd, struct etcd_call *call, const char *key);
void etcd_lease_grant(struct etcd *etcd, struct etcd_call *call, int64_t ttl_s);
/* ttl_s 0: it has lapsed */
void etcd_lease_keep_alive(struct etcd *etcd, struct etcd_call *call, int64_t lease);
/* ttl_s: how many seconds it lasts unless it is kept alive, rounded down; 0 or less: it has
 * lapsed. */
void etcd_lease_time_to_live(struct etcd *etcd, struct etcd_call *call, int64_t lease);
void etcd_lease_revoke(struct etcd *etcd, struct etcd_call *call, int64_t lease);
/* on_reply will not come; one that does not run is left alone */
void etcd_call_cancel(struct etcd_call *call);

/* All changes of keys that begin with `prefix` (which ends with '/'), from a revision on. */
void etcd_watch_start(struct etcd *etcd, struct etcd_watch *watch, const char *prefix,
                      int64_t from_revision);
void etcd_watch_stop(struct etcd_watch *watch); /* on_end will not come */

#endif
