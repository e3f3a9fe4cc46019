/* OpenSSL between two byte queues.
 *
 *   feed ──► in ──(BIO read)──► SSL_read ──► the caller's memory
 *   the caller's pieces ──► SSL_write ──(BIO write)──► out ──► sending ──► the network
 *
 * `in` is the reader's, `sending` the writer's; everything else is under the lock, which is held
 * for a record or a burst of records, never over a system call. A reader may produce output, too
 * (an alert, an answer to a key update), hence `out` apart from `sending`. */
#include "rpc/tls/tls_stream.h"

#include <openssl/err.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "rpc/tls/tls_internal.h"

enum {
    RECORD_BYTES = 16 * 1024, /* the largest that TLS allows */
    /* how much is encrypted at a time: small enough for the processor's near caches */
    BURST_BYTES = 4 * 16 * 1024,
    GATHER_BELOW_BYTES = 4096, /* shorter pieces are joined in one record */
    /* limit of what reading adds to the output; only a peer that does not read exceeds it */
    MAX_UNSENT_BYTES = 1 << 20,
    QUEUE_BYTES = BURST_BYTES + BURST_BYTES / 16,
};

struct tls_queue {
    char *data;
    size_t begin, end, capacity;
};

struct tls_stream {
    struct tls *tls;
    char *peer, *expected;
    bool is_server;
    struct tls_queue in;      /* the reader's */
    struct tls_queue sending; /* the writer's */
    bool has_ended;           /* the reader's: all bytes of the network have been fed */
    pthread_mutex_t lock;     /* guards what follows */
    SSL *ssl;
    struct tls_queue out;
    enum { HANDSHAKE, OPEN, BROKEN } state;
    bool has_closed;    /* the other end has said that it ends */
    bool is_encrypting; /* OpenSSL works for a writer, and must not read `in` */
    bool has_begun;     /* its first byte was checked */
    unsigned char first_byte;
    struct status *cert_error; /* an error of its certificate */
    struct status *why;
};

/* ---- queues ---- */

static size_t queue_len(const struct tls_queue *queue) { return queue->end - queue->begin; }

static void queue_reserve(struct tls_queue *queue, size_t len) {
    if (queue->begin == queue->end)
        queue->begin = queue->end = 0;
    if (queue->capacity - queue->end >= len)
        return;
    if (queue->begin > 0) {
        memmove(queue->data, queue->data + queue->begin, queue_len(queue));
        queue->end -= queue->begin;
        queue->begin = 0;
    }
    if (queue->capacity - queue->end >= len)
        return;
    queue->capacity = MAX(queue->end + len, queue->capacity * 2);
    queue->data = xrealloc(queue->data, queue->capacity);
}

static void queue_add(struct tls_queue *queue, const void *bytes, size_t len) {
    queue_reserve(queue, len);
    memcpy(queue->data + queue->end, bytes, len);
    queue->end += len;
}

static void queue_fini(struct tls_queue *queue) {
    free(queue->data);
    *queue = (struct tls_queue){0};
}

static void queue_rest(struct tls_queue *queue) {
    if (queue->begin == queue->end)
        queue_fini(queue);
}

/* ---- OpenSSL's two ends ---- */

static int bio_write(BIO *bio, const char *bytes, int len) {
    struct tls_stream *stream = BIO_get_data(bio);
    if (len <= 0)
        return 0;
    queue_add(&stream->out, bytes, (size_t)len);
    return len;
}

static int bio_read(BIO *bio, char *to, int len) {
    struct tls_stream *stream = BIO_get_data(bio);
    size_t n = stream->is_encrypting ? 0 : MIN(queue_len(&stream->in), (size_t)MAX(len, 0));
    BIO_clear_retry_flags(bio);
    if (n == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    memcpy(to, stream->in.data + stream->in.begin, n);
    stream->in.begin += n;
    return (int)n;
}

static long bio_control(BIO *bio, int command, long number, void *pointer) {
    return command == BIO_CTRL_FLUSH;
}

static int bio_create(BIO *bio) {
    BIO_set_init(bio, 1);
    return 1;
}

/* Made once, by the first thread that needs it, and kept. */
static BIO_METHOD *method;

static void make_method(void) {
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "millrace queues");
    CHECK(method);
    BIO_meth_set_write(method, bio_write);
    BIO_meth_set_read(method, bio_read);
    BIO_meth_set_ctrl(method, bio_control);
    BIO_meth_set_create(method, bio_create);
}

