/* Parses addresses, opens the sockets of a listener and accepts on the loop. */
#include "rpc/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    MAX_SOCKETS = 8,            /* of one listener: how many addresses one name may have */
    MAX_ACCEPTS_PER_EVENT = 64, /* then the existing connections are served */
    BACKLOG = 4096,
    N_PORT_ATTEMPTS = 16,     /* how often to look for a port that is free in both families */
    EXHAUSTED_PAUSE_MS = 100, /* how long a listener without free descriptors pauses */
};

struct listen_socket {
    uv_poll_t poll;
    struct listener *listener;
    int fd;
};

struct listener {
    struct loop *loop;
    listener_accept_fn *on_accept;
    void *arg;
    struct net_address address;
    int port;
    struct listen_socket sockets[MAX_SOCKETS];
    int n_sockets;
    struct loop_timer pause;
    int n_handles; /* how many of them are open */
    bool is_closed;
};

/* ---- addresses ---- */

/* The NAME of "local:NAME"; NULL for any other address, also for a port of a host named local. */
static const char *local_name(const char *text) {
    static const char prefix[] = "local:";
    const char *name = text + sizeof(prefix) - 1, *end = name;
    if (strncmp(text, prefix, sizeof(prefix) - 1) != 0)
        return NULL;
    while (*end >= '0' && *end <= '9')
        end++;
    return *end ? name : NULL;
}

static struct status *parse_local(const char *text, const char *name,
                                  struct net_address *ret_address) {
    struct net_address address = {.is_unix = true, .is_local = true};
    size_t len = strlen(name);
    if (len == 0 || len >= sizeof(address.host))
        return status_invalid("address \"%.64s\": the name has 1 to %zu bytes", text,
                              sizeof(address.host) - 1);
    memcpy(address.host, name, len + 1);
    *ret_address = address;
    return NULL;
}

struct status *net_address_parse(const char *text, struct net_address *ret_address) {
    struct net_address address = {0};
    const char *name = local_name(text);
    if (name)
        return parse_local(text, name, ret_address);
    if (strncmp(text, "unix:", 5) == 0) {
        const char *path = text + 5;
        if (*path == '\0' || strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
            return status_invalid("address \"%s\": the path of a Unix socket has 1 to %zu bytes",
                                  text, sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
        address.is_unix = true;
        memcpy(address.host, path, strlen(path) + 1);
        *ret_address = address;
        return NULL;
    }
    const char *colon = strrchr(text, ':');
    if (!colon)
        return status_invalid("address \"%s\" has no port (host:port, [v6]:port or unix:/path)",
                              text);
    const char *host = text;
    size_t len = (size_t)(colon - text);
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    } else if (memchr(host, ':', len) || memchr(host, '[', len)) {
        return status_invalid("address \"%s\": write an IPv6 address in brackets, [::1]:port",
                              text);
    }
    if (len >= sizeof(address.host))
        return status_invalid("address \"%.64s...\": the host is too long", text);
    const char *digits = colon + 1;
    size_t n_digits = strspn(digits, "0123456789");
    unsigned long port = strtoul(digits, NULL, 10);
    if (n_digits == 0 || n_digits > 5 || digits[n_digits] != '\0' || port > 65535)
        return status_invalid("address \"%s\": the port is not a number from 0 to 65535", text);
    if (!(len == 1 && host[0] == '*'))
        memcpy(address.host, host, len);
    address.port = (uint16_t)port;
    *ret_address = address;
    return NULL;
}

bool net_peer_name(int fd, struct str *out) {
    struct sockaddr_storage address;
    socklen_t len = sizeof(address);
    char text[INET6_ADDRSTRLEN];
    const struct sockaddr_in *in = (const struct sockaddr_in *)&address;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&address;
    if (getpeername(fd, (struct sockaddr *)&address, &len) != 0)
        address.ss_family = AF_UNSPEC;
    if (address.ss_family == AF_INET && inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text)))
        str_addf(out, "%s:%d", text, ntohs(in->sin_port));
    else if (address.ss_family == AF_INET6 &&
             inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text)))
        str_addf(out, "[%s]:%d", text, ntohs(in6->sin6_port));
    else
        str_add(out, "?");
    return address.ss_family == AF_INET || address.ss_family == AF_INET6;
}

bool net_is_unix(int fd) {
    int family = AF_UNSPEC;
    socklen_t len = sizeof(family);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) == 0 && family == AF_UNIX;
}

bool net_is_owner(int fd) {
    struct ucred who;
    socklen_t len = sizeof(who);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
           (who.uid == geteuid() || who.uid == 0);
}

