/* The admin port: HTTP/1.1 for operators, kubelets, Prometheus and browsers (libmicrohttpd on
 * the loop).
 *
 *   /livez     200 while the loop turns
 *   /readyz    200 when the daemon can serve, 503 with the reason else (also /healthz)
 *   /metrics   Prometheus text
 *   /statusz   the daemon's page: HTML for browsers, JSON with ?format=json or Accept: application/json
 * Loop thread only; pages are made there, so a page must be quick. One that has to ask others
 * first begins, and is finished later. */
#ifndef MILLRACE_RPC_ADMIN_H
#define MILLRACE_RPC_ADMIN_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "rpc/loop.h"

struct admin_server;
struct tls;
struct admin_reply; /* of a page that is finished later */

/* A page: writes its body, returns its HTTP status. `query` is the part after '?', or "". A
 * request with `Accept: application/json` gets "format=json" added to its query; a text/html
 * page that is asked for format=json writes JSON and is sent as such. */
struct admin_page {
    const char *path;         /* "/statusz" */
    const char *content_type; /* "application/json" */
    int (*write)(void *arg, const char *query, struct str *out);
    /* In place of write: admin_reply_finish follows exactly once, before this returns or later,
     * whatever happens to the server meanwhile.
     */
    void (*begin)(void *arg, const char *query, struct admin_reply *reply);
    /* It does something: only POST with a header "X-Millrace" (whatever its value) gets there,
     * which no page of a browser's can send from elsewhere unasked. Its body is passed over. */
    bool is_action;
};

struct admin_options {
    /* borrowed, static; /livez and /metrics are there by themselves */
    const struct admin_page *pages;
    size_t n_pages;
    void *arg;
    struct tls *tls; /* HTTPS; borrowed for the server's life. NULL: in the clear */
};

struct status *admin_server_new(struct loop *loop, const char *address,
                                const struct admin_options *options,
                                /* UNAVAILABLE, INVALID_ARGUMENT: as listener_new */
                                struct admin_server **ret_server) MUST_USE;
int admin_server_port(const struct admin_server *server);
/* Takes what *body holds. Nobody hears it when the server has closed meanwhile. */
void admin_reply_finish(struct admin_reply *reply, int http_status, struct str *body);
/* Also from within a page; the memory goes with the loop's next turns. Accepts NULL. */
void admin_server_close(struct admin_server *server);

#endif
