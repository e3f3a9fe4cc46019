/* Writes /sessionz: who has a session, what it runs, and what went wrong last. */
#include "common/base/clock.h"
#include "master/request/placement.h"
#include "master/service/service_internal.h"
#include "master/session/replacement.h"
#include "rpc/daemon/page.h"

enum {
    MAX_SESSIONS = 200, /* each looks for its client among all connections */
    MAX_SIGNATURES = 200,
    MAX_NAMES = 10, /* feeds, fetches and targets of a signature */
};

static bool is_asked_for(const struct session *session, const char *query) {
    return page_query_is(query, "session", session->handle) || !page_query_has(query, "session");
}

static void add_error(const struct session *session, bool is_operator, int64_t now_us,
                      struct str *out) {
    page_int(out, "steps_failed", session->n_steps_failed);
    if (!session->last_error)
        return;
    page_real(out, "last_error_age_seconds", (double)(now_us - session->last_error_us) / 1e6);
    page_error(out, "last_error", session->last_error, is_operator);
}

static void add_session(const struct service *service, const struct session *session,
                        bool is_operator, struct str *out) {
    int64_t now_us = clock_wall_us();
    struct str peer = STR_INIT;
    grpc_server_peer_name(service->server, session->last_connection, &peer);
    page_open(out, NULL, '{');
    page_text(out, "session", session->handle);
    page_real(out, "age_seconds", (double)(now_us - session->created_us) / 1e6);
    page_text(out, "client", str_text(&peer));
    page_id(out, "client_id", session->client);
    if (session->orphaned_since_ms > 0)
        page_real(out, "orphaned_seconds",
                  (double)(clock_now_ns() / 1000000 - session->orphaned_since_ms) / 1e3);
    page_int(out, "steps_running", session->n_steps);
    page_int(out, "steps", session->n_steps_total);
    page_int(out, "graph_version", session->graph_version);
    page_int(out, "signatures", (int64_t)session->executables.n_entries);
    page_int(out, "partial_runs", (int64_t)session->partial_runs.n_entries);
    page_text(out, "placement", placement_names[session->options.placement]);
    page_bool(out, "isolated", session->is_isolated);
    page_bool(out, "own_cluster", session_cluster_of(session) != NULL);
    add_error(session, is_operator, now_us, out);
    page_close(out, '}');
    str_fini(&peer);
}

static void add_names(const char *key, const char *const *names, int n, struct str *out) {
    page_open(out, key, '[');
    for (int i = 0; i < MIN(n, MAX_NAMES); i++)
        page_name(out, NULL, names[i]);
    page_more(out, (size_t)MAX(n - MAX_NAMES, 0));
    page_close(out, ']');
}

static void add_signature(const struct executable *executable, struct str *out) {
    static const char *const states[] = {[EXECUTABLE_COMPILING] = "compiling",
                                         [EXECUTABLE_REGISTERING] = "registering",
                                         [EXECUTABLE_READY] = "ready",
                                         [EXECUTABLE_FAILED] = "failed"};
    const struct signature *signature = &executable->signature;
    const struct session *session = executable->session;
    page_open(out, NULL, '{');
    page_text(out, "session", session->handle);
    add_names("feeds", signature->feeds, signature->n_feeds, out);
    add_names("fetches", signature->fetches, signature->n_fetches, out);
    add_names("targets", signature->targets, signature->n_targets, out);
    page_text(out, "state", states[executable->state]);
    page_int(out, "steps", executable->n_steps);
    if (replacement_why(executable))
        page_text(out, "placement", replacement_why(executable));
    page_open(out, "tasks", '[');
    for (int i = 0; i < MIN(executable->n_tasks, MAX_NAMES); i++)
        page_name(out, NULL, task_name(tasks_at(session->env->tasks, executable->tasks[i])));
    page_more(out, (size_t)MAX(executable->n_tasks - MAX_NAMES, 0));
    page_close(out, ']');
    if (executable->state == EXECUTABLE_READY) {
        struct str link = STR_INIT;
        str_addf(&link, "/graphz?session=%s&signature=%lld", session->handle,
                 (long long)executable->number);
        page_text(out, "page", str_text(&link));
        str_fini(&link);
    }
    page_close(out, '}');
}

static void add_signatures(const struct service *service, const char *query, struct str *out) {
    size_t n = 0, n_more = 0;
    page_open(out, "signatures", '[');
    LIST_FOR_EACH (link, &service->sessions) {
        const struct session *session = LIST_ENTRY(link, struct session, link);
        if (!is_asked_for(session, query))
            continue;
        n_more += session->executables.n_entries;
        LIST_FOR_EACH (lru_link, &session->lru) {
            if (n >= MAX_SIGNATURES)
                break;
            n++;
            n_more--;
            add_signature(LIST_ENTRY(lru_link, struct executable, lru_link), out);
        }
    }
    page_more(out, n_more);
    page_close(out, ']');
}

void service_page_sessions(struct service *service, const char *query, bool is_operator,
                           struct str *out) {
    size_t n = 0;
    page_open(out, NULL, '{');
    page_open(out, "sessions", '[');
    LIST_FOR_EACH (link, &service->sessions) {
        const struct session *session = LIST_ENTRY(link, struct session, link);
        if (is_asked_for(session, query) && n++ < MAX_SESSIONS)
            add_session(service, session, is_operator, out);
    }
    page_more(out, n > MAX_SESSIONS ? n - MAX_SESSIONS : 0);
    page_close(out, ']');
    add_signatures(service, query, out);
    page_close(out, '}');
    str_add_char(out, '\n');
}
