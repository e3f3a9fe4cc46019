/* Makes keys, an authority and certificates, and writes them to files. */
#include "rpc/tls/tls_certs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rpc/tls/tls_internal.h"

enum { BEGAN_BEFORE_S = 60 }; /* because clocks differ */

struct tls_authority {
    EVP_PKEY *key;
    X509 *cert;
};

static struct status *failed(const char *what) {
    struct str why = STR_INIT;
    tls_take_error(&why, "it failed");
    struct status *st = status_internal("%s: %s", what, str_text(&why));
    str_fini(&why);
    return st;
}

/* ---- certificates ---- */

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    bool is_added = extension && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return is_added;
}

static bool set_serial(X509 *cert) {
    unsigned char bytes[16];
    if (RAND_bytes(bytes, sizeof(bytes)) != 1)
        return false;
    bytes[0] = (bytes[0] & 0x7f) | 0x40; /* positive, and always of the same length */
    BIGNUM *number = BN_bin2bn(bytes, sizeof(bytes), NULL);
    bool is_set = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
    BN_free(number);
    return is_set;
}

/* Sets all fields except the names and the signature. */
static bool fill(X509 *cert, EVP_PKEY *key, const char *common_name, int64_t lifetime_s) {
    X509_NAME *subject = X509_get_subject_name(cert);
    time_t now = time(NULL);
    return X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) &&
           X509_set_pubkey(cert, key) == 1 &&
           X509_time_adj_ex(X509_getm_notBefore(cert), 0, -BEGAN_BEFORE_S, &now) &&
           X509_time_adj_ex(X509_getm_notAfter(cert), (int)(lifetime_s / 86400),
                            (long)(lifetime_s % 86400), &now) &&
           X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_UTF8,
                                      (const unsigned char *)common_name, -1, -1, 0) == 1;
}

void tls_authority_free(struct tls_authority *authority) {
    if (!authority)
        return;
    EVP_PKEY_free(authority->key);
    X509_free(authority->cert);
    free(authority);
}

struct status *tls_authority_new(const char *name, int64_t lifetime_s, struct tls_authority **ret) {
    struct tls_authority *authority = xcalloc(1, sizeof(*authority));
    authority->key = EVP_EC_gen("P-256");
    authority->cert = X509_new();
    X509 *cert = authority->cert;
    bool is_made = authority->key && cert && fill(cert, authority->key, name, lifetime_s) &&
                   X509_set_issuer_name(cert, X509_get_subject_name(cert)) == 1 &&
                   add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
                   add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") &&
                   add_extension(cert, cert, NID_subject_key_identifier, "hash") &&
                   X509_sign(cert, authority->key, EVP_sha256()) > 0;
    if (!is_made) {
        tls_authority_free(authority);
        return failed("making an authority");
    }
    *ret = authority;
    return NULL;
}

/* ---- files ---- */

