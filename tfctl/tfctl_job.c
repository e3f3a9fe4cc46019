/* tfctl job: ends the job of a cluster, through its master or etcd, and lets it begin again. */
#include "tfctl/tfctl.h"

#include <stdio.h>
#include <stdlib.h>

#include "rpc/daemon/page.h"
#include "tfctl/admin_address.h"
#include "tfctl/cli.h"
#include "client/tls_client.h"
#include "rpc/membership/etcd_flags.h"
#include "rpc/listen.h"

struct job_flags {
    const char *target, *admin;
    struct etcd_flags etcd;
    int64_t timeout_ms;
    struct tls_client tls;
};

#define ROW(...) CLI_ROW(struct job_flags, __VA_ARGS__)

// clang-format off
static const struct option_row rows[] = {
    {ROW("etcd", OPTION_STRING, etcd.urls, NULL, "URL[,URL...]",
        "write the request into the cluster's etcd, for all its processes, also those "
        "that start later")},
    {ROW("cluster-name", OPTION_STRING, etcd.cluster_name, "default", "NAME",
        "the cluster's name in etcd")},
    {ROW("etcd-ca", OPTION_STRING, etcd.ca_file, NULL, "PATH",
        "the authorities that vouch for an https etcd (PEM)")},
    {ROW("etcd-cert", OPTION_STRING, etcd.cert_file, NULL, "PATH",
        "this client's certificate for etcd (PEM)")},
    {ROW("etcd-key", OPTION_STRING, etcd.key_file, NULL, "PATH",
        "the private key of --etcd-cert (PEM)")},
    {ROW("etcd-user", OPTION_STRING, etcd.user, NULL, "NAME",
        "the user of an etcd with authentication")},
    {ROW("etcd-password-file", OPTION_STRING, etcd.password_file, NULL, "PATH",
        "a file with the password of --etcd-user")},
    {ROW("admin", OPTION_STRING, admin, NULL, "ADDRESS",
        "send the request to the master's admin port, HOST:PORT or https://HOST:PORT, or to its "
        "--admin-socket, unix:PATH (default: the target's port + 10000, https for grpcs://)")},
    {ROW("tls-ca", OPTION_STRING, tls.ca, NULL, "PATH",
        "with https, the authorities that vouch for the master (PEM; default $MILLRACE_TLS_CA)")},
    {ROW("tls-cert", OPTION_STRING, tls.cert, NULL, "PATH",
        "with https, the operator's certificate (PEM; default $MILLRACE_TLS_CERT)")},
    {ROW("tls-key", OPTION_STRING, tls.key, NULL, "PATH",
        "the private key of --tls-cert (PEM; default $MILLRACE_TLS_KEY)")},
    {ROW("target", OPTION_STRING, target, NULL, "URL",
        "the master, grpc://HOST:PORT or grpcs://HOST:PORT (default $MILLRACE_TARGET)")},
    {ROW("timeout", OPTION_DURATION, timeout_ms, "10s", "TIME",
        "how long to wait for the answer"), .min = 1, .max = 86400000},
};
// clang-format on

enum { VERB_END, VERB_BEGIN };
static const char *const verbs[] = {[VERB_END] = "end", [VERB_BEGIN] = "begin", NULL};

