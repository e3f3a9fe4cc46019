/* TLS between two byte queues: handshakes, bytes both ways, whom it believes, what strangers may
 * send, files that change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <openssl/hmac.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rpc/tls/tls_internal.h"
#include "rpc/tls/tls_stream.h"
#include "tests/unit/rpc/test_certs.h"

static struct test_certs certs, strangers;

struct pair {
    struct tls_stream *client, *server;
};

static int setup(void **state) {
    test_certs_init(&certs, "ours");
    test_certs_init(&strangers, "theirs");
    return 0;
}

static int teardown(void **state) {
    test_certs_fini(&certs);
    test_certs_fini(&strangers);
    return 0;
}

static struct pair new_pair(struct tls *client, struct tls *server) {
    struct pair pair = {tls_stream_new(client, false, "the server"),
                        tls_stream_new(server, true, "the client")};
    tls_unref(client);
    tls_unref(server);
    return pair;
}

static void free_pair(struct pair *pair) {
    tls_stream_free(pair->client);
    tls_stream_free(pair->server);
}

/* Carries what one has to say to the other, in pieces of `step` bytes. */
static size_t carry(struct tls_stream *from, struct tls_stream *to, size_t step) {
    size_t total = 0;
    struct span out;
    while ((out = tls_stream_output(from)).len > 0) {
        size_t n = MIN(out.len, step);
        tls_stream_feed(to, out.data, n);
        tls_stream_sent(from, n);
        total += n;
        if (step < 1000)
            tls_stream_shake(to);
    }
    return total;
}

static void shake_hands(struct pair *pair, size_t step) {
    size_t n;
    do {
        tls_stream_shake(pair->client);
        n = carry(pair->client, pair->server, step);
        tls_stream_shake(pair->server);
        n += carry(pair->server, pair->client, step);
    } while (n > 0);
}

static void expect_open(struct pair *pair) {
    struct status *why = tls_stream_why(pair->client), *server_why = tls_stream_why(pair->server);
    if (why || server_why)
        fail_msg("%s / %s", status_message(why), status_message(server_why));
    assert_true(tls_stream_is_open(pair->client) && tls_stream_is_open(pair->server));
}

static void expect_broken(struct tls_stream *stream, const char *part) {
    struct status *why = tls_stream_why(stream);
    if (!why || !strstr(status_message(why), part))
        fail_msg("'%s' does not have '%s'", status_message(why), part);
    assert_int_equal(status_code(why), STATUS_UNAVAILABLE);
    assert_false(tls_stream_is_open(stream));
    status_unref(why);
}

static struct tls *wire_tls(const char *file) {
    return test_tls(&certs, file, &certs, TLS_ALPN_WIRE);
}

/* ---- bytes ---- */

static void test_handshake_byte_by_byte(void **state) {
    struct pair pair = new_pair(wire_tls("master"), wire_tls("ps-0"));
    shake_hands(&pair, 1);
    expect_open(&pair);
    free_pair(&pair);
}

/* Pieces of all sizes, gathered or not, in order. */
static void send_and_compare(struct tls_stream *from, struct tls_stream *to, const char *bytes,
                             struct iovec *iov, int n_iov, size_t len) {
    char *got = malloc(len);
    size_t n_got = 0;
    int i = 0;
    while (i < n_iov || tls_stream_has_output(from)) {
        ssize_t n = tls_stream_encrypt(from, iov + i, n_iov - i);
        assert_true(n >= 0);
        for (; i < n_iov && (size_t)n >= iov[i].iov_len; i++)
            n -= (ssize_t)iov[i].iov_len;
        if (i < n_iov) {
            iov[i].iov_base = (char *)iov[i].iov_base + n;
            iov[i].iov_len -= (size_t)n;
        }
        carry(from, to, 5000);
        ssize_t m;
        while ((m = tls_stream_decrypt(to, got + n_got, MIN(len - n_got, (size_t)70000))) > 0)
            n_got += (size_t)m;
        assert_true(m == 0);
        tls_stream_rest_reading(to);
        tls_stream_rest_writing(from);
    }
    assert_int_equal(n_got, len);
    assert_memory_equal(got, bytes, len);
    free(got);
}

