/* Sockets of simulated processes and the links between their hosts.
 *
 * A connection is two sockets. Sent bytes are cut into segments, which arrive at the other socket
 * in order, each after the latency of its link. A segment at a cut link is tried again, as TCP
 * does. A socket with too many unread bytes under way is not writable. A dead process answers with
 * a reset. A vanished one does not answer until its host is back. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "tests/sim/socket.h"

enum { MAX_LINK_SEGMENT = 16 * 1024, N_PORTS = 65536 };

static const int64_t RETRY_FIRST_NS = 200000000, RETRY_MAX_NS = 1000000000,
                     CONNECT_TIMEOUT_NS = 127000000000;

static struct sim_link links[SIM_MAX_HOSTS][SIM_MAX_HOSTS];
static struct {
    struct sim_socket **all;
    size_t n, capacity;
    size_t window_bytes; /* of every connection of this run */
} network;

/* ---- links ---- */

struct sim_link *sim_link_between(int from_host, int to_host) {
    return &links[from_host][to_host];
}

void sim_network_begin(void) {
    int64_t latency_ns = sim_between(10 * SIM_US, sim_chance(300) ? 20 * SIM_MS : 300 * SIM_US);
    memset(links, 0, sizeof(links));
    memset(&network, 0, sizeof(network));
    network.window_bytes = (size_t)1 << sim_between(13, 22);
    for (int a = 0; a < SIM_MAX_HOSTS; a++)
        for (int b = 0; b < SIM_MAX_HOSTS; b++)
            links[a][b] = (struct sim_link){.latency_ns = latency_ns, .jitter_ns = latency_ns / 2};
}

static int64_t travel_ns(int from_host, int to_host) {
    const struct sim_link *link = &links[from_host][to_host];
    int64_t ns = link->latency_ns + sim_between(0, link->jitter_ns);
    return sim_chance(5) ? ns + sim_between(0, 10 * SIM_MS) : ns;
}

/* ---- sockets ---- */

static void tell(struct sim_socket *s) {
    struct sim_process *process = s->owner;
    if (process && process->is_parked && process->polling && sim_loop_is_ready(process->polling))
        sim_process_wake(process, 0);
}

struct sim_socket *sim_socket_new(struct sim_process *owner) {
    if (network.n == network.capacity) {
        network.capacity = MAX(2 * network.capacity, (size_t)256);
        network.all = xrealloc(network.all, network.capacity * sizeof(*network.all));
    }
    struct sim_socket *s = xcalloc(1, sizeof(*s));
    s->id = network.n;
    s->owner = owner;
    s->host = owner ? owner->host : -1;
    s->state = SIM_SOCKET_NEW;
    list_init(&s->coming);
    list_init(&s->backlog);
    list_init(&s->backlog_link);
    network.all[network.n++] = s;
    return s;
}

int sim_socket_events(const struct sim_socket *s) {
    int events = 0;
    switch (s->state) {
    case SIM_SOCKET_LISTENING:
        return list_is_empty(&s->backlog) ? 0 : POLLIN;
    case SIM_SOCKET_NEW:
        return POLLOUT | POLLHUP;
    case SIM_SOCKET_CONNECTING:
        return 0;
    case SIM_SOCKET_CONNECTED:
        break;
    case SIM_SOCKET_BROKEN:
        return POLLIN | POLLOUT | POLLHUP | POLLRDHUP | (s->error ? POLLERR : 0);
    case SIM_SOCKET_CLOSED:
        return 0;
    }
    if (s->in.len > s->in_at || s->is_end_read)
        events |= POLLIN;
    if (s->is_end_read)
        events |= POLLRDHUP | (s->is_end_sent ? POLLHUP : 0);
    if (s->n_outstanding < network.window_bytes)
        events |= POLLOUT;
    return events;
}

/* ---- segments ---- */

static void on_arrival(void *arg, uint64_t number);
static void on_window(void *arg, uint64_t n_bytes);

