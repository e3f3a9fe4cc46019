/* Joins the task to its cluster and serves its client port. */
#include "worker/membership.h"

#include <stdlib.h>

#include "rpc/relay/client_port.h"

struct worker_membership {
    struct etcd *etcd;
    struct etcd_registration *registration;
    struct client_port *client_port;
    bool is_leaving, is_closing;
};

static void free_memory(void *arg) { free(arg); }

/* The client port and the registration use etcd, so they are closed before it. */
static void close_etcd(struct worker_membership *m) {
    if (m->etcd)
        etcd_close(m->etcd, free_memory, m);
    else
        free_memory(m);
}

static void on_left(void *arg) {
    struct worker_membership *m = arg;
    m->registration = NULL;
    if (m->is_closing)
        close_etcd(m);
}

void worker_membership_leave(struct worker_membership *m) {
    if (!m || m->is_leaving || !m->registration)
        return;
    m->is_leaving = true;
    etcd_registration_leave(m->registration, on_left, m);
}

void worker_membership_close(struct worker_membership *m) {
    if (!m || m->is_closing)
        return;
    m->is_closing = true;
    client_port_close(m->client_port);
    m->client_port = NULL;
    worker_membership_leave(m);
    if (!m->registration)
        close_etcd(m);
}

static struct status *open_client_port(struct worker_membership *m, struct loop *loop,
                                       const struct worker_membership_options *options) {
    struct str key = STR_INIT;
    if (options->etcd->urls)
        member_key_of_master(options->etcd->cluster_name, &key);
    struct client_port_options port_options = {.listen = options->client_listen,
                                               .task = options->task,
                                               .master = options->master,
                                               .etcd = m->etcd,
                                               .master_key = str_text(&key)};
    struct status *st = client_port_new(loop, &port_options, &m->client_port);
    str_fini(&key);
    return st;
}

static void register_in_etcd(struct worker_membership *m, struct loop *loop,
                             const struct worker_membership_options *options) {
    struct str key = STR_INIT, job_key = STR_INIT;
    member_key_of_task(options->etcd->cluster_name, options->job, options->index, &key);
    member_key_of_job(options->etcd->cluster_name, &job_key);
    struct etcd_registration_options registration_options = {.etcd = m->etcd,
                                                             .key = str_text(&key),
                                                             .job_key = str_text(&job_key),
                                                             .member = options->member,
                                                             .ttl_s = options->etcd->ttl_ms / 1000,
                                                             .tls = options->tls,
                                                             .task = options->task,
                                                             .on_taken = options->on_taken,
                                                             .on_job_ended = options->on_job_ended,
                                                             .arg = options->arg};
    m->registration = etcd_registration_new(loop, &registration_options);
    str_fini(&key);
    str_fini(&job_key);
}

struct status *worker_membership_new(struct loop *loop,
                                     const struct worker_membership_options *options,
                                     struct worker_membership **ret) {
    struct worker_membership *m = xcalloc(1, sizeof(*m));
    struct status *st = options->etcd->urls ? etcd_flags_open(options->etcd, loop, &m->etcd) : NULL;
    if (!st && options->client_listen)
        st = open_client_port(m, loop, options);
    if (st) {
        worker_membership_close(m);
        return st;
    }
    if (m->etcd)
        register_in_etcd(m, loop, options);
    *ret = m;
    return NULL;
}

int worker_membership_client_port(const struct worker_membership *m) {
    return m->client_port ? client_port_number(m->client_port) : 0;
}

bool worker_membership_is_ready(const struct worker_membership *m, struct str *out) {
    struct str why = STR_INIT;
    if (m->registration && !etcd_registration_is_ready(m->registration, out))
        return false;
    bool is_up = !m->etcd || etcd_is_up(m->etcd, &why);
    if (m->registration && etcd_registration_has_lapsed(m->registration))
        str_addf(&why, "%sits registration has lapsed", is_up ? "" : "; ");
    str_add(out, "ok");
    if (why.len > 0)
        str_addf(out, ", degraded: %s", str_text(&why));
    str_fini(&why);
    return true;
}

void worker_membership_describe(const struct worker_membership *m, struct str *out) {
    str_add(out, "{\"registration\": ");
    if (m->registration)
        etcd_registration_describe(m->registration, out);
    else
        str_add(out, "null");
    str_add(out, ", \"client_port\": ");
    if (m->client_port)
        client_port_describe(m->client_port, out);
    else
        str_add(out, "null");
    str_add_char(out, '}');
}
