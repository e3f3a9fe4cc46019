/* Makes the cluster that a session has brought, and frees it. */
#include "master/service/session_cluster.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "master/request/budgets.h"
#include "master/request/request.h"
#include "master/service/service_internal.h"
#include "rpc/daemon/page.h"

/* ---- which tasks are meant? ---- */

/* The address that the client has dialled: CreateSessionRequest.target without "grpc://". */
static struct span dialled_address(struct grpc_call *call) {
    struct span target = {"", 0};
    struct status *st = request_find_bytes(grpc_call_message(call)->body, 3, &target);
    status_unref(st);
    for (size_t i = 0; !st && i + 3 <= target.len; i++)
        if (memcmp(target.data + i, "://", 3) == 0)
            return (struct span){target.data + i + 3, target.len - i - 3};
    return target;
}

/* The task of the master's own cluster at that address; NULL: there is none. */
static struct task *find_own(struct service *service, const char *address) {
    struct tasks *tasks = service->env.tasks;
    for (int i = 0; i < tasks_count(tasks); i++)
        if (strcmp(task_address(tasks_at(tasks, i)), address) == 0 &&
            !task_is_gone(tasks_at(tasks, i)))
            return tasks_at(tasks, i);
    return NULL;
}

static struct status *check_mode(struct service *service, const struct cluster_task *entry) {
    if (service->env.options.session_clusters == SESSION_CLUSTERS_OWN)
        return status_new(STATUS_PERMISSION_DENIED,
                          "ConfigProto.cluster_def: %s at %s is not at the address of a task of "
                          "this master's cluster, and --session-clusters=own allows no other",
                          entry->name, entry->address);
    if (strncmp(entry->address, "unix:", 5) == 0 || strncmp(entry->address, "local:", 6) == 0)
        return status_new(STATUS_PERMISSION_DENIED,
                          "ConfigProto.cluster_def: %s at %s: a Unix socket may be named only if "
                          "it is that of a task of this master's cluster",
                          entry->name, entry->address);
    return NULL;
}

/* Replaces an entry by the task that it means; clears its address if it means the master. */
static struct status *resolve(struct service *service, struct cluster_task *entry, bool is_dialled,
                              struct session_config *config) {
    struct task *relay = is_dialled && config->default_task
                             ? tasks_find(service->env.tasks, config->default_task)
                             : NULL;
    if (relay) {
        entry->address = arena_strdup(&config->cluster->arena, task_address(relay));
        text_replace(&config->default_task, entry->name);
    } else if (is_dialled) {
        entry->address = NULL;
    }
    return is_dialled || find_own(service, entry->address) ? NULL : check_mode(service, entry);
}

static struct status *resolve_all(struct service *service, struct span dialled,
                                  struct session_config *config) {
    struct cluster_spec *cluster = config->cluster;
    const char *first = NULL; /* the entry that was dialled */
    int n = 0;
    for (int i = 0; i < cluster->n_tasks; i++) {
        struct cluster_task *entry = &cluster->tasks[i];
        bool is_dialled = span_is(dialled, entry->address);
        if (is_dialled && first)
            return status_invalid("ConfigProto.cluster_def: %s and %s both have the address of "
                                  "the session's target",
                                  first, entry->name);
        TRY(resolve(service, entry, is_dialled, config));
        if (is_dialled)
            first = entry->name;
        if (entry->address)
            cluster->tasks[n++] = *entry;
    }
    cluster->n_tasks = n;
    if (!first || n == 0 || !config->default_task || strcmp(config->default_task, first) != 0) {
        free(config->default_task); /* it names a task of the master's own cluster */
        config->default_task = NULL;
    }
    return n > 0 ? NULL
                 : status_invalid("ConfigProto.cluster_def names no task other than this master, "
                                  "which runs no nodes");
}

struct status *session_cluster_check(struct service *service, struct grpc_call *call,
                                     struct session_config *config) {
    if (!config->cluster)
        return NULL;
    if (service->env.options.session_clusters == SESSION_CLUSTERS_OFF)
        return status_new(STATUS_PERMISSION_DENIED,
                          "This master does not take ConfigProto.cluster_def "
                          "(--session-clusters=off)");
    return resolve_all(service, dialled_address(call), config);
}