static void test_pieces_of_all_sizes(void **state) {
    enum { N = 60 };
    struct pair pair = new_pair(wire_tls("master"), wire_tls("ps-0"));
    struct iovec iov[N];
    size_t len = 0;
    shake_hands(&pair, 1 << 20);
    expect_open(&pair);
    char *bytes = malloc(4 << 20);
    for (size_t i = 0; i < 4 << 20; i++)
        bytes[i] = (char)(i * 31 + (i >> 9));
    for (int round = 0; round < 2; round++) {
        len = 0;
        for (int i = 0; i < N; i++) {
            size_t n = i % 7 == 0 ? 200000 : i % 5 == 0 ? 16384 : i % 3 == 0 ? 0 : (size_t)(i * i);
            iov[i] = (struct iovec){bytes + len, n};
            len += n;
        }
        send_and_compare(round ? pair.server : pair.client, round ? pair.client : pair.server,
                         bytes, iov, N, len);
    }
    free(bytes);
    free_pair(&pair);
}

static void test_each_direction_ends_by_itself(void **state) {
    struct pair pair = new_pair(wire_tls("master"), wire_tls("ps-0"));
    char got[16];
    shake_hands(&pair, 1 << 20);
    expect_open(&pair);
    tls_stream_end(pair.client);
    carry(pair.client, pair.server, 1 << 20);
    assert_int_equal(tls_stream_decrypt(pair.server, got, sizeof(got)), 0);
    assert_true(tls_stream_has_ended(pair.server));
    struct iovec last = {"last words", 10};
    assert_int_equal(tls_stream_encrypt(pair.server, &last, 1), 10);
    carry(pair.server, pair.client, 1 << 20);
    assert_int_equal(tls_stream_decrypt(pair.client, got, sizeof(got)), 10);
    assert_false(tls_stream_has_ended(pair.client));
    free_pair(&pair);
}

/* ---- whom it believes ---- */

static void test_names_of_tasks(void **state) {
    struct pair pair = new_pair(wire_tls("master"), wire_tls("ps-0"));
    tls_stream_expect(pair.client, "millrace://default/job/ps/task/0");
    shake_hands(&pair, 1 << 20);
    expect_open(&pair);
    assert_null(tls_stream_check_task(pair.server, "master"));
    assert_null(tls_stream_check_task(pair.client, "/job:ps/replica:0/task:0"));
    struct status *st = tls_stream_check_task(pair.server, "/job:ps/replica:0/task:0");
    assert_int_equal(status_code(st), STATUS_PERMISSION_DENIED);
    assert_non_null(strstr(status_message(st), "URI:millrace://default/master"));
    assert_non_null(strstr(status_message(st), "not for millrace://default/job/ps/task/0"));
    status_unref(st);
    free_pair(&pair);
}

static void try_name(const char *has, const char *wanted, bool is_good) {
    test_issue(&certs, "named", has, 3600);
    struct pair pair = new_pair(wire_tls("master"), wire_tls("named"));
    tls_stream_expect(pair.client, wanted);
    shake_hands(&pair, 1 << 20);
    if (is_good)
        expect_open(&pair);
    else
        expect_broken(pair.client, "not for");
    free_pair(&pair);
}

static void test_a_star_stands_for_a_number(void **state) {
    try_name("millrace://default/job/ps/task/*", "millrace://default/job/ps/task/17", true);
    try_name("millrace://default/job/ps/task/*", "millrace://default/job/ps/task/", false);
    try_name("millrace://default/job/ps/task/*", "millrace://default/job/ps/task/1/2", false);
    try_name("millrace://default/job/ps/task/*", "millrace://default/job/worker/task/1", false);
    try_name("millrace://default/job/ps/task/*", "millrace://default/master", false);
    try_name("millrace://default/*", "millrace://default/master", false);
    try_name("millrace://other/job/ps/task/0", "millrace://default/job/ps/task/0", false);
    try_name("millrace://default/job/ps/task/0", "localhost", true);
    try_name("millrace://default/job/ps/task/0", "127.0.0.1", true);
    try_name("millrace://default/job/ps/task/0", "ps.example", false);
}

