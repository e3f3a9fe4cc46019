/* Checks names and dates in certificates, and describes certificates for messages. */
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <time.h>

#include "rpc/tls/tls_internal.h"

int64_t tls_time_of(const ASN1_TIME *time) {
    struct tm tm;
    return time && ASN1_TIME_to_tm(time, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

/* ---- names ---- */

/* These bytes are a stranger's. What is not plain text is replaced by '?', so that it cannot forge
 * messages or log lines. */
static void add_plain(struct str *out, const char *bytes, size_t len) {
    for (size_t i = 0; i < len && out->len < TLS_NAMES_MAX_BYTES; i++)
        str_add_char(out, bytes[i] >= ' ' && bytes[i] < 0x7f ? bytes[i] : '?');
}

static struct span text_of(const ASN1_STRING *string) {
    return (struct span){(const char *)ASN1_STRING_get0_data(string),
                         (size_t)MAX(ASN1_STRING_length(string), 0)};
}

static void add_address(struct str *out, const ASN1_OCTET_STRING *bytes) {
    struct span ip = text_of(bytes);
    const unsigned char *b = (const unsigned char *)ip.data;
    if (ip.len == 4)
        str_addf(out, "%d.%d.%d.%d", b[0], b[1], b[2], b[3]);
    for (size_t i = 0; ip.len == 16 && i < 16; i += 2)
        str_addf(out, "%s%x", i ? ":" : "", b[i] << 8 | b[i + 1]);
}

static void add_name(struct str *out, const GENERAL_NAME *name) {
    static const char *const kinds[] = {
        [GEN_DNS] = "DNS:", [GEN_URI] = "URI:", [GEN_IPADD] = "IP:", [GEN_EMAIL] = "email:"};
    if (name->type < 0 || name->type >= (int)ARRAY_LEN(kinds) || !kinds[name->type])
        return;
    str_addf(out, "%s%s", out->len ? ", " : "", kinds[name->type]);
    if (name->type == GEN_IPADD)
        add_address(out, name->d.iPAddress);
    else
        add_plain(out, text_of(name->d.ia5).data, text_of(name->d.ia5).len);
}

static void add_common_name(struct str *out, X509 *cert) {
    X509_NAME *subject = X509_get_subject_name(cert);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (at < 0)
        return;
    struct span text = text_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    str_add(out, "CN:");
    add_plain(out, text.data, text.len);
}

void tls_names_of(X509 *cert, struct str *out) {
    struct str names = STR_INIT;
    GENERAL_NAMES *list = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; list && i < sk_GENERAL_NAME_num(list) && names.len < TLS_NAMES_MAX_BYTES; i++)
        add_name(&names, sk_GENERAL_NAME_value(list, i));
    GENERAL_NAMES_free(list);
    if (names.len == 0)
        add_common_name(&names, cert);
    str_add(out, names.len ? str_text(&names) : "nobody");
    str_fini(&names);
    ERR_clear_error();
}

/* The last part may be "*" instead of a task's number. */
static bool uri_matches(struct span has, const char *wanted) {
    static const char any_task[] = "/task/*";
    size_t stem = sizeof(any_task) - 2; /* up to the star */
    if (memchr(has.data, '\0', has.len))
        return false;
    if (span_is(has, wanted))
        return true;
    if (has.len < stem + 1 || memcmp(has.data + has.len - stem - 1, any_task, stem + 1) != 0)
        return false;
    size_t n = has.len - 1;
    const char *number = wanted + n;
    return strlen(wanted) > n && memcmp(has.data, wanted, n) == 0 &&
           strspn(number, "0123456789") == strlen(number);
}

static bool has_uri(X509 *cert, const char *wanted) {
    bool is_found = false;
    GENERAL_NAMES *list = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; list && i < sk_GENERAL_NAME_num(list) && !is_found; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(list, i);
        is_found = name->type == GEN_URI &&
                   uri_matches(text_of(name->d.uniformResourceIdentifier), wanted);
    }
    GENERAL_NAMES_free(list);
    ERR_clear_error();
    return is_found;
}

bool tls_cert_has_name(X509 *cert, const char *name) {
    if (strstr(name, "://"))
        return has_uri(cert, name);
    bool is_found =
        X509_check_ip_asc(cert, name, 0) == 1 || X509_check_host(cert, name, 0, 0, NULL) == 1;
    ERR_clear_error();
    return is_found;
}

/* ---- what is wrong ---- */

static void add_date(struct str *out, const char *before, const ASN1_TIME *at) {
    char text[32];
    time_t at_s = (time_t)tls_time_of(at);
    struct tm tm;
    if (at_s && gmtime_r(&at_s, &tm) && strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm) > 0)
        str_addf(out, "%s%s", before, text);
}

static void add_issuer(struct str *out, X509 *cert) {
    char *text = X509_NAME_oneline(X509_get_issuer_name(cert), NULL, 0);
    if (text) {
        str_add(out, " by ");
        for (size_t i = 0; text[i] && i < TLS_NAMES_MAX_BYTES; i++)
            str_add_char(out, text[i] >= ' ' && text[i] < 0x7f ? text[i] : '?');
    }
    OPENSSL_free(text);
}

struct status *tls_verify_error(const struct tls *tls, const char *peer, X509 *cert, int error) {
    struct str names = STR_INIT, detail = STR_INIT;
    if (cert)
        tls_names_of(cert, &names);
    switch (cert ? error : X509_V_OK) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        add_date(&detail, " on ", X509_get0_notAfter(cert));
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        add_date(&detail, " before ", X509_get0_notBefore(cert));
        break;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        str_add(&detail, "; it is signed");
        add_issuer(&detail, cert);
        str_addf(&detail, ", for whom %s does not vouch",
                 tls->ca_file ? tls->ca_file : "the system");
        break;
    default:
        break;
    }
    struct status *st =
        status_unavailable("the certificate of %s, for %s: %s%s", peer, str_text(&names),
                           X509_verify_cert_error_string(error), str_text(&detail));
    str_fini(&names);
    str_fini(&detail);
    return st;
}
