/* Writes a page's JSON as HTML, for people: one file without scripts, fonts or pictures, in a light
 * and a dark form.
 *
 * An object is a list of names and values; an array of objects is a table with a column for each
 * member; an object of objects is a table with a row for each. Columns without values are left out.
 * Where a row has both, what is in use is drawn beside its limit. A member "drawing" of the page is
 * drawn as SVG (page_svg.h). Whatever the JSON holds, all of
 * it is escaped, and at most PAGE_HTML_MAX_BYTES are written: what does not fit is counted, and the
 * JSON has it. Loop thread. */
#ifndef MILLRACE_RPC_DAEMON_PAGE_HTML_H
#define MILLRACE_RPC_DAEMON_PAGE_HTML_H

#include "common/base/str.h"

enum {
    PAGE_HTML_MAX_BYTES = 2 << 20,
    PAGE_HTML_MAX_ROWS = 500, /* of one table */
    /* More JSON is not drawn, because drawing a MiB takes the loop some 20 ms. */
    PAGE_HTML_MAX_JSON_BYTES = 1 << 20,
    PAGE_HTML_MAX_DEPTH = 8,
};

struct page_link {
    const char *path, *summary; /* "/statusz", "what this task is doing" */
};

/* What surrounds the value. Borrowed. */
struct page_frame {
    const char *program; /* "tf-worker" */
    const char *name;    /* of the process: "/job:ps/replica:0/task:0" */
    const char *path;    /* the page's own */
    const char *summary; /* may be NULL */
    const struct page_link *links;
    size_t n_links;
};

/* How many rows a page of up to max_rows should write: no more than are drawn if it is drawn. */
int page_html_rows(const char *query, int max_rows);

/* `json` is the page's value. What is no JSON is shown as text. */
void page_write_html(struct str *out, const struct page_frame *frame, struct span json);

#endif
