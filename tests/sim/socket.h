/* A simulated socket, for network.c and system.c. They live as long as the run. */
#ifndef MILLRACE_TESTS_SIM_SOCKET_H
#define MILLRACE_TESTS_SIM_SOCKET_H

#include "tests/sim/sim.h"

enum sim_socket_state {
    SIM_SOCKET_NEW,
    SIM_SOCKET_LISTENING,
    SIM_SOCKET_CONNECTING,
    SIM_SOCKET_CONNECTED,
    SIM_SOCKET_BROKEN, /* reset, refused or timed out; what came before can still be read */
    SIM_SOCKET_CLOSED,
};

enum segment_kind { SEGMENT_DATA, SEGMENT_END, SEGMENT_RESET };

struct segment {
    struct list link;
    enum segment_kind kind;
    int64_t sent_ns, when_ns;
    size_t len;
    char data[];
};

struct sim_socket {
    uint64_t id;
    struct sim_process *owner; /* NULL: closed */
    int host, peer_host;
    uint16_t own_port, peer_port;
    enum sim_socket_state state;
    int error; /* not told yet */
    bool is_end_read, is_end_sent, is_vanished;
    struct sim_socket *peer;
    struct str in; /* arrived; unread from in_at */
    size_t in_at;
    struct list coming; /* struct segment, on their way to this socket */
    bool is_arrival_due;
    int64_t last_arrival_ns, began_ns, vanish_ns;
    size_t n_outstanding; /* bytes sent that the peer has not read, as far as this end knows */
    struct list backlog, backlog_link;
};

struct sim_socket *sim_socket_new(struct sim_process *owner);
void sim_socket_connect(struct sim_socket *socket, int host, uint16_t port);
int sim_socket_listen(struct sim_socket *socket, uint16_t port); /* 0, or an errno */
struct sim_socket *sim_socket_accept(struct sim_socket *listener);
/* -1 and errno, as send(2) */
ssize_t sim_socket_send(struct sim_socket *socket, const void *data, size_t len);
ssize_t sim_socket_receive(struct sim_socket *socket, void *to, size_t len);
int sim_socket_take_error(struct sim_socket *socket);
void sim_socket_shutdown(struct sim_socket *socket, bool of_reading, bool of_writing);
void sim_socket_close(struct sim_socket *socket);

#endif
