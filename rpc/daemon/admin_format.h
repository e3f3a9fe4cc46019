/* Chooses the form in which a page is sent, and makes it. For admin.c. */
#ifndef MILLRACE_RPC_DAEMON_ADMIN_FORMAT_H
#define MILLRACE_RPC_DAEMON_ADMIN_FORMAT_H

#include "rpc/daemon/admin.h"
#include "rpc/daemon/page_html.h"

enum admin_format {
    ADMIN_FORMAT_OWN, /* as the page writes it, with its own content type */
    ADMIN_FORMAT_JSON,
    ADMIN_FORMAT_HTML,
};

/* Can the page write JSON? */
bool admin_page_has_json(const struct admin_page *page);
/* ?format=json or ?format=html decides. Otherwise the header Accept does (NULL: there is none): a
 * browser names text/html first, and gets HTML; who accepts application/json gets JSON. Of both,
 * the one of the higher quality ("q=0.8") is chosen, otherwise the first. Everybody
 * else, as curl and kubelets with their "*" "/" "*", gets what the page writes by itself. */
enum admin_format admin_format_choose(const struct admin_page *page, const char *query,
                                      const char *accept);
/* Appends the query that the page's function gets: `asked`, with the format unless that names
 * one. */
void admin_format_query(enum admin_format format, const char *asked, struct str *out);
const char *admin_format_content_type(enum admin_format format, const struct admin_page *page);
/* Makes the body of it that is sent: HTML of a page's JSON, otherwise nothing changes. */
void admin_format_body(enum admin_format format, const struct page_frame *frame, struct str *body);

#endif
