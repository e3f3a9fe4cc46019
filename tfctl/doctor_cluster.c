/* Looks at a cluster from this host: the way to its master, its tasks, etcd. */
#include "tfctl/doctor.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "tfctl/cluster_view.h"

enum { CONNECT_TIMEOUT_MS = 3000 };

/* ---- proxies ---- */

static bool is_exempt(const char *host, const char *list) {
    size_t host_len = strlen(host);
    for (const char *item = list; item && *item;) {
        item += strspn(item, ", ");
        size_t len = strcspn(item, ", ");
        const char *name = item + (*item == '.' && len > 1);
        size_t name_len = len - (size_t)(name - item);
        bool is_suffix = name_len > 0 && name_len <= host_len &&
                         strncasecmp(host + host_len - name_len, name, name_len) == 0 &&
                         (name_len == host_len || host[host_len - name_len - 1] == '.');
        if (is_suffix || (len == 1 && *item == '*'))
            return true;
        item += len;
    }
    return false;
}

/* gRPC's own rules: the first of these variables that is set, unless the host is exempt. */
void doctor_proxies(const struct doctor *doctor, struct finding *finding) {
    static const char *const names[] = {"grpc_proxy", "https_proxy", "http_proxy"};
    const char *name = NULL, *proxy = NULL, *host = doctor->master.host;
    for (size_t i = 0; i < ARRAY_LEN(names) && !(proxy && *proxy); i++) {
        name = names[i];
        proxy = getenv(name);
    }
    if (!proxy || !*proxy)
        finding_set(finding, DOCTOR_OK, "", "none is set");
    else if (is_exempt(host, getenv("no_grpc_proxy")) || is_exempt(host, getenv("no_proxy")))
        finding_set(finding, DOCTOR_OK, "", "%s is set, but %s is exempt", name, host);
    else
        finding_set(finding, DOCTOR_BROKEN,
                    "add the master's host to no_proxy, or unset the variable; otherwise "
                    "TensorFlow's client does not reach the master",
                    "%s is set: gRPC clients dial %s through the proxy", name, host);
}

/* ---- the way to the master ---- */

/* NULL: it is not resolved, and the finding says so. The caller frees the list. */
static struct addrinfo *resolve(const struct doctor *doctor, struct finding *finding) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char port[8];
    snprintf(port, sizeof(port), "%u", doctor->master.port);
    int error = getaddrinfo(doctor->master.host, port, &hints, &list);
    if (error)
        finding_set(finding, DOCTOR_BROKEN, "correct the name, or add it to DNS or /etc/hosts",
                    "%s is not resolved: %s", doctor->master.host, gai_strerror(error));
    return error ? NULL : list;
}

void doctor_name(const struct doctor *doctor, struct finding *finding) {
    struct addrinfo *list = resolve(doctor, finding);
    char numeric[NI_MAXHOST] = "?";
    if (!list)
        return;
    getnameinfo(list->ai_addr, list->ai_addrlen, numeric, sizeof(numeric), NULL, 0, NI_NUMERICHOST);
    finding_set(finding, DOCTOR_OK, "", "%s is %s", doctor->master.host, numeric);
    freeaddrinfo(list);
}

/* Returns 0 or an errno. */
static int try_connect(const struct addrinfo *address) {
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0;
    if (fd < 0)
        return errno;
    if (connect(fd, address->ai_addr, address->ai_addrlen) != 0)
        error = errno;
    if (error == EINPROGRESS) {
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        socklen_t len = sizeof(error);
        error = ETIMEDOUT;
        if (poll(&wait, 1, CONNECT_TIMEOUT_MS) == 1)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    }
    close(fd);
    return error;
}

void doctor_port(const struct doctor *doctor, struct finding *finding) {
    struct addrinfo *list = resolve(doctor, finding);
    int error = EHOSTUNREACH;
    if (!list)
        return;
    for (const struct addrinfo *at = list; at && error != 0; at = at->ai_next)
        error = try_connect(at);
    freeaddrinfo(list);
    if (error == 0)
        finding_set(finding, DOCTOR_OK, "", "%s:%u accepts connections", doctor->master.host,
                    doctor->master.port);
    else
        finding_set(finding, DOCTOR_BROKEN,
                    error == ETIMEDOUT
                        ? "a firewall drops what is sent there, or the host is down"
                        : "start tf-master there; it listens on loopback unless --listen says "
                          "otherwise",
                    "%s:%u: %s", doctor->master.host, doctor->master.port, strerror(error));
}

/* ---- the cluster ---- */

static void add_problem(void *arg, const char *problem) {
    struct str *text = arg;
    str_addf(text, "%s%s", text->len > 0 ? "; " : "", problem);
}

void doctor_cluster(const struct doctor *doctor, struct finding *finding) {
    struct cluster_view view;
    struct str problems = STR_INIT;
    struct status *st = cluster_view_fetch(&doctor->source, str_text(&doctor->admin), &view);
    if (st) {
        finding_set(finding, DOCTOR_BROKEN,
                    "name its pages with --admin; they are on loopback unless the master's --admin "
                    "says otherwise, and behind TLS with --tls-admin",
                    "%s", status_message(st));
        status_unref(st);
        return;
    }
    cluster_view_problems(&view, add_problem, &problems);
    struct cluster_counts counts = cluster_view_count(&view);
    if (problems.len > 0)
        finding_set(finding, DOCTOR_BROKEN, "tfctl status says more, and the master's /statusz",
                    "%s", str_text(&problems));
    else
        finding_set(finding, DOCTOR_OK, "", "ready, with %lld of %lld tasks",
                    (long long)counts.n_ready, (long long)counts.n_tasks);
    cluster_view_fini(&view);
    str_fini(&problems);
}

/* Asks each of etcd's URLs for its /health. */
void doctor_etcd(const struct doctor *doctor, struct finding *finding) {
    static const char *const paths[] = {"/health"};
    struct str found = STR_INIT;
    bool is_well = true;
    char *list = xstrdup(doctor->etcd), *rest = list, *url;
    while ((url = strsep(&rest, ","))) {
        struct fetched_page page;
        struct page_value *health = NULL;
        const char *admin = strncmp(url, "http://", 7) == 0 ? url + 7 : url;
        struct status *st = page_source_fetch(&doctor->source, admin, paths, 1, &page);
        if (!st)
            st = fetched_page_check(&page);
        if (!st)
            st = page_parse((struct span){page.body.data, page.body.len}, &health);
        bool is_healthy = strcmp(page_get_text(health, "health"), "true") == 0;
        is_well &= is_healthy;
        str_addf(&found, "%s%s %s", found.len > 0 ? "; " : "", url,
                 is_healthy ? "is healthy"
                 : st       ? status_message(st)
                            : "says that it is not healthy");
        page_value_free(health);
        status_unref(st);
        fetched_page_fini(&page);
    }
    finding_set(finding, is_well ? DOCTOR_OK : DOCTOR_BROKEN,
                is_well ? "" : "etcdctl endpoint health; daemons go on with the tasks they know",
                "%s", str_text(&found));
    str_fini(&found);
    free(list);
}