void net_keep_alive(int fd, int64_t vanish_ms) {
    enum { PROBES = 3 };
    int one = 1, n_probes = PROBES, timeout_ms = (int)MIN(vanish_ms, (int64_t)INT32_MAX);
    int idle_s = (int)MAX(vanish_ms / 2000, (int64_t)1),
        between_s = (int)MAX(vanish_ms / (2000 * PROBES), (int64_t)1);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(int));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof(int));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof(int));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(int));
}

static socklen_t sockaddr_v4(struct sockaddr_storage *ret, struct in_addr ip, uint16_t port) {
    struct sockaddr_in *in = (struct sockaddr_in *)ret;
    memset(ret, 0, sizeof(*ret));
    *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = ip, .sin_port = htons(port)};
    return sizeof(*in);
}

static socklen_t sockaddr_v6(struct sockaddr_storage *ret, struct in6_addr ip, uint16_t port) {
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;
    memset(ret, 0, sizeof(*ret));
    *in6 =
        (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = ip, .sin6_port = htons(port)};
    return sizeof(*in6);
}

socklen_t net_address_to_sockaddr(const struct net_address *address,
                                  struct sockaddr_storage *ret_sockaddr) {
    struct in_addr v4;
    struct in6_addr v6;
    if (address->is_local)
        return 0;
    if (address->is_unix) {
        struct sockaddr_un *un = (struct sockaddr_un *)ret_sockaddr;
        memset(ret_sockaddr, 0, sizeof(*ret_sockaddr));
        un->sun_family = AF_UNIX;
        memcpy(un->sun_path, address->host, strlen(address->host) + 1);
        return sizeof(*un);
    }
    if (inet_pton(AF_INET, address->host, &v4) == 1)
        return sockaddr_v4(ret_sockaddr, v4, address->port);
    if (inet_pton(AF_INET6, address->host, &v6) == 1)
        return sockaddr_v6(ret_sockaddr, v6, address->port);
    return 0;
}

/* ---- binding ---- */

struct bind_list {
    struct sockaddr_storage addresses[MAX_SOCKETS];
    socklen_t lens[MAX_SOCKETS];
    int n;
};

static struct status *resolve(const struct net_address *address, const char *text,
                              struct bind_list *list) {
    socklen_t len = net_address_to_sockaddr(address, &list->addresses[0]);
    if (len > 0) {
        list->lens[0] = len;
        list->n = 1;
        return NULL;
    }
    if (address->host[0] == '\0' || strcmp(address->host, "localhost") == 0) {
        bool any = address->host[0] == '\0';
        list->lens[0] =
            sockaddr_v4(&list->addresses[0],
                        (struct in_addr){htonl(any ? INADDR_ANY : INADDR_LOOPBACK)}, address->port);
        list->lens[1] =
            sockaddr_v6(&list->addresses[1], any ? in6addr_any : in6addr_loopback, address->port);
        list->n = 2;
        return NULL;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    int rc = getaddrinfo(address->host, NULL, &hints, &found);
    if (rc != 0)
        return status_unavailable("listen on %s: %s", text, gai_strerror(rc));
    for (struct addrinfo *ai = found; ai && list->n < MAX_SOCKETS; ai = ai->ai_next) {
        if (ai->ai_family == AF_INET)
            list->lens[list->n] =
                sockaddr_v4(&list->addresses[list->n],
                            ((struct sockaddr_in *)ai->ai_addr)->sin_addr, address->port);
        else if (ai->ai_family == AF_INET6)
            list->lens[list->n] =
                sockaddr_v6(&list->addresses[list->n],
                            ((struct sockaddr_in6 *)ai->ai_addr)->sin6_addr, address->port);
        else
            continue;
        list->n++;
    }
    freeaddrinfo(found);
    return NULL;
}

static void sockaddr_set_port(struct sockaddr_storage *address, int port) {
    if (address->ss_family == AF_INET)
        ((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
    else if (address->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = htons((uint16_t)port);
}

static int bound_port(int fd) {
    struct sockaddr_storage address;
    socklen_t len = sizeof(address);
    if (getsockname(fd, (struct sockaddr *)&address, &len) != 0)
        return 0;
    if (address.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)&address)->sin_port);
    return address.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&address)->sin6_port) : 0;
}

/* A socket file on which no process answers was left behind by a killed process. */
static void remove_stale_socket(const struct sockaddr_storage *address, socklen_t len) {
    const char *path = ((const struct sockaddr_un *)address)->sun_path;
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISSOCK(info.st_mode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)address, len) != 0 && errno == ECONNREFUSED)
        unlink(path);
    close(fd);
}

