/* Appends the JSON of a page. */
#include "rpc/daemon/page.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* A comma is needed unless a bracket, a key or a comma is what comes before. */
static void begin_value(struct str *out, const char *key) {
    char last = out->len > 0 ? out->data[out->len - 1] : '[';
    if (last != '{' && last != '[' && last != ':' && last != ',')
        str_add_char(out, ',');
    if (key)
        str_addf(out, "\"%s\":", key);
}

void page_key(struct str *out, const char *key) { begin_value(out, key); }

void page_open(struct str *out, const char *key, char bracket) {
    begin_value(out, key);
    str_add_char(out, bracket);
}

void page_close(struct str *out, char bracket) { str_add_char(out, bracket); }

static void add_cut(struct str *out, const char *key, struct span text, size_t max_bytes) {
    size_t n = MIN(text.len, max_bytes);
    /* not in the middle of a UTF-8 character */
    while (n < text.len && n > 0 && ((uint8_t)text.data[n] & 0xC0) == 0x80)
        n--;
    begin_value(out, key);
    str_add_char(out, '"');
    str_add_json_escaped(out, text.data, n);
    str_add(out, n < text.len ? "…\"" : "\"");
}

void page_span(struct str *out, const char *key, struct span text) {
    add_cut(out, key, text, PAGE_MAX_TEXT_BYTES);
}

void page_text(struct str *out, const char *key, const char *text) {
    if (text) {
        page_span(out, key, span_of(text));
        return;
    }
    begin_value(out, key);
    str_add(out, "null");
}

void page_name(struct str *out, const char *key, const char *name) {
    add_cut(out, key, span_of(name), PAGE_MAX_NAME_BYTES);
}

void page_int(struct str *out, const char *key, int64_t value) {
    begin_value(out, key);
    str_addf(out, "%" PRId64, value);
}

void page_real(struct str *out, const char *key, double value) {
    begin_value(out, key);
    if (isfinite(value)) /* JSON has no other numbers */
        str_addf(out, "%.9g", value);
    else
        str_add(out, "null");
}

void page_bool(struct str *out, const char *key, bool value) {
    begin_value(out, key);
    str_add(out, value ? "true" : "false");
}

void page_id(struct str *out, const char *key, uint64_t id) {
    begin_value(out, key);
    str_addf(out, "\"%016" PRIx64 "\"", id);
}

/* Returns the name in "[[{{node NAME}}]]" at the end of the message; data is NULL when it is
 * absent. Names in the middle may be part of a value. */
static struct span node_of(const char *message) {
    static const char begin[] = "[[{{node ", end[] = "}}]]";
    size_t len = strlen(message), end_len = sizeof(end) - 1;
    if (len < end_len || strcmp(message + len - end_len, end) != 0)
        return (struct span){NULL, 0};
    const char *last = NULL;
    for (const char *at = message; (at = strstr(at, begin)); at += sizeof(begin) - 1)
        last = at + sizeof(begin) - 1;
    return (struct span){last, last ? (size_t)(message + len - end_len - last) : 0};
}

void page_error(struct str *out, const char *key, const struct status *error, bool is_operator) {
    const char *message = status_message(error);
    struct span node = node_of(message);
    begin_value(out, NULL);
    str_addf(out, "\"%s_code\":\"%s\",\"%s_node\":", key, status_code_name(status_code(error)),
             key);
    if (node.data)
        add_cut(out, NULL, node, PAGE_MAX_NAME_BYTES);
    else
        str_add(out, "null");
    if (is_operator)
        page_text(out, key, message);
}

void page_more(struct str *out, size_t n) {
    if (n == 0)
        return;
    begin_value(out, NULL);
    str_addf(out, "{\"more\":%zu}", n);
}

/* ---- queries ---- */

/* Returns what follows "name=", up to '&' or the end; data is NULL when it is absent. */
static struct span find(const char *query, const char *name) {
    size_t len = strlen(name);
    for (const char *p = query; p && *p; p = strchr(p, '&') ? strchr(p, '&') + 1 : NULL)
        if (strncmp(p, name, len) == 0 && p[len] == '=')
            return (struct span){p + len + 1, strcspn(p + len + 1, "&")};
    return (struct span){NULL, 0};
}

int64_t page_query_int(const char *query, const char *name, int64_t min, int64_t max,
                       int64_t otherwise) {
    struct span text = find(query, name);
    char *end;
    if (text.len == 0)
        return otherwise;
    errno = 0;
    long long value = strtoll(text.data, &end, 10);
    return errno == 0 && end == text.data + text.len && value >= min && value <= max ? value
                                                                                     : otherwise;
}

bool page_query_has(const char *query, const char *name) { return find(query, name).data != NULL; }

bool page_query_is(const char *query, const char *name, const char *value) {
    struct span text = find(query, name);
    return text.data && text.len == strlen(value) && memcmp(text.data, value, text.len) == 0;
}

bool page_query_wants_json(const char *query) {
    return page_query_is(query, "format", "json") || page_query_is(query, "format", "html");
}
