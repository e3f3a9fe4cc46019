/* Writes and reads the JSON messages of etcd's gateway. */
#include "rpc/membership/etcd_message.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

enum { MAX_RANGES = 1000, MAX_MESSAGE_SHOWN = 300 };

void etcd_reply_init(struct etcd_reply *reply) {
    memset(reply, 0, sizeof(*reply));
    arena_init(&reply->arena);
}

void etcd_reply_fini(struct etcd_reply *reply) { arena_fini(&reply->arena); }

/* ---- base64 ---- */

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(struct str *out, struct span bytes) {
    str_reserve(out, (bytes.len + 2) / 3 * 4);
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t n = MIN(bytes.len - i, (size_t)3);
        uint32_t word = 0;
        for (size_t k = 0; k < 3; k++)
            word = word << 8 | (k < n ? (uint8_t)bytes.data[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            str_add_char(out, k <= n ? alphabet[word >> (18 - 6 * k) & 63] : '=');
    }
}

struct status *base64_decode(struct span text, struct arena *arena, struct span *ret) {
    size_t n = text.len, n_pad = 0;
    while (n_pad < 2 && n > 0 && text.data[n - 1] == '=') {
        n--;
        n_pad++;
    }
    if (text.len % 4 != 0)
        return status_invalid("base64 of %zu characters", text.len);
    char *bytes = arena_alloc(arena, text.len / 4 * 3 + 1);
    size_t len = 0;
    uint32_t word = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text.data[i];
        int digit = base64_digit(c);
        if (digit < 0 || c == '-' || c == '_') /* not the alphabet of URLs */
            return status_invalid("an invalid character at %zu in base64", i);
        word = word << 6 | (uint32_t)digit;
        if (i % 4 != 0)
            bytes[len++] = (char)(word >> (6 - 2 * (i % 4)));
    }
    bytes[len] = '\0';
    *ret = (struct span){bytes, len};
    return NULL;
}

/* ---- requests ---- */

static void add_bytes(struct str *out, const char *name, struct span bytes) {
    str_addf(out, "\"%s\":\"", name);
    base64_encode(out, bytes);
    str_add_char(out, '"');
}

static void add_key(struct str *out, const char *key) { add_bytes(out, "key", span_of(key)); }

/* The end of all keys that begin so: the prefix with its last byte one higher. Our prefixes end
 * with '/'. */
static void add_prefix(struct str *out, const char *prefix) {
    char end[ETCD_MAX_KEY_BYTES];
    size_t len = strlen(prefix);
    CHECK(len > 0 && len < sizeof(end) && prefix[len - 1] == '/');
    memcpy(end, prefix, len);
    end[len - 1]++;
    add_key(out, prefix);
    str_add_char(out, ',');
    add_bytes(out, "range_end", (struct span){end, len});
}

void etcd_write_range(struct str *out, const char *key, bool is_prefix) {
    str_add_char(out, '{');
    if (is_prefix)
        add_prefix(out, key);
    else
        add_key(out, key);
    str_add_char(out, '}');
}

static void add_read(struct str *out, const char *key) {
    str_add(out, "{\"request_range\":");
    etcd_write_range(out, key, false);
    str_add_char(out, '}');
}

void etcd_write_read(struct str *out, const char *const *keys, int n) {
    str_add(out, "{\"success\":[");
    for (int i = 0; i < n; i++) {
        str_add(out, i > 0 ? "," : "");
        add_read(out, keys[i]);
    }
    str_add(out, "]}");
}

void etcd_write_put(struct str *out, const char *key, struct span value, int64_t lease) {
    str_add_char(out, '{');
    add_key(out, key);
    str_add_char(out, ',');
    add_bytes(out, "value", value);
    if (lease)
        str_addf(out, ",\"lease\":\"%" PRId64 "\"", lease);
    str_add_char(out, '}');
}

void etcd_write_claim(struct str *out, const char *key, int64_t mod_revision, struct span value,
                      int64_t lease) {
    bool is_new = mod_revision == 0;
    str_add(out, "{\"compare\":[{");
    add_key(out, key);
    str_addf(out,
             ",\"result\":\"EQUAL\",\"target\":\"%s\",\"%s\":\"%" PRId64
             "\"}],\"success\":[{\"request_put\":",
             is_new ? "CREATE" : "MOD", is_new ? "create_revision" : "mod_revision", mod_revision);
    etcd_write_put(out, key, value, lease);
    str_add(out, "}],\"failure\":[");
    add_read(out, key);
    str_add(out, "]}");
}

