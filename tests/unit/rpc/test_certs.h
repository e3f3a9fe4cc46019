/* Makes certificates for a test in a new directory, so that they never expire. */
#ifndef MILLRACE_TESTS_UNIT_RPC_TEST_CERTS_H
#define MILLRACE_TESTS_UNIT_RPC_TEST_CERTS_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rpc/tls/tls.h"
#include "rpc/tls/tls_certs.h"

struct test_certs {
    char directory[64];
    struct tls_authority *authority;
};

/* A path in the directory. The text stays valid for the next three calls. */
static inline const char *test_path(struct test_certs *certs, const char *name,
                                    const char *ending) {
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s.%s", certs->directory, name, ending);
    return path;
}

static inline void test_ok(struct status *st) {
    if (st)
        fprintf(stderr, "%s\n", status_message(st));
    CHECK(!st);
}

static inline void test_issue(struct test_certs *certs, const char *file, const char *name,
                              int64_t lifetime_s) {
    const char *names[] = {name, "localhost", "127.0.0.1"};
    struct tls_cert_request request = {
        .common_name = file, .names = names, .n_names = 3, .lifetime_s = lifetime_s};
    test_ok(tls_authority_issue(certs->authority, &request, test_path(certs, file, "pem"),
                                test_path(certs, file, "key")));
}

static inline void test_certs_init(struct test_certs *certs, const char *authority) {
    snprintf(certs->directory, sizeof(certs->directory), "/tmp/millrace-test-certs-XXXXXX");
    CHECK(mkdtemp(certs->directory));
    test_ok(tls_authority_new(authority, 3600, &certs->authority));
    test_ok(tls_authority_save(certs->authority, test_path(certs, "ca", "pem"),
                               test_path(certs, "ca", "key")));
    test_issue(certs, "master", "millrace://default/master", 3600);
    test_issue(certs, "ps-0", "millrace://default/job/ps/task/0", 3600);
}

static inline void test_certs_fini(struct test_certs *certs) {
    char command[128];
    tls_authority_free(certs->authority);
    snprintf(command, sizeof(command), "rm -rf %s", certs->directory);
    CHECK(system(command) == 0);
}

/* Makes a TLS context with the certificate `file`, which trusts the authority of `others`. Each may
 * be NULL. */
static inline struct tls *test_tls(struct test_certs *certs, const char *file,
                                   struct test_certs *others, const char *protocol) {
    struct tls *tls;
    struct tls_options options = {.cert_file = file ? test_path(certs, file, "pem") : NULL,
                                  .key_file = file ? test_path(certs, file, "key") : NULL,
                                  .ca_file = others ? test_path(others, "ca", "pem") : NULL,
                                  .protocol = protocol};
    test_ok(tls_new(&options, &tls));
    return tls;
}

#endif
