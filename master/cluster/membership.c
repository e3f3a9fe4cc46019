/* Reads listings and events of etcd, and writes them into the table of tasks. */
#include "master/cluster/membership.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/map.h"
#include "rpc/membership/member.h"

enum { RELIST_MIN_MS = 100, RELIST_MAX_MS = 2000, MAX_EXPECTED = 100000 };

struct membership {
    struct loop *loop;
    struct etcd *etcd;
    struct tasks *tasks;
    char *cluster;
    char *prefix; /* of the tasks' keys */
    struct etcd_call listing;
    struct etcd_watch watch;
    struct loop_timer timer;
    int64_t backoff_ms, revision;
    bool is_watching, is_away;
    int64_t n_listings, n_events;
};

/* ---- what etcd says ---- */

static void log_odd(const char *key, const char *why) {
    log_event(EVENT_ETCD_SKIPPED, "etcd: skipped %s: %s", key, why);
}

/* Adds one key and its value. False: the key is not a task's or the value is malformed. Then it is
 * skipped, because others may write to etcd too. */
static bool take_kv(struct membership *m, const struct etcd_kv *kv) {
    struct str task = STR_INIT;
    struct arena arena;
    struct cluster_member member;
    arena_init(&arena);
    struct status *st = NULL;
    if (!member_read_task_key(m->cluster, kv->key, &task))
        st = status_invalid("it is not the key of a task");
    else
        st = member_parse(kv->value, &arena, &member);
    if (st)
        log_odd(kv->key, status_message(st));
    else
        tasks_register(m->tasks, str_text(&task), member.address, member.incarnation);
    bool is_taken = !st;
    status_unref(st);
    arena_fini(&arena);
    str_fini(&task);
    return is_taken;
}

static void drop_key(struct membership *m, const char *key) {
    struct str task = STR_INIT;
    if (member_read_task_key(m->cluster, key, &task))
        tasks_deregister(m->tasks, str_text(&task));
    str_fini(&task);
}

/* A task whose value is malformed stays unchanged. */
static void take_listing(struct membership *m, const struct etcd_range *range) {
    struct strmap listed;
    struct arena arena;
    strmap_init(&listed);
    arena_init(&arena);
    for (int i = 0; range && i < range->n; i++) {
        struct str task = STR_INIT;
        take_kv(m, &range->kvs[i]);
        if (member_read_task_key(m->cluster, range->kvs[i].key, &task))
            strmap_put(&listed, arena_strdup(&arena, str_text(&task)), m);
        str_fini(&task);
    }
    for (int i = 0; i < tasks_count(m->tasks); i++) {
        const char *name = task_name(tasks_at(m->tasks, i));
        if (!strmap_get(&listed, name))
            tasks_deregister(m->tasks, name);
    }
    strmap_fini(&listed);
    arena_fini(&arena);
}

/* ---- listing and watching ---- */

static void list_later(struct membership *m, struct status *why_take) {
    if (!m->is_away)
        log_event(EVENT_ETCD_AWAY, "etcd: %s; keeping the tasks that are known",
                  status_message(why_take));
    m->is_away = true;
    m->is_watching = false;
    status_unref(why_take);
    loop_timer_start(&m->timer, m->backoff_ms, 0);
    m->backoff_ms = MIN(m->backoff_ms * 2, (int64_t)RELIST_MAX_MS);
}

static void on_events(struct etcd_watch *watch, const struct etcd_reply *reply) {
    struct membership *m = CONTAINER_OF(watch, struct membership, watch);
    if (reply->revision > m->revision)
        m->revision = reply->revision;
    for (int i = 0; i < reply->n_events; i++) {
        m->n_events++;
        if (reply->events[i].is_delete)
            drop_key(m, reply->events[i].kv.key);
        else
            take_kv(m, &reply->events[i].kv);
    }
}

static void on_watch_end(struct etcd_watch *watch, struct status *status_take) {
    list_later(CONTAINER_OF(watch, struct membership, watch), status_take);
}

