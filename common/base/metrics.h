/* Counts events and times for /metrics (Prometheus text) and the status pages.
 *
 * A metric is a static variable of the file that counts. The folder's init function adds it to the
 * registry with metrics_register. Any thread may update a metric, with relaxed atomics. */
#ifndef MILLRACE_COMMON_BASE_METRICS_H
#define MILLRACE_COMMON_BASE_METRICS_H

#include <stdatomic.h>

#include "common/base/base.h"
#include "common/base/str.h"

enum metric_kind {
    METRIC_COUNTER,
    METRIC_GAUGE,
    METRIC_GAUGE_US,  /* set in microseconds and written in seconds, as Prometheus wants it */
    METRIC_HISTOGRAM, /* the same, of many times */
};

enum { METRIC_N_BUCKETS = 28 }; /* powers of two: 1 µs to 2^26 µs, and above */

struct metric {
    enum metric_kind kind;
    /* "millrace_steps_total"; the unit last, which is a base unit: _seconds, _bytes */
    const char *name;
    const char *labels; /* "code=\"OK\"" or NULL */
    const char *help;
    _Atomic int64_t value;
    _Atomic int64_t buckets[METRIC_N_BUCKETS]; /* histograms only; value is then the sum in µs */
    struct metric *next;
};

#define METRIC_COUNTER_INIT(name_, help_) \
    { .kind = METRIC_COUNTER, .name = (name_), .help = (help_) }
#define METRIC_GAUGE_INIT(name_, help_) \
    { .kind = METRIC_GAUGE, .name = (name_), .help = (help_) }
#define METRIC_GAUGE_US_INIT(name_, help_) \
    { .kind = METRIC_GAUGE_US, .name = (name_), .help = (help_) }
#define METRIC_HISTOGRAM_INIT(name_, help_) \
    { .kind = METRIC_HISTOGRAM, .name = (name_), .help = (help_) }

/* A second call has no effect. A metric of times must be named _seconds. */
void metrics_register(struct metric *metric);
static inline void metric_add(struct metric *metric, int64_t n) {
    atomic_fetch_add_explicit(&metric->value, n, memory_order_relaxed);
}
static inline void metric_set(struct metric *metric, int64_t n) {
    atomic_store_explicit(&metric->value, n, memory_order_relaxed);
}
static inline int64_t metric_get(struct metric *metric) {
    return atomic_load_explicit(&metric->value, memory_order_relaxed);
}
void metric_observe_us(struct metric *metric, int64_t us);
void metrics_write_prometheus(struct str *out);
/* For values that are made when they are asked for: the lines HELP and TYPE of a name; the text of
 * a label's value, escaped. */
void metrics_write_head(struct str *out, const char *name, const char *kind, const char *help);
void metrics_add_label_value(struct str *out, const char *text);

#endif
