/* Writes and reads the entry of a process in etcd, and its keys. */
#include "rpc/membership/member.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/graph/device_name.h"
#include "rpc/listen.h"

enum { MAX_CLUSTER_BYTES = 63, MAX_INDEX = 99999, MAX_TRANSPORTS = 16 };

/* ---- writing ---- */

static void add_text(struct str *out, const char *name, const char *text) {
    str_addf(out, ", \"%s\": \"", name);
    str_add_json_escaped(out, text ? text : "", text ? strlen(text) : 0);
    str_add_char(out, '"');
}

static void add_list(struct str *out, const char *name, const char *const *items, int n) {
    str_addf(out, ", \"%s\": [", name);
    for (int i = 0; i < n; i++) {
        str_add(out, i > 0 ? ", \"" : "\"");
        str_add_json_escaped(out, items[i], strlen(items[i]));
        str_add_char(out, '"');
    }
    str_add_char(out, ']');
}

void member_write(const struct cluster_member *member, struct str *out) {
    str_addf(out, "{\"incarnation\": \"%016" PRIx64 "\"", member->incarnation);
    add_text(out, "address", member->address);
    add_text(out, "admin_address", member->admin_address);
    add_text(out, "unix_address", member->unix_address);
    add_text(out, "host_id", member->host_id);
    add_text(out, "version", member->version);
    add_list(out, "devices", member->devices, member->n_devices);
    add_list(out, "transports", member->transports, member->n_transports);
    str_add_char(out, '}');
}

/* ---- reading ---- */

static struct status *take_text(const json_t *value, const char *name, struct arena *arena,
                                const char **ret) {
    *ret = "";
    if (!value)
        return NULL;
    if (!json_is_string(value) || json_string_length(value) > MEMBER_MAX_TEXT_BYTES)
        return status_invalid("\"%s\" is no string of at most %d bytes", name,
                              MEMBER_MAX_TEXT_BYTES);
    *ret = arena_strndup(arena, json_string_value(value), json_string_length(value));
    return NULL;
}

static struct status *read_text(const json_t *object, const char *name, struct arena *arena,
                                const char **ret) {
    return take_text(json_object_get(object, name), name, arena, ret);
}

static struct status *read_address(const json_t *object, const char *name, bool is_needed,
                                   struct arena *arena, const char **ret) {
    struct net_address parsed;
    TRY(read_text(object, name, arena, ret));
    if (**ret == '\0' && !is_needed)
        return NULL;
    struct status *st = net_address_parse(*ret, &parsed);
    if (!st &&
        (parsed.is_local || (!parsed.is_unix && (parsed.port == 0 || parsed.host[0] == '\0'))))
        st = status_invalid("\"%s\" has no host or port that others could connect to", *ret);
    return status_prefix_take(st, "\"%s\": ", name);
}

static struct status *read_list(const json_t *object, const char *name, size_t max,
                                struct arena *arena, const char *const **ret, int *ret_n) {
    const json_t *list = json_object_get(object, name);
    size_t n = json_array_size(list);
    if ((list && !json_is_array(list)) || n > max)
        return status_invalid("\"%s\" is no list of at most %zu strings", name, max);
    const char **items = arena_array(arena, const char *, n + 1);
    for (size_t i = 0; i < n; i++)
        TRY(take_text(json_array_get(list, i), name, arena, &items[i]));
    *ret = items;
    *ret_n = (int)n;
    return NULL;
}

/* 16 hex digits, because a JSON number may lose some of them. */
static struct status *read_incarnation(const json_t *object, uint64_t *ret) {
    const char *text = json_string_value(json_object_get(object, "incarnation"));
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return status_invalid("\"incarnation\" is not of 16 hex digits");
    *ret = strtoull(text, NULL, 16);
    return NULL;
}

static struct status *read_member(const json_t *root, struct arena *arena,
                                  struct cluster_member *ret) {
    if (!json_is_object(root))
        return status_invalid("it is not a JSON object");
    TRY(read_incarnation(root, &ret->incarnation));
    TRY(read_address(root, "address", true, arena, &ret->address));
    TRY(read_address(root, "admin_address", false, arena, &ret->admin_address));
    TRY(read_text(root, "unix_address", arena, &ret->unix_address));
    TRY(read_text(root, "host_id", arena, &ret->host_id));
    TRY(read_text(root, "version", arena, &ret->version));
    TRY(read_list(root, "devices", MEMBER_MAX_DEVICES, arena, &ret->devices, &ret->n_devices));
    return read_list(root, "transports", MAX_TRANSPORTS, arena, &ret->transports,
                     &ret->n_transports);
}