static void break_off(struct sim_socket *s, int error) {
    if (s->state != SIM_SOCKET_CONNECTED && s->state != SIM_SOCKET_CONNECTING)
        return;
    s->state = SIM_SOCKET_BROKEN;
    s->error = error;
    sim_trace("socket %llu: %s", (unsigned long long)s->id, strerror(error));
    tell(s);
}

static void schedule(struct sim_socket *to, int64_t when_ns) {
    if (to->is_arrival_due)
        return;
    to->is_arrival_due = true;
    sim_at(when_ns, on_arrival, to, 0);
}

/* `from` sends to its peer. */
static void send_segment(struct sim_socket *from, enum segment_kind kind, const void *data,
                         size_t len) {
    struct sim_socket *to = from->peer;
    struct segment *segment = xcalloc(1, sizeof(*segment) + len);
    segment->kind = kind;
    segment->len = len;
    segment->sent_ns = sim_now_ns();
    if (len > 0)
        memcpy(segment->data, data, len);
    segment->when_ns = MAX(to->last_arrival_ns, sim_now_ns() + travel_ns(from->host, to->host));
    to->last_arrival_ns = segment->when_ns;
    list_push_back(&to->coming, &segment->link);
    schedule(to, segment->when_ns);
}

static void arrive(struct sim_socket *s, struct segment *segment) {
    if (s->state == SIM_SOCKET_CLOSED || s->state == SIM_SOCKET_BROKEN) {
        if (segment->kind != SEGMENT_RESET && s->peer->state == SIM_SOCKET_CONNECTED)
            send_segment(s, SEGMENT_RESET, NULL, 0); /* there is nobody */
        return;
    }
    switch (segment->kind) {
    case SEGMENT_DATA:
        str_add_bytes(&s->in, segment->data, segment->len);
        break;
    case SEGMENT_END:
        s->is_end_read = true;
        break;
    case SEGMENT_RESET:
        break_off(s, ECONNRESET);
        return;
    }
    tell(s);
}

/* The first segment that is on its way arrives, unless the link is cut, or the host is gone with
 * all that it had. */
static void on_arrival(void *arg, uint64_t n_retries) {
    struct sim_socket *s = arg;
    struct sim_socket *from = s->peer;
    s->is_arrival_due = false;
    while (!list_is_empty(&s->coming)) {
        struct segment *segment = LIST_ENTRY(s->coming.next, struct segment, link);
        if (segment->when_ns > sim_now_ns()) {
            schedule(s, segment->when_ns);
            return;
        }
        bool is_lost =
            links[from->host][s->host].is_cut || (s->is_vanished && sim_host_is_off(s->host));
        if (is_lost && from->state == SIM_SOCKET_CONNECTED && from->vanish_ns > 0 &&
            sim_now_ns() - segment->sent_ns > from->vanish_ns)
            break_off(from, ETIMEDOUT);
        if (is_lost) {
            s->is_arrival_due = true;
            sim_at(sim_now_ns() + MIN(RETRY_FIRST_NS << MIN(n_retries, (uint64_t)8), RETRY_MAX_NS),
                   on_arrival, s, n_retries + 1);
            return;
        }
        n_retries = 0;
        list_remove(&segment->link);
        arrive(s, segment);
        free(segment);
    }
}

/* What was read makes room at the sender once it has heard of it. */
static void on_window(void *arg, uint64_t n_bytes) {
    struct sim_socket *s = arg;
    s->n_outstanding -= MIN((size_t)n_bytes, s->n_outstanding);
    tell(s);
}

/* ---- connecting ---- */

static void on_connect_result(void *arg, uint64_t error) {
    struct sim_socket *s = arg;
    if (s->state != SIM_SOCKET_CONNECTING)
        return;
    if (error) {
        break_off(s, (int)error);
        return;
    }
    s->state = SIM_SOCKET_CONNECTED;
    sim_trace("socket %llu: connected", (unsigned long long)s->id);
    tell(s);
}

static struct sim_socket *find_listener(int host, uint16_t port) {
    for (size_t i = network.n; i-- > 0;) {
        struct sim_socket *s = network.all[i];
        if (s->state == SIM_SOCKET_LISTENING && s->host == host && s->own_port == port)
            return s;
    }
    return NULL;
}

