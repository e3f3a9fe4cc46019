/* Finds a master's admin port from flags, the environment or the master's address. */
#include "tfctl/admin_address.h"

#include <stdlib.h>

#include "client/tls_client.h"
#include "rpc/daemon/daemon.h"
#include "rpc/listen.h"

bool admin_address_is_https(const char *admin) { return strncmp(admin, "https://", 8) == 0; }

struct status *admin_address_find(const char *admin, const char *target, struct str *out) {
    struct net_address parsed;
    bool is_tls;
    if (!target)
        target = getenv("MILLRACE_TARGET");
    if (admin) {
        str_add(out, admin);
        return status_prefix_take(
            net_address_parse(admin + (admin_address_is_https(admin) ? 8 : 0), &parsed), "admin: ");
    }
    if (!target || !*target)
        return status_invalid("no master is named: give --admin or --target, or set "
                              "MILLRACE_TARGET");
    target = tls_client_split(target, &is_tls);
    TRY(net_address_parse(target, &parsed));
    int port = parsed.is_unix ? 0 : daemon_admin_port(parsed.port);
    if (port == 0)
        return status_invalid("the admin port of '%s' is not known: give --admin", target);
    str_addf(out, "%s%.*s:%d", is_tls ? "https://" : "", (int)(strrchr(target, ':') - target),
             target, port);
    return NULL;
}

void admin_address_page(const char *admin, const char *page, struct str *out,
                        const char **ret_unix_path) {
    *ret_unix_path = strncmp(admin, "unix:", 5) == 0 ? admin + 5 : NULL;
    if (*ret_unix_path)
        str_addf(out, "http://localhost%s", page);
    else
        str_addf(out, "%s%s%s", admin_address_is_https(admin) ? "" : "http://", admin, page);
}
