/* Fetches pages over HTTP. */
#include "tfctl/page_source.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/options.h"
#include "rpc/daemon/page_read.h"
#include "rpc/membership/http_client.h"
#include "tfctl/admin_address.h"

enum { MAX_PAGE_BYTES = 16 << 20, MAX_WORDS_BYTES = 300 /* of an error's body */ };

struct fetch {
    struct loop *loop;
    struct http_client *http;
    int n_running;
};

struct fetch_call {
    struct http_call call;
    struct fetch *fetch;
    struct fetched_page *page;
};

void fetched_page_fini(struct fetched_page *page) {
    status_unref(page->status);
    str_fini(&page->body);
    *page = (struct fetched_page){.body = STR_INIT};
}

static enum status_code code_of(int http_code) {
    switch (http_code) {
    case 403:
        return STATUS_PERMISSION_DENIED;
    case 404:
        return STATUS_NOT_FOUND;
    case 409:
        return STATUS_FAILED_PRECONDITION;
    default:
        return STATUS_INTERNAL;
    }
}

struct status *fetched_page_check(const struct fetched_page *page) {
    size_t len = MIN(page->body.len, (size_t)MAX_WORDS_BYTES);
    if (page->status)
        return status_ref(page->status);
    if (page->http_code == 200)
        return NULL;
    len -= len > 0 && page->body.data[len - 1] == '\n';
    return status_new(code_of(page->http_code), "the master answered with HTTP status %d: %.*s",
                      page->http_code, (int)len, str_text(&page->body));
}

static void end_if_done(struct fetch *fetch) {
    if (--fetch->n_running > 0)
        return;
    http_client_close(fetch->http, NULL, NULL);
    loop_stop(fetch->loop);
}

static void on_page(struct http_call *call, struct status *status_take, int http_code,
                    struct span body) {
    struct fetch_call *fetch_call = CONTAINER_OF(call, struct fetch_call, call);
    fetch_call->page->status = status_take;
    fetch_call->page->http_code = http_code;
    str_add_bytes(&fetch_call->page->body, body.data, body.len);
    end_if_done(fetch_call->fetch);
}

static void start(const struct page_source *source, const char *admin, const char *path,
                  bool is_post, struct fetch_call *fetch_call) {
    static const char *const headers[] = {"X-Millrace: tfctl", NULL};
    struct str url = STR_INIT;
    struct tls_client tls = source->tls;
    const char *unix_path;
    tls_client_fill(&tls);
    admin_address_page(admin, path, &url, &unix_path);
    fetch_call->call.on_done = on_page;
    http_call_start(fetch_call->fetch->http, &fetch_call->call,
                    &(struct http_request){.url = str_text(&url),
                                           .body = is_post ? span_of("") : (struct span){NULL, 0},
                                           .headers = is_post ? headers : NULL,
                                           .timeout_ms = source->timeout_ms,
                                           .unix_path = unix_path,
                                           .max_body_bytes = MAX_PAGE_BYTES,
                                           .ca_file = tls.ca,
                                           .cert_file = tls.cert,
                                           .key_file = tls.key});
    str_fini(&url);
}

/* `tfctl local` tells its command where the pages are. */
static bool find_local_master(struct str *ret_admin) {
    const char *text = getenv("MILLRACE_ADMIN");
    struct page_value *ports = NULL;
    struct status *st = page_parse(span_of(text ? text : ""), &ports);
    const char *master = page_get_text(ports, "master");
    bool is_found = *master != '\0';
    str_add(ret_admin, master);
    status_unref(st);
    page_value_free(ports);
    return is_found;
}

struct status *page_source_find(const struct page_source *source, struct str *ret_admin) {
    if (!source->admin && !source->target && find_local_master(ret_admin))
        return NULL;
    return admin_address_find(source->admin, source->target, ret_admin);
}

/* Nobody has named the port that does not answer. */
static void explain_guess(const struct page_source *source, const char *admin,
                          struct fetched_page *page) {
    struct str local = STR_INIT;
    struct status *st = page->status;
    bool is_named = source->admin || (!source->target && find_local_master(&local));
    if (!is_named && status_code(st) == STATUS_UNAVAILABLE) {
        page->status = status_new(STATUS_UNAVAILABLE,
                                  "%s (%s is what the master at %s has by default; if it was "
                                  "started with another --admin, give that to tfctl, too)",
                                  status_message(st), admin,
                                  source->target ? source->target : getenv("MILLRACE_TARGET"));
        status_unref(st);
    }
    str_fini(&local);
}

static struct status *fetch_all(const struct page_source *source, const char *admin,
                                const char *const *paths, int n, bool is_post,
                                struct fetched_page *ret) {
    struct fetch fetch = {.loop = loop_new(), .n_running = n};
    struct fetch_call *calls = xcalloc((size_t)n + 1, sizeof(*calls));
    for (int i = 0; i < n; i++) {
        ret[i] = (struct fetched_page){.body = STR_INIT};
        calls[i] = (struct fetch_call){.fetch = &fetch, .page = &ret[i]};
    }
    struct status *st = http_client_new(fetch.loop, &fetch.http);
    for (int i = 0; !st && i < n; i++)
        start(source, admin, paths[i], is_post, &calls[i]);
    if (st)
        loop_stop(fetch.loop);
    loop_run(fetch.loop);
    loop_free(fetch.loop);
    free(calls);
    for (int i = 0; !st && i < n; i++)
        explain_guess(source, admin, &ret[i]);
    return st;
}

struct status *page_source_fetch(const struct page_source *source, const char *admin,
                                 const char *const *paths, int n, struct fetched_page *ret) {
    return fetch_all(source, admin, paths, n, false, ret);
}

struct status *page_source_post(const struct page_source *source, const char *admin,
                                const char *path, struct fetched_page *ret) {
    return fetch_all(source, admin, &path, 1, true, ret);
}

int page_source_get(const struct page_source *source, const struct cli *cli, const char *path,
                    struct str *ret_body) {
    struct str admin = STR_INIT;
    struct fetched_page page = {.body = STR_INIT};
    int code = page_source_open(source, cli, &admin);
    if (code == EXIT_OK) {
        struct status *st = page_source_fetch(source, str_text(&admin), &path, 1, &page);
        if (!st)
            st = fetched_page_check(&page);
        if (st)
            code = cli_fail_call(cli, st);
    }
    str_add_bytes(ret_body, page.body.data, page.body.len);
    fetched_page_fini(&page);
    str_fini(&admin);
    return code;
}

int page_source_open(const struct page_source *source, const struct cli *cli,
                     struct str *ret_admin) {
    struct status *st = page_source_find(source, ret_admin);
    return st ? cli_fail_usage(cli, st) : EXIT_OK;
}