static void test_another_authority(void **state) {
    struct pair pair =
        new_pair(wire_tls("master"), test_tls(&strangers, "ps-0", &strangers, TLS_ALPN_WIRE));
    shake_hands(&pair, 1 << 20);
    expect_broken(pair.client, "does not vouch");
    expect_broken(pair.server, "refuses our certificate");
    free_pair(&pair);
    pair = new_pair(test_tls(&strangers, "master", &certs, TLS_ALPN_WIRE), wire_tls("ps-0"));
    shake_hands(&pair, 1 << 20);
    expect_broken(pair.server, "signed by /CN=theirs");
    free_pair(&pair);
}

static void test_expired(void **state) {
    test_issue(&certs, "old", "millrace://default/job/ps/task/0", -2);
    struct pair pair = new_pair(wire_tls("master"), wire_tls("old"));
    shake_hands(&pair, 1 << 20);
    expect_broken(pair.client, "certificate has expired on 20");
    expect_broken(pair.server, "old.pem");
    free_pair(&pair);
}

static void test_a_certificate_is_needed(void **state) {
    struct pair pair = new_pair(test_tls(&certs, NULL, &certs, TLS_ALPN_WIRE), wire_tls("ps-0"));
    char byte;
    shake_hands(&pair, 1 << 20);
    expect_broken(pair.server, "shows no certificate");
    /* it thought that all was well, and is told now */
    assert_int_equal(tls_stream_decrypt(pair.client, &byte, 1), -1);
    expect_broken(pair.client, "requires a certificate");
    free_pair(&pair);
    pair = new_pair(test_tls(&certs, NULL, &certs, TLS_ALPN_GRPC),
                    test_tls(&certs, "master", NULL, TLS_ALPN_GRPC));
    shake_hands(&pair, 1 << 20);
    expect_open(&pair);
    free_pair(&pair);
}

static void test_another_protocol(void **state) {
    struct pair pair =
        new_pair(test_tls(&certs, "master", &certs, TLS_ALPN_GRPC), wire_tls("ps-0"));
    shake_hands(&pair, 1 << 20);
    expect_broken(pair.client, "does not speak h2");
    expect_broken(pair.server, "does not speak millrace");
    free_pair(&pair);
}

/* ---- what strangers send ---- */

static void test_plain_bytes(void **state) {
    static const char *const greetings[] = {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "MRW1 and more",
                                            "GET / HTTP/1.1\r\n\r\n"};
    for (size_t i = 0; i < ARRAY_LEN(greetings); i++) {
        struct pair pair = new_pair(wire_tls("master"), wire_tls("ps-0"));
        tls_stream_feed(pair.server, greetings[i], strlen(greetings[i]));
        assert_false(tls_stream_shake(pair.server));
        expect_broken(pair.server, "does not speak TLS");
        assert_int_equal(tls_stream_is_plain(pair.server), i == 0);
        free_pair(&pair);
    }
}

static void test_garbage_behind_a_good_beginning(void **state) {
    for (unsigned seed = 0; seed < 200; seed++) {
        struct pair pair = new_pair(wire_tls("master"), wire_tls("ps-0"));
        tls_stream_shake(pair.client);
        struct span hello = tls_stream_output(pair.client);
        char bytes[4096];
        size_t len = MIN(hello.len, sizeof(bytes));
        memcpy(bytes, hello.data, len);
        for (unsigned i = 0; i < 1 + seed % 5; i++)
            bytes[(seed * 7919 + i * 104729) % len] ^= (char)(1 + seed % 255);
        tls_stream_feed(pair.server, bytes, len);
        tls_stream_shake(pair.server);
        tls_stream_feed_end(pair.server);
        tls_stream_shake(pair.server);
        assert_false(tls_stream_is_open(pair.server));
        struct status *why = tls_stream_why(pair.server);
        assert_non_null(why);
        status_unref(why);
        free_pair(&pair);
    }
}

