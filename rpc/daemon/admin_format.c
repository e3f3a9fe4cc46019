/* Chooses between JSON and HTML. */
#include "rpc/daemon/admin_format.h"

#include <stdlib.h>
#include <strings.h>

#include "rpc/daemon/page.h"

static const char json_type[] = "application/json";

bool admin_page_has_json(const struct admin_page *page) {
    return page->has_json || strcmp(page->content_type, json_type) == 0;
}

/* The type of a media range, without its parameters, is `type`. */
static bool is_type(const char *range, const char *end, const char *type) {
    size_t len = strlen(type);
    range += strspn(range, " \t");
    return range + len <= end && strncasecmp(range, type, len) == 0 &&
           (range + len == end || strchr("; \t", range[len]));
}

/* "text/html;level=1;q=0.5" has 0.5; 1 is the default. */
static double quality_of(const char *range, const char *end) {
    for (const char *p = range; (p = memchr(p, ';', (size_t)(end - p)));) {
        p++;
        p += strspn(p, " \t");
        if (strncasecmp(p, "q=", 2) == 0)
            return strtod(p + 2, NULL);
    }
    return 1;
}

/* The first of the best. A quality of 0 refuses the type. */
static enum admin_format choose_accepted(const char *accept) {
    enum admin_format format = ADMIN_FORMAT_OWN;
    double best = 0;
    for (const char *range = accept, *end;; range = end + 1) {
        end = range + strcspn(range, ",");
        bool is_html = is_type(range, end, "text/html");
        double quality = is_html || is_type(range, end, json_type) ? quality_of(range, end) : 0;
        if (quality > best) {
            best = quality;
            format = is_html ? ADMIN_FORMAT_HTML : ADMIN_FORMAT_JSON;
        }
        if (!*end)
            return format;
    }
}

enum admin_format admin_format_choose(const struct admin_page *page, const char *query,
                                      const char *accept) {
    if (!admin_page_has_json(page))
        return ADMIN_FORMAT_OWN;
    if (page_query_is(query, "format", "html"))
        return ADMIN_FORMAT_HTML;
    if (page_query_is(query, "format", "json"))
        return ADMIN_FORMAT_JSON;
    bool is_file = page->file_query && page_query_has(query, page->file_query);
    if (!accept || is_file || page_query_has(query, "format"))
        return ADMIN_FORMAT_OWN;
    return choose_accepted(accept);
}

void admin_format_query(enum admin_format format, const char *asked, struct str *out) {
    static const char *const names[] = {
        [ADMIN_FORMAT_JSON] = "format=json", [ADMIN_FORMAT_HTML] = "format=html"};
    str_add(out, asked);
    if (format == ADMIN_FORMAT_OWN || page_query_is(asked, "format", names[format] + 7))
        return;
    str_add(out, *asked ? "&" : "");
    str_add(out, names[format]);
}

const char *admin_format_content_type(enum admin_format format, const struct admin_page *page) {
    return format == ADMIN_FORMAT_HTML   ? "text/html; charset=utf-8"
           : format == ADMIN_FORMAT_JSON ? json_type
                                         : page->content_type;
}

void admin_format_body(enum admin_format format, const struct page_frame *frame, struct str *body) {
    if (format != ADMIN_FORMAT_HTML)
        return;
    struct str html = STR_INIT;
    page_write_html(&html, frame, (struct span){body->data, body->len});
    str_fini(body);
    *body = html;
}
