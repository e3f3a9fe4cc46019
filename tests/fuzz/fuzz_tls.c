/* Fuzzes what strangers may send to TLS: PEM files, certificates whose names are read, and the
 * bytes of a handshake to a server or a client. The first byte chooses. */
#include <openssl/x509.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/log.h"
#include "rpc/tls/tls_certs.h"
#include "rpc/tls/tls_internal.h"
#include "rpc/tls/tls_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEP_BYTES = 100 };

static struct tls *tls; /* of both ends */

static void check(struct status *st) { CHECK(!st); }

static void start(void) {
    char directory[] = "/tmp/millrace-fuzz-tls-XXXXXX", path[4][64];
    static const char *const endings[] = {"ca.pem", "ca.key", "own.pem", "own.key"};
    const char *name = "millrace://default/job/ps/task/0";
    struct tls_authority *authority;
    log_set_level(LOG_ERROR);
    CHECK(mkdtemp(directory));
    for (int i = 0; i < 4; i++)
        snprintf(path[i], sizeof(path[i]), "%s/%s", directory, endings[i]);
    check(tls_authority_new("fuzz", 86400, &authority));
    check(tls_authority_save(authority, path[0], path[1]));
    struct tls_cert_request request = {
        .common_name = "own", .names = &name, .n_names = 1, .lifetime_s = 86400};
    check(tls_authority_issue(authority, &request, path[2], path[3]));
    struct tls_options options = {
        .cert_file = path[2], .key_file = path[3], .ca_file = path[0], .protocol = TLS_ALPN_WIRE};
    check(tls_new(&options, &tls));
    tls_authority_free(authority);
    for (int i = 0; i < 4; i++)
        unlink(path[i]);
    rmdir(directory);
}

/* Accepted or not: the error names the file. */
static void try_files(const uint8_t *data, size_t size) {
    char path[32];
    struct tls *made = NULL;
    int fd = memfd_create("pem", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct tls_options as_authority = {.ca_file = path, .protocol = TLS_ALPN_GRPC};
    struct tls_options as_own = {.cert_file = path, .key_file = path, .protocol = TLS_ALPN_GRPC};
    const struct tls_options *both[] = {&as_authority, &as_own};
    for (int i = 0; i < 2; i++) {
        struct status *st = tls_new(both[i], &made);
        CHECK(!st || strstr(status_message(st), path));
        status_unref(st);
        tls_unref(made);
        made = NULL;
    }
    close(fd);
}

/* Names for people are plain text of bounded length, whatever stands in the certificate. */
static void try_certificate(const uint8_t *data, size_t size) {
    struct str names = STR_INIT;
    const unsigned char *at = data;
    X509 *cert = d2i_X509(NULL, &at, (long)size);
    if (!cert)
        return;
    tls_names_of(cert, &names);
    CHECK(names.len > 0 && names.len < TLS_NAMES_MAX_BYTES + 300);
    for (size_t i = 0; i < names.len; i++)
        CHECK(names.data[i] >= ' ' && names.data[i] < 0x7f);
    (void)tls_cert_has_name(cert, "millrace://default/job/ps/task/0");
    (void)tls_cert_has_name(cert, "localhost");
    (void)tls_cert_has_name(cert, "127.0.0.1");
    for (int error = 0; error < 100; error++)
        status_unref(tls_verify_error(tls, "somebody", cert, error));
    str_fini(&names);
    X509_free(cert);
}

static void drop_output(struct tls_stream *stream) {
    tls_stream_sent(stream, tls_stream_output(stream).len);
}

static void try_handshake(const uint8_t *data, size_t size, bool is_server) {
    struct tls_stream *stream = tls_stream_new(tls, is_server, "somebody");
    char plain[256];
    tls_stream_shake(stream);
    for (size_t at = 0; at < size; at += STEP_BYTES) {
        tls_stream_feed(stream, data + at, MIN(size - at, (size_t)STEP_BYTES));
        /* nobody gets this far without a key */
        CHECK(tls_stream_decrypt(stream, plain, sizeof(plain)) <= 0);
        drop_output(stream);
    }
    tls_stream_feed_end(stream);
    tls_stream_shake(stream);
    CHECK(!tls_stream_is_open(stream));
    struct status *why = tls_stream_why(stream);
    CHECK(why);
    status_unref(why);
    tls_stream_free(stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!tls)
        start();
    if (size == 0)
        return 0;
    if (data[0] % 4 == 0)
        try_files(data + 1, size - 1);
    else if (data[0] % 4 == 1)
        try_certificate(data + 1, size - 1);
    else
        try_handshake(data + 1, size - 1, data[0] % 4 == 2);
    return 0;
}
