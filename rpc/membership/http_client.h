/* HTTP/1.1 requests on the loop: libcurl's multi interface, driven by the loop's sockets and
 * timers.
 *
 * Life of a call: http_call_start → on_data for what comes, where the caller wants the body as a
 * stream → on_done exactly once, with the body else; http_call_cancel ends it at once and
 * silently. No callback runs inside libcurl, nor inside a call of these functions. Loop thread
 * only. */
#ifndef MILLRACE_RPC_MEMBERSHIP_HTTP_CLIENT_H
#define MILLRACE_RPC_MEMBERSHIP_HTTP_CLIENT_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "rpc/loop.h"

struct http_client;

/* Borrowed for http_call_start only; strings that are NULL are left out. */
struct http_request {
    const char *url;            /* http:// or https:// */
    struct span body;           /* the body of a POST; with data NULL it is a GET */
    const char *const *headers; /* "Name: value", ends with NULL */
    int64_t timeout_ms;         /* of the whole; 0: none */
    int64_t connect_timeout_ms;
    /* of the answer, or of a stream's part that on_data has not seen yet; 0: 1 MiB */
    size_t max_body_bytes;
    const char *ca_file, *cert_file, *key_file;
    bool accepts_any_certificate; /* the answer itself tells who gave it */
};

/* Embedded in the caller's record; all zero but for the callbacks. */
struct http_call {
    /* A part of the body came; NULL: it is gathered. */
    void (*on_data)(struct http_call *call, struct span bytes);
    /* The end. `status_take`: UNAVAILABLE (no connection, broken, timed out), RESOURCE_EXHAUSTED
     * (too large); else NULL and the answer's status code and body. */
    void (*on_done)(struct http_call *call, struct status *status_take, int http_code,
                    struct span body);
    struct http_client *client; /* while it runs */
    void *easy;
    struct str body;
    size_t max_body_bytes;
    bool is_too_large, is_dirty;
    int connect_error; /* in on_done: errno of the connect that failed; 0 where none did */
    void *header_list;
    struct list link;
};

/* Errors: FAILED_PRECONDITION when libcurl is not installed. */
struct status *http_client_new(struct loop *loop, struct http_client **ret_client) MUST_USE;
/* Cancels what runs; on_closed (may be NULL) when the memory is gone. Accepts NULL. */
void http_client_close(struct http_client *client, void (*on_closed)(void *arg), void *arg);

void http_call_start(struct http_client *client, struct http_call *call,
                     const struct http_request *request);
/* on_done will not come. A call that does not run is left alone. */
void http_call_cancel(struct http_call *call);

#endif
