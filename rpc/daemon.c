#include "rpc/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct span host_of(const char *address) {
    const char *colon = strrchr(address, ':');
    return (struct span){address, colon ? (size_t)(colon - address) : strlen(address)};
}

static bool is_loopback(const char *address) {
    struct span host = host_of(address);
    return strncmp(address, "unix:", 5) == 0 || span_is(host, "localhost") || span_is(host, "[::1]") ||
           (host.len >= 4 && memcmp(host.data, "127.", 4) == 0);
}

struct status *daemon_check_listen(const char *flag, const char *address, bool insecure) {
    if (insecure || is_loopback(address))
        return NULL;
    return status_invalid("%s: '%s' is reachable from other hosts without TLS; add --insecure if the network is trusted", flag, address);
}

bool daemon_admin_address(const char *flag, const char *listen, int bound_port, struct str *ret_address) {
    if (flag && strcmp(flag, "off") == 0)
        return false;
    if (flag) {
        str_add(ret_address, flag);
        return true;
    }
    struct span host = strncmp(listen, "unix:", 5) == 0 ? span_of("127.0.0.1") : host_of(listen);
    const char *port_text = strrchr(listen, ':');
    bool any = !port_text || strcmp(port_text, ":0") == 0 || bound_port + 10000 > 65535 || bound_port == 0;
    str_addf(ret_address, "%.*s:%d", (int)host.len, host.data, any ? 0 : bound_port + 10000);
    return true;
}

struct status *daemon_write_port_file(const char *path, int port, int admin_port) {
    struct str text = STR_INIT, temporary = STR_INIT;
    struct status *st = NULL;
    str_addf(&temporary, "%s.%d", path, (int)getpid());
    str_addf(&text, "%d\n", port);
    if (admin_port)
        str_addf(&text, "admin %d\n", admin_port);
    int fd = open(str_text(&temporary), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text.data, text.len) != (ssize_t)text.len || rename(str_text(&temporary), path) != 0)
        st = status_unavailable("cannot write port file %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    str_fini(&text);
    str_fini(&temporary);
    return st;
}
