/* Builds the plans of registered partitions and finds them by their handles. */
#include "worker/service/graph_cache.h"

#include "worker/service/step_ring.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/graph/graph_proto.h"

struct graph_cache {
    struct loop *loop;
    struct pool *pool;
    struct plan_options options;
    struct u64map by_handle;
    struct list graphs;
    struct strmap sessions; /* handle → struct cached_session */
    struct u64map clients;  /* id → struct cached_client */
    uint64_t last_handle;
    int n_building;
    bool is_freed;
};

/* A partition that is being built: on the pool, then on the loop again. */
struct build {
    struct pool_task pool_task;
    struct loop_task loop_task;
    struct graph_cache *cache;
    struct graph_entry *entry;
    struct buffer *bytes;
    struct span graphdef;
    struct function_source *functions;
    int n_functions;
    struct arena arena; /* the names of the functions */
    struct status *status;
    graph_built_fn *on_built;
    void *arg;
};

struct graph_cache *graph_cache_new(struct loop *loop, struct pool *pool,
                                    const struct plan_options *options) {
    struct graph_cache *cache = xcalloc(1, sizeof(*cache));
    cache->loop = loop;
    cache->pool = pool;
    cache->options = *options;
    u64map_init(&cache->by_handle);
    list_init(&cache->graphs);
    strmap_init(&cache->sessions);
    u64map_init(&cache->clients);
    return cache;
}

/* ---- entries ---- */

struct graph_entry *graph_entry_ref(struct graph_entry *entry) {
    atomic_fetch_add_explicit(&entry->n_refs, 1, memory_order_relaxed);
    return entry;
}

