/* The table of an admin server's pages: those of the daemon, and those that every daemon has. For
 * admin.c. Loop thread. */
#ifndef MILLRACE_RPC_DAEMON_ADMIN_PAGES_H
#define MILLRACE_RPC_DAEMON_ADMIN_PAGES_H

#include "rpc/daemon/admin.h"
#include "rpc/daemon/page_html.h"

struct admin_pages {
    const struct admin_options *options; /* borrowed */
    struct page_link *links;             /* the pages with a summary; the first is "/" */
    size_t n_links;
    int64_t started_ns;
};

void admin_pages_init(struct admin_pages *pages, const struct admin_options *options);
void admin_pages_fini(struct admin_pages *pages);
/* NULL: there is none. */
const struct admin_page *admin_pages_find(const struct admin_pages *pages, const char *path);
/* Calls the `write` of a page that has one, or for an operator its `write_to_operator`. */
int admin_pages_write(const struct admin_pages *pages, const struct admin_page *page,
                      bool is_operator, const char *query, struct str *out);
/* What surrounds the page's HTML. Borrows from `pages`. */
struct page_frame admin_pages_frame(const struct admin_pages *pages, const struct admin_page *page);

#endif