static void on_listed(struct etcd_call *call, struct status *status_take,
                      const struct etcd_reply *reply) {
    struct membership *m = CONTAINER_OF(call, struct membership, listing);
    if (status_take) {
        list_later(m, status_take);
        return;
    }
    if (m->is_away)
        log_event(EVENT_ETCD_BACK, "etcd: listed again, at revision %lld",
                  (long long)reply->revision);
    m->is_away = false;
    m->is_watching = true;
    m->backoff_ms = RELIST_MIN_MS;
    m->revision = reply->revision;
    m->n_listings++;
    take_listing(m, reply->n_ranges > 0 ? &reply->ranges[0] : NULL);
    etcd_watch_start(m->etcd, &m->watch, m->prefix, reply->revision + 1);
}

static void on_timer(struct loop_timer *timer) {
    struct membership *m = CONTAINER_OF(timer, struct membership, timer);
    etcd_range(m->etcd, &m->listing, m->prefix, true);
}

/* ---- life ---- */

struct membership *membership_new(struct loop *loop, struct etcd *etcd, const char *cluster_name,
                                  struct tasks *tasks) {
    struct membership *m = xcalloc(1, sizeof(*m));
    struct str prefix = STR_INIT;
    member_prefix(cluster_name, &prefix);
    str_add(&prefix, "tasks/");
    m->loop = loop;
    m->etcd = etcd;
    m->tasks = tasks;
    m->cluster = xstrdup(cluster_name);
    m->prefix = str_detach(&prefix);
    m->backoff_ms = RELIST_MIN_MS;
    m->listing.on_reply = on_listed;
    m->watch.on_events = on_events;
    m->watch.on_end = on_watch_end;
    loop_timer_init(loop, &m->timer, on_timer);
    loop_timer_start(&m->timer, 0, 0);
    return m;
}

static void timer_closed(struct loop_timer *timer) {
    struct membership *m = CONTAINER_OF(timer, struct membership, timer);
    free(m->cluster);
    free(m->prefix);
    free(m);
}

void membership_close(struct membership *m) {
    if (!m)
        return;
    etcd_call_cancel(&m->listing);
    etcd_watch_stop(&m->watch);
    loop_timer_close(&m->timer, timer_closed);
}

void membership_describe(const struct membership *m, struct str *out) {
    str_addf(out,
             "{\"cluster\": \"%s\", \"state\": \"%s\", \"revision\": %lld, \"listings\": %lld, "
             "\"events\": %lld}",
             m->cluster,
             m->is_watching ? "watching"
             : m->is_away   ? "away"
                            : "listing",
             (long long)m->revision, (long long)m->n_listings, (long long)m->n_events);
}

/* ---- expected tasks ---- */

static struct status *expect_job(struct span part, struct tasks *tasks, int64_t *total) {
    char name[128];
    const char *sign = memchr(part.data, '=', part.len);
    size_t n_job = sign ? (size_t)(sign - part.data) : part.len;
    size_t n_digits = part.len - n_job - (sign != NULL);
    if (!sign || n_job == 0 || n_job > 63 || n_digits == 0 || n_digits > 6 ||
        strspn(sign + 1, "0123456789") < n_digits)
        return status_invalid("'%.*s' is not of the form JOB=NUMBER",
                              (int)MIN(part.len, (size_t)80), part.data);
    long n = strtol(sign + 1, NULL, 10);
    if ((*total += n) > MAX_EXPECTED)
        return status_invalid("more than %d tasks", MAX_EXPECTED);
    for (long i = 0; i < n; i++) {
        struct device_name parsed;
        snprintf(name, sizeof(name), "/job:%.*s/replica:0/task:%ld", (int)n_job, part.data, i);
        struct status *st = i == 0 ? device_name_parse(span_of(name), &parsed) : NULL;
        if (st || (i == 0 && (strlen(parsed.job) != n_job || parsed.task != 0)))
            return st ? st
                      : status_invalid("'%.*s' is not a name for a job", (int)n_job, part.data);
        if (tasks)
            tasks_expect(tasks, name);
    }
    return NULL;
}

struct status *membership_expect(const char *text, struct tasks *tasks) {
    int64_t total = 0;
    struct status *st = NULL;
    for (const char *at = text; !st && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        st = expect_job((struct span){at, strcspn(at, ",")}, tasks, &total);
    return status_prefix_take(st, "expect: ");
}
