/* tfctl devices: lists what a master knows of its cluster. */
#include "tfctl/tfctl.h"

#include <inttypes.h>
#include <stdlib.h>

#include "client/c_api.h"
#include "tfctl/cli.h"
#include "tfctl/remote.h"

struct devices_flags {
    const char *target;
    struct tls_client tls;
    int64_t timeout_ms;
    bool json;
};

#define FIELD(field) offsetof(struct devices_flags, field)

// clang-format off
static const struct option_row rows[] = {
    {"target", OPTION_STRING, FIELD(target), "URL", NULL,
        "the master, grpc://HOST:PORT (default $MILLRACE_TARGET)"},
#include "client/tls_client_rows.inc"
    {"timeout", OPTION_DURATION, FIELD(timeout_ms), "TIME", "60s",
        "how long to wait for the answer", 1, 86400000},
    {"json", OPTION_BOOL, FIELD(json), NULL, NULL, "the same as --output json"},
};
// clang-format on

static const struct cli_spec spec = {
    .options = {.program = "tfctl devices",
                .summary = "Lists the devices of a cluster: its master answers once it has heard "
                           "of all its tasks.",
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "[OPTION]...",
};

static void print_json(const TF_DeviceList *list, TF_Status *status, struct str *out) {
    int n = TF_DeviceListCount(list);
    str_add(out, "[");
    for (int i = 0; i < n; i++) {
        const char *name = TF_DeviceListName(list, i, status),
                   *type = TF_DeviceListType(list, i, status);
        str_addf(out, "%s\n  {\"name\": \"", i > 0 ? "," : "");
        str_add_json_escaped(out, name, strlen(name));
        str_add(out, "\", \"type\": \"");
        str_add_json_escaped(out, type, strlen(type));
        str_addf(out, "\", \"memory_bytes\": %" PRId64 ", \"incarnation\": \"%016" PRIx64 "\"}",
                 TF_DeviceListMemoryBytes(list, i, status),
                 TF_DeviceListIncarnation(list, i, status));
    }
    str_add(out, "\n]\n");
}

static void add_memory(int64_t bytes, struct str *out) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double shown = (double)bytes;
    size_t unit = 0;
    for (; shown >= 1024 && unit + 1 < ARRAY_LEN(units); unit++)
        shown /= 1024;
    str_addf(out, unit > 0 ? "%.1f %s" : "%.0f %s", shown, units[unit]);
}

static void print_table(const TF_DeviceList *list, TF_Status *status, struct str *out) {
    int n = TF_DeviceListCount(list), width = 4;
    for (int i = 0; i < n; i++)
        width = MAX(width, (int)strlen(TF_DeviceListName(list, i, status)));
    str_addf(out, "%-*s  %-8s  %10s  %s\n", width, "NAME", "TYPE", "MEMORY", "INCARNATION");
    for (int i = 0; i < n; i++) {
        struct str memory = STR_INIT;
        add_memory(TF_DeviceListMemoryBytes(list, i, status), &memory);
        str_addf(out, "%-*s  %-8s  %10s  %016" PRIx64 "\n", width,
                 TF_DeviceListName(list, i, status), TF_DeviceListType(list, i, status),
                 str_text(&memory), TF_DeviceListIncarnation(list, i, status));
        str_fini(&memory);
    }
}

static int list_devices(const struct cli *cli, const struct devices_flags *flags) {
    TF_Status *status = TF_NewStatus(), *ignored = TF_NewStatus();
    struct str out = STR_INIT;
    int code = EXIT_OK;
    TF_DeviceList *list = NULL;
    TF_DeprecatedSession *session =
        remote_session(flags->target, &flags->tls, flags->timeout_ms, status);
    if (session)
        list = TF_DeprecatedSessionListDevices(session, status);
    if (!list) {
        code = remote_fail(cli, status);
    } else {
        (cli_is_json(cli) ? print_json : print_table)(list, status, &out);
        fputs(str_text(&out), stdout);
    }
    TF_DeleteDeviceList(list);
    TF_DeleteDeprecatedSession(session, ignored);
    TF_DeleteStatus(status);
    TF_DeleteStatus(ignored);
    str_fini(&out);
    return code;
}

static int run(struct cli *cli, void *arg) {
    struct devices_flags *flags = arg;
    if (flags->json)
        cli->output = CLI_OUTPUT_JSON;
    struct status *st = remote_target(flags->target, &flags->target);
    return st ? cli_fail_usage(cli, st) : list_devices(cli, flags);
}

int tfctl_devices(int argc, char **argv) {
    struct devices_flags flags = {.target = NULL};
    return cli_main(&spec, &flags, argc, argv, run);
}
