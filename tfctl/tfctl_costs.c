/* tfctl costs: prints what executions of nodes have taken, as the master has measured it. */
#include <stdio.h>
#include <stdlib.h>

#include "client/tls_client.h"
#include "rpc/membership/http_client.h"
#include "tfctl/admin_address.h"
#include "tfctl/cli.h"
#include "tfctl/tfctl.h"

enum { MAX_PAGE_BYTES = 16 << 20 };

struct costs_flags {
    const char *target, *admin;
    int64_t timeout_ms;
    struct tls_client tls;
};

#define ROW(name_, kind_, field, default_, value_, help_)                            \
    .name = (name_), .kind = (kind_), .offset = offsetof(struct costs_flags, field), \
    .default_text = (default_), .value_name = (value_), .help = (help_)

// clang-format off
static const struct option_row rows[] = {
    {ROW("admin", OPTION_STRING, admin, NULL, "ADDRESS",
        "the master's admin port, HOST:PORT or https://HOST:PORT, or its --admin-socket, unix:PATH "
        "(default: the target's port + 10000, https for grpcs://)")},
    {ROW("tls-ca", OPTION_STRING, tls.ca, NULL, "PATH",
        "with https, the authorities that vouch for the master (PEM; default $MILLRACE_TLS_CA)")},
    {ROW("tls-cert", OPTION_STRING, tls.cert, NULL, "PATH",
        "with https, this client's certificate (PEM; default $MILLRACE_TLS_CERT)")},
    {ROW("tls-key", OPTION_STRING, tls.key, NULL, "PATH",
        "the private key of --tls-cert (PEM; default $MILLRACE_TLS_KEY)")},
    {ROW("target", OPTION_STRING, target, NULL, "URL",
        "the master, grpc://HOST:PORT or grpcs://HOST:PORT (default $MILLRACE_TARGET)")},
    {ROW("timeout", OPTION_DURATION, timeout_ms, "10s", "TIME",
        "how long to wait for the answer"), .min = 1, .max = 86400000},
};
// clang-format on

static const struct cli_spec spec = {
    .options = {.program = "tfctl costs",
                .summary =
                    "Prints the measured costs of nodes as a JSON list: op, type, shapes and "
                    "device, the time of an execution, and how many were measured.",
                .rows = rows,
                .n_rows = ARRAY_LEN(rows)},
    .usage = "[OPTION]...",
};

struct costs_call {
    struct http_call call;
    struct http_client *http;
    struct loop *loop;
    struct status *status;
};

static void on_page(struct http_call *call, struct status *status_take, int http_code,
                    struct span body) {
    struct costs_call *costs = CONTAINER_OF(call, struct costs_call, call);
    costs->status = status_take;
    if (!status_take && http_code != 200)
        costs->status = status_new(STATUS_INTERNAL, "the master answered with HTTP status %d: %.*s",
                                   http_code, (int)MIN(body.len, (size_t)300), body.data);
    else if (!status_take)
        fwrite(body.data, 1, body.len, stdout);
    http_client_close(costs->http, NULL, NULL);
    loop_stop(costs->loop);
}

static struct status *ask(struct costs_call *costs, const struct costs_flags *flags,
                          const char *admin) {
    struct str url = STR_INIT;
    struct tls_client tls = flags->tls;
    const char *unix_path;
    TRY(http_client_new(costs->loop, &costs->http));
    tls_client_fill(&tls);
    admin_address_page(admin, "/costz", &url, &unix_path);
    costs->call.on_done = on_page;
    http_call_start(costs->http, &costs->call,
                    &(struct http_request){.url = str_text(&url),
                                           .timeout_ms = flags->timeout_ms,
                                           .unix_path = unix_path,
                                           .max_body_bytes = MAX_PAGE_BYTES,
                                           .ca_file = tls.ca,
                                           .cert_file = tls.cert,
                                           .key_file = tls.key});
    str_fini(&url);
    return NULL;
}

static int run_costs(const struct costs_flags *flags, const char *admin) {
    struct costs_call costs = {.loop = loop_new()};
    struct status *st = ask(&costs, flags, admin);
    if (st)
        loop_stop(costs.loop);
    loop_run(costs.loop);
    loop_free(costs.loop);
    st = st ? st : costs.status;
    int code = !st ? EXIT_OK : status_code(st) == STATUS_UNAVAILABLE ? EXIT_IO : EXIT_INTERNAL;
    if (st)
        fprintf(stderr, "tfctl costs: %s: %s\n", status_code_name(status_code(st)),
                status_message(st));
    status_unref(st);
    return code;
}

int tfctl_costs(int argc, char **argv) {
    struct costs_flags flags = {0};
    struct cli cli;
    struct str admin = STR_INIT;
    int code = EXIT_OK;
    cli_init(&cli, &spec, &flags);
    if (cli_load(&cli, &spec, argc, argv, &code) == OPTIONS_GO_ON) {
        struct status *st = admin_address_find(flags.admin, flags.target, &admin);
        code = st ? cli_usage_error(&spec, st) : run_costs(&flags, str_text(&admin));
    }
    cli_fini(&cli);
    str_fini(&admin);
    return code;
}
