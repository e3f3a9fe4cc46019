/* Keeps the table of pages, and writes those that every daemon has. */
#include "rpc/daemon/admin_pages.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/base/process_metrics.h"
#include "rpc/daemon/page.h"

static int write_livez(void *arg, const char *query, struct str *out) {
    str_add(out, "ok\n");
    return 200;
}

static int write_metrics(void *arg, const char *query, struct str *out) {
    const struct admin_options *options = ((const struct admin_pages *)arg)->options;
    metrics_write_prometheus(out);
    if (options->write_metrics)
        options->write_metrics(options->arg, out);
    process_metrics_write(out);
    return 200;
}

static int write_index(void *arg, const char *query, struct str *out) {
    const struct admin_pages *pages = arg;
    page_open(out, NULL, '{');
    page_text(out, "program", pages->options->program);
    page_text(out, "version", MILLRACE_VERSION);
    page_text(out, "name", pages->options->name);
    page_int(out, "pid", getpid());
    page_real(out, "uptime_seconds", (double)(clock_now_ns() - pages->started_ns) / 1e9);
    page_open(out, "pages", '[');
    for (size_t i = 1; i < pages->n_links; i++) { /* the first is this page */
        page_open(out, NULL, '{');
        page_text(out, "page", pages->links[i].path);
        page_text(out, "about", pages->links[i].summary);
        page_close(out, '}');
    }
    page_close(out, ']');
    page_close(out, '}');
    str_add_char(out, '\n');
    return 200;
}

/* Their argument is the table. "/" is the first. */
static const struct admin_page own_pages[] = {
    {"/", "application/json", write_index, .summary = "What this process is, and its pages"},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", write_metrics,
     .summary = "Counters and times, for Prometheus"},
    {"/livez", "text/plain; charset=utf-8", write_livez, .summary = "Does the event loop run?"},
};

static void add_link(struct admin_pages *pages, const struct admin_page *page) {
    if (page->summary && !page->is_action)
        pages->links[pages->n_links++] = (struct page_link){page->path, page->summary};
}

void admin_pages_init(struct admin_pages *pages, const struct admin_options *options) {
    *pages = (struct admin_pages){.options = options, .started_ns = clock_now_ns()};
    pages->links = xcalloc(ARRAY_LEN(own_pages) + options->n_pages, sizeof(pages->links[0]));
    add_link(pages, &own_pages[0]);
    for (size_t i = 0; i < options->n_pages; i++)
        add_link(pages, &options->pages[i]);
    for (size_t i = 1; i < ARRAY_LEN(own_pages); i++)
        add_link(pages, &own_pages[i]);
}

void admin_pages_fini(struct admin_pages *pages) { free(pages->links); }

const struct admin_page *admin_pages_find(const struct admin_pages *pages, const char *path) {
    for (size_t i = 0; i < pages->options->n_pages; i++)
        if (strcmp(pages->options->pages[i].path, path) == 0)
            return &pages->options->pages[i];
    for (size_t i = 0; i < ARRAY_LEN(own_pages); i++)
        if (strcmp(own_pages[i].path, path) == 0)
            return &own_pages[i];
    return NULL;
}

static bool is_own(const struct admin_page *page) {
    for (size_t i = 0; i < ARRAY_LEN(own_pages); i++)
        if (page == &own_pages[i])
            return true;
    return false;
}

int admin_pages_write(const struct admin_pages *pages, const struct admin_page *page,
                      bool is_operator, const char *query, struct str *out) {
    void *arg = is_own(page) ? (void *)(uintptr_t)pages : pages->options->arg;
    if (is_operator && page->write_to_operator)
        return page->write_to_operator(arg, query, out);
    return page->write(arg, query, out);
}

struct page_frame admin_pages_frame(const struct admin_pages *pages,
                                    const struct admin_page *page) {
    const struct admin_options *options = pages->options;
    return (struct page_frame){.program = options->program ? options->program : "",
                               .name = options->name ? options->name : "",
                               .path = page->path,
                               .summary = page->summary,
                               .links = pages->links,
                               .n_links = pages->n_links};
}
