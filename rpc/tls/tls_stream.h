/* TLS of one connection: turns bytes of the network into plain bytes and back, in memory or over a
 * socket. No call blocks. Memory is taken for a burst of bytes, not for a record; an idle
 * connection has only OpenSSL's own.
 *
 *   HANDSHAKE ── certificates are checked ──► OPEN ── the other end ends ──► closed for reading
 *       └──────────── anything wrong ──────────┴──► BROKEN: tls_stream_why says why
 *
 * One thread may read while another one writes; no third thread may do either meanwhile. During
 * the handshake one thread does both. */
#ifndef MILLRACE_RPC_TLS_TLS_STREAM_H
#define MILLRACE_RPC_TLS_TLS_STREAM_H

#include <sys/types.h>
#include <sys/uio.h>

#include "rpc/tls/tls.h"

struct tls_stream;

/* `peer`: its address, for messages. */
struct tls_stream *tls_stream_new(struct tls *tls, bool is_server, const char *peer);
void tls_stream_free(struct tls_stream *stream); /* accepts NULL */
/* Call it before the handshake: sets the name that the other end's certificate must carry
 * (tls.h), a URI, DNS name or address. A client without it accepts every certificate for which
 * the authorities vouch. */
void tls_stream_expect(struct tls_stream *stream, const char *name);
/* Call it after the handshake: checks that the other end's certificate is that of the task
 * ("/job:ps/replica:0/task:0", "master"). Errors: PERMISSION_DENIED, which says the wanted name and
 * those of the certificate. */
struct status *tls_stream_check_task(struct tls_stream *stream, const char *task) MUST_USE;
/* Is it open, and is the other end's certificate that of the task, "master" or "admin"? */
bool tls_stream_is_from(struct tls_stream *stream, const char *task);
bool tls_stream_is_open(struct tls_stream *stream); /* the handshake is over and nothing broke */
/* Did it break because the other end speaks HTTP/2 without TLS? */
bool tls_stream_is_plain(struct tls_stream *stream);
/* Returns why it broke (UNAVAILABLE), a new reference; NULL when it has not. */
struct status *tls_stream_why(struct tls_stream *stream) MUST_USE;

/* ---- bytes ---- */

/* Gives it bytes from the network; they are copied. */
void tls_stream_feed(struct tls_stream *stream, const void *bytes, size_t len);
/* Instead of feed: returns where to put at most `len` bytes; then say how many they are. */
char *tls_stream_room(struct tls_stream *stream, size_t len);
void tls_stream_room_used(struct tls_stream *stream, size_t len);
/* Returns what was fed and not used yet; borrowed. */
struct span tls_stream_input(const struct tls_stream *stream);
void tls_stream_feed_end(struct tls_stream *stream); /* no more comes */
/* Continues the handshake with what has arrived. Returns true when the stream is open. */
bool tls_stream_shake(struct tls_stream *stream);
/* Puts plain bytes into `to` and returns how many. 0: more bytes must arrive first, or it has
 * ended; -1: broken. */
ssize_t tls_stream_decrypt(struct tls_stream *stream, void *to, size_t len);
bool tls_stream_has_ended(struct tls_stream *stream); /* decrypt gives nothing more */
/* Has it bytes that decrypt has not returned yet? Then the caller must continue to read although
 * the socket may have nothing. */
bool tls_stream_has_input(struct tls_stream *stream);
/* Takes plain bytes, as many as fit into a burst, and returns how many. 0: the handshake is not
 * complete, and has been continued; -1: broken. */
ssize_t tls_stream_encrypt(struct tls_stream *stream, const struct iovec *iov, int n_iov);
void tls_stream_end(struct tls_stream *stream); /* tells the other end that this one has ended */
/* Returns what is to be sent to the network; borrowed until tls_stream_sent or the next encrypt. */
struct span tls_stream_output(struct tls_stream *stream);
void tls_stream_sent(struct tls_stream *stream, size_t len);
bool tls_stream_has_output(struct tls_stream *stream);
/* Call them after a burst: they free memory that holds no bytes. */
void tls_stream_rest_reading(struct tls_stream *stream);
void tls_stream_rest_writing(struct tls_stream *stream);

/* ---- over a non-blocking socket ---- */

/* Reads plain bytes as readv does: returns how many, 0 at the end, -1 with errno EAGAIN, EPROTO
 * (see tls_stream_why) or the socket's. When it returns fewer than asked for, the socket has no
 * more. */
ssize_t tls_socket_read(struct tls_stream *stream, int fd, const struct iovec *iov, int n_iov);
/* Writes plain bytes as writev does, at most a MiB. Without pieces it sends what has been
 * encrypted already. EAGAIN: if tls_stream_has_output, the socket is full, else the handshake is
 * not complete. There may be output left although all bytes were taken. */
ssize_t tls_socket_write(struct tls_stream *stream, int fd, const struct iovec *iov, int n_iov);
/* Continues the handshake. Returns 1 when it is complete, 0 when the socket has to become readable
 * (or writable, if there is output), -1 with errno as above. */
int tls_socket_shake(struct tls_stream *stream, int fd);
/* Tells the other end that the connection ends, or what went wrong, if the socket takes it. */
void tls_socket_end(struct tls_stream *stream, int fd);

#endif
