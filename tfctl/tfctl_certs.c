/* tfctl certs: makes what a cluster needs to use TLS, for users without an authority of their
 * own. */
#include "tfctl/tfctl.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tfctl/cli.h"
#include "rpc/daemon/page.h"
#include "rpc/membership/member.h"
#include "rpc/tls/tls_certs.h"

enum { MAX_NAMES = 64, MAX_TASKS = 10000 };

struct certs_flags {
    const char *cluster_name, *tasks;
    struct cli_list hosts, clients;
    int64_t lifetime_ms, ca_lifetime_ms;
};

#define FIELD(field) offsetof(struct certs_flags, field)

// clang-format off
static const struct option_row rows[] = {
    {"cluster-name", OPTION_STRING, FIELD(cluster_name), "NAME", "default",
        "the cluster's name in the certificates; the daemons' --cluster-name must be the same"},
    {"tasks", OPTION_STRING, FIELD(tasks), "JOB=N[,...]", "",
        "how many tasks of which jobs, as ps=1,worker=2"},
    {"lifetime", OPTION_DURATION, FIELD(lifetime_ms), "TIME", "8760h",
        "how long the certificates are valid", 1000, 1000ll * 86400 * 36500},
    {"ca-lifetime", OPTION_DURATION, FIELD(ca_lifetime_ms), "TIME", "87600h",
        "how long an authority that is made now is valid", 1000, 1000ll * 86400 * 36500},
};

static const struct cli_list_row lists[] = {
    {"host", FIELD(hosts), "NAME",
        "a DNS name or address at which clients reach the master, in addition to localhost; may "
        "be repeated"},
    {"client", FIELD(clients), "NAME",
        "make a certificate for a client, client-NAME.pem; may be repeated (client.pem is always"
        " made)"},
};
// clang-format on

static const char epilog[] =
    "\nWrites into DIR: ca.pem and ca.key (unless they exist already), master.pem and "
    ".key, JOB-INDEX.pem and .key for each task,\n"
    "client.pem and .key, admin.pem and .key for operators (tfctl job end). Keys are readable by "
    "their owner only; ca.key is for making\n"
    "further certificates, and belongs on no host of the cluster. A second run makes new "
    "certificates of the same authority; send HUP to the daemons "
    "to make them read\nthe new files.\n"
    "\nExample:\n"
    "  tfctl certs /etc/millrace/tls --tasks ps=1,worker=2 --host master.example\n"
    "  tf-worker --job ps --tls-ca ca.pem --tls-cert ps-0.pem --tls-key ps-0.key ...\n";