/* Returns the listening socket, or -1 with errno. */
static int open_socket(const struct sockaddr_storage *address, socklen_t len, bool only_v6) {
    if (address->ss_family == AF_UNIX)
        remove_stale_socket(address, len);
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int one = 1, v6_only = only_v6;
    if (address->ss_family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (address->ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
    if (bind(fd, (const struct sockaddr *)address, len) != 0 || listen(fd, BACKLOG) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static bool family_is_absent(int error) { return error == EAFNOSUPPORT || error == EADDRNOTAVAIL; }

/* Opens all addresses of the list under one port. Returns 0, or an errno with nothing open. */
static int open_all(struct bind_list *list, int fixed_port, int *fds, int *ret_n) {
    int n = 0, port = fixed_port, error = EADDRNOTAVAIL;
    for (int i = 0; i < list->n; i++) {
        sockaddr_set_port(&list->addresses[i], port);
        int fd = open_socket(&list->addresses[i], list->lens[i], list->n > 1);
        if (fd >= 0) {
            fds[n++] = fd;
            port = bound_port(fd);
        } else if (!family_is_absent(errno) || list->n == 1) {
            error = errno;
            while (n > 0)
                close(fds[--n]);
            return error;
        }
    }
    *ret_n = n;
    return n > 0 ? 0 : error;
}

/* ---- accepting ---- */

static void watch(struct listener *listener, bool on);

static void on_pause_over(struct loop_timer *timer) {
    watch(CONTAINER_OF(timer, struct listener, pause), true);
}

static void on_acceptable(uv_poll_t *poll, int status, int events) {
    struct listen_socket *s = CONTAINER_OF(poll, struct listen_socket, poll);
    struct listener *listener = s->listener;
    for (int i = 0; i < MAX_ACCEPTS_PER_EVENT && !listener->is_closed; i++) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            int one = 1;
            /* fails harmlessly on a Unix socket */
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
            listener->on_accept(listener->arg, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* The backlog keeps the connections. Without a pause, a readable socket that cannot be
             * accepted from would make the loop spin. */
            watch(listener, false);
            loop_timer_start(&listener->pause, EXHAUSTED_PAUSE_MS, 0);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

static void watch(struct listener *listener, bool on) {
    for (int i = 0; i < listener->n_sockets; i++) {
        if (on)
            uv_poll_start(&listener->sockets[i].poll, UV_READABLE, on_acceptable);
        else
            uv_poll_stop(&listener->sockets[i].poll);
    }
}

static struct listener *new_listener(struct loop *loop, const struct net_address *address) {
    struct listener *listener = xcalloc(1, sizeof(*listener));
    listener->loop = loop;
    listener->address = *address;
    loop_timer_init(loop, &listener->pause, on_pause_over);
    listener->n_handles = 1;
    return listener;
}

struct status *listener_new(struct loop *loop, const char *address, listener_accept_fn *on_accept,
                            void *arg, struct listener **ret_listener) {
    struct net_address parsed;
    TRY(net_address_parse(address, &parsed));
    if (parsed.is_local)
        return status_invalid("listen on %s: only the worker wire listens within the process",
                              address);
    struct bind_list list = {.n = 0};
    TRY(resolve(&parsed, address, &list));
    int fds[MAX_SOCKETS], n_fds = 0, error = EADDRINUSE;
    int n_attempts = parsed.port == 0 ? N_PORT_ATTEMPTS : 1;
    for (int i = 0; i < n_attempts && error == EADDRINUSE; i++)
        error = open_all(&list, parsed.port, fds, &n_fds);
    if (error != 0)
        return status_unavailable("listen on %s: %s", address, strerror(error));

    struct listener *listener = new_listener(loop, &parsed);
    listener->on_accept = on_accept;
    listener->arg = arg;
    listener->n_sockets = n_fds;
    listener->port = bound_port(fds[0]);
    for (int i = 0; i < n_fds; i++) {
        struct listen_socket *s = &listener->sockets[i];
        s->listener = listener;
        s->fd = fds[i];
        CHECK(uv_poll_init(loop_uv(loop), &s->poll, s->fd) == 0);
    }
    listener->n_handles += n_fds;
    watch(listener, true);
    *ret_listener = listener;
    return NULL;
}

int listener_port(const struct listener *listener) { return listener->port; }

static void release_handle(struct listener *listener) {
    if (--listener->n_handles == 0)
        free(listener);
}
static void on_socket_closed(uv_handle_t *handle) {
    release_handle(CONTAINER_OF((uv_poll_t *)handle, struct listen_socket, poll)->listener);
}
static void on_pause_closed(struct loop_timer *timer) {
    release_handle(CONTAINER_OF(timer, struct listener, pause));
}

void listener_close(struct listener *listener) {
    if (!listener || listener->is_closed)
        return;
    listener->is_closed = true;
    for (int i = 0; i < listener->n_sockets; i++) {
        uv_close((uv_handle_t *)&listener->sockets[i].poll, on_socket_closed);
        close(listener->sockets[i].fd);
    }
    if (listener->address.is_unix)
        unlink(listener->address.host);
    loop_timer_close(&listener->pause, on_pause_closed);
}
