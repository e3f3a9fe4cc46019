/* Delivers the last bytes of connections whose process is about to end, or has ended. */
#include "rpc/wire/wire_last.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "rpc/wire/wire_internal.h"

enum { REST_BYTES = 16 << 20 };

size_t wire_conn_unarrived_bytes(struct wire_conn *conn) {
    int n_sent = 0; /* that the kernel has */
    if (!wire_conn_is_live(conn))
        return 0;
    if (conn->is_local)
        return wire_local_queued_bytes(conn);
    pthread_mutex_lock(&conn->lock);
    size_t n = conn->output.n_bytes;
    /* the bytes of a write that is under way are in n_bytes; TLS may keep some after it */
    if (!conn->is_writing && conn->tls && tls_stream_has_output(conn->tls))
        n++;
    pthread_mutex_unlock(&conn->lock);
    if (conn->fd >= 0 && ioctl(conn->fd, SIOCOUTQ, &n_sent) == 0)
        n += (size_t)n_sent;
    return n;
}

void wire_conn_read_rest(struct wire_conn *conn) {
    uint64_t begin = wire_conn_received_bytes(conn), before;
    if (conn->is_local)
        return;
    wire_conn_ref(conn);
    do {
        before = wire_conn_received_bytes(conn);
        wire_conn_read(conn); /* does nothing unless it is open */
    } while (wire_conn_received_bytes(conn) > before && before - begin < REST_BYTES);
    wire_conn_unref(conn);
}
