/* Registers metrics and writes them as Prometheus text (exposition format 0.0.4). */
#include "common/base/metrics.h"

#include <pthread.h>

/* Guards the list and every registered metric's `next`. Values need no lock. */
static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct metric *registry;

static const char *const kind_names[] = {
    [METRIC_COUNTER] = "counter",
    [METRIC_GAUGE] = "gauge",
    [METRIC_GAUGE_US] = "gauge",
    [METRIC_HISTOGRAM] = "histogram",
};

static bool is_in_seconds(const char *name) {
    static const char unit[] = "_seconds";
    size_t len = strlen(name), unit_len = sizeof(unit) - 1;
    return len >= unit_len && strcmp(name + len - unit_len, unit) == 0;
}

void metrics_register(struct metric *metric) {
    bool is_time = metric->kind == METRIC_HISTOGRAM || metric->kind == METRIC_GAUGE_US;
    CHECK(!is_time || is_in_seconds(metric->name));
    pthread_mutex_lock(&registry_mutex);
    struct metric **at = &registry;
    while (*at && *at != metric) {
        CHECK((*at)->kind == metric->kind || strcmp((*at)->name, metric->name) != 0);
        at = &(*at)->next;
    }
    if (!*at) {
        metric->next = NULL;
        *at = metric;
    }
    pthread_mutex_unlock(&registry_mutex);
}

/* Bucket i holds (2^(i-1), 2^i] µs, the first [0, 1], the last whatever is above 2^26. */
static int bucket_of(int64_t us) {
    if (us <= 1)
        return 0;
    int i = 64 - __builtin_clzll((unsigned long long)us - 1);
    return MIN(i, METRIC_N_BUCKETS - 1);
}

void metric_observe_us(struct metric *metric, int64_t us) {
    us = MAX(us, 0); /* a wall clock that is set back must not make the sum decrease */
    atomic_fetch_add_explicit(&metric->buckets[bucket_of(us)], 1, memory_order_relaxed);
    metric_add(metric, us);
}

/* Writes `name_suffix{labels,extra} `; missing parts are left out. */
static void write_series(struct str *out, const struct metric *metric, const char *suffix,
                         const char *extra) {
    bool has_labels = metric->labels && metric->labels[0];
    str_addf(out, "%s%s", metric->name, suffix);
    if (has_labels || extra[0])
        str_addf(out, "{%s%s%s}", has_labels ? metric->labels : "",
                 has_labels && extra[0] ? "," : "", extra);
    str_add_char(out, ' ');
}

static void write_histogram(struct str *out, struct metric *metric) {
    struct str le = STR_INIT;
    int64_t count = 0;
    for (int i = 0; i < METRIC_N_BUCKETS; i++) {
        count += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
        str_clear(&le);
        if (i == METRIC_N_BUCKETS - 1)
            str_add(&le, "le=\"+Inf\"");
        else
            str_addf(&le, "le=\"%.9g\"", (double)(INT64_C(1) << i) * 1e-6);
        write_series(out, metric, "_bucket", str_text(&le));
        str_addf(out, "%lld\n", (long long)count);
    }
    write_series(out, metric, "_sum", "");
    str_addf(out, "%.15g\n", (double)metric_get(metric) * 1e-6);
    /* The count is the sum of the buckets rather than a number of its own, because it must equal
     * the +Inf bucket in every scrape. */
    write_series(out, metric, "_count", "");
    str_addf(out, "%lld\n", (long long)count);
    str_fini(&le);
}

static void write_metric(struct str *out, struct metric *metric) {
    if (metric->kind == METRIC_HISTOGRAM) {
        write_histogram(out, metric);
        return;
    }
    write_series(out, metric, "", "");
    if (metric->kind == METRIC_GAUGE_US)
        str_addf(out, "%.15g\n", (double)metric_get(metric) * 1e-6);
    else
        str_addf(out, "%lld\n", (long long)metric_get(metric));
}

static bool is_first_of_name(const struct metric *metric) {
    for (const struct metric *earlier = registry; earlier != metric; earlier = earlier->next) {
        if (strcmp(earlier->name, metric->name) == 0)
            return false;
    }
    return true;
}

void metrics_write_head(struct str *out, const char *name, const char *kind, const char *help) {
    str_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

void metrics_add_label_value(struct str *out, const char *text) {
    size_t len = strlen(text);
    for (size_t i = 0; i < len;) {
        size_t n = utf8_well_formed_len(text + i, len - i);
        if (n == 0)
            str_add_utf8(out, 0xfffd);
        else if (text[i] == '\n')
            str_add(out, "\\n");
        else if (text[i] == '"' || text[i] == '\\')
            str_add_bytes(out, (char[]){'\\', text[i]}, 2);
        else
            str_add_bytes(out, text + i, n);
        i += MAX(n, (size_t)1);
    }
}

/* The format requires that all series of a name are adjacent. Searching for each name is quadratic,
 * in a list of some hundred. */
void metrics_write_prometheus(struct str *out) {
    pthread_mutex_lock(&registry_mutex);
    for (struct metric *metric = registry; metric; metric = metric->next) {
        if (!is_first_of_name(metric))
            continue;
        metrics_write_head(out, metric->name, kind_names[metric->kind],
                           metric->help ? metric->help : "");
        for (struct metric *same = metric; same; same = same->next) {
            if (strcmp(same->name, metric->name) == 0)
                write_metric(out, same);
        }
    }
    pthread_mutex_unlock(&registry_mutex);
}
