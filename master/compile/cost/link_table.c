/* Keeps the links between tasks, by the names of both. */
#include "master/compile/cost/link_table.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/map.h"

struct link {
    char *key; /* "FROM TO" */
    enum link_way way;
    struct schedule_link cost;
    bool is_latency_measured, is_bandwidth_measured;
};

struct link_table {
    pthread_mutex_t lock;
    struct strmap links; /* guarded by lock */
};

static const struct schedule_link by_way[LINK_N_WAYS] = {
    [LINK_WAY_UNKNOWN] = {20000, 0.3}, [LINK_WAY_TCP] = {50000, 0.8},
    [LINK_WAY_UNIX] = {20000, 0.3},    [LINK_WAY_SHM] = {20000, 0.02},
    [LINK_WAY_RDMA] = {20000, 0.1},
};

/* What is outside of these is a mistake, of a clock for example. */
static const double MIN_LATENCY_NS = 1000, MAX_LATENCY_NS = 1e10, MIN_NS_PER_BYTE = 0.001,
                    MAX_NS_PER_BYTE = 1e5;

struct link_table *link_table_new(void) {
    struct link_table *table = xcalloc(1, sizeof *table);
    CHECK(pthread_mutex_init(&table->lock, NULL) == 0);
    strmap_init(&table->links);
    return table;
}

static void link_free(struct link *link) {
    free(link->key);
    free(link);
}

void link_table_free(struct link_table *table) {
    size_t cursor = 0;
    struct span key;
    void *link;
    if (!table)
        return;
    while (strmap_next(&table->links, &cursor, &key, &link))
        link_free(link);
    strmap_fini(&table->links);
    pthread_mutex_destroy(&table->lock);
    free(table);
}

static double limited(double value, double least, double most) {
    return MIN(MAX(value, least), most);
}

static void take(struct link *link, const struct link_report *report) {
    link->way = report->way;
    link->cost = by_way[report->way];
    link->is_latency_measured = report->latency_ns > 0;
    link->is_bandwidth_measured = report->bytes_per_second > 0 &&
                                  (report->way == LINK_WAY_TCP || report->way == LINK_WAY_UNIX ||
                                   report->way == LINK_WAY_RDMA);
    if (link->is_latency_measured)
        link->cost.latency_ns = limited((double)report->latency_ns, MIN_LATENCY_NS, MAX_LATENCY_NS);
    if (link->is_bandwidth_measured)
        link->cost.ns_per_byte =
            limited(1e9 / (double)report->bytes_per_second, MIN_NS_PER_BYTE, MAX_NS_PER_BYTE);
}

void link_table_note(struct link_table *table, const char *to, const struct link_report *report) {
    struct str key = STR_INIT;
    str_add_bytes(&key, report->task.data, report->task.len);
    str_addf(&key, " %s", to);
    pthread_mutex_lock(&table->lock);
    struct link *link = strmap_get(&table->links, str_text(&key));
    if (!link) {
        link = xcalloc(1, sizeof *link);
        link->key = xstrdup(str_text(&key));
        strmap_put(&table->links, link->key, link);
    }
    take(link, report);
    pthread_mutex_unlock(&table->lock);
    str_fini(&key);
}

static bool is_of(const struct link *link, const char *task) {
    size_t n = strlen(task);
    const char *to = strchr(link->key, ' ');
    return (strncmp(link->key, task, n) == 0 && link->key + n == to) || strcmp(to + 1, task) == 0;
}

void link_table_forget(struct link_table *table, const char *task) {
    size_t cursor = 0;
    struct span key;
    void *value;
    pthread_mutex_lock(&table->lock);
    while (strmap_next(&table->links, &cursor, &key, &value)) {
        struct link *link = value;
        if (!is_of(link, task))
            continue;
        strmap_remove_span(&table->links, key);
        link_free(link);
    }
    pthread_mutex_unlock(&table->lock);
}

struct schedule_link link_table_find(struct link_table *table, const char *from, const char *to) {
    struct schedule_link cost = by_way[LINK_WAY_UNKNOWN];
    if (!table)
        return cost;
    pthread_mutex_lock(&table->lock);
    if (table->links.n_entries > 0) {
        struct str key = STR_INIT; /* not by str_addf: a thousand tasks have a million links */
        str_add(&key, from);
        str_add_char(&key, ' ');
        str_add(&key, to);
        const struct link *link = strmap_get(&table->links, str_text(&key));
        if (link)
            cost = link->cost;
        str_fini(&key);
    }
    pthread_mutex_unlock(&table->lock);
    return cost;
}

static void describe(const struct link *link, struct str *out) {
    const char *to = strchr(link->key, ' ');
    str_addf(out,
             "{\"from\": \"%.*s\", \"to\": \"%s\", \"transport\": \"%s\", \"latency_us\": %.1f, "
             "\"latency\": \"%s\", \"ns_per_byte\": %.3g, \"bandwidth\": \"%s\"}",
             (int)(to - link->key), link->key, to + 1, link_way_names[link->way],
             link->cost.latency_ns / 1000, link->is_latency_measured ? "measured" : "default",
             link->cost.ns_per_byte, link->is_bandwidth_measured ? "measured" : "default");
}

void link_table_describe(struct link_table *table, int max_rows, struct str *out) {
    size_t cursor = 0;
    struct span key;
    void *link;
    str_add_char(out, '[');
    pthread_mutex_lock(&table->lock);
    for (int i = 0; i < max_rows && strmap_next(&table->links, &cursor, &key, &link); i++) {
        str_add(out, i > 0 ? ", " : "");
        describe(link, out);
    }
    pthread_mutex_unlock(&table->lock);
    str_add_char(out, ']');
}