/* ---- making and freeing ---- */

/* Step ids contain the incarnation's last 24 bits, and a task may serve several of these
 * masters. */
static bool has_same_ids(uint64_t a, uint64_t b) { return ((a ^ b) & 0xffffff) == 0; }

static uint64_t new_incarnation(const struct service *service) {
    for (;;) {
        uint64_t incarnation = random_u64();
        bool is_taken = has_same_ids(incarnation, service->env.incarnation);
        LIST_FOR_EACH (link, &service->clusters)
            is_taken |= has_same_ids(
                incarnation, LIST_ENTRY(link, struct session_cluster, link)->env.incarnation);
        if (!is_taken)
            return incarnation;
    }
}

struct status *session_cluster_new(struct service *service, const struct session_config *config,
                                   struct session_cluster **ret) {
    const struct master_options *options = &service->env.options;
    if (service->is_draining)
        return status_unavailable("This master is shutting down");
    if (service->n_clusters >= options->max_session_clusters)
        return budget_refused(BUDGET_SESSION_CLUSTERS,
                              status_exhausted("%d sessions have a cluster_def already, the limit "
                                               "(--max-session-clusters)",
                                               service->n_clusters));
    struct session_cluster *cluster = xcalloc(1, sizeof(*cluster));
    cluster->env = service->env;
    cluster->env.incarnation = new_incarnation(service);
    save_barrier_init(&cluster->env.save_barrier);
    list_init(&cluster->env.live_steps);
    cluster->env.tasks = tasks_new_session(
        service->env.loop, config->cluster, cluster->env.incarnation, options->heartbeat_ms,
        service_task_ready, service_task_lost, service_write_holdings, service);
    tasks_set_tls(cluster->env.tasks, options->tls_wire);
    tasks_set_checksums(cluster->env.tasks, options->use_checksums);
    for (int i = 0; i < tasks_count(cluster->env.tasks); i++) {
        struct task *task = tasks_at(cluster->env.tasks, i);
        struct task *own = find_own(service, task_address(task));
        if (own)
            task_expect_own(task, task_name(own));
    }
    list_push_back(&service->clusters, &cluster->link);
    service->n_clusters++;
    log_event(EVENT_SESSION_CLUSTER, "a session brings cluster %016llx of %d tasks",
              (unsigned long long)cluster->env.incarnation, tasks_count(cluster->env.tasks));
    *ret = cluster;
    return NULL;
}

void session_cluster_free(struct session_cluster *cluster) {
    if (!cluster)
        return;
    list_remove(&cluster->link);
    cluster->env.service->n_clusters--;
    log_event(EVENT_SESSION_CLUSTER_ENDED, "cluster %016llx has ended with its session",
              (unsigned long long)cluster->env.incarnation);
    tasks_leave(cluster->env.tasks);
    free(cluster);
}

struct session_cluster *session_cluster_of(const struct session *session) {
    bool is_home = session->env == session->env->home;
    return is_home ? NULL : CONTAINER_OF(session->env, struct session_cluster, env);
}

void session_clusters_describe(struct service *service, struct str *out) {
    enum { MAX_BYTES = 1 << 20, MAX_TASKS = 500 };
    size_t begin = out->len, n_more = 0;
    page_open(out, "session_clusters", '[');
    LIST_FOR_EACH (link, &service->clusters) {
        struct session_cluster *cluster = LIST_ENTRY(link, struct session_cluster, link);
        if (out->len - begin > MAX_BYTES) {
            n_more++;
            continue;
        }
        page_open(out, NULL, '{');
        page_id(out, "cluster", cluster->env.incarnation);
        page_key(out, "tasks");
        tasks_describe(cluster->env.tasks, MAX_TASKS, out);
        page_close(out, '}');
    }
    page_more(out, n_more);
    page_close(out, ']');
}
