/* Writes the requests and reads the replies of etcd's v3 JSON gateway. In the messages keys and
 * values are base64 and 64-bit numbers are strings. Unknown fields are ignored. A reply's strings
 * are in its arena.
 *
 * Malformed bytes only cause a status; sizes and counts have limits. Any thread. */
#ifndef MILLRACE_RPC_MEMBERSHIP_ETCD_MESSAGE_H
#define MILLRACE_RPC_MEMBERSHIP_ETCD_MESSAGE_H

#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/base/str.h"

enum {
    ETCD_MAX_REPLY_BYTES = 64 << 20,
    ETCD_MAX_KEYS = 200000,
    ETCD_MAX_KEY_BYTES = 4096,
    ETCD_MAX_VALUE_BYTES = 64 * 1024
};

struct etcd_kv {
    const char *key;   /* without NUL bytes inside */
    struct span value; /* followed by a NUL */
    int64_t create_revision, mod_revision, lease;
};

/* The keys that reading one range found. */
struct etcd_range {
    struct etcd_kv *kvs;
    int n;
};

struct etcd_event {
    bool is_delete;
    struct etcd_kv kv; /* a deleted one has its key and revision only */
};

/* Everything that a reply may contain; what it does not say is 0. */
struct etcd_reply {
    struct arena arena;
    int64_t revision;          /* of the store when it answered */
    bool has_succeeded;        /* a transaction's comparison held */
    struct etcd_range *ranges; /* in the order of the request */
    int n_ranges;
    int64_t lease, ttl_s; /* ttl_s 0 or less: there is no such lease */
    struct etcd_event *events;
    int n_events;
    bool is_created, is_cancelled;
    struct span token;         /* of a login */
    const char *cancel_reason; /* of a cancelled watch; NULL: etcd gives none */
    int64_t
        compact_revision; /* a watch asked for revisions that etcd has dropped: its oldest one */
};
void etcd_reply_init(struct etcd_reply *reply);
void etcd_reply_fini(struct etcd_reply *reply);

/* ---- requests, appended to `out` ---- */
void etcd_write_range(struct str *out, const char *key, bool is_prefix);
/* Several keys, read at one revision. */
void etcd_write_read(struct str *out, const char *const *keys, int n);
void etcd_write_put(struct str *out, const char *key, struct span value, int64_t lease);
/* Writes the key if its last change was `mod_revision` (0: if it does not exist), else reads it. */
void etcd_write_claim(struct str *out, const char *key, int64_t mod_revision, struct span value,
                      int64_t lease);
void etcd_write_delete(struct str *out, const char *key);
void etcd_write_grant(struct str *out, int64_t ttl_s);
void etcd_write_lease(struct str *out, int64_t lease); /* keep-alive and revoke */
void etcd_write_watch(struct str *out, const char *prefix, int64_t from_revision);

/* ---- replies ---- */
/* Parses a reply, or one line of a stream, which has the reply in a "result". Errors: those that
 * the gateway reports, with their codes; INVALID_ARGUMENT for text that is no reply;
 * RESOURCE_EXHAUSTED for one that is too large. The reply may be used only on success; call
 * etcd_reply_fini always. */
struct status *etcd_reply_parse(struct span text, struct etcd_reply *reply) MUST_USE;
/* Parses the answer to a request that failed. Never returns NULL. */
struct status *etcd_failure_parse(int http_code, struct span text) MUST_USE NEVER_NULL;

void base64_encode(struct str *out, struct span bytes);
/* Puts the bytes into the arena, followed by a NUL. Errors: INVALID_ARGUMENT. */
struct status *base64_decode(struct span text, struct arena *arena, struct span *ret) MUST_USE;

#endif