static void test_a_flipped_bit_in_the_middle(void **state) {
    struct pair pair = new_pair(wire_tls("master"), wire_tls("ps-0"));
    char got[256];
    shake_hands(&pair, 1 << 20);
    expect_open(&pair);
    struct iovec piece = {"text that nobody changes unnoticed", 34};
    assert_int_equal(tls_stream_encrypt(pair.client, &piece, 1), 34);
    struct span out = tls_stream_output(pair.client);
    memcpy(got, out.data, out.len);
    got[out.len / 2] ^= 4;
    tls_stream_feed(pair.server, got, out.len);
    assert_int_equal(tls_stream_decrypt(pair.server, got, sizeof(got)), -1);
    expect_broken(pair.server, "TLS with the client");
    free_pair(&pair);
}

static unsigned char client_secret[32];

static void on_key(const SSL *ssl, const char *line) {
    static const char label[] = "CLIENT_TRAFFIC_SECRET_0 ";
    if (strncmp(line, label, strlen(label)) != 0)
        return;
    const char *hex = strrchr(line, ' ') + 1;
    for (size_t i = 0; i < sizeof(client_secret); i++)
        assert_int_equal(sscanf(hex + 2 * i, "%2hhx", &client_secret[i]), 1);
}

/* HKDF-Expand-Label (RFC 8446, 7.1), of no more than a hash. */
static void derive(const char *label, unsigned char len, unsigned char *ret) {
    unsigned char info[32] = {0,   len, (unsigned char)(6 + strlen(label)), 't', 'l', 's', '1',
                              '3', ' '},
                  hash[32];
    size_t n = 9 + strlen(label);
    memcpy(info + 9, label, strlen(label));
    info[n + 1] = 1;
    assert_non_null(
        HMAC(EVP_sha256(), client_secret, sizeof(client_secret), info, n + 2, hash, NULL));
    memcpy(ret, hash, len);
}

/* The client's first record: the head of a key update, whose one byte does not come. */
static void half_key_update(unsigned char ret[26]) {
    static const unsigned char header[] = {23, 3, 3, 0, 21}, message[] = {24, 0, 0, 1, 22};
    unsigned char key[16], nonce[12];
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    int n;
    derive("key", sizeof(key), key);
    derive("iv", sizeof(nonce), nonce);
    memcpy(ret, header, sizeof(header));
    assert_int_equal(EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), NULL, key, nonce), 1);
    assert_int_equal(EVP_EncryptUpdate(cipher, NULL, &n, header, sizeof(header)), 1);
    assert_int_equal(EVP_EncryptUpdate(cipher, ret + 5, &n, message, sizeof(message)), 1);
    assert_int_equal(EVP_EncryptFinal_ex(cipher, ret + 10, &n), 1);
    assert_int_equal(EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, 16, ret + 10), 1);
    EVP_CIPHER_CTX_free(cipher);
}

/* A writer must not go on with the handshake, and read what the reader may be taking in. */
static void test_half_a_key_update(void **state) {
    struct tls *client = wire_tls("master");
    unsigned char record[26];
    char got[16];
    SSL_CTX_set_keylog_callback(client->context, on_key);
    assert_int_equal(SSL_CTX_set_ciphersuites(client->context, "TLS_AES_128_GCM_SHA256"), 1);
    struct pair pair = new_pair(client, wire_tls("ps-0"));
    shake_hands(&pair, 1 << 20);
    expect_open(&pair);
    half_key_update(record);
    tls_stream_feed(pair.server, record, sizeof(record));
    assert_int_equal(tls_stream_decrypt(pair.server, got, sizeof(got)), 0);
    struct iovec piece = {"text", 4};
    assert_int_equal(tls_stream_encrypt(pair.server, &piece, 1), -1);
    expect_broken(pair.server, "sent half a handshake message");
    free_pair(&pair);
}

