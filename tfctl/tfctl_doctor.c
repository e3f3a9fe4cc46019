/* tfctl doctor: looks for what usually goes wrong, and says what to do. */
#include <stdio.h>
#include <stdlib.h>

#include "rpc/daemon/page.h"
#include "tfctl/cli.h"
#include "tfctl/doctor.h"
#include "tfctl/progress.h"
#include "tfctl/tfctl.h"

struct doctor_flags {
    struct page_source source;
    const char *etcd;
};

#define ROW(...) CLI_ROW(struct doctor_flags, __VA_ARGS__)

// clang-format off
static const struct option_row rows[] = {
    {ROW("etcd", OPTION_STRING, etcd, NULL, "URL[,URL...]",
        "also look at the cluster's etcd; for https, --tls-ca must vouch for it")},
#include "tfctl/page_source_rows.inc"
};

static const struct doctor_check checks[] = {
    {"proxies",       true,  false, doctor_proxies},
    {"name",          true,  false, doctor_name},
    {"port",          true,  false, doctor_port},
    {"cluster",       true,  false, doctor_cluster},
    {"etcd",          false, true,  doctor_etcd},
    {"host name",     false, false, doctor_host_name},
    {"clock",         false, false, doctor_clock},
    {"cores",         false, false, doctor_cores},
    {"memory",        false, false, doctor_memory},
    {"huge pages",    false, false, doctor_huge_pages},
    {"open files",    false, false, doctor_open_files},
    {"locked memory", false, false, doctor_locked_memory},
    {"rdma",          false, false, doctor_rdma},
    {"disk",          false, false, doctor_disk},
};
// clang-format on

static const struct cli_spec spec = {
    .options = {.program = "tfctl doctor",
                .summary = "Looks at this host, and at the way from here to a cluster, for what "
                           "usually goes wrong: proxies, names, ports, clocks, limits, memory, "
                           "RDMA, disks, etcd. Says what to do about each. Exits with 70 if "
                           "something is broken; warnings do not count.",
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "[OPTION]...",
};

void finding_set(struct finding *finding, enum doctor_state state, const char *advice,
                 const char *format, ...) {
    va_list args;
    finding->state = state;
    str_clear(&finding->found);
    str_clear(&finding->advice);
    str_add(&finding->advice, advice);
    va_start(args, format);
    str_addv(&finding->found, format, args);
    va_end(args);
}

static const char *const state_names[] = {
    [DOCTOR_OK] = "ok", [DOCTOR_WARNING] = "warning", [DOCTOR_BROKEN] = "broken"};

/* People see each line as soon as it is known, because a check may take seconds. */
static void show(const struct doctor_check *check, const struct finding *finding, bool is_json,
                 struct str *json) {
    if (is_json) {
        page_open(json, NULL, '{');
        page_text(json, "check", check->name);
        page_text(json, "state", state_names[finding->state]);
        page_text(json, "found", str_text(&finding->found));
        page_text(json, "advice", str_text(&finding->advice));
        page_close(json, '}');
        return;
    }
    printf("%-8s %-13s  %s\n", state_names[finding->state], check->name, str_text(&finding->found));
    if (finding->advice.len > 0)
        printf("%24s-> %s\n", "", str_text(&finding->advice));
    fflush(stdout);
}

static int run_checks(const struct doctor *doctor, bool is_json) {
    struct str json = STR_INIT;
    struct progress progress;
    int n_of[3] = {0};
    progress_begin(&progress);
    progress.next_ns = 0; /* a check may wait before the next line could be written */
    for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
        struct finding finding = {.state = DOCTOR_OK};
        if ((checks[i].needs_master && doctor->admin.len == 0) ||
            (checks[i].needs_etcd && !doctor->etcd))
            continue;
        progress_show(&progress, "looking at: %s", checks[i].name);
        checks[i].check(doctor, &finding);
        progress_clear(&progress);
        show(&checks[i], &finding, is_json, &json);
        n_of[finding.state]++;
        str_fini(&finding.found);
        str_fini(&finding.advice);
    }
    if (is_json)
        printf("{\"ok\":%s,\"checks\":[%s]}\n", n_of[DOCTOR_BROKEN] == 0 ? "true" : "false",
               str_text(&json));
    else
        printf("\n%d ok, %d warnings, %d broken\n", n_of[DOCTOR_OK], n_of[DOCTOR_WARNING],
               n_of[DOCTOR_BROKEN]);
    str_fini(&json);
    return n_of[DOCTOR_BROKEN] == 0 ? EXIT_OK : EXIT_INTERNAL;
}

/* Without a master, only this host is looked at. */
static struct status *find_master(const struct doctor_flags *flags, struct doctor *doctor) {
    bool is_tls;
    const char *target = flags->source.target ? flags->source.target : getenv("MILLRACE_TARGET");
    if (!target || !*target)
        return flags->source.admin ? status_invalid("--admin names the pages: give --target, too")
                                   : NULL;
    TRY(net_address_parse(tls_client_split(target, &is_tls), &doctor->master));
    if (doctor->master.is_unix)
        return status_invalid("the target is a Unix socket: name its HOST:PORT");
    return page_source_find(&flags->source, &doctor->admin);
}

static int run(struct cli *cli, void *arg) {
    const struct doctor_flags *flags = arg;
    struct doctor doctor = {.source = flags->source, .etcd = flags->etcd, .admin = STR_INIT};
    struct status *st = find_master(flags, &doctor);
    int code = st ? cli_fail_usage(cli, st) : run_checks(&doctor, cli_is_json(cli));
    str_fini(&doctor.admin);
    return code;
}

int tfctl_doctor(int argc, char **argv) {
    struct doctor_flags flags = {.etcd = NULL};
    return cli_main(&spec, &flags, argc, argv, run);
}
