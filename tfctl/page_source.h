/* Fetches pages of a master's admin port, for subcommands that say what they say. */
#ifndef MILLRACE_TFCTL_PAGE_SOURCE_H
#define MILLRACE_TFCTL_PAGE_SOURCE_H

#include "client/tls_client.h"
#include "common/base/status.h"
#include "common/base/str.h"
#include "tfctl/cli.h"

/* The flags of page_source_rows.inc. */
struct page_source {
    const char *target, *admin;
    int64_t timeout_ms;
    struct tls_client tls;
};

/* A page that was fetched, or why it was not. */
struct fetched_page {
    struct status *status; /* UNAVAILABLE: there is no connection */
    int http_code;
    struct str body;
};
void fetched_page_fini(struct fetched_page *page);
/* NULL if the page was answered with 200; otherwise the status, which names the code and what the
 * daemon said. */
struct status *fetched_page_check(const struct fetched_page *page) MUST_USE;

/* Finds the admin port by the flags, $MILLRACE_ADMIN (of `tfctl local`) and $MILLRACE_TARGET, and
 * appends its address. Errors:
 * INVALID_ARGUMENT, of the command line. */
struct status *page_source_find(const struct page_source *source, struct str *ret_admin) MUST_USE;
/* Fetches n pages of that address at once, and waits for them. Each of `ret`, which need no
 * initialization, must be freed. Errors: FAILED_PRECONDITION (libcurl is missing). */
struct status *page_source_fetch(const struct page_source *source, const char *admin,
                                 const char *const *paths, int n,
                                 struct fetched_page *ret) MUST_USE;
/* page_source_find for a subcommand. Returns the exit code; unless it is EXIT_OK, an error has been
 * printed. */
int page_source_open(const struct page_source *source, const struct cli *cli,
                     struct str *ret_admin);
/* Finds the admin port and fetches one page. Returns the exit code, as page_source_open does. */
int page_source_get(const struct page_source *source, const struct cli *cli, const char *path,
                    struct str *ret_body);
/* Sends a POST to a page that changes something. The answer is that of page_source_fetch. */
struct status *page_source_post(const struct page_source *source, const char *admin,
                                const char *path, struct fetched_page *ret) MUST_USE;

#endif
