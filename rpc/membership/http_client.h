/* Sends HTTP/1.1 requests on the loop: libcurl's multi interface, driven by the loop's sockets and
 * timers.
 *
 * The life of a call: http_call_start; on_data for each part of the body, if the caller wants
 * the body as a stream; on_done exactly once, with the whole body otherwise. http_call_cancel
 * ends a call at once without on_done. No callback runs inside libcurl or inside a call of these
 * functions. Loop thread only. */
#ifndef MILLRACE_RPC_MEMBERSHIP_HTTP_CLIENT_H
#define MILLRACE_RPC_MEMBERSHIP_HTTP_CLIENT_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "rpc/loop.h"

struct http_client;

/* Borrowed during http_call_start. Strings may be NULL, except `url`. */
struct http_request {
    const char *url;            /* http:// or https:// */
    const char *unix_path;      /* the Unix socket to connect to in place of the URL's host */
    struct span body;           /* the body of a POST; with data NULL it is a GET */
    const char *const *headers; /* "Name: value", ends with NULL */
    int64_t timeout_ms;         /* for the whole request; 0: none */
    int64_t connect_timeout_ms;
    /* of the answer, or of the part of a stream that waits for on_data; 0: 1 MiB */
    size_t max_body_bytes;
    const char *ca_file, *cert_file, *key_file;
    bool accepts_any_certificate; /* for a caller that learns from the answer who sent it */
};

/* Is part of the caller's own object; all zero except the callbacks. */
struct http_call {
    /* A part of the body has arrived. NULL: the body is collected for on_done. */
    void (*on_data)(struct http_call *call, struct span bytes);
    /* The call has ended. On success `status_take` is NULL, and http_code and body are the
     * answer's. Errors: UNAVAILABLE (no connection, broken, timed out), RESOURCE_EXHAUSTED (too
     * large). */
    void (*on_done)(struct http_call *call, struct status *status_take, int http_code,
                    struct span body);
    struct http_client *client; /* while it runs */
    void *easy;
    struct str body;
    size_t max_body_bytes;
    bool is_too_large, is_dirty;
    int connect_error; /* in on_done: the errno of a connect that failed, else 0 */
    void *header_list;
    struct list link;
};

/* Errors: FAILED_PRECONDITION when libcurl is not installed. */
struct status *http_client_new(struct loop *loop, struct http_client **ret_client) MUST_USE;
/* Cancels running calls. Calls on_closed (may be NULL) when the memory has been freed. Accepts
 * NULL. */
void http_client_close(struct http_client *client, void (*on_closed)(void *arg), void *arg);

void http_call_start(struct http_client *client, struct http_call *call,
                     const struct http_request *request);
/* Ends the call without on_done. Does nothing to a call that is not running. */
void http_call_cancel(struct http_call *call);

#endif