static void on_connect_arrives(void *arg, uint64_t n_retries) {
    struct sim_socket *s = arg;
    int to = s->peer_host;
    if (s->state != SIM_SOCKET_CONNECTING)
        return;
    if (sim_now_ns() - s->began_ns > CONNECT_TIMEOUT_NS) {
        break_off(s, ETIMEDOUT);
        return;
    }
    struct sim_socket *listener = find_listener(to, s->peer_port);
    if (links[s->host][to].is_cut || links[to][s->host].is_cut || sim_host_is_off(to)) {
        sim_at(sim_now_ns() + SIM_SECOND, on_connect_arrives, s, n_retries + 1);
        return;
    }
    if (!listener) {
        sim_at(sim_now_ns() + travel_ns(to, s->host), on_connect_result, s, ECONNREFUSED);
        return;
    }
    struct sim_socket *accepted = sim_socket_new(listener->owner);
    accepted->state = SIM_SOCKET_CONNECTED;
    accepted->own_port = listener->own_port;
    accepted->peer_host = s->host;
    accepted->peer_port = s->own_port;
    accepted->peer = s;
    s->peer = accepted;
    list_push_back(&listener->backlog, &accepted->backlog_link);
    int64_t arrival_ns = sim_now_ns() + travel_ns(to, s->host);
    s->last_arrival_ns = arrival_ns; /* nothing overtakes the answer */
    sim_at(arrival_ns, on_connect_result, s, 0);
    tell(listener);
}

void sim_socket_connect(struct sim_socket *s, int host, uint16_t port) {
    s->state = SIM_SOCKET_CONNECTING;
    s->began_ns = sim_now_ns();
    s->own_port = s->owner->next_port++;
    s->peer_host = host;
    s->peer_port = port;
    sim_trace("socket %llu: connects to host %d, port %d", (unsigned long long)s->id, host, port);
    sim_at(sim_now_ns() + travel_ns(s->host, host), on_connect_arrives, s, 0);
}

int sim_socket_listen(struct sim_socket *s, uint16_t port) {
    if (find_listener(s->host, port))
        return EADDRINUSE;
    s->state = SIM_SOCKET_LISTENING;
    s->own_port = port;
    sim_trace("socket %llu: listens at port %d", (unsigned long long)s->id, port);
    return 0;
}

struct sim_socket *sim_socket_accept(struct sim_socket *listener) {
    struct list *link = list_pop_front(&listener->backlog);
    return link ? LIST_ENTRY(link, struct sim_socket, backlog_link) : NULL;
}

/* ---- reading and writing ---- */

/* An error is told once; then it is as if the other end had said all. */
static int take_error(struct sim_socket *s) {
    int error = s->error;
    s->error = 0;
    return error;
}

int sim_socket_take_error(struct sim_socket *s) { return take_error(s); }

ssize_t sim_socket_send(struct sim_socket *s, const void *data, size_t len) {
    int error = take_error(s);
    if (error || s->state != SIM_SOCKET_CONNECTED || s->is_end_sent) {
        errno = error ? error : s->state == SIM_SOCKET_CONNECTING ? EAGAIN : EPIPE;
        return -1;
    }
    if (s->n_outstanding >= network.window_bytes) {
        errno = EAGAIN;
        return -1;
    }
    size_t n = MIN(len, network.window_bytes - s->n_outstanding);
    if (n > 1 && sim_chance(30))
        n = 1 + sim_below(n);
    sim_trace("socket %llu: sends %zu bytes, %016llx", (unsigned long long)s->id, n,
              (unsigned long long)hash_bytes(data, n, 0));
    s->n_outstanding += n;
    for (size_t at = 0; at < n;) {
        size_t n_segment = MIN(n - at, (size_t)MAX_LINK_SEGMENT);
        if (n_segment > 1 && sim_chance(50))
            n_segment = 1 + sim_below(n_segment);
        send_segment(s, SEGMENT_DATA, (const char *)data + at, n_segment);
        at += n_segment;
    }
    return (ssize_t)n;
}