static void test_the_end_comes_too_early(void **state) {
    struct pair pair = new_pair(wire_tls("master"), wire_tls("ps-0"));
    tls_stream_shake(pair.client);
    tls_stream_feed_end(pair.client);
    assert_false(tls_stream_shake(pair.client));
    expect_broken(pair.client, "closed the connection during the TLS handshake");
    free_pair(&pair);
}

static void write_all(int fd, const void *bytes, size_t len) {
    assert_int_equal(write(fd, bytes, len), len);
}

/* Two alerts that say farewell, before there was anything to end: over a socket, whose end must
 * not be waited for in a circle. */
static void test_a_farewell_in_the_handshake(void **state) {
    static const char farewells[] = {21, 3, 3, 0, 2, 1, 0, 21, 3, 3, 0, 2, 1, 0, 1, 0};
    for (int is_server = 0; is_server < 2; is_server++) {
        struct pair pair = new_pair(wire_tls("master"), wire_tls("ps-0"));
        struct tls_stream *victim = is_server ? pair.server : pair.client;
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        tls_stream_shake(pair.client);
        struct span hello = tls_stream_output(pair.client);
        if (is_server)
            write_all(fds[1], hello.data, hello.len);
        write_all(fds[1], farewells, sizeof(farewells));
        assert_int_equal(shutdown(fds[1], SHUT_WR), 0);
        alarm(60);
        assert_int_equal(tls_socket_shake(victim, fds[0]), -1);
        alarm(0);
        assert_int_equal(errno, EPROTO);
        expect_broken(victim, "ended TLS during its handshake");
        free_pair(&pair);
        close(fds[0]);
        close(fds[1]);
    }
}

/* ---- files ---- */

