/* One connection's TLS: bytes of the network in, plain bytes out, and the other way round; and the
 * same over a socket. No call blocks; memory is taken for a burst of bytes, not for a record, and
 * an idle connection holds none but OpenSSL's own.
 *
 *   HANDSHAKE ── both ends have shown and checked certificates ──► OPEN ── the other end said that it ends ──► closed for reading
 *       └──────────────── anything wrong ────────────────────────────┴────────────────────► BROKEN: tls_stream_why says what
 *
 * What is read and what is written do not wait for each other: one thread may read while another
 * writes. Nobody else may do either meanwhile. While the handshake goes on one thread does both. */
#ifndef MILLRACE_RPC_TLS_TLS_STREAM_H
#define MILLRACE_RPC_TLS_TLS_STREAM_H

#include <sys/types.h>
#include <sys/uio.h>

#include "rpc/tls/tls.h"

struct tls_stream;

/* `peer`: its address, for messages. */
struct tls_stream *tls_stream_new(struct tls *tls, bool is_server, const char *peer);
void tls_stream_free(struct tls_stream *stream); /* accepts NULL */
/* Before the handshake: the name that the other end's certificate must carry (tls.h), a URI, DNS
 * name or address. A client that expects none believes every certificate that the authorities
 * vouch for. */
void tls_stream_expect(struct tls_stream *stream, const char *name);
/* After it: is the other end's certificate that of the task ("/job:ps/replica:0/task:0",
 * "master")? Errors: PERMISSION_DENIED, with the name that was wanted and those that it has. */
struct status *tls_stream_check_task(struct tls_stream *stream, const char *task) MUST_USE;
bool tls_stream_is_open(struct tls_stream *stream); /* the handshake is over and nothing broke */
/* it broke because the other end speaks HTTP/2 in the clear, from all one can tell */
bool tls_stream_is_plain(struct tls_stream *stream);
/* Why it broke, UNAVAILABLE; a new reference, NULL while it has not. */
struct status *tls_stream_why(struct tls_stream *stream) MUST_USE;

/* ---- bytes ---- */

/* What came from the network; copied. */
void tls_stream_feed(struct tls_stream *stream, const void *bytes, size_t len);
/* or put `len` bytes there at most, and say how many: */
char *tls_stream_room(struct tls_stream *stream, size_t len);
void tls_stream_room_used(struct tls_stream *stream, size_t len);
/* what was fed and not taken; borrowed */
struct span tls_stream_input(const struct tls_stream *stream);
void tls_stream_feed_end(struct tls_stream *stream); /* no more comes */
/* What can be said before more comes: the handshake's next move. True when the stream is open. */
bool tls_stream_shake(struct tls_stream *stream);
/* Plain bytes into `to`: how many; 0: more must come first, or has ended; -1: broken. */
ssize_t tls_stream_decrypt(struct tls_stream *stream, void *to, size_t len);
bool tls_stream_has_ended(struct tls_stream *stream); /* nothing more will come out of decrypt */
/* Bytes came that have not been handed out yet: reading has to go on although the socket may
 * have nothing. */
bool tls_stream_has_input(struct tls_stream *stream);
/* Takes plain bytes, as many as fit into a burst: how many; 0 before the handshake is over,
 * whose next move is then made; -1: broken. */
ssize_t tls_stream_encrypt(struct tls_stream *stream, const struct iovec *iov, int n_iov);
void tls_stream_end(struct tls_stream *stream); /* tells the other end that no more comes */
/* What is to be sent to the network; borrowed until it has been sent, or more is encrypted. */
struct span tls_stream_output(struct tls_stream *stream);
void tls_stream_sent(struct tls_stream *stream, size_t len);
bool tls_stream_has_output(struct tls_stream *stream);
/* An end of a burst: memory that holds nothing goes. */
void tls_stream_rest_reading(struct tls_stream *stream);
void tls_stream_rest_writing(struct tls_stream *stream);

/* ---- over a non-blocking socket ---- */

/* As readv: plain bytes, as many as are there; 0 at the end; -1 with errno EAGAIN, EPROTO
 * (tls_stream_why) or the socket's. Fewer than asked for: the socket has no more. */
ssize_t tls_socket_read(struct tls_stream *stream, int fd, const struct iovec *iov, int n_iov);
/* As writev, a MiB at most; without pieces it sends what is encrypted already. EAGAIN: the
 * socket is full where tls_stream_has_output says so, else the handshake is not over. All may
 * have been taken, and there is output still. */
ssize_t tls_socket_write(struct tls_stream *stream, int fd, const struct iovec *iov, int n_iov);
/* Goes on with the handshake: 1 when it is over, 0 when the socket has to become readable (or
 * writable, where there is output), -1 with errno as above. */
int tls_socket_shake(struct tls_stream *stream, int fd);
/* Says farewell, or what went wrong, if the socket takes it. */
void tls_socket_end(struct tls_stream *stream, int fd);

#endif