ssize_t sim_socket_receive(struct sim_socket *s, void *to, size_t len) {
    size_t n = MIN(len, s->in.len - s->in_at);
    if (n > 0) {
        if (n > 1 && sim_chance(30))
            n = 1 + sim_below(n);
        memcpy(to, s->in.data + s->in_at, n);
        s->in_at += n;
        if (s->in_at == s->in.len) {
            str_clear(&s->in);
            s->in_at = 0;
        }
        sim_at(sim_now_ns() + travel_ns(s->host, s->peer->host), on_window, s->peer, n);
        return (ssize_t)n;
    }
    int error = take_error(s);
    if (error) {
        errno = error;
        return -1;
    }
    if (s->is_end_read || s->state == SIM_SOCKET_BROKEN)
        return 0;
    errno = s->state == SIM_SOCKET_CONNECTED ? EAGAIN : ENOTCONN;
    return -1;
}

/* ---- the end ---- */

void sim_socket_shutdown(struct sim_socket *s, bool of_reading, bool of_writing) {
    if (s->state != SIM_SOCKET_CONNECTED)
        return;
    if (of_writing && !s->is_end_sent) {
        s->is_end_sent = true;
        send_segment(s, SEGMENT_END, NULL, 0);
    }
    if (of_reading)
        s->is_end_read = true;
}

static void close_connected(struct sim_socket *s) {
    bool has_unread = s->in.len > s->in_at;
    s->state = SIM_SOCKET_CLOSED;
    s->owner = NULL;
    if (has_unread)
        send_segment(s, SEGMENT_RESET, NULL, 0);
    else if (!s->is_end_sent)
        send_segment(s, SEGMENT_END, NULL, 0);
    str_fini(&s->in);
    s->in_at = 0;
}

void sim_socket_close(struct sim_socket *s) {
    struct sim_socket *waiting;
    if (s->state == SIM_SOCKET_LISTENING)
        while ((waiting = sim_socket_accept(s)))
            sim_socket_close(waiting);
    if (s->state == SIM_SOCKET_CONNECTED) {
        close_connected(s);
        return;
    }
    s->state = SIM_SOCKET_CLOSED;
    s->owner = NULL;
}

static void on_vanish_noticed(void *arg, uint64_t number) { break_off(arg, ETIMEDOUT); }

/* The peer's kernel asks, once nothing has come for a while; it is told to go away by a host
 * that is back, or gives up in the end. */
static void vanish(struct sim_socket *s) {
    s->is_vanished = true;
    if (s->state == SIM_SOCKET_CONNECTED && s->peer->state == SIM_SOCKET_CONNECTED &&
        s->peer->vanish_ns > 0)
        sim_at(sim_now_ns() + s->peer->vanish_ns / 2 + sim_between(0, s->peer->vanish_ns / 2),
               on_vanish_noticed, s->peer, 0);
    s->state = SIM_SOCKET_CLOSED;
    s->owner = NULL;
}

void sim_sockets_of_dead(struct sim_process *process, bool is_vanished_host) {
    for (size_t i = 0; i < network.n; i++) {
        struct sim_socket *s = network.all[i];
        if (s->owner != process)
            continue;
        if (is_vanished_host)
            vanish(s);
        else
            sim_socket_close(s);
    }
    memset(process->sockets, 0, sizeof(process->sockets));
}

bool sim_reset_some_connection(struct sim_process *process) {
    struct sim_socket *chosen = NULL;
    uint64_t n_seen = 0;
    for (size_t i = 0; i < network.n; i++) {
        struct sim_socket *s = network.all[i];
        if (s->owner == process && s->state == SIM_SOCKET_CONNECTED && sim_below(++n_seen) == 0)
            chosen = s;
    }
    if (!chosen)
        return false;
    sim_trace("reset of socket %llu of %s, to host %d", (unsigned long long)chosen->id,
              process->name, chosen->peer_host);
    struct sim_socket *peer = chosen->peer;
    break_off(chosen, ECONNRESET);
    break_off(peer, ECONNRESET);
    return true;
}