static void expect_bad(struct tls_options options, const char *part) {
    struct tls *tls;
    options.protocol = TLS_ALPN_WIRE;
    struct status *st = tls_new(&options, &tls);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    if (!strstr(status_message(st), part))
        fail_msg("'%s' does not have '%s'", status_message(st), part);
    status_unref(st);
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_bad_files_are_named(void **state) {
    const char *cert = test_path(&certs, "ps-0", "pem"), *key = test_path(&certs, "ps-0", "key");
    expect_bad((struct tls_options){.cert_file = "/no/such.pem", .key_file = key},
               "/no/such.pem: No such file");
    expect_bad((struct tls_options){.cert_file = cert, .key_file = "/no/such.key"},
               "/no/such.key: No such file");
    expect_bad((struct tls_options){.cert_file = cert}, "needs its key");
    expect_bad(
        (struct tls_options){.cert_file = cert, .key_file = test_path(&certs, "master", "key")},
        "master.key: ");
    const char *bad = test_path(&certs, "bad", "pem");
    write_text(bad,
               "-----BEGIN CERTIFICATE-----\nnothing of the kind\n-----END CERTIFICATE-----\n");
    expect_bad((struct tls_options){.cert_file = bad, .key_file = key}, "bad.pem: ");
    expect_bad((struct tls_options){.ca_file = bad}, "bad.pem: ");
    write_text(bad, "");
    expect_bad((struct tls_options){.ca_file = bad}, "bad.pem: ");
}

static void test_keys_are_private(void **state) {
    struct stat info;
    assert_int_equal(stat(test_path(&certs, "ps-0", "key"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void test_reload(void **state) {
    struct str text = STR_INIT;
    test_issue(&certs, "changing", "millrace://default/job/ps/task/1", 3600);
    struct tls *server = wire_tls("changing"), *client = wire_tls("master");
    struct pair before = {tls_stream_new(client, false, "the server"),
                          tls_stream_new(server, true, "the client")};
    shake_hands(&before, 1 << 20);
    expect_open(&before);
    /* A broken file changes nothing. */
    write_text(test_path(&certs, "changing", "pem"), "broken");
    struct tls *both[] = {client, server};
    struct status *st = tls_reload(both, 2);
    assert_non_null(st);
    assert_non_null(strstr(status_message(st), "changing.pem"));
    status_unref(st);
    tls_describe(client, &text);
    assert_non_null(strstr(str_text(&text), "\"reloads\": 0"));
    assert_non_null(strstr(str_text(&text), "changing.pem"));
    struct pair during = {tls_stream_new(client, false, "the server"),
                          tls_stream_new(server, true, "the client")};
    shake_hands(&during, 1 << 20);
    expect_open(&during);
    /* New ones are for new connections. */
    test_issue(&certs, "changing", "millrace://default/job/ps/task/2", 7200);
    int64_t expires_s = tls_expires_s(server);
    assert_null(tls_reload(both, 2));
    assert_true(tls_expires_s(server) > expires_s);
    struct pair after = {tls_stream_new(client, false, "the server"),
                         tls_stream_new(server, true, "the client")};
    shake_hands(&after, 1 << 20);
    expect_open(&after);
    assert_null(tls_stream_check_task(after.client, "/job:ps/replica:0/task:2"));
    assert_null(tls_stream_check_task(before.client, "/job:ps/replica:0/task:1"));
    struct iovec piece = {"lives on", 8};
    char got[8];
    assert_int_equal(tls_stream_encrypt(before.client, &piece, 1), 8);
    carry(before.client, before.server, 1 << 20);
    assert_int_equal(tls_stream_decrypt(before.server, got, 8), 8);
    str_clear(&text);
    tls_describe(server, &text);
    assert_non_null(strstr(str_text(&text), "\"reload_error\": null, \"reloads\": 1"));
    str_fini(&text);
    free_pair(&before);
    free_pair(&during);
    free_pair(&after);
    tls_unref(client);
    tls_unref(server);
}

static void test_names_for_certificates(void **state) {
    static const char *const bad[] = {"", "a,b", "with blank", "DNS:x", "a\nb"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct tls_cert_request request = {
            .common_name = "x", .names = &bad[i], .n_names = 1, .lifetime_s = 60};
        struct status *st =
            tls_authority_issue(certs.authority, &request, test_path(&certs, "x", "pem"),
                                test_path(&certs, "x", "key"));
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        status_unref(st);
    }
}

static void test_an_authority_from_files(void **state) {
    struct tls_authority *again;
    assert_null(
        tls_authority_load(test_path(&certs, "ca", "pem"), test_path(&certs, "ca", "key"), &again));
    tls_authority_free(again);
    struct status *st = tls_authority_load(test_path(&certs, "ca", "pem"),
                                           test_path(&strangers, "ca", "key"), &again);
    assert_non_null(strstr(status_message(st), "does not belong"));
    status_unref(st);
    st = tls_authority_load("/no/ca.pem", test_path(&strangers, "ca", "key"), &again);
    assert_non_null(strstr(status_message(st), "/no/ca.pem: No such file"));
    status_unref(st);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handshake_byte_by_byte),
        cmocka_unit_test(test_pieces_of_all_sizes),
        cmocka_unit_test(test_each_direction_ends_by_itself),
        cmocka_unit_test(test_names_of_tasks),
        cmocka_unit_test(test_a_star_stands_for_a_number),
        cmocka_unit_test(test_another_authority),
        cmocka_unit_test(test_expired),
        cmocka_unit_test(test_a_certificate_is_needed),
        cmocka_unit_test(test_another_protocol),
        cmocka_unit_test(test_plain_bytes),
        cmocka_unit_test(test_garbage_behind_a_good_beginning),
        cmocka_unit_test(test_a_flipped_bit_in_the_middle),
        cmocka_unit_test(test_half_a_key_update),
        cmocka_unit_test(test_the_end_comes_too_early),
        cmocka_unit_test(test_a_farewell_in_the_handshake),
        cmocka_unit_test(test_bad_files_are_named),
        cmocka_unit_test(test_keys_are_private),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_names_for_certificates),
        cmocka_unit_test(test_an_authority_from_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
