/* Reads TF_CONFIG, checks and prints addresses, and writes port files. */
#include "rpc/daemon/daemon.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "rpc/membership/cluster.h"
#include "rpc/listen.h"

const char *const daemon_sections[] = {"master", "worker", NULL};
const char *const daemon_log_levels[] = {"debug", "info", "warning", "error", NULL};
const char *const daemon_log_formats[] = {"text", "json", NULL};

struct status *daemon_read_tf_config(struct options *options, bool is_task) {
    const char *json = getenv("TF_CONFIG"), *job = NULL;
    int index = -1;
    if (!json || !*json)
        return NULL;
    struct cluster_spec spec;
    struct str text = STR_INIT;
    char number[16];
    cluster_spec_init(&spec);
    struct status *st = cluster_spec_parse_tf_config(json, &spec, &job, &index);
    if (!st) {
        cluster_spec_print(&spec, &text);
        st = options_set(options, "cluster", str_text(&text), OPTION_FROM_ENVIRONMENT, "TF_CONFIG");
    }
    if (!st && is_task && job)
        st = options_set(options, "job", job, OPTION_FROM_ENVIRONMENT, "TF_CONFIG");
    if (!st && is_task && index >= 0) {
        snprintf(number, sizeof(number), "%d", index);
        st = options_set(options, "task", number, OPTION_FROM_ENVIRONMENT, "TF_CONFIG");
    }
    cluster_spec_fini(&spec);
    str_fini(&text);
    return st;
}

/* ---- addresses ---- */

static struct span host_of(const char *address) {
    const char *colon = strrchr(address, ':');
    return (struct span){address, colon ? (size_t)(colon - address) : strlen(address)};
}

/* Names other than localhost are not resolved, because they may lead anywhere. */
static bool is_loopback(const struct net_address *address) {
    struct in_addr ip;
    return address->is_unix || strcmp(address->host, "localhost") == 0 ||
           strcmp(address->host, "::1") == 0 ||
           (inet_pton(AF_INET, address->host, &ip) == 1 && ntohl(ip.s_addr) >> 24 == 127);
}

struct status *daemon_check_listen(const char *flag, const char *address, bool is_allowed) {
    struct net_address parsed;
    struct status *st = net_address_parse(address, &parsed);
    if (!st && parsed.is_local)
        st = status_invalid("'%s' is an address that no other process can dial", address);
    if (st)
        return status_prefix_take(st, "%s: ", flag);
    if (is_allowed || is_loopback(&parsed))
        return NULL;
    return status_invalid("%s: '%s' is reachable from other hosts without TLS; give %s, or "
                          "--insecure if the network is trusted",
                          flag, address,
                          strcmp(flag, "admin") == 0 ? "--tls-admin"
                                                     : "--tls-cert, --tls-key and --tls-ca");
}

int daemon_admin_port(int port) { return port + 10000 <= 65535 ? port + 10000 : 0; }

bool daemon_admin_address(const char *flag, const char *listen, int bound_port,
                          struct str *ret_address) {
    if (flag && strcmp(flag, "off") == 0)
        return false;
    if (flag) {
        str_add(ret_address, flag);
        return true;
    }
    struct net_address parsed;
    struct status *st = net_address_parse(listen, &parsed);
    bool is_near = !st && !parsed.is_unix && is_loopback(&parsed);
    struct span host = is_near ? host_of(listen) : span_of("127.0.0.1");
    const char *port_text = strrchr(listen, ':');
    status_unref(st);
    bool any = !port_text || strcmp(port_text, ":0") == 0 || bound_port == 0;
    str_addf(ret_address, "%.*s:%d", (int)host.len, host.data,
             any ? 0 : daemon_admin_port(bound_port));
    return true;
}

void daemon_with_port(const char *address, int port, struct str *out) {
    struct span host = strncmp(address, "unix:", 5) == 0 ? span_of("127.0.0.1") : host_of(address);
    str_addf(out, "%.*s:%d", (int)host.len, host.data, port);
}

void daemon_admin_advertised(const char *advertised, const char *admin_listen, int admin_port,
                             struct str *out) {
    struct span host = host_of(admin_listen);
    bool is_any =
        host.len == 0 || span_is(host, "0.0.0.0") || span_is(host, "*") || span_is(host, "[::]");
    daemon_with_port(is_any ? advertised : admin_listen, admin_port, out);
}

void daemon_describe_ports(int port, int admin_port, struct str *out) {
    str_addf(out, "port %d, ", port);
    if (admin_port)
        str_addf(out, "admin on port %d", admin_port);
    else
        str_add(out, "no admin port");
}

void daemon_log_steps(struct str *page) {
    if (page->len == 0)
        log_event(EVENT_STEPZ, "stepz: no step runs");
    for (const char *line = str_text(page), *end; *line; line = end) {
        size_t len = strcspn(line, "\n");
        log_event(EVENT_STEPZ, "stepz: %.*s", (int)len, line);
        end = line + len + (line[len] == '\n');
    }
}

struct status *daemon_write_port_file(const char *path, int port, int admin_port, int client_port) {
    struct str text = STR_INIT, temporary = STR_INIT;
    struct status *st = NULL;
    str_addf(&temporary, "%s.%d", path, (int)getpid());
    str_addf(&text, "%d\n", port);
    if (admin_port)
        str_addf(&text, "admin %d\n", admin_port);
    if (client_port)
        str_addf(&text, "client %d\n", client_port);
    int fd = open(str_text(&temporary), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text.data, text.len) != (ssize_t)text.len ||
        rename(str_text(&temporary), path) != 0)
        st = status_unavailable("cannot write port file %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    str_fini(&text);
    str_fini(&temporary);
    return st;
}
