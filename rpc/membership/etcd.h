/* A client of etcd (v3, by its JSON gateway) on the loop: calls, leases, a watch, several
 * endpoints.
 *
 * A call is sent to the endpoint that answered last. If that endpoint cannot be reached, or says
 * that it has no leader, the next one is asked. When all have failed, the call fails with
 * UNAVAILABLE. So etcd may carry out a call twice; all calls here allow that. With a user, calls
 * wait for a login, and a call whose token etcd refuses is sent again with another token. A watch
 * ends when its connection ends or a call finds that its endpoint is silent; its owner has to start
 * another. Loop thread only. */
#ifndef MILLRACE_RPC_MEMBERSHIP_ETCD_H
#define MILLRACE_RPC_MEMBERSHIP_ETCD_H

#include "rpc/membership/etcd_login.h"
#include "rpc/membership/etcd_message.h"
#include "rpc/membership/http_client.h"

enum { ETCD_MAX_ENDPOINTS = 16 };

struct etcd_options {
    /* "http://etcd0:2379,https://etcd1:2379"; without a scheme it is http */
    const char *urls;
    int64_t timeout_ms;                         /* for the answer of one endpoint; 0: 2 s */
    const char *ca_file, *cert_file, *key_file; /* for https; may be NULL */
    const char *user, *password_file;           /* of an etcd with authentication; both or none */
};

struct etcd;

/* Is part of the caller's own object. on_reply is called once, with the reply (borrowed) or with a
 * status, which the callee owns. */
struct etcd_call {
    void (*on_reply)(struct etcd_call *call, struct status *status_take,
                     const struct etcd_reply *reply);
    struct etcd *etcd; /* while it runs */
    struct http_call http;
    struct str body;
    const char *path;
    int n_tries, endpoint;
    uint64_t login;     /* number of the login that it waits for, or whose token it carries */
    bool is_waiting;    /* for that login */
    bool has_logged_in; /* again, because etcd refused its token */
    struct list link;
};

/* Is part of the caller's own object. */
struct etcd_watch {
    void (*on_events)(struct etcd_watch *watch, const struct etcd_reply *reply);
    /* called once; OUT_OF_RANGE: etcd has compacted the revision away */
    void (*on_end)(struct etcd_watch *watch, struct status *status_take);
    struct etcd *etcd; /* while it runs */
    struct http_call http;
    struct str pending; /* of a line that is not whole */
    int endpoint;
    struct list link;
};

/* Checks whether etcd_new takes the URLs. Errors: INVALID_ARGUMENT. */
struct status *etcd_check_urls(const char *urls) MUST_USE;
/* Errors: INVALID_ARGUMENT (the URLs, the password file), FAILED_PRECONDITION (no libcurl). */
struct status *etcd_new(struct loop *loop, const struct etcd_options *options,
                        struct etcd **ret_etcd) MUST_USE;
/* Ends calls and watches without calling back. Calls on_closed (may be NULL) when the memory has
 * been freed. Accepts NULL. */
void etcd_close(struct etcd *etcd, void (*on_closed)(void *arg), void *arg);
/* Does etcd answer? False after a call that failed at all endpoints, until one succeeds. Then
 * `why_not` (may be NULL) gets since when and why. */
bool etcd_is_up(const struct etcd *etcd, struct str *why_not);
struct http_client *etcd_http(struct etcd *etcd);

/* Reads a key, or all keys with a prefix. The reply has one range; an empty one means no key. */
void etcd_range(struct etcd *etcd, struct etcd_call *call, const char *key, bool is_prefix);
/* Reads several keys at one revision. The reply has a range for each. */
void etcd_read(struct etcd *etcd, struct etcd_call *call, const char *const *keys, int n);
void etcd_put(struct etcd *etcd, struct etcd_call *call, const char *key, struct span value,
              int64_t lease);
/* Writes the key if its last change was at mod_revision (0: if it does not exist), and sets
 * has_succeeded. Otherwise ranges[0] is what the key holds. */
void etcd_claim(struct etcd *etcd, struct etcd_call *call, const char *key, int64_t mod_revision,
                struct span value, int64_t lease);
void etcd_delete(struct etcd *etcd, struct etcd_call *call, const char *key);
void etcd_lease_grant(struct etcd *etcd, struct etcd_call *call, int64_t ttl_s);
/* The reply's ttl_s is 0 when the lease has lapsed. */
void etcd_lease_keep_alive(struct etcd *etcd, struct etcd_call *call, int64_t lease);
/* The reply's ttl_s is how many seconds the lease lasts unless it is renewed, rounded down; 0 or
 * less means that it has lapsed. */
void etcd_lease_time_to_live(struct etcd *etcd, struct etcd_call *call, int64_t lease);
void etcd_lease_revoke(struct etcd *etcd, struct etcd_call *call, int64_t lease);
/* Ends the call without on_reply. Does nothing to a call that is not running. */
void etcd_call_cancel(struct etcd_call *call);

/* Reports all changes of keys that begin with `prefix` (which ends with '/') from a revision on. */
void etcd_watch_start(struct etcd *etcd, struct etcd_watch *watch, const char *prefix,
                      int64_t from_revision);
void etcd_watch_stop(struct etcd_watch *watch); /* without on_end */

#endif
