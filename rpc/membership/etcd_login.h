/* Logs in to an etcd with authentication: exchanges a user's name and password for a token, which
 * every request then carries. A token expires, or is lost when etcd restarts; then etcd refuses a
 * request (etcd_login_is_wanted), and the owner drops the token and logs in again. The password is
 * read from its file at each login, so that it may change. Loop thread only. */
#ifndef MILLRACE_RPC_MEMBERSHIP_ETCD_LOGIN_H
#define MILLRACE_RPC_MEMBERSHIP_ETCD_LOGIN_H

#include "rpc/membership/http_client.h"

enum { ETCD_MAX_PASSWORD_BYTES = 4096 };

/* Is part of the owner's object. */
struct etcd_login {
    char *user, *password_file; /* NULL: etcd asks for no user */
    char *header;               /* "Authorization: TOKEN"; NULL: there is no token */
    bool is_done;               /* the last login succeeded; without a header etcd asks for none */
    uint64_t number;            /* of the login that runs or was the last */
    struct http_call http;
    /* A login has ended. Errors: those of etcd, in its words; of the password file; UNAVAILABLE. */
    void (*on_done)(struct etcd_login *login, struct status *status_take);
};

/* Copies the texts. Errors: INVALID_ARGUMENT, which names the file that cannot be read. */
struct status *etcd_login_init(struct etcd_login *login, const char *user,
                               const char *password_file) MUST_USE;
/* Ends a running login without on_done. */
void etcd_login_fini(struct etcd_login *login);

/* Must the owner log in before its next request? */
bool etcd_login_is_due(const struct etcd_login *login);
bool etcd_login_is_running(const struct etcd_login *login);
/* Begins a login. `request` has all but headers and body; its URL is that of /v3/auth/authenticate.
 * on_done is called, but not inside this call. */
void etcd_login_start(struct etcd_login *login, struct http_client *http,
                      const struct http_request *request);
/* Forgets the token that login `number` gave, if it is still in use. */
void etcd_login_drop(struct etcd_login *login, uint64_t number);
/* Does this error of a request say that it needs a token, or another one? Accepts NULL. */
bool etcd_login_is_wanted(const struct status *why);

#endif