struct status *member_parse(struct span text, struct arena *arena, struct cluster_member *ret) {
    json_error_t error;
    *ret = (struct cluster_member){.address = ""};
    if (text.len > MEMBER_MAX_BYTES)
        return status_invalid("a registration of %zu bytes", text.len);
    json_t *root = json_loadb(text.data ? text.data : "", text.len, 0, &error);
    struct status *st = read_member(root, arena, ret);
    json_decref(root);
    return status_prefix_take(st, "registration: ");
}

/* ---- keys ---- */

struct status *member_check_cluster(const char *name) {
    size_t len = strlen(name);
    bool is_good = len > 0 && len <= MAX_CLUSTER_BYTES;
    for (size_t i = 0; i < len && is_good; i++) {
        char c = name[i];
        is_good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  strchr("._-", c);
    }
    if (!is_good)
        return status_invalid("'%.100s' is not a name for a cluster, which has letters, digits, "
                              "'.', '_' and '-', at most %d",
                              name, MAX_CLUSTER_BYTES);
    return NULL;
}

void member_prefix(const char *cluster, struct str *out) {
    str_addf(out, "/millrace/%s/", cluster);
}

void member_key_of_task(const char *cluster, const char *job, int index, struct str *out) {
    str_addf(out, "/millrace/%s/tasks/%s/%d", cluster, job, index);
}

void member_key_of_master(const char *cluster, struct str *out) {
    str_addf(out, "/millrace/%s/master", cluster);
}
void member_key_of_job(const char *cluster, struct str *out) {
    str_addf(out, "/millrace/%s/job", cluster);
}

bool member_read_task_key(const char *cluster, const char *key, struct str *ret_task) {
    struct str prefix = STR_INIT;
    member_prefix(cluster, &prefix);
    str_add(&prefix, "tasks/");
    bool is_ours = strncmp(key, str_text(&prefix), prefix.len) == 0;
    const char *job = key + prefix.len;
    str_fini(&prefix);
    if (!is_ours)
        return false;
    size_t n_job = strcspn(job, "/");
    const char *digits = job + n_job + (job[n_job] == '/');
    size_t n_digits = strspn(digits, "0123456789");
    /* Each index has one spelling only, because two keys would be two tasks of one name. */
    if (n_digits == 0 || n_digits > 5 || digits[n_digits] != '\0' ||
        (digits[0] == '0' && n_digits > 1) || n_job > 63)
        return false;
    str_addf(ret_task, "/job:%.*s/replica:0/task:%s", (int)n_job, job, digits);
    struct device_name name;
    struct status *st = device_name_parse((struct span){str_text(ret_task), ret_task->len}, &name);
    bool is_good = !st && name.task >= 0 && name.task <= MAX_INDEX && strlen(name.job) == n_job &&
                   strncmp(name.job, job, n_job) == 0;
    status_unref(st);
    if (!is_good)
        str_clear(ret_task);
    return is_good;
}

/* ---- addresses ---- */

void member_address(const char *advertise, const char *listen, int port, struct str *out) {
    struct net_address parsed;
    char host[256];
    struct status *st = net_address_parse(advertise ? advertise : listen, &parsed);
    if (st || parsed.is_unix || (advertise && parsed.port != 0)) {
        status_unref(st);
        str_add(out, advertise ? advertise : listen);
        return;
    }
    bool is_any =
        !parsed.host[0] || strcmp(parsed.host, "0.0.0.0") == 0 || strcmp(parsed.host, "::") == 0;
    if (is_any && gethostname(host, sizeof(host)) == 0)
        host[sizeof(host) - 1] = '\0';
    else
        memcpy(host, parsed.host, sizeof(host));
    bool is_v6 = strchr(host, ':') != NULL;
    str_addf(out, is_v6 ? "[%s]:%d" : "%s:%d", host, port);
}