void etcd_write_delete(struct str *out, const char *key) { etcd_write_range(out, key, false); }
void etcd_write_grant(struct str *out, int64_t ttl_s) {
    str_addf(out, "{\"TTL\":\"%" PRId64 "\"}", ttl_s);
}
void etcd_write_lease(struct str *out, int64_t lease) {
    str_addf(out, "{\"ID\":\"%" PRId64 "\"}", lease);
}

void etcd_write_watch(struct str *out, const char *prefix, int64_t from_revision) {
    str_add(out, "{\"create_request\":{");
    add_prefix(out, prefix);
    str_addf(out, ",\"start_revision\":\"%" PRId64 "\"}}", from_revision);
}

/* ---- replies ---- */

/* A 64-bit number is a string in this JSON. A plain number is accepted as well. An absent number is
 * 0. */
static struct status *read_int(const json_t *object, const char *name, int64_t *ret) {
    const json_t *value = json_object_get(object, name);
    *ret = 0;
    if (!value)
        return NULL;
    if (json_is_integer(value)) {
        *ret = json_integer_value(value);
        return NULL;
    }
    const char *text = json_string_value(value);
    char *end = NULL;
    errno = 0;
    if (text && *text)
        *ret = strtoll(text, &end, 10);
    if (!end || *end != '\0' || errno == ERANGE || json_string_length(value) != strlen(text))
        return status_invalid("etcd: \"%s\" is no 64-bit number", name);
    return NULL;
}

static bool is_true(const json_t *object, const char *name) {
    return json_is_true(json_object_get(object, name));
}

static struct status *read_bytes(const json_t *object, const char *name, size_t max,
                                 struct arena *arena, struct span *ret) {
    const json_t *value = json_object_get(object, name);
    *ret = span_of("");
    if (!value)
        return NULL;
    if (!json_is_string(value))
        return status_invalid("etcd: \"%s\" is no string", name);
    struct span text = {json_string_value(value), json_string_length(value)};
    if (text.len / 4 * 3 > max + 3)
        return status_exhausted("etcd: \"%s\" has more than %zu bytes", name, max);
    return base64_decode(text, arena, ret);
}

static struct status *read_kv(const json_t *object, struct arena *arena, struct etcd_kv *ret) {
    struct span key;
    if (!json_is_object(object))
        return status_invalid("etcd: a key and value that are not an object");
    TRY(read_bytes(object, "key", ETCD_MAX_KEY_BYTES, arena, &key));
    if (memchr(key.data, '\0', key.len))
        return status_invalid("etcd: a key with a NUL byte");
    ret->key = key.data;
    TRY(read_bytes(object, "value", ETCD_MAX_VALUE_BYTES, arena, &ret->value));
    TRY(read_int(object, "create_revision", &ret->create_revision));
    TRY(read_int(object, "mod_revision", &ret->mod_revision));
    return read_int(object, "lease", &ret->lease);
}

/* The array's length; 0 when it is absent. */
static struct status *read_array(const json_t *object, const char *name, size_t max,
                                 const json_t **ret, size_t *ret_n) {
    *ret = json_object_get(object, name);
    *ret_n = json_array_size(*ret);
    if (*ret && !json_is_array(*ret))
        return status_invalid("etcd: \"%s\" is no list", name);
    if (*ret_n > max)
        return status_exhausted("etcd: \"%s\" has %zu entries, more than %zu", name, *ret_n, max);
    return NULL;
}

static struct status *read_range(const json_t *object, struct arena *arena,
                                 struct etcd_range *ret) {
    const json_t *list;
    size_t n;
    TRY(read_array(object, "kvs", ETCD_MAX_KEYS, &list, &n));
    ret->kvs = arena_array(arena, struct etcd_kv, n + 1);
    ret->n = (int)n;
    for (size_t i = 0; i < n; i++)
        TRY(read_kv(json_array_get(list, i), arena, &ret->kvs[i]));
    return NULL;
}

/* The ranges of a transaction. Its other responses contain nothing that is needed. */
static struct status *read_responses(const json_t *object, struct etcd_reply *reply) {
    const json_t *list;
    size_t n;
    TRY(read_array(object, "responses", MAX_RANGES, &list, &n));
    reply->ranges = arena_array(&reply->arena, struct etcd_range, n + 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *range = json_object_get(json_array_get(list, i), "response_range");
        if (json_is_object(range))
            TRY(read_range(range, &reply->arena, &reply->ranges[reply->n_ranges++]));
    }
    return NULL;
}

