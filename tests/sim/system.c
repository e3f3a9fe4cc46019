/* The system's calls, as the production objects make them: `ld --wrap` sends each here.
 * Descriptors of the simulation are large numbers; all others are the real system's. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/socket.h"

static const int64_t WALL_START_US = 1800000000000000;

int __real_close(int fd);
ssize_t __real_read(int fd, void *to, size_t len);
ssize_t __real_readv(int fd, const struct iovec *iov, int n_iov);
ssize_t __real_recv(int fd, void *to, size_t len, int flags);
ssize_t __real_send(int fd, const void *data, size_t len, int flags);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __real_clock_gettime(clockid_t clock, struct timespec *ret);
ssize_t __real_getrandom(void *to, size_t len, unsigned flags);
pthread_t __real_pthread_self(void);

int __wrap_close(int fd);
ssize_t __wrap_read(int fd, void *to, size_t len);
ssize_t __wrap_readv(int fd, const struct iovec *iov, int n_iov);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_recv(int fd, void *to, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t len, int flags);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t len);
int __wrap_listen(int fd, int backlog);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags);
int __wrap_shutdown(int fd, int how);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *len);
int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *len);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
ssize_t __wrap_getrandom(void *to, size_t len, unsigned flags);
pthread_t __wrap_pthread_self(void);

static int fail(int error) {
    errno = error;
    return -1;
}

/* ---- descriptors: the lowest free number, so that a stale one soon names something else ---- */

static bool is_simulated(int fd) { return fd >= SIM_FIRST_FD; }

struct sim_socket *sim_socket_of(int fd) {
    if (!sim_current || !is_simulated(fd) || (fd - SIM_FIRST_FD) / SIM_MAX_FDS != sim_current->id)
        return NULL;
    return sim_current->sockets[fd % SIM_MAX_FDS];
}

static int give_fd(struct sim_socket *s) {
    for (int i = 0; i < SIM_MAX_FDS; i++) {
        if (sim_current->sockets[i])
            continue;
        sim_current->sockets[i] = s;
        return SIM_FIRST_FD + sim_current->id * SIM_MAX_FDS + i;
    }
    return fail(EMFILE);
}

static struct sim_socket *find(int fd) {
    struct sim_socket *s = sim_socket_of(fd);
    if (!s)
        errno = EBADF;
    return s;
}

int __wrap_close(int fd) {
    if (!is_simulated(fd))
        return __real_close(fd);
    struct sim_socket *s = find(fd);
    if (!s)
        return -1;
    sim_current->sockets[fd % SIM_MAX_FDS] = NULL;
    sim_socket_close(s);
    return 0;
}

/* ---- reading and writing ---- */

ssize_t __wrap_read(int fd, void *to, size_t len) {
    if (!is_simulated(fd))
        return __real_read(fd, to, len);
    struct sim_socket *s = find(fd);
    return s ? sim_socket_receive(s, to, len) : -1;
}

/* Copies what has arrived and leaves it there. */
static ssize_t peek(int fd, void *to, size_t len) {
    struct sim_socket *s = find(fd);
    size_t n = s ? MIN(len, s->in.len - s->in_at) : 0;
    if (!s || (n == 0 && !s->is_end_read))
        return s ? fail(EAGAIN) : -1;
    if (n > 0)
        memcpy(to, s->in.data + s->in_at, n);
    return (ssize_t)n;
}

ssize_t __wrap_recv(int fd, void *to, size_t len, int flags) {
    if (!is_simulated(fd))
        return __real_recv(fd, to, len, flags);
    return flags & MSG_PEEK ? peek(fd, to, len) : __wrap_read(fd, to, len);
}

ssize_t __wrap_send(int fd, const void *data, size_t len, int flags) {
    if (!is_simulated(fd))
        return __real_send(fd, data, len, flags);
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    return __wrap_sendmsg(fd, &(struct msghdr){.msg_iov = &iov, .msg_iovlen = 1}, flags);
}

static ssize_t receive_pieces(int fd, const struct iovec *iov, size_t n_iov) {
    struct sim_socket *s = find(fd);
    ssize_t total = 0;
    for (size_t i = 0; s && i < n_iov; i++) {
        ssize_t n = sim_socket_receive(s, iov[i].iov_base, iov[i].iov_len);
        if (n < 0 && total == 0)
            return -1;
        if (n <= 0)
            break;
        total += n;
        if ((size_t)n < iov[i].iov_len)
            break;
        if (sim_socket_events(s) & POLLERR)
            break; /* the error is for the next call */
    }
    return s ? total : -1;
}