void graph_entry_unref(struct graph_entry *entry) {
    if (!entry || atomic_fetch_sub_explicit(&entry->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    if (entry->plan)
        plan_unref(entry->plan);
    container_table_free(entry->containers);
    session_credit_unref(entry->credit);
    free(entry->feed_types);
    free(entry->peers);
    free(entry->others);
    exchange_unref(entry->exchange);
    free(entry);
}

static struct cached_client *client_enter(struct graph_cache *cache, uint64_t id) {
    struct cached_client *client = u64map_get(&cache->clients, id);
    if (!client) {
        client = xcalloc(1, sizeof(*client));
        client->state = client_state_new();
        client->id = id;
        u64map_put(&cache->clients, id, client);
    }
    client->n_sessions++;
    return client;
}

static void client_leave(struct graph_cache *cache, struct cached_client *client) {
    if (!client || --client->n_sessions > 0)
        return;
    u64map_remove(&cache->clients, client->id);
    client_state_unref(client->state); /* plans whose steps still run keep a reference */
    free(client);
}

static struct cached_session *session_enter(struct graph_cache *cache,
                                            const struct graph_registration *registration) {
    const char *handle = registration->session;
    bool is_isolated = registration->is_isolated;
    struct cached_session *session = strmap_get(&cache->sessions, handle);
    if (!session) {
        size_t size = strlen(handle) + 1;
        session = xcalloc(1, sizeof(*session) + size);
        memcpy(session->handle, handle, size);
        session->client = registration->client ? client_enter(cache, registration->client) : NULL;
        session->state = session_state_new();
        session->credit = session_credit_new();
        session->master_incarnation = registration->master_incarnation;
        strmap_put(&cache->sessions, session->handle, session);
    }
    if (is_isolated && !session->containers) {
        session->containers = container_table_new();
        session->is_open = true;
        session->n_entries++;
    }
    session->n_entries++;
    return session;
}

static void session_unref(struct graph_cache *cache, struct cached_session *session) {
    if (--session->n_entries > 0)
        return;
    strmap_remove(&cache->sessions, session->handle);
    client_leave(cache, session->client);
    session_state_unref(session->state); /* plans whose steps still run keep a reference */
    container_table_free(session->containers);
    session_credit_unref(session->credit);
    free(session);
}

static void session_leave(struct graph_cache *cache, struct graph_entry *entry) {
    struct cached_session *session = entry->session;
    entry->session = NULL;
    session_unref(cache, session);
}

static void session_close(struct graph_cache *cache, struct cached_session *session) {
    if (!session->is_open)
        return;
    session->is_open = false;
    session_unref(cache, session);
}

void graph_cache_close_session(struct graph_cache *cache, uint64_t master_incarnation,
                               struct span handle) {
    struct cached_session *session = strmap_get_span(&cache->sessions, handle);
    if (session && session->master_incarnation == master_incarnation)
        session_close(cache, session);
}

/* Closes one session at a time, because closing changes the map. NULL master: of all masters.
 * Sessions that are kept stay. */
static void close_sessions(struct graph_cache *cache, const uint64_t *master_incarnation) {
    struct cached_session *found;
    do {
        size_t cursor = 0;
        struct span key;
        void *value;
        found = NULL;
        while (!found && strmap_next(&cache->sessions, &cursor, &key, &value)) {
            struct cached_session *session = value;
            if (session->is_open && !session->is_kept &&
                (!master_incarnation || session->master_incarnation == *master_incarnation))
                found = session;
        }
        if (found)
            session_close(cache, found);
    } while (found);
}

static void entry_remove(struct graph_cache *cache, struct graph_entry *entry) {
    u64map_remove(&cache->by_handle, entry->handle);
    list_remove(&entry->link);
    session_leave(cache, entry);
    graph_entry_unref(entry);
}

struct graph_entry *graph_cache_find(struct graph_cache *cache, uint64_t handle) {
    return u64map_get(&cache->by_handle, handle);
}

void graph_cache_remove(struct graph_cache *cache, uint64_t handle, uint64_t master_incarnation) {
    struct graph_entry *entry = graph_cache_find(cache, handle);
    if (entry && entry->master_incarnation == master_incarnation)
        entry_remove(cache, entry);
}

void graph_cache_remove_master(struct graph_cache *cache, uint64_t master_incarnation) {
    LIST_FOR_EACH_SAFE (link, next, &cache->graphs) {
        struct graph_entry *entry = LIST_ENTRY(link, struct graph_entry, link);
        if (entry->master_incarnation == master_incarnation)
            entry_remove(cache, entry);
    }
    close_sessions(cache, &master_incarnation);
}

static void mark_kept(struct graph_cache *cache, const uint64_t *graphs, size_t n_graphs,
                      char *const *sessions, size_t n_sessions, bool is_kept) {
    for (size_t i = 0; i < n_graphs; i++) {
        struct graph_entry *entry = graph_cache_find(cache, graphs[i]);
        if (entry)
            entry->is_kept = is_kept;
    }
    for (size_t i = 0; i < n_sessions; i++) {
        struct cached_session *session = strmap_get(&cache->sessions, sessions[i]);
        if (session)
            session->is_kept = is_kept;
    }
}

void graph_cache_keep(struct graph_cache *cache, uint64_t master_incarnation,
                      const uint64_t *graphs, size_t n_graphs, char *const *sessions,
                      size_t n_sessions) {
    mark_kept(cache, graphs, n_graphs, sessions, n_sessions, true);
    LIST_FOR_EACH_SAFE (link, next, &cache->graphs) {
        struct graph_entry *entry = LIST_ENTRY(link, struct graph_entry, link);
        if (entry->master_incarnation == master_incarnation && !entry->is_kept)
            entry_remove(cache, entry);
    }
    close_sessions(cache, &master_incarnation);
    mark_kept(cache, graphs, n_graphs, sessions, n_sessions, false);
}

void graph_cache_remove_all(struct graph_cache *cache) {
    LIST_FOR_EACH_SAFE (link, next, &cache->graphs)
        entry_remove(cache, LIST_ENTRY(link, struct graph_entry, link));
}

size_t graph_cache_n_graphs(const struct graph_cache *cache) { return cache->by_handle.n_entries; }

static void free_when_done(struct graph_cache *cache) {
    if (!cache->is_freed || cache->n_building > 0)
        return;
    u64map_fini(&cache->by_handle);
    strmap_fini(&cache->sessions);
    u64map_fini(&cache->clients);
    free(cache);
}

void graph_cache_free(struct graph_cache *cache) {
    if (!cache)
        return;
    graph_cache_remove_all(cache);
    close_sessions(cache, NULL);
    cache->is_freed = true;
    free_when_done(cache);
}

/* ---- building ---- */

static void note_feed_types(struct graph_entry *entry) {
    const struct plan *plan = entry->plan;
    entry->feed_types = xcalloc(plan->n_feeds + 1, 1);
    for (uint32_t i = 0; i < plan->n_nodes; i++) {
        const struct plan_node *node = &plan->nodes[i];
        if (node->kind == PLAN_FEED && node->aux < plan->n_feeds && node->node->n_outputs > 0)
            entry->feed_types[node->aux] =
                (uint8_t)dtype_base((enum dtype)node->node->out_types[0]);
    }
}

static struct status *build_partition(struct build *build, struct plan_options *options) {
    struct graph graph;
    struct graph_limits limits;
    graph_init(&graph);
    graph_limits_default(&limits);
    limits.is_internal = true; /* _Mr… ops, and names that begin with an underscore */
    struct status *st = graph_add_graphdef(&graph, build->graphdef, &limits);
    options->session_state = build->entry->session->state;
    if (!st)
        st = plan_new(&graph, options, &build->entry->plan);
    graph_fini(&graph);
    if (!st)
        note_feed_types(build->entry);
    if (!st) /* the first run, which often takes longest, is recorded node by node */
        atomic_init(&build->entry->ring_credit_ns, step_ring_cost_ns(build->entry->plan->n_nodes));
    return st;
}

/* Any thread. */
static void build_plan(struct build *build) {
    int64_t start_ns = clock_now_ns();
    struct plan_options options = build->cache->options;
    if (build->entry->exchange->cluster)
        options.task = build->entry->exchange->task;
    if (build->entry->session->client)
        options.client = build->entry->session->client->state;
    if (build->n_functions > 0)
        build->status =
            function_table_new(&options, build->functions, build->n_functions, &options.functions);
    if (!build->status)
        build->status = build_partition(build, &options);
    function_table_unref(options.functions); /* the plan has its own reference */
    buffer_unref(build->bytes);
    build->bytes = NULL;
    build->entry->build_us = (clock_now_ns() - start_ns) / 1000;
}

static void build_finish(struct build *build) {
    struct graph_cache *cache = build->cache;
    struct graph_entry *entry = build->entry;
    if (!build->status && cache->is_freed)
        build->status = status_new(STATUS_CANCELLED, "the worker is stopping");
    if (!build->status && cache->by_handle.n_entries >= GRAPH_CACHE_MAX_GRAPHS)
        build->status =
            status_exhausted("%d graphs are registered already", GRAPH_CACHE_MAX_GRAPHS);
    if (build->status) {
        session_leave(cache, entry);
        graph_entry_unref(entry);
        entry = NULL;
    } else {
        entry->handle = ++cache->last_handle;
        u64map_put(&cache->by_handle, entry->handle, entry);
        list_push_back(&cache->graphs, &entry->link);
    }
    build->on_built(build->arg, entry, build->status);
    arena_fini(&build->arena);
    free(build);
    cache->n_building--;
    free_when_done(cache);
}

static void finish_on_loop(struct loop_task *task) {
    build_finish(CONTAINER_OF(task, struct build, loop_task));
}

static void build_on_pool(struct pool_task *task) {
    struct build *build = CONTAINER_OF(task, struct build, pool_task);
    build_plan(build);
    loop_post(build->cache->loop, &build->loop_task);
}

static void keep_functions(struct build *build, const struct graph_registration *registration) {
    arena_init(&build->arena);
    build->n_functions = registration->n_functions;
    build->functions =
        arena_array(&build->arena, struct function_source, registration->n_functions + 1);
    for (int i = 0; i < registration->n_functions; i++) {
        const struct function_source *from = &registration->functions[i];
        build->functions[i] =
            (struct function_source){arena_strdup(&build->arena, from->key),
                                     arena_strdup(&build->arena, from->name), from->graphdef};
    }
}

void graph_cache_register(struct graph_cache *cache, const struct graph_registration *registration,
                          graph_built_fn *on_built, void *arg) {
    struct graph_entry *entry = xcalloc(1, sizeof(*entry));
    atomic_init(&entry->n_refs, 1);
    list_init(&entry->link);
    entry->master_incarnation = registration->master_incarnation;
    entry->session = session_enter(cache, registration);
    entry->credit = session_credit_ref(entry->session->credit);
    if (entry->session->containers)
        entry->containers = container_table_ref(entry->session->containers);
    entry->exchange = exchange_ref(registration->exchange);
    entry->peers = registration->peers;
    entry->n_peers = registration->n_peers;
    entry->others = registration->others;
    entry->n_others = registration->n_others;
    struct build *build = xcalloc(1, sizeof(*build));
    *build = (struct build){.cache = cache,
                            .entry = entry,
                            .graphdef = registration->graphdef,
                            .bytes = registration->bytes ? buffer_ref(registration->bytes) : NULL,
                            .on_built = on_built,
                            .arg = arg};
    keep_functions(build, registration);
    build->pool_task.run = build_on_pool;
    build->loop_task.run = finish_on_loop;
    cache->n_building++;
    if ((registration->graphdef.len <= GRAPH_INLINE_BYTES && registration->n_functions == 0) ||
        !cache->pool) {
        build_plan(build);
        build_finish(build);
    } else {
        pool_submit(cache->pool, &build->pool_task);
    }
}

void graph_cache_describe(struct graph_cache *cache, size_t max_rows, struct str *out) {
    size_t n_shown = 0, n_more = 0;
    str_add_char(out, '[');
    LIST_FOR_EACH (link, &cache->graphs) {
        if (n_shown == max_rows) {
            n_more++;
            continue;
        }
        const struct graph_entry *entry = LIST_ENTRY(link, struct graph_entry, link);
        str_addf(out, "%s{\"graph\":%llu,\"master\":\"%016llx\",\"session\":\"",
                 n_shown == 0 ? "" : ",", (unsigned long long)entry->handle,
                 (unsigned long long)entry->master_incarnation);
        str_add_json_escaped(out, entry->session->handle, strlen(entry->session->handle));
        str_addf(out,
                 "\",\"nodes\":%u,\"feeds\":%u,\"fetches\":%u,\"functions\":%d,\"peers\":%d,"
                 "\"runs\":%llu,\"build_us\":%lld}",
                 entry->plan->n_nodes, entry->plan->n_feeds, entry->plan->n_fetches,
                 function_table_n_functions(entry->plan->functions), entry->n_peers,
                 (unsigned long long)entry->n_runs, (long long)entry->build_us);
        n_shown++;
    }
    if (n_more > 0)
        str_addf(out, "%s{\"more\":%zu}", n_shown > 0 ? "," : "", n_more);
    str_add_char(out, ']');
}