static BIO *new_bio(struct tls_stream *stream) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_method);
    BIO *bio = BIO_new(method);
    CHECK(bio);
    BIO_set_data(bio, stream);
    return bio;
}

/* ---- the other end's certificate ---- */

static struct status *name_mismatch(struct tls_stream *stream, X509 *cert) {
    struct str names = STR_INIT;
    tls_names_of(cert, &names);
    struct status *st = status_unavailable("the certificate of %s is for %s, not for %s",
                                           stream->peer, str_text(&names), stream->expected);
    str_fini(&names);
    return st;
}

/* Called for each certificate of the chain, the other end's own last. The first error is kept. */
static int on_verify(int is_good, X509_STORE_CTX *store) {
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls_stream *stream = SSL_get_app_data(ssl);
    X509 *cert = X509_STORE_CTX_get_current_cert(store);
    if (!is_good) {
        if (!stream->cert_error)
            stream->cert_error =
                tls_verify_error(stream->tls, stream->peer, cert, X509_STORE_CTX_get_error(store));
        return 0;
    }
    if (X509_STORE_CTX_get_error_depth(store) > 0 || !stream->expected ||
        tls_cert_has_name(cert, stream->expected))
        return 1;
    stream->cert_error = name_mismatch(stream, cert);
    X509_STORE_CTX_set_error(store, X509_V_ERR_HOSTNAME_MISMATCH);
    return 0;
}

struct status *tls_stream_check_task(struct tls_stream *stream, const char *task) {
    struct str wanted = STR_INIT, names = STR_INIT;
    struct status *st = NULL;
    tls_task_name(stream->tls, task, &wanted);
    pthread_mutex_lock(&stream->lock);
    X509 *cert = SSL_get0_peer_certificate(stream->ssl);
    if (!cert || !tls_cert_has_name(cert, str_text(&wanted))) {
        if (cert)
            tls_names_of(cert, &names);
        st = status_new(STATUS_PERMISSION_DENIED,
                        "%s says that it is %.200s, but its certificate is for %s, not for %.300s",
                        stream->peer, task, cert ? str_text(&names) : "nobody", str_text(&wanted));
    }
    pthread_mutex_unlock(&stream->lock);
    str_fini(&wanted);
    str_fini(&names);
    return st;
}

bool tls_stream_is_from(struct tls_stream *stream, const char *task) {
    struct str wanted = STR_INIT;
    tls_task_name(stream->tls, task, &wanted);
    pthread_mutex_lock(&stream->lock);
    X509 *cert = SSL_get0_peer_certificate(stream->ssl);
    bool is_from = stream->state == OPEN && cert && tls_cert_has_name(cert, str_text(&wanted));
    pthread_mutex_unlock(&stream->lock);
    str_fini(&wanted);
    return is_from;
}

/* ---- life ---- */

struct tls_stream *tls_stream_new(struct tls *tls, bool is_server, const char *peer) {
    struct tls_stream *stream = xcalloc(1, sizeof(*stream));
    stream->tls = tls_ref(tls);
    stream->peer = xstrdup(peer);
    stream->is_server = is_server;
    CHECK(pthread_mutex_init(&stream->lock, NULL) == 0);
    stream->ssl = SSL_new(tls->context);
    CHECK(stream->ssl);
    BIO *bio = new_bio(stream);
    SSL_set_bio(stream->ssl, bio, bio);
    SSL_set_app_data(stream->ssl, stream);
    int must_show = tls->accepts_strangers ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    if (!is_server || tls->ca_file)
        SSL_set_verify(stream->ssl, SSL_VERIFY_PEER | must_show, on_verify);
    if (is_server)
        SSL_set_accept_state(stream->ssl);
    else
        SSL_set_connect_state(stream->ssl);
    return stream;
}

void tls_stream_free(struct tls_stream *stream) {
    if (!stream)
        return;
    SSL_free(stream->ssl);
    queue_fini(&stream->in);
    queue_fini(&stream->out);
    queue_fini(&stream->sending);
    status_unref(stream->cert_error);
    status_unref(stream->why);
    tls_unref(stream->tls);
    pthread_mutex_destroy(&stream->lock);
    free(stream->peer);
    free(stream->expected);
    free(stream);
}

void tls_stream_expect(struct tls_stream *stream, const char *name) {
    free(stream->expected);
    stream->expected = xstrdup(name);
    if (!strstr(name, "://") && strspn(name, "0123456789.:") != strlen(name))
        SSL_set_tlsext_host_name(stream->ssl, name);
}

