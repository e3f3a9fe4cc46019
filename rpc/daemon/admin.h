/* Serves the pages of a daemon over HTTP/1.1, for operators, kubelets, Prometheus and browsers
 * (libmicrohttpd on the loop).
 *
 *   /          what this process is, and its pages
 *   /livez     200 while the loop runs
 *   /readyz    200 when the daemon can serve, otherwise 503 with the reason (also /healthz)
 *   /metrics   Prometheus text
 *   /statusz   and others: the daemon's pages, as JSON for programs and as HTML for people
 *              (page.h): ?format=json or ?format=html, otherwise by the header Accept
 *
 * A gRPC client that dials the port is told where to connect (rpc/grpc/grpc_refuser.h). Loop
 * thread only. Pages are made on the loop, so `write` must be quick; a page that has to ask
 * other tasks has `begin` instead. */
#ifndef MILLRACE_RPC_DAEMON_ADMIN_H
#define MILLRACE_RPC_DAEMON_ADMIN_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "rpc/loop.h"

struct admin_server;
struct tls;
struct admin_reply; /* the reply of a page that is finished later */

/* One page. `query` is the part of the URL after '?', or "". When JSON or HTML is to be sent, the
 * query has format=json or format=html, whatever asked for it. HTML is made from the page's
 * JSON. */
struct admin_page {
    const char *path; /* "/statusz" */
    /* What the page writes by itself. "application/json": in every format. */
    const char *content_type;
    /* Appends the body and returns the HTTP status. */
    int (*write)(void *arg, const char *query, struct str *out);
    /* In place of `write` for operators (guards_changes): may also show error messages, which carry
     * values of tensors. NULL: operators get what everybody gets. */
    int (*write_to_operator)(void *arg, const char *query, struct str *out);
    /* In place of `write`. The page must call admin_reply_finish exactly once, before this returns
     * or later, also when the server is closed meanwhile. */
    void (*begin)(void *arg, const char *query, struct admin_reply *reply);
    /* The page changes something. Only a POST with a header "X-Millrace" (any value) reaches it:
     * a browser does not send that header for a page of another site. With `guards_changes`, only
     * an operator's POST does. The body is ignored. */
    bool is_action;
    const char *summary; /* a line for people, for / and the page's HTML; NULL: not listed there */
    /* The page is text, but writes JSON when page_query_wants_json(query). */
    bool has_json;
    /* With this name in the query, the body is a file for a program: it is drawn as HTML only if
     * "format=html" asks for that. NULL: no name. */
    const char *file_query;
};

struct admin_options {
    /* borrowed, static; /, /livez and /metrics are added to them */
    const struct admin_page *pages;
    size_t n_pages;
    void *arg;
    const char *program; /* "tf-worker"; borrowed, as the next */
    const char *name;    /* of the process: its task, or "master" */
    /* Appends Prometheus text to /metrics, with `arg`. NULL: nothing. */
    void (*write_metrics)(void *arg, struct str *out);
    /* Appends what a gRPC client that dials the port is told, with `arg`. */
    void (*write_refusal)(void *arg, struct str *out);
    struct tls *tls; /* for HTTPS, borrowed for the server's life; NULL: HTTP */
    /* Serves the pages also at this Unix socket, in a file of mode 0600. NULL: at none. */
    const char *unix_path;
    /* Pages that change something, and error messages, are for operators only: those who connect to
     * a Unix socket, or show the certificate of "admin" or "master" (rpc/tls/tls.h). Otherwise
     * everybody is an operator. */
    bool guards_changes;
};

/* `address` is NULL when only the Unix socket is served. A Unix socket accepts processes of this
 * process' user and of root. Errors: as listener_new. */
struct status *admin_server_new(struct loop *loop, const char *address,
                                const struct admin_options *options,
                                struct admin_server **ret_server) MUST_USE;
int admin_server_port(const struct admin_server *server); /* 0: there is only a Unix socket */
/* Sends the reply; *body is empty after it. When the client or the server has gone, the reply is
 * dropped. Frees `reply`. */
void admin_reply_finish(struct admin_reply *reply, int http_status, struct str *body);
/* Closes the port. May be called from within a page; the memory is freed by the loop's next turns.
 * Accepts NULL. */
void admin_server_close(struct admin_server *server);

#endif
