/* Fuzzes device names. An accepted name is printed as a name that is accepted again and means the
 * same. Matching, narrowing and overriding agree with each other. */
#include "common/graph/device_name.h"
#include "master/request/session_config.h"
#include "common/tensor/tensor_proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_NAMES = 16 };

static void check_name(const struct device_name *name) {
    struct str text = STR_INIT, text_again = STR_INIT;
    struct device_name again;
    CHECK(memchr(name->job, '\0', sizeof(name->job)) &&
          memchr(name->type, '\0', sizeof(name->type)));
    CHECK(name->replica >= -1 && name->task >= -1 && name->id >= -1);
    device_name_print(name, &text);
    struct status *st = device_name_parse((struct span){str_text(&text), text.len}, &again);
    CHECK(!st && device_name_equal(name, &again));
    device_name_print(&again, &text_again);
    CHECK(strcmp(str_text(&text), str_text(&text_again)) == 0);
    str_fini(&text);
    str_fini(&text_again);
}

static void check_pair(const struct device_name *a, const struct device_name *b) {
    struct device_name both = *a, reverse = *b, over = *a;
    bool fits = device_name_intersect(&both, b);
    CHECK(device_name_intersect(&reverse, a) == fits);
    if (fits)
        CHECK(device_name_equal(&both, &reverse) && device_name_matches(a, &both) &&
              device_name_matches(b, &both));
    else
        CHECK(device_name_equal(&both, a) && device_name_equal(&reverse, b));
    if (device_name_is_full(b) && device_name_matches(a, b))
        CHECK(fits && device_name_equal(&both, b));
    device_name_override(&over, b);
    CHECK(device_name_matches(b, &over));
    check_name(&over);
}

/* As device_filters of a session: all or none are taken. */
static void check_filters(const struct span *lines, int n_lines, bool all_parse) {
    struct session_config config;
    struct str proto = STR_INIT;
    for (int i = 0; i < n_lines; i++)
        proto_add_bytes(&proto, 4, lines[i].data, lines[i].len);
    struct status *st = session_config_parse((struct span){str_text(&proto), proto.len}, &config);
    CHECK((st == NULL) == all_parse);
    if (!st)
        (void)session_config_has_task(&config, "/job:worker/replica:0/task:1");
    session_config_fini(&config);
    status_unref(st);
    str_fini(&proto);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct device_name names[MAX_NAMES];
    struct span lines[MAX_NAMES], rest = {(const char *)data, size};
    int n_lines = 0, n_names = 0;
    while (n_lines < MAX_NAMES && rest.len > 0) {
        const char *end = memchr(rest.data, '\n', rest.len);
        size_t len = end ? (size_t)(end - rest.data) : rest.len;
        lines[n_lines++] = (struct span){rest.data, len};
        rest = (struct span){rest.data + len + (end ? 1 : 0), rest.len - len - (end ? 1 : 0)};
    }
    for (int i = 0; i < n_lines; i++) {
        struct status *st = device_name_parse(lines[i], &names[n_names]);
        n_names += !st;
        CHECK(!st || status_code(st) == STATUS_INVALID_ARGUMENT);
        status_unref(st);
    }
    for (int i = 0; i < n_names; i++) {
        check_name(&names[i]);
        for (int k = 0; k < n_names; k++)
            check_pair(&names[i], &names[k]);
    }
    check_filters(lines, n_lines, n_names == n_lines);
    return 0;
}