bool tls_stream_is_open(struct tls_stream *stream) {
    pthread_mutex_lock(&stream->lock);
    bool is_open = stream->state == OPEN;
    pthread_mutex_unlock(&stream->lock);
    return is_open;
}

bool tls_stream_is_plain(struct tls_stream *stream) {
    pthread_mutex_lock(&stream->lock);
    bool is_plain = stream->state == BROKEN && stream->first_byte == 'P';
    pthread_mutex_unlock(&stream->lock);
    return is_plain;
}

struct status *tls_stream_why(struct tls_stream *stream) {
    pthread_mutex_lock(&stream->lock);
    struct status *why = status_ref(stream->why);
    pthread_mutex_unlock(&stream->lock);
    return why;
}

/* ---- what goes wrong; lock held ---- */

static void log_failure(const struct tls_stream *stream) {
    if (stream->is_server)
        log_event(EVENT_TLS_REFUSED, "TLS: %s", status_message(stream->why));
}

static void break_stream(struct tls_stream *stream, struct status *why_take) {
    bool was_handshake = stream->state == HANDSHAKE;
    if (stream->state == BROKEN) {
        status_unref(why_take);
        return;
    }
    stream->state = BROKEN;
    stream->why = why_take;
    if (was_handshake) {
        metric_add(&tls_handshake_failures_total, 1);
        log_failure(stream);
    }
}

/* Alerts about certificates are about ours. */
static bool is_about_our_certificate(int reason) {
    return reason == SSL_R_TLSV1_ALERT_UNKNOWN_CA ||
           reason == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED ||
           reason == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE ||
           reason == SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN ||
           reason == SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED ||
           reason == SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE ||
           reason == SSL_R_TLSV1_ALERT_ACCESS_DENIED || reason == SSL_R_TLSV1_ALERT_DECRYPT_ERROR;
}

static struct status *refused(const struct tls_stream *stream, const char *text) {
    struct str names = STR_INIT;
    X509 *own = SSL_get_certificate(stream->ssl);
    if (own)
        tls_names_of(own, &names);
    struct status *st = status_unavailable("%s refuses our certificate (%s, for %s): %s",
                                           stream->peer, own ? stream->tls->cert_file : "none",
                                           own ? str_text(&names) : "nobody", text);
    str_fini(&names);
    return st;
}

static struct status *error_of(const struct tls_stream *stream) {
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_REASON(code);
    struct str text = STR_INIT;
    tls_take_error(&text, "unknown error");
    struct status *st;
    if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        st = status_unavailable("%s shows no certificate, but needs one that %s vouches for",
                                stream->peer, stream->tls->ca_file);
    else if (reason == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED)
        st = status_unavailable("%s requires a certificate, but this process has none to show",
                                stream->peer);
    else if (is_about_our_certificate(reason))
        st = refused(stream, str_text(&text));
    else if (reason == SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL ||
             reason == SSL_R_NO_APPLICATION_PROTOCOL)
        st = status_unavailable("%s does not speak %s over TLS: is it the right port?",
                                stream->peer, stream->tls->protocol);
    else
        st = status_unavailable("TLS with %s: %s", stream->peer, str_text(&text));
    str_fini(&text);
    return st;
}

/* Says what it means that a call of OpenSSL's did not succeed. */
static void take_result(struct tls_stream *stream, int rc) {
    int error = SSL_get_error(stream->ssl, rc);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        ERR_clear_error();
        return;
    }
    if (error == SSL_ERROR_ZERO_RETURN && stream->state == OPEN) {
        stream->has_closed = true;
        return;
    }
    /* Otherwise OpenSSL, which takes no more bytes, would ask for them for ever. */
    if (error == SSL_ERROR_ZERO_RETURN) {
        break_stream(stream, status_unavailable("%s ended TLS during its handshake", stream->peer));
        return;
    }
    if (stream->cert_error && stream->state == HANDSHAKE) {
        ERR_clear_error();
        break_stream(stream, status_ref(stream->cert_error));
    } else {
        break_stream(stream, error_of(stream));
    }
}

static void check_handshake(struct tls_stream *stream) {
    if (stream->state != HANDSHAKE || !SSL_is_init_finished(stream->ssl))
        return;
    stream->state = OPEN;
    metric_add(&tls_handshakes_total, 1);
}

/* The first byte shows whether the other end speaks another protocol: a record of TLS begins with
 * 22, or with 21 for an alert. */