static struct status *write_file(const char *path, int mode, BIO *content) {
    struct str temporary = STR_INIT;
    char *bytes;
    long len = BIO_get_mem_data(content, &bytes);
    str_addf(&temporary, "%s.%d", path, (int)getpid());
    int fd = open(str_text(&temporary), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    bool is_written = fd >= 0 && fchmod(fd, (mode_t)mode) == 0 &&
                      write(fd, bytes, (size_t)len) == len && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (is_written && rename(str_text(&temporary), path) != 0) {
        error = errno;
        is_written = false;
    }
    if (!is_written && fd >= 0)
        unlink(str_text(&temporary));
    str_fini(&temporary);
    return is_written ? NULL : status_unavailable("cannot write %s: %s", path, strerror(error));
}

static struct status *save(X509 *cert, EVP_PKEY *key, const char *cert_path, const char *key_path) {
    BIO *cert_text = BIO_new(BIO_s_mem()), *key_text = BIO_new(BIO_s_mem());
    struct status *st = NULL;
    if (PEM_write_bio_X509(cert_text, cert) != 1 ||
        PEM_write_bio_PKCS8PrivateKey(key_text, key, NULL, NULL, 0, NULL, NULL) != 1)
        st = failed("writing a certificate");
    if (!st)
        st = write_file(key_path, 0600, key_text);
    if (!st)
        st = write_file(cert_path, 0644, cert_text);
    BIO_free(cert_text);
    BIO_free(key_text);
    return st;
}

struct status *tls_authority_save(const struct tls_authority *authority, const char *cert_path,
                                  const char *key_path) {
    return save(authority->cert, authority->key, cert_path, key_path);
}

struct status *tls_authority_load(const char *cert_path, const char *key_path,
                                  struct tls_authority **ret) {
    struct tls_authority *authority = xcalloc(1, sizeof(*authority));
    FILE *cert = fopen(cert_path, "re"), *key = fopen(key_path, "re");
    int error = errno;
    struct status *st = NULL;
    if (cert && key) {
        authority->cert = PEM_read_X509(cert, NULL, NULL, NULL);
        authority->key = PEM_read_PrivateKey(key, NULL, NULL, (void *)"");
    }
    if (!cert || !key)
        st = status_invalid("%s: %s", !cert ? cert_path : key_path, strerror(error));
    else if (!authority->cert)
        st = status_invalid("%s is not a PEM certificate", cert_path);
    else if (!authority->key)
        st = status_invalid("%s is not a PEM key without a passphrase", key_path);
    else if (X509_check_private_key(authority->cert, authority->key) != 1)
        st = status_invalid("the key %s does not belong to %s", key_path, cert_path);
    if (cert)
        fclose(cert);
    if (key)
        fclose(key);
    if (st)
        tls_authority_free(authority);
    else
        *ret = authority;
    return st;
}

/* ---- issuing ---- */

/* The names are put into a line of OpenSSL's syntax, in which commas and colons separate. */
static struct status *add_name(struct str *out, const char *name) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-*";
    unsigned char ip[16];
    bool is_uri = strstr(name, "://") != NULL,
         is_ip = inet_pton(AF_INET, name, ip) == 1 || inet_pton(AF_INET6, name, ip) == 1;
    size_t len = strlen(name), plain = 0;
    while (plain < len && (strchr(allowed, name[plain]) || (is_uri && strchr(":/", name[plain]))))
        plain++;
    if (len == 0 || len > 253 || (!is_ip && plain < len))
        return status_invalid("'%s' is not a name for a certificate", name);
    str_addf(out, "%s%s:%s", out->len ? "," : "", is_uri ? "URI" : is_ip ? "IP" : "DNS", name);
    return NULL;
}

static struct status *names_of(const struct tls_cert_request *request, struct str *out) {
    for (size_t i = 0; i < request->n_names; i++)
        TRY(add_name(out, request->names[i]));
    return NULL;
}

static bool make_cert(const struct tls_authority *authority, const struct tls_cert_request *request,
                      const char *names, EVP_PKEY *key, X509 *cert) {
    return key && cert && fill(cert, key, request->common_name, request->lifetime_s) &&
           X509_set_issuer_name(cert, X509_get_subject_name(authority->cert)) == 1 &&
           add_extension(cert, authority->cert, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, authority->cert, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, authority->cert, NID_ext_key_usage, "serverAuth,clientAuth") &&
           add_extension(cert, authority->cert, NID_subject_key_identifier, "hash") &&
           add_extension(cert, authority->cert, NID_authority_key_identifier, "keyid:always") &&
           (!*names || add_extension(cert, authority->cert, NID_subject_alt_name, names)) &&
           X509_sign(cert, authority->key, EVP_sha256()) > 0;
}

struct status *tls_authority_issue(const struct tls_authority *authority,
                                   const struct tls_cert_request *request, const char *cert_path,
                                   const char *key_path) {
    struct str names = STR_INIT;
    struct status *st = names_of(request, &names);
    if (st) {
        str_fini(&names);
        return st;
    }
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    st = make_cert(authority, request, str_text(&names), key, cert)
             ? save(cert, key, cert_path, key_path)
             : failed("making a certificate");
    EVP_PKEY_free(key);
    X509_free(cert);
    str_fini(&names);
    return st;
}
