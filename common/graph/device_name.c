/* Parses device names in every spelling, and compares and merges partial ones. */
#include "common/graph/device_name.h"

#include <ctype.h>
#include <limits.h>

/* Leaves every part of the name free. */
static void device_name_init(struct device_name *name) {
    memset(name, 0, sizeof(*name));
    name->replica = name->task = name->id = -1;
}

/* ---- parsing ---- */

static bool take(struct span *in, const char *prefix) {
    size_t len = strlen(prefix);
    if (in->len < len || memcmp(in->data, prefix, len) != 0)
        return false;
    in->data += len;
    in->len -= len;
    return true;
}

/* Reads a letter, then letters, digits and '_' (also '-' in job names). '*' frees the part. */
static bool take_word(struct span *in, bool allows_dash, char *out) {
    if (take(in, "*")) {
        out[0] = '\0';
        return true;
    }
    size_t n = 0;
    while (n < in->len && (isalnum((unsigned char)in->data[n]) || in->data[n] == '_' ||
                           (allows_dash && in->data[n] == '-')))
        n++;
    if (n == 0 || n >= DEVICE_NAME_MAX || !isalpha((unsigned char)in->data[0]))
        return false;
    memcpy(out, in->data, n);
    out[n] = '\0';
    in->data += n;
    in->len -= n;
    return true;
}

static bool take_number(struct span *in, int *ret) {
    if (take(in, "*")) {
        *ret = -1;
        return true;
    }
    int64_t value = 0;
    size_t n = 0;
    for (; n < in->len && isdigit((unsigned char)in->data[n]); n++) {
        value = value * 10 + (in->data[n] - '0');
        if (value > INT_MAX)
            return false;
    }
    if (n == 0)
        return false;
    *ret = (int)value;
    in->data += n;
    in->len -= n;
    return true;
}

static void to_upper(char *text) {
    for (; *text; text++)
        *text = (char)toupper((unsigned char)*text);
}

/* "GPU:0", "GPU:*", "GPU", "*". */
static bool take_type_and_id(struct span *in, struct device_name *name) {
    if (!take_word(in, false, name->type))
        return false;
    to_upper(name->type);
    name->id = -1;
    return !take(in, ":") || take_number(in, &name->id);
}

/* The short forms "/cpu:0" and "/gpu:*". */
static bool take_short_type(struct span *in, const char *lower, const char *upper,
                            struct device_name *name) {
    if (!take(in, lower) && !take(in, upper))
        return false;
    memcpy(name->type, upper + 1, 3);
    name->type[3] = '\0';
    name->id = -1;
    return true;
}

static bool take_part(struct span *in, struct device_name *name) {
    if (take(in, "/job:"))
        return take_word(in, true, name->job);
    if (take(in, "/replica:"))
        return take_number(in, &name->replica);
    if (take(in, "/task:"))
        return take_number(in, &name->task);
    if (take(in, "/device:"))
        return take_type_and_id(in, name);
    if (take_short_type(in, "/cpu:", "/CPU:", name) || take_short_type(in, "/gpu:", "/GPU:", name))
        return take_number(in, &name->id);
    return false;
}

static bool parse_parts(struct span text, struct device_name *name) {
    if (text.len == 0 || span_is(text, "/"))
        return true;
    if (text.data[0] != '/') /* "CPU:0", as a local name */
        return take_type_and_id(&text, name) && text.len == 0;
    while (text.len > 0)
        if (!take_part(&text, name))
            return false;
    return true;
}

struct status *device_name_parse(struct span text, struct device_name *ret) {
    enum { MAX_SHOWN = 256 };
    struct device_name name;
    device_name_init(&name);
    if (!parse_parts(text, &name))
        return status_invalid("Malformed device specification '%.*s'",
                              (int)MIN(text.len, (size_t)MAX_SHOWN), text.data);
    *ret = name;
    return NULL;
}

/* ---- text ---- */

static void print_task_parts(const struct device_name *name, struct str *out) {
    if (name->job[0])
        str_addf(out, "/job:%s", name->job);
    if (name->replica >= 0)
        str_addf(out, "/replica:%d", name->replica);
    if (name->task >= 0)
        str_addf(out, "/task:%d", name->task);
}

void device_name_print(const struct device_name *name, struct str *out) {
    print_task_parts(name, out);
    if (!name->type[0] && name->id < 0)
        return;
    str_addf(out, "/device:%s:", name->type[0] ? name->type : "*");
    if (name->id >= 0)
        str_addf(out, "%d", name->id);
    else
        str_add_char(out, '*');
}

void device_name_print_task(const struct device_name *name, struct str *out) {
    print_task_parts(name, out);
}

/* ---- partial names ---- */

bool device_name_is_full(const struct device_name *name) {
    return name->job[0] && name->replica >= 0 && name->task >= 0 && name->type[0] && name->id >= 0;
}

static bool text_part_matches(const char *pattern, const char *full) {
    return !pattern[0] || strcmp(pattern, full) == 0;
}
static bool number_part_matches(int pattern, int full) { return pattern < 0 || pattern == full; }

bool device_name_matches(const struct device_name *pattern, const struct device_name *full) {
    return text_part_matches(pattern->job, full->job) &&
           number_part_matches(pattern->replica, full->replica) &&
           number_part_matches(pattern->task, full->task) &&
           text_part_matches(pattern->type, full->type) &&
           number_part_matches(pattern->id, full->id);
}

static bool texts_clash(const char *a, const char *b) { return a[0] && b[0] && strcmp(a, b) != 0; }
static bool numbers_clash(int a, int b) { return a >= 0 && b >= 0 && a != b; }

void device_name_override(struct device_name *into, const struct device_name *override_with) {
    if (override_with->job[0])
        memcpy(into->job, override_with->job, sizeof(into->job));
    if (override_with->replica >= 0)
        into->replica = override_with->replica;
    if (override_with->task >= 0)
        into->task = override_with->task;
    if (override_with->type[0])
        memcpy(into->type, override_with->type, sizeof(into->type));
    if (override_with->id >= 0)
        into->id = override_with->id;
}

bool device_name_intersect(struct device_name *into, const struct device_name *other) {
    if (texts_clash(into->job, other->job) || numbers_clash(into->replica, other->replica) ||
        numbers_clash(into->task, other->task) || texts_clash(into->type, other->type) ||
        numbers_clash(into->id, other->id))
        return false;
    device_name_override(into, other);
    return true;
}

bool device_name_equal(const struct device_name *a, const struct device_name *b) {
    return strcmp(a->job, b->job) == 0 && a->replica == b->replica && a->task == b->task &&
           strcmp(a->type, b->type) == 0 && a->id == b->id;
}