ssize_t __wrap_readv(int fd, const struct iovec *iov, int n_iov) {
    return is_simulated(fd) ? receive_pieces(fd, iov, (size_t)n_iov) : __real_readv(fd, iov, n_iov);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags) {
    message->msg_controllen = 0;
    return receive_pieces(fd, message->msg_iov, message->msg_iovlen);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags) {
    struct sim_socket *s = find(fd);
    ssize_t total = 0;
    for (size_t i = 0; s && i < message->msg_iovlen; i++) {
        const struct iovec *iov = &message->msg_iov[i];
        if (iov->iov_len == 0)
            continue;
        ssize_t n = sim_socket_send(s, iov->iov_base, iov->iov_len);
        if (n < 0)
            return total > 0 ? total : -1;
        total += n;
        if ((size_t)n < iov->iov_len)
            break;
    }
    if (s && sim_current->sends_left > 0 && --sim_current->sends_left == 0)
        sim_current->on_last_send(sim_current);
    return s ? total : -1;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms) {
    if (n != 1 || !is_simulated(fds[0].fd))
        return __real_poll(fds, n, timeout_ms);
    CHECK(timeout_ms == 0); /* nobody may wait but in a loop */
    struct sim_socket *s = sim_socket_of(fds[0].fd);
    fds[0].revents =
        (short)(s ? sim_socket_events(s) & (fds[0].events | POLLERR | POLLHUP) : POLLNVAL);
    return fds[0].revents != 0;
}

/* ---- making and ending connections ---- */

int __wrap_socket(int domain, int type, int protocol) {
    return domain == AF_INET ? give_fd(sim_socket_new(sim_current)) : fail(EAFNOSUPPORT);
}

static int host_of(const struct sockaddr *address) {
    return (int)(ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) & 0xff) - 1;
}
static uint16_t port_of(const struct sockaddr *address) {
    return ntohs(((const struct sockaddr_in *)address)->sin_port);
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len) {
    struct sim_socket *s = find(fd);
    if (!s)
        return -1;
    CHECK(address->sa_family == AF_INET && host_of(address) >= 0 &&
          host_of(address) < SIM_MAX_HOSTS);
    sim_socket_connect(s, host_of(address), port_of(address));
    return fail(EINPROGRESS);
}

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t len) {
    struct sim_socket *s = find(fd);
    if (!s)
        return -1;
    s->own_port = port_of(address) ? port_of(address) : sim_current->next_port++;
    return 0;
}

int __wrap_listen(int fd, int backlog) {
    struct sim_socket *s = find(fd);
    int error = s ? sim_socket_listen(s, s->own_port) : EBADF;
    return error ? fail(error) : 0;
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags) {
    struct sim_socket *s = find(fd), *accepted = s ? sim_socket_accept(s) : NULL;
    if (!accepted)
        return s ? fail(EAGAIN) : -1;
    sim_trace("socket %llu: accepted", (unsigned long long)accepted->id);
    return give_fd(accepted);
}

int __wrap_shutdown(int fd, int how) {
    struct sim_socket *s = find(fd);
    if (!s)
        return -1;
    sim_socket_shutdown(s, how != SHUT_WR, how != SHUT_RD);
    return 0;
}

/* ---- what a socket says of itself ---- */

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len) {
    struct sim_socket *s = find(fd);
    if (!s)
        return -1;
    if (level != SOL_SOCKET || name != SO_ERROR)
        return fail(ENOPROTOOPT);
    *(int *)value = sim_socket_take_error(s);
    return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len) {
    struct sim_socket *s = find(fd);
    if (!s)
        return -1;
    if (level == IPPROTO_TCP && name == 18 /* TCP_USER_TIMEOUT */)
        s->vanish_ns = *(const int *)value * SIM_MS;
    return 0;
}

static int write_address(int host, uint16_t port, struct sockaddr *address, socklen_t *len) {
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(0x0a000000u + (unsigned)host + 1)};
    memcpy(address, &in, MIN((size_t)*len, sizeof(in)));
    *len = sizeof(in);
    return 0;
}

int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *len) {
    struct sim_socket *s = find(fd);
    return s ? write_address(s->host, s->own_port, address, len) : -1;
}

int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *len) {
    struct sim_socket *s = find(fd);
    if (s && !s->peer)
        return fail(ENOTCONN);
    return s ? write_address(s->peer_host, s->peer_port, address, len) : -1;
}

/* ---- clock, randomness, threads ---- */

/* Looking at the clock takes time: mostly next to none, now and then as long as losing the core. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret) {
    if (!sim_current)
        return __real_clock_gettime(clock, ret);
    sim_pass(sim_chance(5) ? sim_between(0, 200 * SIM_US) : sim_between(20, 600));
    int64_t now_ns = sim_now_ns();
    if (clock == CLOCK_REALTIME)
        now_ns += (WALL_START_US + sim_current->clock_offset_us) * SIM_US;
    *ret = (struct timespec){.tv_sec = now_ns / SIM_SECOND, .tv_nsec = now_ns % SIM_SECOND};
    return 0;
}

ssize_t __wrap_getrandom(void *to, size_t len, unsigned flags) {
    char *out = to;
    for (size_t i = 0; i < len; i += sizeof(uint64_t)) {
        uint64_t number = sim_random();
        memcpy(out + i, &number, MIN(len - i, sizeof(number)));
    }
    return (ssize_t)len;
}

pthread_t __wrap_pthread_self(void) {
    return sim_current ? (pthread_t)(sim_current->id * SIM_MAX_THREADS + sim_thread + 1)
                       : __real_pthread_self();
}
