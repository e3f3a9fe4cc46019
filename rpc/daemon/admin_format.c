/* Chooses between JSON and HTML. */
#include "rpc/daemon/admin_format.h"

#include <strings.h>

#include "rpc/daemon/page.h"

static const char json_type[] = "application/json";

bool admin_page_has_json(const struct admin_page *page) {
    return page->has_json || strcmp(page->content_type, json_type) == 0;
}

enum admin_format admin_format_choose(const struct admin_page *page, const char *query,
                                      const char *accept) {
    if (!admin_page_has_json(page))
        return ADMIN_FORMAT_OWN;
    if (page_query_is(query, "format", "html"))
        return ADMIN_FORMAT_HTML;
    if (page_query_is(query, "format", "json"))
        return ADMIN_FORMAT_JSON;
    if (!accept || strstr(query, "format="))
        return ADMIN_FORMAT_OWN;
    const char *html = strcasestr(accept, "text/html"), *json = strcasestr(accept, json_type);
    if (html && (!json || html < json))
        return ADMIN_FORMAT_HTML;
    return json ? ADMIN_FORMAT_JSON : ADMIN_FORMAT_OWN;
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