static const struct cli_spec spec = {
    .options = {.program = "tfctl job",
                .summary = "end: the master lets its steps end, then it and all tasks exit with 0. "
                           "begin: with --etcd, allows the job to start again.",
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "end|begin [OPTION]...",
    .min_args = 1,
    .max_args = 1,
    .verbs = verbs,
};

/* One request, and how it ended. */
struct job_call {
    struct loop *loop;
    struct etcd_call etcd_call;
    struct http_call http_call;
    struct etcd *etcd;
    struct http_client *http;
    struct status *status;
};

static void on_put(struct etcd_call *call, struct status *status_take,
                   const struct etcd_reply *reply) {
    struct job_call *job = CONTAINER_OF(call, struct job_call, etcd_call);
    job->status = status_take;
    etcd_close(job->etcd, NULL, NULL);
    loop_stop(job->loop);
}

static struct status *ask_etcd(struct job_call *job, const struct job_flags *flags, bool is_end) {
    struct str key = STR_INIT;
    struct etcd_options options = {.urls = flags->etcd.urls,
                                   .timeout_ms = flags->timeout_ms,
                                   .ca_file = flags->etcd.ca_file,
                                   .cert_file = flags->etcd.cert_file,
                                   .key_file = flags->etcd.key_file,
                                   .user = flags->etcd.user,
                                   .password_file = flags->etcd.password_file};
    TRY(etcd_new(job->loop, &options, &job->etcd));
    member_key_of_job(flags->etcd.cluster_name, &key);
    job->etcd_call.on_reply = on_put;
    if (is_end)
        etcd_put(job->etcd, &job->etcd_call, str_text(&key), span_of(MEMBER_JOB_ENDED), 0);
    else
        etcd_delete(job->etcd, &job->etcd_call, str_text(&key));
    str_fini(&key);
    return NULL;
}

static void on_posted(struct http_call *call, struct status *status_take, int http_code,
                      struct span body) {
    struct job_call *job = CONTAINER_OF(call, struct job_call, http_call);
    job->status = status_take;
    size_t len = body.len - (body.len > 0 && body.data[body.len - 1] == '\n');
    if (!status_take && http_code != 200)
        job->status = status_new(http_code == 403 ? STATUS_PERMISSION_DENIED : STATUS_INTERNAL,
                                 "the master answered with HTTP status %d: %.*s", http_code,
                                 (int)MIN(len, (size_t)300), body.data);
    http_client_close(job->http, NULL, NULL);
    loop_stop(job->loop);
}

static struct status *ask_master(struct job_call *job, const struct job_flags *flags,
                                 const char *admin) {
    static const char *const headers[] = {"X-Millrace: job", NULL};
    struct str url = STR_INIT;
    TRY(http_client_new(job->loop, &job->http));
    struct tls_client tls = flags->tls;
    const char *unix_path;
    tls_client_fill(&tls);
    admin_address_page(admin, "/job/end", &url, &unix_path);
    job->http_call.on_done = on_posted;
    http_call_start(job->http, &job->http_call,
                    &(struct http_request){.url = str_text(&url),
                                           .body = span_of(""),
                                           .headers = headers,
                                           .timeout_ms = flags->timeout_ms,
                                           .unix_path = unix_path,
                                           .ca_file = tls.ca,
                                           .cert_file = tls.cert,
                                           .key_file = tls.key});
    str_fini(&url);
    return NULL;
}

static struct status *find_admin(const struct job_flags *flags, struct str *out) {
    const char *target = flags->target ? flags->target : getenv("MILLRACE_TARGET");
    if (!flags->admin && (!target || !*target))
        return status_invalid(
            "no job is named: give --etcd, --admin or --target, or set MILLRACE_TARGET");
    return admin_address_find(flags->admin, target, out);
}

static struct status *check(const struct job_flags *flags, int verb, struct str *ret_admin) {
    TRY(etcd_flags_check(&flags->etcd));
    if (flags->etcd.urls)
        return NULL;
    return verb == VERB_END
               ? find_admin(flags, ret_admin)
               : status_invalid("begin needs --etcd: only etcd remembers that a job has ended");
}

static void print_json(const struct job_flags *flags, int verb, const char *admin) {
    struct str out = STR_INIT;
    page_open(&out, NULL, '{');
    page_text(&out, "asked_to", verbs[verb]);
    if (flags->etcd.urls)
        page_text(&out, "etcd", flags->etcd.urls);
    else
        page_text(&out, "admin", admin);
    page_close(&out, '}');
    cli_print(&out);
    str_fini(&out);
}

static int run_job(const struct cli *cli, const struct job_flags *flags, const char *admin) {
    struct job_call job = {.loop = loop_new()};
    struct status *st = flags->etcd.urls ? ask_etcd(&job, flags, cli->verb == VERB_END)
                                         : ask_master(&job, flags, admin);
    if (st)
        loop_stop(job.loop);
    loop_run(job.loop);
    loop_free(job.loop);
    st = st ? st : job.status;
    if (st)
        return cli_fail_call(cli, st);
    if (cli_is_json(cli))
        print_json(flags, cli->verb, admin);
    return EXIT_OK;
}

static int run(struct cli *cli, void *arg) {
    const struct job_flags *flags = arg;
    struct str admin = STR_INIT;
    struct status *st = check(flags, cli->verb, &admin);
    int code = st ? cli_fail_usage(cli, st) : run_job(cli, flags, str_text(&admin));
    str_fini(&admin);
    return code;
}

int tfctl_job(int argc, char **argv) {
    struct job_flags flags = {.target = NULL};
    return cli_main(&spec, &flags, argc, argv, run);
}