static struct status *read_events(const json_t *object, struct etcd_reply *reply) {
    const json_t *list;
    size_t n;
    TRY(read_array(object, "events", ETCD_MAX_KEYS, &list, &n));
    reply->events = arena_array(&reply->arena, struct etcd_event, n + 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *event = json_array_get(list, i), *type = json_object_get(event, "type");
        struct etcd_event *to = &reply->events[reply->n_events];
        to->is_delete = json_is_string(type) && strcmp(json_string_value(type), "DELETE") == 0;
        TRY(read_kv(json_object_get(event, "kv"), &reply->arena, &to->kv));
        reply->n_events++;
    }
    return NULL;
}

/* {"error": "…", "code": 5} of a call, since etcd 3.6 {"message": "…", "code": 5};
 * {"error": {"grpc_code": 14, "message": "…"}} of a stream. */
static struct status *read_error(const json_t *object) {
    const json_t *error = json_object_get(object, "error");
    if (!error && json_object_get(object, "code"))
        error = json_object_get(object, "message");
    if (!error)
        return NULL;
    bool is_object = json_is_object(error);
    const json_t *code = json_object_get(is_object ? error : object, "code");
    if (is_object && !code)
        code = json_object_get(error, "grpc_code");
    const json_t *text = is_object ? json_object_get(error, "message") : error;
    json_int_t number = json_is_integer(code) ? json_integer_value(code) : STATUS_UNKNOWN;
    const char *message =
        json_is_string(text) ? json_string_value(text) : "an error without a message";
    if (number <= 0 || number > STATUS_UNAUTHENTICATED)
        number = STATUS_UNKNOWN;
    return status_new((enum status_code)number, "etcd: %.*s", MAX_MESSAGE_SHOWN, message);
}

static struct status *read_text(const json_t *object, const char *name, struct arena *arena,
                                struct span *ret) {
    const json_t *value = json_object_get(object, name);
    *ret = (struct span){NULL, 0};
    if (!json_is_string(value))
        return NULL;
    size_t len = json_string_length(value);
    if (len > ETCD_MAX_VALUE_BYTES)
        return status_exhausted("etcd: \"%s\" has more than %d bytes", name, ETCD_MAX_VALUE_BYTES);
    char *text = arena_alloc(arena, len + 1);
    memcpy(text, json_string_value(value), len + 1);
    *ret = (struct span){text, len};
    return NULL;
}

static struct status *read_reply(const json_t *root, struct etcd_reply *reply) {
    TRY(read_error(root));
    const json_t *result = json_object_get(root, "result");
    const json_t *object = json_is_object(result) ? result : root;
    TRY(read_int(json_object_get(object, "header"), "revision", &reply->revision));
    reply->has_succeeded = is_true(object, "succeeded");
    if (json_object_get(object, "responses"))
        TRY(read_responses(object, reply));
    if (json_object_get(object, "kvs")) {
        reply->ranges = arena_array(&reply->arena, struct etcd_range, 1);
        reply->n_ranges = 1;
        TRY(read_range(object, &reply->arena, reply->ranges));
    }
    TRY(read_int(object, "ID", &reply->lease));
    TRY(read_int(object, "TTL", &reply->ttl_s));
    TRY(read_events(object, reply));
    reply->is_created = is_true(object, "created");
    reply->is_cancelled = is_true(object, "canceled");
    struct span reason;
    TRY(read_text(object, "cancel_reason", &reply->arena, &reason));
    TRY(read_text(object, "token", &reply->arena, &reply->token));
    reply->cancel_reason = reason.data;
    return read_int(object, "compact_revision", &reply->compact_revision);
}

struct status *etcd_reply_parse(struct span text, struct etcd_reply *reply) {
    json_error_t error;
    if (text.len > ETCD_MAX_REPLY_BYTES)
        return status_exhausted("etcd: a reply of %zu bytes", text.len);
    json_t *root = json_loadb(text.data ? text.data : "", text.len, JSON_ALLOW_NUL, &error);
    struct status *st = NULL;
    if (!json_is_object(root))
        st = status_invalid("etcd: the reply is not a JSON object: %s",
                            root ? "it is something else" : error.text);
    else
        st = read_reply(root, reply);
    json_decref(root);
    return st;
}

struct status *etcd_failure_parse(int http_code, struct span text) {
    struct etcd_reply reply;
    etcd_reply_init(&reply);
    struct status *st = etcd_reply_parse(text, &reply);
    etcd_reply_fini(&reply);
    enum status_code code = status_code(st);
    if (st && code != STATUS_INVALID_ARGUMENT && code != STATUS_RESOURCE_EXHAUSTED)
        return st;
    if (!st || strncmp(status_message(st), "etcd: the reply", 15) == 0) {
        status_unref(st);
        st = status_new(http_code >= 500 ? STATUS_UNAVAILABLE : STATUS_UNKNOWN,
                        "etcd answered with HTTP status %d", http_code);
    }
    return st;
}
