/* Reads JSON with jansson. */
#include "rpc/daemon/page_read.h"

#include <jansson.h>

static const json_t *json_of(const struct page_value *value) { return (const json_t *)value; }
static const struct page_value *value_of(const json_t *json) {
    return (const struct page_value *)json;
}

struct status *page_parse(struct span json, struct page_value **ret) {
    json_error_t error;
    json_t *value =
        json_loadb(json.data ? json.data : "", json.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (!value)
        return status_invalid("the page is no JSON: %s", error.text);
    *ret = (struct page_value *)value;
    return NULL;
}

void page_value_free(struct page_value *value) { json_decref((json_t *)value); }

const struct page_value *page_get(const struct page_value *of, const char *key) {
    return value_of(json_object_get(json_of(of), key));
}

size_t page_count(const struct page_value *of) {
    const json_t *json = json_of(of);
    return json_is_object(json) ? json_object_size(json) : json_array_size(json);
}

const struct page_value *page_at(const struct page_value *of, size_t i) {
    return value_of(json_array_get(json_of(of), i));
}

const struct page_value *page_member(const struct page_value *of, size_t i, const char **ret_key) {
    json_t *object = (json_t *)(uintptr_t)of;
    void *at = json_object_iter(object);
    while (at && i-- > 0)
        at = json_object_iter_next(object, at);
    *ret_key = at ? json_object_iter_key(at) : "";
    return at ? value_of(json_object_iter_value(at)) : NULL;
}

const char *page_get_text(const struct page_value *of, const char *key) {
    const char *text = json_string_value(json_of(page_get(of, key)));
    return text ? text : "";
}

const char *page_text_at(const struct page_value *of, size_t i) {
    const char *text = json_string_value(json_of(page_at(of, i)));
    return text ? text : "";
}

int64_t page_get_int(const struct page_value *of, const char *key) {
    return (int64_t)json_integer_value(json_of(page_get(of, key)));
}

double page_get_real(const struct page_value *of, const char *key) {
    return json_number_value(json_of(page_get(of, key)));
}

bool page_get_bool(const struct page_value *of, const char *key) {
    return json_is_true(json_of(page_get(of, key)));
}

bool page_has(const struct page_value *of, const char *key) {
    const json_t *json = json_of(page_get(of, key));
    return json && !json_is_null(json);
}
