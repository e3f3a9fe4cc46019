/* Finds the admin port of a master, for subcommands that ask its pages. */
#ifndef MILLRACE_TFCTL_ADMIN_ADDRESS_H
#define MILLRACE_TFCTL_ADMIN_ADDRESS_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/base/str.h"

/* Is the address that of a port with TLS? */
bool admin_address_is_https(const char *admin);
/* Appends the address of the admin port: `admin` if it is given, else the port with the default
 * number of the master at `target`, else of the one at $MILLRACE_TARGET. Either may be NULL.
 * Errors: INVALID_ARGUMENT. */
struct status *admin_address_find(const char *admin, const char *target, struct str *out) MUST_USE;
/* Appends the URL of a page there. For a Unix socket *ret_unix_path is its path, else NULL. */
void admin_address_page(const char *admin, const char *page, struct str *out,
                        const char **ret_unix_path);

#endif
