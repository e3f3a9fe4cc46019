/* Writes pages of a stranger's bytes: as a name in a page's JSON, and as the JSON itself.
 *
 *   input   0: what follows is a name; else: what follows is a page's JSON */
#include <jansson.h>

#include "rpc/daemon/page.h"
#include "rpc/daemon/page_html.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_html(struct span json) {
    static const struct page_link links[] = {{"/", "index"}};
    struct page_frame frame = {
        .program = "p", .name = "n", .path = "/x", .links = links, .n_links = ARRAY_LEN(links)};
    struct str out = STR_INIT;
    page_write_html(&out, &frame, json);
    CHECK(out.len <= PAGE_HTML_MAX_BYTES);
    CHECK(!strstr(str_text(&out), "<script") && strlen(str_text(&out)) == out.len);
    for (size_t i = 0; i < out.len;) {
        size_t n = utf8_well_formed_len(out.data + i, out.len - i);
        CHECK(n > 0);
        i += n;
    }
    str_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct span bytes = {(const char *)data + 1, size > 0 ? size - 1 : 0};
    struct str json = STR_INIT;
    json_error_t error;
    if (size == 0 || data[0] != 0) {
        check_html(bytes);
        return 0;
    }
    page_open(&json, NULL, '{');
    page_span(&json, "page", bytes);
    page_open(&json, "rows", '[');
    page_open(&json, NULL, '{');
    page_span(&json, "text", bytes);
    page_close(&json, '}');
    page_close(&json, ']');
    page_close(&json, '}');
    json_t *value = json_loadb(json.data, json.len, JSON_ALLOW_NUL, &error);
    CHECK(value);
    json_decref(value);
    check_html((struct span){json.data, json.len});
    str_fini(&json);
    return 0;
}