static const struct cli_spec spec = {
    .options = {.program = "tfctl certs",
                .summary = "Makes a small certificate authority, and certificates for a cluster's "
                           "master, tasks and clients.",
                .epilog = epilog,
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "DIR [OPTION]...",
    .lists = lists,
    .n_lists = ARRAY_LEN(lists),
    .min_args = 1,
    .max_args = 1,
};

struct issuing {
    const struct certs_flags *flags;
    const char *directory;
    struct tls_authority *authority;
    struct str *json; /* rows for what has been issued; NULL: a line is printed for each */
};

static void path_of(const char *directory, const char *name, const char *ending, struct str *out) {
    str_clear(out);
    str_addf(out, "%s/%s.%s", directory, name, ending);
}

/* ---- the authority ---- */

static struct status *make_authority(struct issuing *issuing, const char *cert, const char *key) {
    struct str name = STR_INIT;
    str_addf(&name, "Millrace %s", issuing->flags->cluster_name);
    struct status *st = tls_authority_new(str_text(&name), issuing->flags->ca_lifetime_ms / 1000,
                                          &issuing->authority);
    str_fini(&name);
    return st ? st : tls_authority_save(issuing->authority, cert, key);
}

static struct status *open_authority(struct issuing *issuing) {
    struct str cert = STR_INIT, key = STR_INIT;
    path_of(issuing->directory, "ca", "pem", &cert);
    path_of(issuing->directory, "ca", "key", &key);
    bool is_there = access(str_text(&cert), F_OK) == 0 || access(str_text(&key), F_OK) == 0;
    struct status *st =
        is_there ? tls_authority_load(str_text(&cert), str_text(&key), &issuing->authority)
                 : make_authority(issuing, str_text(&cert), str_text(&key));
    str_fini(&cert);
    str_fini(&key);
    return st;
}

/* ---- certificates ---- */

static void show(const struct issuing *issuing, const char *cert, const char *key,
                 const char *name) {
    if (!issuing->json) {
        printf("%s: %s\n", cert, name);
        return;
    }
    page_open(issuing->json, NULL, '{');
    page_text(issuing->json, "certificate", cert);
    page_text(issuing->json, "key", key);
    page_text(issuing->json, "name", name);
    page_close(issuing->json, '}');
}

/* `uri`: the part after "millrace://CLUSTER/". */
static struct status *issue(const struct issuing *issuing, const char *file, const char *uri,
                            bool is_master) {
    const struct certs_flags *flags = issuing->flags;
    const char *names[MAX_NAMES + 4] = {NULL, "localhost", "127.0.0.1", "::1"};
    size_t n = 4;
    struct str name = STR_INIT, cert = STR_INIT, key = STR_INIT;
    str_addf(&name, "millrace://%s/%s", flags->cluster_name, uri);
    names[0] = str_text(&name);
    for (int i = 0; i < flags->hosts.n && is_master; i++)
        names[n++] = flags->hosts.items[i];
    path_of(issuing->directory, file, "pem", &cert);
    path_of(issuing->directory, file, "key", &key);
    struct tls_cert_request request = {.common_name = file,
                                       .names = names,
                                       .n_names = is_master ? n : 1,
                                       .lifetime_s = flags->lifetime_ms / 1000};
    struct status *st =
        tls_authority_issue(issuing->authority, &request, str_text(&cert), str_text(&key));
    if (!st)
        show(issuing, str_text(&cert), str_text(&key), str_text(&name));
    str_fini(&name);
    str_fini(&cert);
    str_fini(&key);
    return st;
}

static struct status *issue_tasks(const struct issuing *issuing, const char *job, long n_tasks) {
    struct str file = STR_INIT, uri = STR_INIT;
    struct status *st = NULL;
    for (long i = 0; i < n_tasks && !st; i++) {
        str_clear(&file);
        str_clear(&uri);
        str_addf(&file, "%s-%ld", job, i);
        str_addf(&uri, "job/%s/task/%ld", job, i);
        st = issue(issuing, str_text(&file), str_text(&uri), false);
    }
    str_fini(&file);
    str_fini(&uri);
    return st;
}

static bool is_word(const char *text) {
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return len > 0 && text[len] == '\0';
}

/* JOB=N */
static struct status *issue_job(const struct issuing *issuing, char *item) {
    char *equals = strchr(item, '='), *end = NULL;
    errno = 0;
    long n = equals ? strtol(equals + 1, &end, 10) : 0;
    if (!equals || end == equals + 1 || *end || errno || n < 1 || n > MAX_TASKS)
        return status_invalid("tasks: '%s' is not JOB=N with N from 1 to %d", item, MAX_TASKS);
    *equals = '\0';
    return is_word(item) ? issue_tasks(issuing, item, n)
                         : status_invalid("tasks: '%s' is not a name for a job", item);
}

static struct status *issue_clients(const struct issuing *issuing) {
    struct str file = STR_INIT, uri = STR_INIT;
    struct status *st = issue(issuing, "client", "client", false);
    for (int i = 0; i < issuing->flags->clients.n && !st; i++) {
        const char *name = issuing->flags->clients.items[i];
        str_clear(&file);
        str_clear(&uri);
        str_addf(&file, "client-%s", name);
        str_addf(&uri, "client/%s", name);
        st = is_word(name) ? issue(issuing, str_text(&file), str_text(&uri), false)
                           : status_invalid("client: '%s' is not a name for a file", name);
    }
    str_fini(&file);
    str_fini(&uri);
    return st;
}

static struct status *issue_all(const struct issuing *issuing) {
    char *list = xstrdup(issuing->flags->tasks), *rest = list, *item;
    struct status *st = issue(issuing, "master", "master", true);
    if (!st)
        st = issue(issuing, "admin", "admin", false);
    while (!st && (item = strsep(&rest, ",")))
        if (*item)
            st = issue_job(issuing, item);
    free(list);
    return st ? st : issue_clients(issuing);
}

static struct status *make_all(const struct certs_flags *flags, const char *directory,
                               struct str *json) {
    struct issuing issuing = {.flags = flags, .directory = directory, .json = json};
    TRY(status_prefix_take(member_check_cluster(flags->cluster_name), "cluster-name: "));
    if (flags->hosts.n > MAX_NAMES)
        return status_invalid("host: more than %d", MAX_NAMES);
    if (mkdir(directory, 0700) != 0 && errno != EEXIST)
        return status_unavailable("%s: %s", directory, strerror(errno));
    struct status *st = open_authority(&issuing);
    if (!st)
        st = issue_all(&issuing);
    tls_authority_free(issuing.authority);
    return st;
}

static int run(struct cli *cli, void *arg) {
    const struct certs_flags *flags = arg;
    struct str json = STR_INIT;
    page_open(&json, NULL, '{');
    page_text(&json, "directory", cli->args[0]);
    page_open(&json, "certificates", '[');
    struct status *st = make_all(flags, cli->args[0], cli_is_json(cli) ? &json : NULL);
    page_close(&json, ']');
    page_close(&json, '}');
    if (!st && cli_is_json(cli))
        cli_print(&json);
    str_fini(&json);
    if (!st)
        return EXIT_OK;
    return status_code(st) == STATUS_INVALID_ARGUMENT ? cli_fail_usage(cli, st)
                                                      : cli_fail(cli, EXIT_IO, st);
}

int tfctl_certs(int argc, char **argv) {
    struct certs_flags flags = {.tasks = NULL};
    return cli_main(&spec, &flags, argc, argv, run);
}