static void check_first_byte(struct tls_stream *stream) {
    static const unsigned char alert[] = {21, 3, 3, 0, 2, 2, 70}; /* fatal: protocol_version */
    if (stream->has_begun || queue_len(&stream->in) == 0)
        return;
    unsigned char first = (unsigned char)stream->in.data[stream->in.begin];
    stream->has_begun = true;
    stream->first_byte = first;
    if (first == 22 || first == 21)
        return;
    queue_add(&stream->out, alert, sizeof(alert));
    break_stream(stream, status_unavailable("%s does not speak TLS (its first byte is 0x%02x)",
                                            stream->peer, first));
}

static void end_of_input(struct tls_stream *stream) {
    if (stream->state == HANDSHAKE && stream->has_ended)
        break_stream(
            stream,
            status_unavailable(
                "%s closed the connection during the TLS handshake%s", stream->peer,
                stream->is_server ? "" : ": does it speak TLS, and accept our certificate?"));
}

/* ---- reading ---- */

void tls_stream_feed(struct tls_stream *stream, const void *bytes, size_t len) {
    queue_add(&stream->in, bytes, len);
}
void tls_stream_feed_end(struct tls_stream *stream) { stream->has_ended = true; }

bool tls_stream_has_input(struct tls_stream *stream) {
    pthread_mutex_lock(&stream->lock);
    /* the rest of a record that was larger than the caller's memory */
    bool has_rest = SSL_pending(stream->ssl) > 0;
    pthread_mutex_unlock(&stream->lock);
    return has_rest || queue_len(&stream->in) > 0;
}

char *tls_stream_room(struct tls_stream *stream, size_t len) {
    queue_reserve(&stream->in, len);
    return stream->in.data + stream->in.end;
}
struct span tls_stream_input(const struct tls_stream *stream) {
    return (struct span){stream->in.data + stream->in.begin, queue_len(&stream->in)};
}
void tls_stream_room_used(struct tls_stream *stream, size_t len) { stream->in.end += len; }
void tls_stream_rest_reading(struct tls_stream *stream) { queue_rest(&stream->in); }

static void shake(struct tls_stream *stream) {
    check_first_byte(stream);
    if (stream->state != HANDSHAKE)
        return;
    ERR_clear_error();
    int rc = SSL_do_handshake(stream->ssl);
    if (rc != 1)
        take_result(stream, rc);
    check_handshake(stream);
    end_of_input(stream);
}

bool tls_stream_shake(struct tls_stream *stream) {
    pthread_mutex_lock(&stream->lock);
    shake(stream);
    bool is_open = stream->state == OPEN;
    pthread_mutex_unlock(&stream->lock);
    return is_open;
}

/* One record at most. */
static ssize_t decrypt_some(struct tls_stream *stream, char *to, size_t len) {
    size_t n = 0;
    pthread_mutex_lock(&stream->lock);
    if (stream->state == HANDSHAKE)
        shake(stream);
    if (stream->state == OPEN && !stream->has_closed) {
        ERR_clear_error();
        int rc = SSL_read_ex(stream->ssl, to, len, &n);
        if (rc != 1)
            take_result(stream, rc);
        if (queue_len(&stream->out) > MAX_UNSENT_BYTES)
            break_stream(stream, status_unavailable("%s asks for replies that it does not read",
                                                    stream->peer));
    }
    bool is_broken = stream->state == BROKEN;
    pthread_mutex_unlock(&stream->lock);
    return n > 0 ? (ssize_t)n : is_broken ? -1 : 0;
}

ssize_t tls_stream_decrypt(struct tls_stream *stream, void *to, size_t len) {
    size_t n = 0;
    while (n < len) {
        ssize_t got = decrypt_some(stream, (char *)to + n, len - n);
        if (got <= 0)
            return n > 0 ? (ssize_t)n : got;
        n += (size_t)got;
    }
    return (ssize_t)n;
}

bool tls_stream_has_ended(struct tls_stream *stream) {
    pthread_mutex_lock(&stream->lock);
    bool has_ended = stream->has_closed || (stream->has_ended && queue_len(&stream->in) == 0);
    pthread_mutex_unlock(&stream->lock);
    return has_ended;
}

/* ---- writing ---- */

