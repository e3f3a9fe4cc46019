/* Asks etcd's gateway for a token. */
#include "rpc/membership/etcd_login.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "rpc/membership/etcd_message.h"

/* Appends the file's text without the newline at its end. */
static struct status *read_password(const char *path, struct str *out) {
    char bytes[ETCD_MAX_PASSWORD_BYTES + 2];
    FILE *file = fopen(path, "re");
    if (!file)
        return status_invalid("the password file %s: %s", path, strerror(errno));
    size_t n = fread(bytes, 1, sizeof(bytes), file);
    bool is_read = !ferror(file);
    fclose(file);
    if (n > 0 && bytes[n - 1] == '\n')
        n--;
    struct status *st = NULL;
    if (!is_read)
        st = status_invalid("the password file %s cannot be read", path);
    else if (n == 0 || n > ETCD_MAX_PASSWORD_BYTES || memchr(bytes, '\0', n))
        st = status_invalid("the password file %s has no text of 1 to %d bytes", path,
                            ETCD_MAX_PASSWORD_BYTES);
    else
        str_add_bytes(out, bytes, n);
    explicit_bzero(bytes, sizeof(bytes));
    return st;
}

static void wipe(struct str *text) {
    if (text->data)
        explicit_bzero(text->data, text->len);
    str_fini(text);
}

struct status *etcd_login_init(struct etcd_login *login, const char *user,
                               const char *password_file) {
    struct str password = STR_INIT;
    *login = (struct etcd_login){.on_done = login->on_done};
    if (!user)
        return NULL;
    TRY(read_password(password_file, &password));
    wipe(&password);
    login->user = xstrdup(user);
    login->password_file = xstrdup(password_file);
    return NULL;
}

static void drop_header(struct etcd_login *login) {
    if (login->header)
        explicit_bzero(login->header, strlen(login->header));
    free(login->header);
    login->header = NULL;
}

void etcd_login_fini(struct etcd_login *login) {
    http_call_cancel(&login->http);
    drop_header(login);
    free(login->user);
    free(login->password_file);
    login->user = login->password_file = NULL;
}

bool etcd_login_is_running(const struct etcd_login *login) { return login->http.client != NULL; }

bool etcd_login_is_due(const struct etcd_login *login) { return login->user && !login->is_done; }

void etcd_login_drop(struct etcd_login *login, uint64_t number) {
    if (number != login->number || etcd_login_is_running(login))
        return;
    drop_header(login);
    login->is_done = false;
}

/* etcd's codes differ by version and by request, its texts do not. */
bool etcd_login_is_wanted(const struct status *why) {
    static const char *const texts[] = {"invalid auth token", "user name is empty",
                                        "revision of auth store is old"};
    if (status_code(why) == STATUS_UNAUTHENTICATED)
        return true;
    for (size_t i = 0; why && i < ARRAY_LEN(texts); i++)
        if (strstr(status_message(why), texts[i]))
            return true;
    return false;
}

/* A token becomes part of a header, so it must not contain what ends one. */
static struct status *take_token(struct etcd_login *login, struct span body) {
    struct etcd_reply reply;
    etcd_reply_init(&reply);
    struct status *st = etcd_reply_parse(body, &reply);
    struct span token = reply.token;
    if (!st && token.len == 0)
        st = status_unavailable("etcd: the reply to a login has no token");
    for (size_t i = 0; !st && i < token.len; i++)
        if (token.data[i] <= ' ' || token.data[i] > '~')
            st = status_invalid("etcd: the reply to a login has a malformed token");
    if (!st) {
        struct str header = STR_INIT;
        str_addf(&header, "Authorization: %.*s", (int)token.len, token.data);
        login->header = str_detach(&header);
    }
    etcd_reply_fini(&reply);
    return st;
}

static void on_answered(struct http_call *http, struct status *status_take, int http_code,
                        struct span body) {
    struct etcd_login *login = CONTAINER_OF(http, struct etcd_login, http);
    struct status *st = status_take;
    drop_header(login);
    if (!st)
        st = http_code == 200 ? take_token(login, body) : etcd_failure_parse(http_code, body);
    if (st && strstr(status_message(st), "authentication is not enabled")) {
        status_unref(st); /* Requests need no token, until etcd says that they do. */
        st = NULL;
    }
    login->is_done = !st;
    login->on_done(login, status_prefix_take(st, "login of user %s: ", login->user));
}

/* The password file was readable at the start. When it no longer is, etcd refuses an empty
 * password, so the reason is logged by whoever gets the refusal. */
void etcd_login_start(struct etcd_login *login, struct http_client *http,
                      const struct http_request *request) {
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    struct http_request login_request = *request;
    struct str body = STR_INIT, password = STR_INIT;
    status_unref(read_password(login->password_file, &password));
    str_add(&body, "{\"name\":\"");
    str_add_json_escaped(&body, login->user, strlen(login->user));
    str_add(&body, "\",\"password\":\"");
    str_add_json_escaped(&body, str_text(&password), password.len);
    str_add(&body, "\"}");
    login_request.headers = headers;
    login_request.body = (struct span){str_text(&body), body.len};
    login->number++;
    login->is_done = false;
    login->http = (struct http_call){.on_done = on_answered};
    http_call_start(http, &login->http, &login_request);
    wipe(&password);
    wipe(&body);
}