/* Returns the next bytes of the pieces as one run: in place, or copied together. */
static struct span next_run(const struct iovec *iov, int n_iov, int *i, size_t *offset,
                            char *gathered) {
    while (*i < n_iov && *offset == iov[*i].iov_len) {
        ++*i;
        *offset = 0;
    }
    if (*i == n_iov)
        return (struct span){NULL, 0};
    size_t left = iov[*i].iov_len - *offset;
    if (left >= GATHER_BELOW_BYTES || *i + 1 == n_iov)
        return (struct span){(const char *)iov[*i].iov_base + *offset, left};
    size_t n = 0;
    size_t at = *offset;
    for (int k = *i; k < n_iov && n < RECORD_BYTES; k++, at = 0) {
        size_t part = MIN(iov[k].iov_len - at, RECORD_BYTES - n);
        memcpy(gathered + n, (const char *)iov[k].iov_base + at, part);
        n += part;
    }
    return (struct span){gathered, n};
}

static void advance(const struct iovec *iov, int *i, size_t *offset, size_t n) {
    while (n > 0) {
        size_t part = MIN(n, iov[*i].iov_len - *offset);
        *offset += part;
        n -= part;
        if (*offset == iov[*i].iov_len) {
            ++*i;
            *offset = 0;
        }
    }
}

/* In the middle of a handshake message (half a key update was read), OpenSSL would read the rest
 * before it writes. But only the reader may read, perhaps at this moment. No honest end sends such
 * a small message in halves, so the stream ends. */
static bool encrypt_record(struct tls_stream *stream, struct span plain, size_t *ret_n) {
    ERR_clear_error();
    stream->is_encrypting = true;
    int rc = SSL_write_ex(stream->ssl, plain.data, plain.len, ret_n);
    stream->is_encrypting = false;
    if (rc == 1)
        return true;
    take_result(stream, rc);
    if (stream->state == OPEN)
        break_stream(stream, status_unavailable("%s sent half a handshake message", stream->peer));
    return false;
}

static size_t encrypt_burst(struct tls_stream *stream, const struct iovec *iov, int n_iov) {
    char gathered[RECORD_BYTES];
    size_t total = 0, offset = 0;
    int i = 0;
    while (stream->state == OPEN && queue_len(&stream->out) < BURST_BYTES) {
        struct span run = next_run(iov, n_iov, &i, &offset, gathered);
        size_t n = 0;
        if (run.len == 0)
            break;
        if (run.len >= RECORD_BYTES)
            queue_reserve(&stream->out, QUEUE_BYTES);
        if (!encrypt_record(stream, (struct span){run.data, MIN(run.len, (size_t)RECORD_BYTES)},
                            &n))
            break;
        advance(iov, &i, &offset, n);
        total += n;
    }
    return total;
}

ssize_t tls_stream_encrypt(struct tls_stream *stream, const struct iovec *iov, int n_iov) {
    pthread_mutex_lock(&stream->lock);
    if (stream->state == HANDSHAKE)
        shake(stream);
    size_t n = encrypt_burst(stream, iov, n_iov);
    bool is_broken = stream->state == BROKEN;
    pthread_mutex_unlock(&stream->lock);
    return n > 0 ? (ssize_t)n : is_broken ? -1 : 0;
}

void tls_stream_end(struct tls_stream *stream) {
    pthread_mutex_lock(&stream->lock);
    ERR_clear_error();
    if (stream->state == OPEN)
        SSL_shutdown(stream->ssl);
    ERR_clear_error();
    pthread_mutex_unlock(&stream->lock);
}

struct span tls_stream_output(struct tls_stream *stream) {
    if (queue_len(&stream->sending) == 0) {
        struct tls_queue empty = stream->sending;
        empty.begin = empty.end = 0;
        pthread_mutex_lock(&stream->lock);
        stream->sending = stream->out;
        stream->out = empty;
        pthread_mutex_unlock(&stream->lock);
    }
    if (queue_len(&stream->sending) == 0) /* it may have no memory */
        return (struct span){NULL, 0};
    return (struct span){stream->sending.data + stream->sending.begin, queue_len(&stream->sending)};
}

void tls_stream_sent(struct tls_stream *stream, size_t len) {
    CHECK(len <= queue_len(&stream->sending));
    stream->sending.begin += len;
}

void tls_stream_rest_writing(struct tls_stream *stream) {
    queue_rest(&stream->sending);
    pthread_mutex_lock(&stream->lock);
    queue_rest(&stream->out);
    pthread_mutex_unlock(&stream->lock);
}

bool tls_stream_has_output(struct tls_stream *stream) {
    pthread_mutex_lock(&stream->lock);
    bool has_output = queue_len(&stream->out) > 0;
    pthread_mutex_unlock(&stream->lock);
    return has_output || queue_len(&stream->sending) > 0;
}
